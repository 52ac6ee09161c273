//! `docket bench`: about a dozen figures for sizing a machine for docket.
//!
//! Uses real stores, a real coordinator and a real worker with run processes and a sandbox; only
//! the model is scripted. The command fails and names each declared figure that could not be
//! measured. The developers' benchmarks, with targets, are in `docket-bench` (`tests/bench`).

mod command;
mod report;
mod runs;
mod store;

pub(crate) use command::{BenchArgs, run_bench};
