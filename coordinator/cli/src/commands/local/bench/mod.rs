//! `docket bench`: the dozen figures with which a person sizes a machine for docket.
//!
//! Real stores, a real coordinator, a real worker with its run processes and sandbox; only the model is a script. Every
//! declared figure is measured or fails the command by its name. What docket's developers measure beyond that, with
//! targets, is `docket-bench` (`tests/bench`).

mod command;
mod report;
mod runs;
mod store;

pub(crate) use command::{BenchArgs, run_bench};
