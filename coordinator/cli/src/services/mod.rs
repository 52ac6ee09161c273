//! The processes that stay: coordinator, worker, and both in one home.

pub(crate) mod home_member;
pub(crate) mod serve;
pub(crate) mod supervise;
pub(crate) mod telemetry;
pub(crate) mod up;
pub(crate) mod worker;
