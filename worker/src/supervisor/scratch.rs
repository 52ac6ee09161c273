//! The folders of runs: each is created for one run under one epoch, and removed when its process has ended.
//!
//! Each supervisor has its own folder, locked while it lives. The next supervisor to start in the same place removes
//! the folders of dead ones. Invariant: a folder is removed only while its lock is held, so never under a living
//! supervisor; and a folder is created and locked, and inspected by others, under the lock of the whole place, so
//! never between its creation and its locking.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use docket_schema::{
    api::Lease,
    ids::{IncarnationId, RunId},
};
use nix::fcntl::{Flock, FlockArg};

use super::report::SupervisorError;
use crate::progress;

/// Name of the lock file in a supervisor's folder. The place that contains them all is locked itself.
const LOCK_FILE: &str = "lock";

/// Bytes reserved for a fault report: more than any report needs, and written in advance because the fault may be a
/// full disk.
pub(crate) const FAULT_NOTE_BYTES: usize = 8 * 1024;

/// A supervisor's own folder, locked; or the temporary one of a command that needs a workspace.
#[derive(Debug)]
pub struct ScratchFolder {
    root: PathBuf,
    _lock: Flock<File>,
}

impl ScratchFolder {
    /// Creates the folder of `incarnation` under `place`, and removes those of dead supervisors.
    ///
    /// # Errors
    /// [`SupervisorError::Folder`]: a folder cannot be created or locked.
    pub fn open(place: &Path, incarnation: IncarnationId) -> Result<Self, SupervisorError> {
        let root = place.join(incarnation.to_string());
        let failed = |source| SupervisorError::Folder { path: root.clone(), source };
        if !place.is_absolute() {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(place).map_err(failed)?;
        // Held by others only while they create or inspect folders, never during removal, so the wait is short.
        let whole =
            File::open(place).and_then(|place| lock_file(place, FlockArg::LockExclusive)).map_err(failed)?;
        DirBuilder::new().mode(0o700).create(&root).map_err(failed)?;
        let lock = File::create(root.join(LOCK_FILE))
            .and_then(|lock| lock_file(lock, FlockArg::LockExclusiveNonblock))
            .map_err(failed)?;
        let dead = lock_dead_folders(place, &root);
        drop(whole);
        remove_dead_folders(dead);
        Ok(Self { root, _lock: lock })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder in which a lease's run works, and the files its process writes its notes to.
    pub(super) fn run_folder_for(&self, lease: &Lease) -> RunFolder {
        self.run_folder(lease.run, lease.epoch.0)
    }

    fn run_folder(&self, run: RunId, epoch: u64) -> RunFolder {
        let name = format!("{run}-{epoch}");
        RunFolder {
            log: self.root.join(format!("{name}.log")),
            progress: self.root.join(format!("{name}.progress")),
            fault: self.root.join(format!("{name}.fault")),
            workspace: self.root.join(name),
        }
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = remove_folder(&self.root) {
            tracing::warn!(folder = %self.root.display(), %error, "folder not removed; the next worker tries again");
        }
    }
}

/// The folder and files of one run process.
#[derive(Debug, Clone)]
pub(super) struct RunFolder {
    pub(super) workspace: PathBuf,
    pub(super) log: PathBuf,
    /// The progress note of the run process: outside its folder, out of reach of its commands.
    pub(super) progress: PathBuf,
    /// The file for its report of a worker fault.
    pub(super) fault: PathBuf,
}

impl RunFolder {
    pub(super) fn create_files(&self) -> io::Result<()> {
        progress::create_note(&self.progress)?;
        fs::write(&self.fault, [b' '; FAULT_NOTE_BYTES])?;
        DirBuilder::new().mode(0o700).create(&self.workspace)
    }

    /// Removes them. Called when no process of the run is left.
    pub(super) fn remove_files(&self) {
        let files = [&self.log, &self.progress, &self.fault].map(fs::remove_file);
        for gone in std::iter::once(remove_folder(&self.workspace)).chain(files) {
            match gone {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(folder = %self.workspace.display(), %error, "a run's folder was not removed");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Removes a folder regardless of the modes that a run's commands set in it.
fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(path)?;
            fs::remove_dir_all(path)
        }
        done => done,
    }
}

fn make_writable(dir: &Path) -> io::Result<()> {
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            // The type of the entry itself, not of a link's target.
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(())
}

fn lock_file(file: File, how: FlockArg) -> io::Result<Flock<File>> {
    Flock::lock(file, how).map_err(|(_, errno)| errno.into())
}

/// Returns the folders of dead supervisors, each with its lock.
fn lock_dead_folders(place: &Path, own: &Path) -> Vec<(PathBuf, Flock<File>)> {
    let Ok(entries) = fs::read_dir(place) else { return Vec::new() };
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        path != own && name.is_some_and(|name| name.parse::<IncarnationId>().is_ok())
    };
    let lock_of = |path: PathBuf| {
        // A folder without a lock file was never a supervisor's, or is being removed.
        let lock = File::open(path.join(LOCK_FILE)).ok()?;
        let held = Flock::lock(lock, FlockArg::LockExclusiveNonblock).ok()?;
        Some((path, held))
    };
    entries.flatten().map(|entry| entry.path()).filter(ours).filter_map(lock_of).collect()
}

fn remove_dead_folders(dead: Vec<(PathBuf, Flock<File>)>) {
    for (path, held) in dead {
        if let Err(error) = remove_folder(&path) {
            tracing::warn!(folder = %path.display(), %error, "a dead worker's folder was not removed");
        }
        drop(held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incarnation(n: u128) -> IncarnationId {
        IncarnationId(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn dead_workers_folders_are_removed_and_live_ones_stay() {
        let place = tempfile::tempdir().unwrap();
        let living = ScratchFolder::open(place.path(), incarnation(1)).unwrap();
        let dead = place.path().join(incarnation(2).to_string());
        fs::create_dir_all(dead.join("run/deep")).unwrap();
        fs::write(dead.join(LOCK_FILE), "").unwrap();
        fs::set_permissions(dead.join("run"), fs::Permissions::from_mode(0o500)).unwrap();
        let foreign = place.path().join("notes");
        fs::create_dir(&foreign).unwrap();

        let third = ScratchFolder::open(place.path(), incarnation(3)).unwrap();
        assert!(!dead.exists());
        assert!(foreign.exists() && living.root().exists() && third.root().exists());
        let folder = third.run_folder(RunId(uuid::Uuid::nil()), 4);
        folder.create_files().unwrap();
        fs::write(&folder.log, "x").unwrap();
        assert!(folder.create_files().is_err(), "a folder is made new");
        folder.remove_files();
        assert!(!folder.workspace.exists() && !folder.log.exists());
        let root = third.root().to_owned();
        drop(third);
        assert!(!root.exists());
    }

    #[test]
    fn workers_starting_together_keep_their_folders() {
        const WORKERS: u128 = 8;
        for round in 0..40 {
            let place = tempfile::tempdir().unwrap();
            let together = std::sync::Barrier::new(WORKERS as usize);
            let open = |n: u128| {
                together.wait();
                ScratchFolder::open(place.path(), incarnation(n)).unwrap()
            };
            let all: Vec<ScratchFolder> = std::thread::scope(|scope| {
                let open = &open;
                let starts: Vec<_> = (1..=WORKERS).map(|n| scope.spawn(move || open(n))).collect();
                starts.into_iter().map(|start| start.join().unwrap()).collect()
            });
            for scratch in &all {
                let folder = scratch.run_folder(RunId(uuid::Uuid::nil()), 1);
                folder.create_files().unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
        }
    }

    #[test]
    fn relative_path_is_rejected() {
        let error = ScratchFolder::open(Path::new("here"), incarnation(1)).unwrap_err();
        assert!(error.to_string().contains("must be absolute"), "{error}");
    }
}
