//! The HTTP API: one table of routes, one file per group of routes.
//!
//! [`router`] has the table and the steps that all routes share: host check, rate limit,
//! authentication, authorization, size limits, decoding, problem details. A handler gets an
//! [`ApiRequest`] from an authorized caller. Nothing here contains SQL or decides about the queue.

mod openapi;
mod router;

pub(crate) mod middleware;
pub(crate) mod routes;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

pub use crate::system::ApiToken;
pub use docket_schema::system::TokenRole;
pub use middleware::api_state::PollIntervals;
pub(crate) use middleware::api_state::{ApiConfig, ApiSettings, ApiState};
pub use middleware::auth::RunTokens;
pub(crate) use middleware::credentials::{AuthenticatedOnce, ConnectionAddrs};
pub use middleware::failpoint::LostReply;
pub use middleware::rate_limit::RateLimits;
pub(crate) use middleware::rate_limit::peer_network;
pub use openapi::openapi_document;
pub(crate) use router::{build_api_state, build_router};
