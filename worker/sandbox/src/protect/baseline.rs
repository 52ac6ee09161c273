//! A baseline shared by all commands that are in a workspace at once: the first command records it, the last
//! restores it.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use nix::fcntl::{Flock, FlockArg};

use super::ProtectedPaths;

/// Identity of a workspace folder, independent of its path.
type FolderId = (u64, u64);

/// State before the first of the commands that are in the workspace now.
struct SharedBaseline {
    protected: Arc<ProtectedPaths>,
    commands: usize,
    /// Keeps out other docket processes: state that one is about to revert must not become the other's
    /// baseline.
    _lock: Flock<File>,
}

static WORKSPACES: Mutex<Option<HashMap<FolderId, SharedBaseline>>> = Mutex::new(None);

/// A command's share of the baseline.
pub(crate) struct WorkspaceBaseline {
    workspace: PathBuf,
    folder: FolderId,
    protected: Arc<ProtectedPaths>,
    ended: bool,
}

impl WorkspaceBaseline {
    /// Scans the workspace, unless another command of this process is already in it. Blocks for the duration
    /// of the scan.
    ///
    /// # Errors
    /// Returns `WouldBlock` if another process runs commands in the workspace, or an error if it cannot be
    /// scanned.
    pub(crate) fn begin(workspace: &Path) -> io::Result<Self> {
        let file = File::open(workspace)?;
        let meta = file.metadata()?;
        let folder = (meta.dev(), meta.ino());
        let mut workspaces = WORKSPACES.lock().unwrap_or_else(PoisonError::into_inner);
        let workspaces = workspaces.get_or_insert_default();
        let before = if let Some(shared) = workspaces.get_mut(&folder) {
            shared.commands += 1;
            Arc::clone(&shared.protected)
        } else {
            let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
            let before = Arc::new(ProtectedPaths::scan(workspace)?);
            workspaces
                .insert(folder, SharedBaseline { protected: Arc::clone(&before), commands: 1, _lock: lock });
            before
        };
        Ok(Self { workspace: workspace.to_owned(), folder, protected: before, ended: false })
    }

    /// Returns the recorded state.
    pub(crate) fn protected_paths(&self) -> &ProtectedPaths {
        &self.protected
    }

    /// Ends the share once the command and everything it started have ended. The last share restores the
    /// workspace and returns the restored paths.
    ///
    /// # Errors
    /// See [`ProtectedPaths::restore`].
    pub(crate) fn restore(mut self) -> io::Result<Vec<String>> {
        self.ended = true;
        let mut workspaces = WORKSPACES.lock().unwrap_or_else(PoisonError::into_inner);
        let last = Self::leave_workspace(workspaces.get_or_insert_default(), self.folder);
        // Restore under the lock, so that no command starts from state that is about to be removed.
        let done = if last.is_some() { self.protected.restore(&self.workspace) } else { Ok(Vec::new()) };
        drop(last);
        done
    }

    /// Removes a share and returns the baseline if it was the last one.
    fn leave_workspace(
        workspaces: &mut HashMap<FolderId, SharedBaseline>,
        folder: FolderId,
    ) -> Option<SharedBaseline> {
        let shared = workspaces.get_mut(&folder)?;
        shared.commands -= 1;
        if shared.commands == 0 { workspaces.remove(&folder) } else { None }
    }
}

impl Drop for WorkspaceBaseline {
    /// The command's end was not awaited: it may still be running, so nothing is restored.
    fn drop(&mut self) {
        if !self.ended {
            let mut workspaces = WORKSPACES.lock().unwrap_or_else(PoisonError::into_inner);
            drop(Self::leave_workspace(workspaces.get_or_insert_default(), self.folder));
        }
    }
}
