//! Registry of the live workers of a home: each holds a locked file in the directory `workers` while its
//! process lives.
//!
//! The process that serves the home looks for files that are no longer locked. Such a worker is dead, and so
//! are its run processes, because they die with their supervisor. Its leases are released at once instead of
//! after the lease timeout, no attempt is counted, and it is marked as drained so that its private queue
//! becomes available to all. The epoch fences anything one of its processes might still send.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::Duration,
};

use docket_schema::{
    api::{ReleaseReason, ReleaseRequest, TaskQuery},
    ids::IncarnationId,
    task::TaskState,
};
use docket_worker::client::{ClientError, CoordinatorClient};
use nix::fcntl::{Flock, FlockArg};

use crate::{
    home::DocketHome,
    output::error::{CliResult, ExitKind, FailWith as _},
};

/// The directory in the home.
const WORKERS_FOLDER: &str = "workers";
/// Maximum leases of dead workers released per scan: more than a machine runs at once.
const RELEASED_LEASES_MAX: u32 = 1000;
/// How often the home's coordinator scans for dead workers.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// The entry of a live worker. The file remains when this is dropped: an unlocked file tells the next scan that
/// the worker has ended, however it ended.
#[derive(Debug)]
pub(crate) struct WorkerRegistration {
    _lock: Flock<File>,
}

impl WorkerRegistration {
    /// Registers the worker of this process.
    pub(crate) fn register(home: &DocketHome, incarnation: IncarnationId) -> CliResult<Self> {
        let folder = home.ensure_folder(WORKERS_FOLDER)?;
        let failed = || format!("cannot register the worker in {}; check its permissions", folder.display());
        // Locked before it is renamed into place: a scan must not mistake a starting worker for a dead one.
        let unnamed = folder.join(format!("{incarnation}.new"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&unnamed);
        let file = file.fail_with(ExitKind::Failed, failed)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno);
        let lock = lock.fail_with(ExitKind::Failed, failed)?;
        std::fs::rename(&unnamed, folder.join(incarnation.to_string()))
            .fail_with(ExitKind::Failed, failed)?;
        Ok(Self { _lock: lock })
    }
}

/// A worker whose process has ended. Its file stays locked while this is handled.
struct DeadWorker {
    incarnation: IncarnationId,
    file: PathBuf,
    _lock: Flock<File>,
}

/// Periodically releases the leases of dead workers of the home.
pub(crate) async fn watch_for_dead_workers(home: &DocketHome, client: &CoordinatorClient) {
    loop {
        release_dead_workers(home, client).await;
        tokio::time::sleep(SCAN_INTERVAL).await;
    }
}

/// Releases the leases of dead workers of the home. Failures are logged and left to the next scan, or to the
/// lease timeout.
pub(crate) async fn release_dead_workers(home: &DocketHome, client: &CoordinatorClient) {
    let dead = dead_workers(home);
    if dead.is_empty() {
        return;
    }
    if let Err(error) = release_leases(client, &dead).await {
        return tracing::warn!(%error, "leases of dead workers are not released yet");
    }
    for worker in dead {
        if let Err(error) = std::fs::remove_file(&worker.file) {
            tracing::warn!(file = %worker.file.display(), %error, "cannot remove a dead worker's file");
        }
    }
}

fn dead_workers(home: &DocketHome) -> Vec<DeadWorker> {
    let Ok(entries) = std::fs::read_dir(home.path().join(WORKERS_FOLDER)) else { return Vec::new() };
    let dead = entries.flatten().filter_map(|entry| {
        let incarnation = entry.file_name().to_str()?.parse().ok()?;
        let file = File::open(entry.path()).ok()?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
        Some(DeadWorker { incarnation, file: entry.path(), _lock: lock })
    });
    dead.collect()
}

async fn release_leases(client: &CoordinatorClient, dead: &[DeadWorker]) -> Result<(), ClientError> {
    let query = TaskQuery {
        state: Some(TaskState::Running.into()),
        limit: Some(RELEASED_LEASES_MAX),
        ..TaskQuery::default()
    };
    let running = client.list_tasks(&query).await?.tasks;
    let is_dead = |holder: IncarnationId| dead.iter().any(|worker| worker.incarnation == holder);
    for task in running.into_iter().filter(|task| task.worker.is_some_and(is_dead)) {
        let request = ReleaseRequest { epoch: task.epoch, why: ReleaseReason::Drained };
        match client.release(task.id, &request).await {
            Ok(_) => tracing::info!(task = %task.id, "released: its worker is dead"),
            Err(error) if error.problem().is_some() && !error.is_retryable() => {
                tracing::info!(task = %task.id, %error, "not released: its lease is held by another worker, or has ended");
            }
            Err(error) => return Err(error),
        }
    }
    for worker in dead {
        match client.drain_worker(worker.incarnation).await {
            // A worker that never requested work is unknown and holds no leases.
            Err(error) if error.problem().is_none() || error.is_retryable() => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_is_dead_once_its_registration_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = DocketHome::open(Some(folder.path())).expect("opens");
        let worker = |n| IncarnationId(uuid::Uuid::from_u128(n));
        let dead = || dead_workers(&home).iter().map(|dead| dead.incarnation).collect::<Vec<_>>();
        assert_eq!(dead(), [], "without a folder, none is dead");
        let one = WorkerRegistration::register(&home, worker(1)).expect("registers");
        let two = WorkerRegistration::register(&home, worker(2)).expect("registers");
        assert_eq!(dead(), []);
        drop(one);
        assert_eq!(dead(), [worker(1)]);
        drop(two);
        assert_eq!(dead().len(), 2);
    }
}
