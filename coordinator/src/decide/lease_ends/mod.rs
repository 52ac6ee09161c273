//! How a lease begins and ends: granted, kept, given back, expired, crashed, settled.

pub(super) mod crash;
pub(super) mod expire;
pub(super) mod finish;
pub(super) mod lease;
pub(super) mod lease_status;
pub(super) mod release;
