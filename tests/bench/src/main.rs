//! `docket-bench`: measures docket's resource usage, figure by figure, for docket's developers.
//!
//! Contains the measurements and nothing of what is measured: real stores, the real HTTP API, and real
//! supervisors and run processes of a `docket` binary built next to this one; only the model is synthetic. A
//! measured group must provide all of its figures: a missing or impossible one fails the program and is
//! named. A figure of a group that was left out is null with its reason, never 0. `docket bench` has the
//! dozen figures with which a user sizes a machine.
//!
//! Rates are compared with a simultaneous baseline: raw commits alternate with appends, round by round, on
//! the same file system, with the same pragmas and payload.

mod command;
mod groups;
mod harness;
mod output;
mod report;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // The measured sandbox starts this program again as its first process.
    if let Some(args) = docket_sandbox::sandbox_init_args(std::env::args_os()) {
        docket_sandbox::sandbox_init_main(args);
    }
    match run_command(command::BenchArgs::parse()) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => {
            output::print_progress(&format!("error: {error:#}"));
            ExitCode::from(command::BenchExitCode::Failed.code())
        }
    }
}

fn run_command(args: command::BenchArgs) -> anyhow::Result<command::BenchExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let exit = runtime.block_on(Box::pin(command::run_bench(args)));
    // Remaining tasks are only waiting: every measured figure has its value.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    exit
}
