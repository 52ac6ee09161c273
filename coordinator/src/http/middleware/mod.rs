//! What every request passes before its route: authentication, rate limits, strict JSON; and what all routes share.

pub(super) mod api_error;
pub(super) mod api_state;
pub(super) mod auth;
pub(super) mod credentials;
pub(super) mod failpoint;
pub(super) mod meters;
pub(super) mod rate_limit;
pub(super) mod request;
pub(super) mod route;
pub(super) mod run_broadcast;
pub(super) mod sessions;
pub(super) mod strict_json;
