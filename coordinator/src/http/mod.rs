//! The HTTP API: one table of routes, one file per group of routes.
//!
//! [`router`] has the table and does once what is common to all routes: host check, rate limit,
//! authentication, authorization, size limits, decoding, problem details. A handler gets an
//! [`ApiRequest`] from an authorized caller. Nothing here contains SQL or decides about the queue.

mod answer;
mod api_error;
mod api_state;
mod append;
mod archive;
mod audit;
mod auth;
mod batches;
mod blobs;
mod budgets;
mod bulk;
mod commands;
mod delegate;
mod delivery;
mod event_log;
mod failpoint;
mod fork;
mod fork_retry;
mod health;
mod history;
mod import_and_gc;
mod inbox;
mod lease;
mod lineage;
mod memory;
mod meters;
mod metrics;
mod middleware;
mod notifications;
mod openapi;
mod overview;
mod provider_limits;
mod queues;
mod rate_limit;
mod reports;
mod request;
mod resolve;
mod route;
mod router;
mod run_broadcast;
mod runs;
mod schedules;
mod sessions;
mod sse;
mod status;
mod strict_json;
mod task_policy;
mod tasks;
mod tokens;
mod ui;

#[cfg(test)]
mod tests;

pub use crate::system::ApiToken;
pub use api_state::PollIntervals;
pub(crate) use api_state::{ApiConfig, ApiSettings, ApiState};
pub use auth::RunTokens;
pub use docket_schema::system::TokenRole;
pub use failpoint::LostReply;
pub(crate) use middleware::{AuthenticatedOnce, ConnectionAddrs};
pub use openapi::openapi_document;
pub use rate_limit::RateLimits;
pub(crate) use rate_limit::peer_network;
pub(crate) use router::{build_api_state, build_router};
