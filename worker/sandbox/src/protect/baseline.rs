//! One look for all commands that are in a workspace at once: what the first found is what the last puts back.

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

/// Which folder a workspace is, whatever its path.
type FolderId = (u64, u64);

/// What was there before the first of the commands that are in a workspace now.
struct SharedBaseline {
    protected: Arc<ProtectedPaths>,
    commands: usize,
    /// Other processes of docket keep out meanwhile: what one puts back, another must not take for its beginning.
    _lock: Flock<File>,
}

static WORKSPACES: Mutex<Option<HashMap<FolderId, SharedBaseline>>> = Mutex::new(None);

/// A command's share of it.
pub(crate) struct WorkspaceBaseline {
    workspace: PathBuf,
    folder: FolderId,
    protected: Arc<ProtectedPaths>,
    ended: bool,
}

impl WorkspaceBaseline {
    /// Looks through the workspace, unless another command of this process is in it. Blocks as long as that takes.
    ///
    /// # Errors
    /// `WouldBlock` where another process has commands in it; it cannot be looked through.
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

    /// What was there.
    pub(crate) fn protected_paths(&self) -> &ProtectedPaths {
        &self.protected
    }

    /// The command and all it started have ended. The last one makes the workspace what it was, and says what that was.
    ///
    /// # Errors
    /// See [`Protected::restore`].
    pub(crate) fn restore(mut self) -> io::Result<Vec<String>> {
        self.ended = true;
        let mut workspaces = WORKSPACES.lock().unwrap_or_else(PoisonError::into_inner);
        let last = Self::leave_workspace(workspaces.get_or_insert_default(), self.folder);
        // Within the lock, so that no command begins on what is about to be taken away.
        let done = if last.is_some() { self.protected.restore(&self.workspace) } else { Ok(Vec::new()) };
        drop(last);
        done
    }

    /// The share of the last command there.
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
    /// Nobody waited for the command's end: it may still be ending, and nothing is put back.
    fn drop(&mut self) {
        if !self.ended {
            let mut workspaces = WORKSPACES.lock().unwrap_or_else(PoisonError::into_inner);
            drop(Self::leave_workspace(workspaces.get_or_insert_default(), self.folder));
        }
    }
}
