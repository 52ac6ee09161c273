//! The HTTP API: one table of routes, one file per group of them.
//!
//! [`router`] holds the table, and everything that is the same for all routes is done there once:
//! host check, token, role, size, decoding, problem details. A route's own code sees a [`Call`]
//! whose caller is known and allowed. Nothing here holds SQL or decides about the queue.

mod api;
mod append;
mod auth;
mod blobs;
mod call;
mod carry;
mod commands;
mod errors;
mod failpoint;
mod feed;
mod fork;
mod health;
mod lease;
mod lineage;
mod openapi;
mod resolve;
mod router;
mod runs;
mod sse;
mod status;
mod tasks;

#[cfg(test)]
mod tests;

pub use api::{Api, Limits};
pub use auth::{ApiToken, Role, RunTokens, TokenTable};
pub(crate) use errors::error_chain;
pub use failpoint::AnswerLost;
pub use openapi::document as openapi_document;
pub(crate) use router::router;
