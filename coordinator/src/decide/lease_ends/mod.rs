//! How a lease begins and ends: granted, kept, given back, expired, crashed, settled.

pub(super) mod crash;
pub(super) mod expire;
pub(super) mod lease;
pub(super) mod release;
pub(super) mod settle;
pub(super) mod standing;
