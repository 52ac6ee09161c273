//! The run process: one lease, one run executor, one exit status.
//!
//! It reads its [`RunBootstrap`] from standard input, finishes its turn on SIGTERM, and dies with its supervisor: the
//! lifeline is a pipe that only the supervisor holds open, and the kernel sends a parent-death signal, which reaches
//! even a stopped process.

use std::io::Read as _;

use docket_schema::api::WorkerFault;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{
    errors::{
        error_chain, executor_error::RunExecutorError, host_faults::host_fault, start_error::StartError,
        worker_faults,
    },
    log::journal::JournalError,
    run_loop::run_executor::RunExit,
    startup::start_run::start_run,
};
use crate::{
    bootstrap::{EXIT_DRAINED, EXIT_LEASE_LOST, RunBootstrap},
    process::SupervisorLifeline,
    progress::ProgressNote,
};

/// Largest bootstrap, in bytes: a lease with its task's text and a price table.
const BOOTSTRAP_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Exit status of a run process that could neither do its work nor record why.
const EXIT_FAILED: i32 = 70;

/// Runs one run process to its end and returns its exit status.
pub fn run_process_main() -> i32 {
    // Must precede every file open: the lifeline is identified by its descriptor number.
    if let Some(Err(error)) =
        SupervisorLifeline::from_inherited_fd().map(SupervisorLifeline::exit_with_supervisor)
    {
        tracing::error!(%error, "cannot watch the supervisor's lifeline");
        return EXIT_FAILED;
    }
    let bootstrap = match read_bootstrap() {
        Ok(bootstrap) => bootstrap,
        Err(error) => {
            tracing::error!(%error, "no bootstrap on standard input; this command is for docket's internal use");
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
    runtime.block_on(run_lease(bootstrap))
}

fn read_bootstrap() -> std::io::Result<RunBootstrap> {
    let mut text = Vec::new();
    std::io::stdin().lock().take(BOOTSTRAP_BYTES_MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(std::io::Error::other)
}

async fn run_lease(bootstrap: RunBootstrap) -> i32 {
    let (tell, drain) = watch::channel(false);
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => {
            tracing::error!(%error, "cannot listen for SIGTERM");
            return EXIT_FAILED;
        }
    };
    let listening = tokio::spawn(async move {
        while terminate.recv().await.is_some() {
            tell.send_replace(true);
        }
    });
    // Until the run executor starts, the supervisor's time limit for startup applies.
    let progress = ProgressNote::open(bootstrap.progress.as_deref());
    let note = bootstrap.fault.clone();
    let report = |fault: &WorkerFault| worker_faults::report_fault(note.as_deref(), fault);
    let exit = match Box::pin(start_run(bootstrap, drain)).await {
        Ok(driver) => match Box::pin(driver.run(&progress)).await {
            Ok(RunExit::Done) => 0,
            Ok(RunExit::Drained) => EXIT_DRAINED,
            Err(RunExecutorError::Journal(JournalError::LeaseLost(_))) => EXIT_LEASE_LOST,
            Err(RunExecutorError::Journal(JournalError::Unreachable(error))) => {
                exit_coordinator_unreachable(&error)
            }
            Err(error) if error_chain::is_coordinator_unavailable(&error) => {
                exit_coordinator_unreachable(&error)
            }
            Err(RunExecutorError::WorkerFault(fault)) => report(&fault),
            Err(error) => host_fault(&error).map_or_else(|| exit_failed(&error), |fault| report(&fault)),
        },
        // The run's end is recorded; there is nothing to release.
        Err(StartError::Environment(message) | StartError::Configuration(message)) => {
            tracing::error!(%message, "the run's environment cannot be created");
            0
        }
        Err(StartError::WorkerFault(fault)) => report(&fault),
        Err(StartError::Journal(JournalError::LeaseLost(_))) => EXIT_LEASE_LOST,
        Err(StartError::Journal(JournalError::Unreachable(error))) => exit_coordinator_unreachable(&error),
        Err(StartError::Client(error)) if error.is_retryable() => exit_coordinator_unreachable(&error),
        Err(error @ StartError::CoordinatorUnavailable(_)) => exit_coordinator_unreachable(&error),
        Err(error) => exit_failed(&error),
    };
    listening.abort();
    exit
}

/// Exits after the coordinator was unreachable for a whole lease. Not the run's fault, so no failure is counted. The
/// next worker repeats what was not appended.
fn exit_coordinator_unreachable(error: &dyn std::error::Error) -> i32 {
    tracing::warn!(%error, "the coordinator is unreachable; the run is released");
    EXIT_DRAINED
}

fn exit_failed(error: &(dyn std::error::Error + 'static)) -> i32 {
    let error = error_chain::format_chain(error);
    tracing::error!(%error, "the run process gives up; the run's log holds its state");
    EXIT_FAILED
}
