//! Groups at a coordinator: over HTTP, with other processes' clients and followers.

pub(crate) mod followers;
pub(crate) mod http;
pub(crate) mod latency;
pub(crate) mod overview;
pub(crate) mod remote;
pub(crate) mod resume;
