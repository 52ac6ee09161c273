//! Beginning and end of leases: granted, validated, released, expired, crashed, finished.

pub(super) mod crash;
pub(super) mod expire;
pub(super) mod finish;
pub(super) mod lease;
pub(super) mod lease_status;
pub(super) mod release;
