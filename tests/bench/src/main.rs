//! `docket bench`: what this machine can do, so that a person can size one, and what docket adds to it.
//!
//! Owns the measurements and nothing of what is measured: real stores, the real HTTP API, real
//! supervisors and run processes of this same binary; only the model is made up. A group that is measured owes all of its
//! figures: one that is missing, or cannot be true, fails the command by its name. A figure of a group that was left out is
//! null with its reason, never 0.
//!
//! Rates are compared with what ran beside them: raw commits take turns with appends, round by round,
//! on the same file system, with the same pragmas and payload. The raw commits are the only SQL outside
//! the stores.

mod apart;
mod appends;
mod backlog;
mod checkpoints;
mod command;
mod crash;
mod drain;
mod edit;
mod effort;
mod engine;
mod figures;
mod finished;
mod fold;
mod followers;
mod group;
mod http;
mod isolated;
mod latency;
mod listing;
mod long;
mod model_server;
mod overview;
mod places;
mod proc;
mod raw;
mod remote;
mod report;
mod sandbox;
mod search;
mod snapshots;
mod stats;
mod storage;
mod stream;
mod truthful;
mod turns;
mod wire;
mod worker;

#[cfg(test)]
pub(crate) use backlog::put_task;
pub(crate) use command::{Args, run};
