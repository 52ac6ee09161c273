//! `docket-bench`: what docket takes of a machine, figure by figure, for those who work on docket.
//!
//! Owns the measurements and nothing of what is measured: real stores, the real HTTP API, and real supervisors and run
//! processes of a `docket` binary that was built beside this one; only the model is made up. A group that is measured owes
//! all of its figures: one that is missing, or cannot be true, fails the program by its name. A figure of a group that was
//! left out is null with its reason, never 0. The dozen figures with which a user sizes a machine are `docket bench`'s.
//!
//! Rates are compared with what ran beside them: raw commits take turns with appends, round by round,
//! on the same file system, with the same pragmas and payload.

mod command;
mod groups;
mod harness;
mod output;
mod report;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // The sandbox that is measured starts this program again as its first process.
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
    // What is still running is only waiting: everything that was measured has its value.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    exit
}
