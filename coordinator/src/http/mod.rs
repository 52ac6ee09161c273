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
mod base_check;
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
mod metrics;
mod notifications;
mod openapi;
mod overview;
mod pace;
mod past;
mod queues;
mod refused;
mod relay;
mod reports;
mod resolve;
mod router;
mod runs;
mod schedules;
mod sessions;
mod sse;
mod status;
mod strict;
mod table;
mod task_policy;
mod tasks;
mod tokens;
mod ui;

#[cfg(test)]
mod tests;

pub use api::{Api, Limits};
pub use audit::write as write_audit;
pub use auth::{ApiToken, RunTokens};
pub(crate) use base_check::check_base;
pub use docket_schema::system::Role;
pub(crate) use errors::error_chain;
pub use failpoint::AnswerLost;
pub(crate) use guard::{Ends, Proven};
pub(crate) use metrics::HttpMeters;
pub use openapi::document as openapi_document;
pub use pace::Rates;
pub(crate) use pace::{Pace, network};
pub(crate) use past::LOOKS_AT_ONCE;
pub(crate) use refused::RefusedCalls;
pub(crate) use relay::Relays;
pub(crate) use router::router;
pub(crate) use sessions::Sessions;
pub use table::{TokenTable, TokensUnread};
pub(crate) use tasks::checked_spec;
