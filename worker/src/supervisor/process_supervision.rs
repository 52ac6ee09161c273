//! Supervises one run process: folder, start, orders, end, and cleanup.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::{Duration, Instant},
};

use docket_schema::api::{FaultKind, FaultScope, WorkerFault};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::sync::watch;

use super::{
    scratch::{FAULT_NOTE_BYTES, RunFolder},
    state::{LeaseKey, RunEnd, RunMilestone},
};
use crate::{
    process::{ChildError, ChildExit, ChildHandle, ChildSpec, start_child},
    progress::{RunWatch, StallReason, is_past_start, is_stopped},
};

/// How much of a dead run process's last output is inspected: a panic and its backtrace.
const TAIL_BYTES_MAX: u64 = 16 * 1024;
/// Lines of it that are logged at most.
const TAIL_LINES_MAX: usize = 20;
/// Longest line that is logged, in characters.
const TAIL_LINE_CHARS_MAX: usize = 300;

/// An order to a run process. A later variant overrides an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessOrder {
    /// Work.
    Run,
    /// Finish the turn.
    Terminate,
    /// End at once.
    Kill,
}

/// Starts a run process and supervises it until no process of its session is left.
pub(super) async fn supervise_process(
    key: LeaseKey,
    spec: ChildSpec,
    folder: RunFolder,
    mut orders: watch::Receiver<ProcessOrder>,
    hang_after: Option<Duration>,
) -> EndedProcess {
    let started = async {
        let made = folder.clone();
        let made = tokio::task::spawn_blocking(move || made.create_files()).await;
        made.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into())).map_err(StartFailure::Folder)?;
        start_child(spec).await.map_err(StartFailure::Child)
    };
    let mut early = orders.clone();
    let started = tokio::select! {
        started = started => Some(started),
        // Dropping the start kills the partly started process.
        _ = early.wait_for(|order| *order == ProcessOrder::Kill) => None,
    };
    let mut fault = None;
    let end = match started {
        Some(Ok(mut child)) => {
            let stalled = wait_until_stalled(child.pid(), &folder.progress, hang_after);
            watch_process(&mut child, &mut orders, stalled).await
        }
        Some(Err(error)) => {
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::error!(task = %key.task, error, "run process not started");
            let message = format!("a run process cannot be started: {}", format_causes(error));
            fault = Some(WorkerFault::new(FaultKind::Host, FaultScope::AnyTask, &message));
            RunEnd::WorkerFault
        }
        None => RunEnd::Signalled(Signal::SIGKILL as i32),
    };
    if matches!(end, RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_)) {
        let log = folder.log.clone();
        for line in tokio::task::spawn_blocking(move || read_log_tail(&log)).await.unwrap_or_default() {
            tracing::warn!(task = %key.task, epoch = key.epoch.0, "run process output: {line}");
        }
    }
    if end == RunEnd::WorkerFault && fault.is_none() {
        let note = folder.fault.clone();
        fault = tokio::task::spawn_blocking(move || read_fault(&note)).await.ok().flatten();
    }
    let note = folder.progress.clone();
    let has_worked = tokio::task::spawn_blocking(move || is_past_start(&note)).await.unwrap_or(false);
    let reach = match (has_worked, end == RunEnd::Finished) {
        (false, _) => RunMilestone::Starting,
        (true, false) => RunMilestone::Working,
        (true, true) => RunMilestone::Ended,
    };
    EndedProcess { key, end, reach, fault, folder }
}

/// Reads the fault that a run process reported.
fn read_fault(note: &Path) -> Option<WorkerFault> {
    let mut text = Vec::new();
    File::open(note).and_then(|file| file.take(FAULT_NOTE_BYTES as u64).read_to_end(&mut text)).ok()?;
    let fault: WorkerFault = serde_json::from_slice(&text).ok()?;
    Some(WorkerFault::new(fault.kind, fault.scope, &fault.message))
}

fn format_causes<'a>(error: &'a (dyn std::error::Error + 'static)) -> String {
    let cause_of = |cause: &&'a (dyn std::error::Error + 'static)| (*cause).source();
    let causes = std::iter::successors(error.source(), cause_of);
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// A run process that has ended, and the folder it leaves.
#[derive(Debug)]
pub(super) struct EndedProcess {
    pub(super) key: LeaseKey,
    pub(super) end: RunEnd,
    /// How far it got.
    pub(super) reach: RunMilestone,
    /// Its report, if a fault of this worker ended it.
    pub(super) fault: Option<WorkerFault>,
    pub(super) folder: RunFolder,
}

/// Why the process could not be started.
#[derive(Debug, thiserror::Error)]
enum StartFailure {
    #[error("its folder cannot be created")]
    Folder(#[source] std::io::Error),
    #[error("it cannot be started")]
    Child(#[source] ChildError),
}

/// Returns when a run process has to be given up, with the reason.
async fn wait_until_stalled(pid: i32, note: &Path, cap: Option<Duration>) -> StallReason {
    let mut watch = RunWatch::new(cap, Instant::now());
    loop {
        tokio::time::sleep(watch.check_interval()).await;
        // An unreadable note counts as unchanged.
        let text = tokio::fs::read(note).await.unwrap_or_default();
        if let Some(reason) = watch.check_stall(&text, is_stopped(pid), Instant::now()) {
            return reason;
        }
    }
}

async fn watch_process(
    child: &mut ChildHandle,
    orders: &mut watch::Receiver<ProcessOrder>,
    stalled: impl Future<Output = StallReason>,
) -> RunEnd {
    let pid = child.pid();
    let mut stalled = std::pin::pin!(stalled);
    let mut given_up = None;
    let mut open = true;
    let mut done = ProcessOrder::Run;
    loop {
        let order = *orders.borrow_and_update();
        if order != done {
            done = order;
            match order {
                ProcessOrder::Run => {}
                // ESRCH, and not another process: only `wait` below reaps the child, so its id cannot have been
                // reused.
                ProcessOrder::Terminate => {
                    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                }
                ProcessOrder::Kill => {
                    // The leader first: it must not see its children die and mistake that for their own end.
                    child.kill_group();
                    kill_session(pid);
                }
            }
        }
        tokio::select! {
            exit = child.wait() => {
                let end = match exit {
                    Ok(ChildExit::Exit(status)) => RunEnd::from_status(status),
                    Ok(ChildExit::Signal(signal)) => RunEnd::Signalled(signal),
                    Err(error) => {
                        tracing::error!(%error, "cannot wait for a run process");
                        RunEnd::Signalled(Signal::SIGKILL as i32)
                    }
                };
                match end {
                    RunEnd::Finished | RunEnd::Drained | RunEnd::LeaseLost | RunEnd::WorkerFault => {}
                    RunEnd::Exited(_) | RunEnd::Signalled(_) | RunEnd::Stalled(_) => kill_session(pid),
                }
                return match (end, given_up) {
                    (RunEnd::Signalled(signal), Some(reason)) if signal == Signal::SIGKILL as i32 => {
                        RunEnd::Stalled(reason)
                    }
                    (end, _) => end,
                };
            }
            changed = orders.changed(), if open => open = changed.is_ok(),
            reason = &mut stalled, if given_up.is_none() => {
                tracing::warn!(pid, end = %RunEnd::Stalled(reason), "giving up a run process");
                given_up = Some(reason);
                child.kill_group();
                kill_session(pid);
            }
        }
    }
}

/// Kills processes that a run process started in other groups (git): they share its session. A killed process could
/// not end them itself.
fn kill_session(session: i32) {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if pid != session && read_session_id(&entry.path()) == Some(session) {
            // ESRCH: it has ended by itself in the meantime.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn read_session_id(proc: &Path) -> Option<i32> {
    let stat = std::fs::read_to_string(proc.join("stat")).ok()?;
    // After the name in parentheses, which may contain anything: state, parent, group, session.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(3)?.parse().ok()
}

fn read_log_tail(log: &Path) -> Vec<String> {
    let read = || {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
        std::io::Result::Ok(bytes)
    };
    let text = read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(TAIL_LINES_MAX);
    lines[from..].iter().map(|line| line.chars().take(TAIL_LINE_CHARS_MAX).collect()).collect()
}
