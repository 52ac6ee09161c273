//! The run process: one lease, one driver, one exit status.
//!
//! Takes its [`Bootstrap`] from standard input, ends its turn on SIGTERM, and dies with its
//! supervisor: the lifeline is a pipe that only the supervisor holds open, and the kernel sends a
//! parent-death signal, which one that is stopped cannot miss.

use std::io::Read as _;

use docket_schema::wire::WorkerFault;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{
    errors::{
        causes, driver_error::DriverError, faults, host_faults::fault_of_host, start_error::StartError,
    },
    log::journal::JournalError,
    run_loop::turn::RunExit,
    startup::start::start,
};
use crate::{
    bootstrap::{Bootstrap, EXIT_DRAINED, EXIT_LEASE_LOST},
    process::Lifeline,
    progress::ProgressNote,
};

/// Largest bootstrap, in bytes: a lease with its task's text and a price table.
const BOOTSTRAP_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Exit status of a run process that could not do its work and could not record why.
const EXIT_FAILED: i32 = 70;

/// Runs one run process to its end and gives its exit status.
pub fn run_process_main() -> i32 {
    // Before anything opens a file: the lifeline is found by its number.
    if let Some(Err(error)) = Lifeline::inherited().map(Lifeline::end_with_it) {
        tracing::error!(%error, "the supervisor's lifeline cannot be watched");
        return EXIT_FAILED;
    }
    let bootstrap = match bootstrap() {
        Ok(bootstrap) => bootstrap,
        Err(error) => {
            tracing::error!(%error, "no bootstrap on standard input; this command is docket's own");
            return EXIT_FAILED;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return EXIT_FAILED;
        }
    };
    runtime.block_on(run(bootstrap))
}

fn bootstrap() -> std::io::Result<Bootstrap> {
    let mut text = Vec::new();
    std::io::stdin().lock().take(BOOTSTRAP_BYTES_MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(std::io::Error::other)
}

async fn run(bootstrap: Bootstrap) -> i32 {
    let (tell, drain) = watch::channel(false);
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::error!(%error, "SIGTERM cannot be listened to");
            return EXIT_FAILED;
        }
    };
    let listening = tokio::spawn(async move {
        while terminate.recv().await.is_some() {
            tell.send_replace(true);
        }
    });
    // Until the driver runs, the time that the supervisor grants to a start counts.
    let progress = ProgressNote::open(bootstrap.progress.as_deref());
    let note = bootstrap.fault.clone();
    let report = |fault: &WorkerFault| faults::report(note.as_deref(), fault);
    let exit = match Box::pin(start(bootstrap, drain)).await {
        Ok(driver) => match Box::pin(driver.run(&progress)).await {
            Ok(RunExit::Done) => 0,
            Ok(RunExit::Drained) => EXIT_DRAINED,
            Err(DriverError::Journal(JournalError::LeaseLost(_))) => EXIT_LEASE_LOST,
            Err(DriverError::Journal(JournalError::Unreachable(error))) => out_of_reach(&error),
            Err(error) if causes::is_away(&error) => out_of_reach(&error),
            Err(DriverError::Worker(fault)) => report(&fault),
            Err(error) => fault_of_host(&error).map_or_else(|| failed(&error), |fault| report(&fault)),
        },
        // The run's end is recorded: there is nothing to release.
        Err(StartError::Environment(message) | StartError::Configuration(message)) => {
            tracing::error!(%message, "the run's environment cannot be made");
            0
        }
        Err(StartError::Worker(fault)) => report(&fault),
        Err(StartError::Journal(JournalError::LeaseLost(_))) => EXIT_LEASE_LOST,
        Err(StartError::Journal(JournalError::Unreachable(error))) => out_of_reach(&error),
        Err(StartError::Client(error)) if error.is_retryable() => out_of_reach(&error),
        Err(error @ StartError::Away(_)) => out_of_reach(&error),
        Err(error) => failed(&error),
    };
    listening.abort();
    exit
}

/// The coordinator was out of reach for a whole lease: no fault of the run, so nothing is counted.
/// What was not appended is done again by whoever goes on.
fn out_of_reach(error: &dyn std::error::Error) -> i32 {
    tracing::warn!(%error, "the coordinator is out of reach; the run is given back");
    EXIT_DRAINED
}

fn failed(error: &(dyn std::error::Error + 'static)) -> i32 {
    let error = causes::told(error);
    tracing::error!(%error, "the run process gives up; its log says where the run stands");
    EXIT_FAILED
}
