//! Groups at a coordinator: over HTTP, with other processes' clients and followers.

pub(crate) mod followers;
pub(crate) mod http_appends;
pub(crate) mod http_drain;
pub(crate) mod lease_latency;
pub(crate) mod overview;
pub(crate) mod resume_latency;
