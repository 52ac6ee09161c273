//! Groups that measure a coordinator over HTTP, with clients and followers in other processes.

pub(crate) mod followers;
pub(crate) mod http_appends;
pub(crate) mod http_drain;
pub(crate) mod lease_latency;
pub(crate) mod overview;
pub(crate) mod resume_latency;
