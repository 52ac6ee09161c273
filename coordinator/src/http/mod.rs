//! The HTTP API: one table of routes, one file per group of them.
//!
//! [`router`] holds the table, and everything that is the same for all routes is done there once:
//! host check, pace, token, role, size, decoding, problem details. A route's own code sees a [`Call`]
//! whose caller is known and allowed. Nothing here holds SQL or decides about the queue.

mod again;
mod answer;
mod api;
mod append;
mod archive;
mod audit;
mod auth;
mod batches;
mod blobs;
mod budgets;
mod bulk;
mod call;
mod carry;
mod commands;
mod delegate;
mod delivery;
mod errors;
mod failpoint;
mod feed;
mod fork;
mod guard;
mod health;
mod inbox;
mod lease;
mod limits;
mod lineage;
mod memory;
mod meters;
mod metrics;
mod notifications;
mod openapi;
mod overview;
mod pace;
mod past;
mod queues;
mod relay;
mod reports;
mod resolve;
mod route;
mod router;
mod runs;
mod schedules;
mod sessions;
mod sse;
mod status;
mod strict;
mod task_policy;
mod tasks;
mod tokens;
mod ui;

#[cfg(test)]
mod tests;

pub use crate::system::ApiToken;
pub use api::Polls;
pub(crate) use api::{Api, ApiConfig, Limits};
pub use auth::RunTokens;
pub use docket_schema::system::Role;
pub use failpoint::AnswerLost;
pub(crate) use guard::{Ends, Proven};
pub use openapi::document as openapi_document;
pub use pace::Rates;
pub(crate) use pace::network;
pub(crate) use router::{build_api, router};
