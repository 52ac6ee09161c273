//! Pool of a sandbox's inits. Each init joins the sandbox's control group before it receives the plan, and
//! the next one is prepared in advance.
//!
//! Moving a process into a group makes the kernel wait once for every processor (some milliseconds if none
//! was moved recently), and building the layers takes longer. A spare init that already has its group and
//! layers and waits for a command removes both costs from a call. It has run nothing, and nothing from an
//! earlier call can reach it.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{io::AsyncWriteExt as _, net::UnixStream, process::Child, task::JoinHandle};

use super::{
    cgroup::{Cgroup, KernelInterventions},
    config::InitProgram,
    run::spawn_init,
};

/// An init that waits for its command.
pub(super) struct SandboxInit {
    /// Its outputs are pipes.
    pub(super) child: Child,
    /// Carries the plan in and the report out.
    pub(super) control: UnixStream,
    /// Dropped last: a group that contains a process cannot be removed, and closing the socket ends the
    /// process.
    _group: Option<Arc<Cgroup>>,
}

/// A pool of prepared inits; see the module.
pub(super) struct InitPool {
    program: InitProgram,
    /// The frame with the plan that every init of the sandbox receives first.
    plan: Vec<u8>,
    /// The workspace on the host, if the sandbox is isolated.
    workspace: Option<PathBuf>,
    spare: Mutex<Option<JoinHandle<io::Result<SpareInit>>>>,
    group: Option<Arc<Cgroup>>,
}

/// A prepared init, and the identity of the folder it mounted as its workspace.
struct SpareInit {
    sandbox_init: SandboxInit,
    workspace: Option<(u64, u64)>,
}

impl InitPool {
    pub(super) fn new(
        program: InitProgram,
        plan: Vec<u8>,
        workspace: Option<PathBuf>,
        group: Option<Cgroup>,
    ) -> Self {
        Self { program, plan, workspace, spare: Mutex::new(None), group: group.map(Arc::new) }
    }

    pub(super) const fn program(&self) -> &InitProgram {
        &self.program
    }

    #[cfg(test)]
    pub(super) fn group_name(&self) -> Option<String> {
        self.group.as_ref().map(|group| group.name())
    }

    /// Returns the space of deleted files that commands hold open.
    pub(super) fn deleted_file_bytes(&self) -> u64 {
        match (&self.group, self.workspace_identity()) {
            (Some(group), Some((device, _))) => group.deleted_file_bytes(device),
            _ => 0,
        }
    }

    /// Returns the kernel's counters of the group so far.
    pub(super) fn interventions(&self) -> KernelInterventions {
        self.group.as_ref().map(|group| group.interventions()).unwrap_or_default()
    }

    /// Returns an init that is in its group and has the plan.
    pub(super) async fn take_init(self: &Arc<Self>) -> io::Result<SandboxInit> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(spare) = spare
            && let Ok(Ok(SpareInit { sandbox_init: mut init, workspace })) = spare.await
            && matches!(init.child.try_wait(), Ok(None))
            && workspace == self.workspace_identity()
        {
            return Ok(init);
        }
        self.start_init(Stdio::piped(), Stdio::piped()).await
    }

    /// Starts a new init with these outputs.
    pub(super) async fn start_init(
        self: &Arc<Self>,
        stdout: Stdio,
        stderr: Stdio,
    ) -> io::Result<SandboxInit> {
        let (child, mut control) = spawn_init(&self.program, stdout, stderr)?;
        if let (Some(pid), Some(group)) = (child.id(), self.group.clone()) {
            let adopted = tokio::task::spawn_blocking(move || group.add_process(pid));
            adopted.await.map_err(io::Error::other)??;
        }
        // An init that dies early breaks this pipe; the missing report reveals it.
        let _ = control.write_all(&self.plan).await;
        Ok(SandboxInit { child, control, _group: self.group.clone() })
    }

    /// Prepares a spare init. It exits when its socket closes, which also happens when this process ends.
    pub(super) fn prepare_spare(self: &Arc<Self>) {
        // Without isolation there is little to prepare.
        if self.workspace.is_none() {
            return;
        }
        let this = Arc::clone(self);
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.get_or_insert_with(|| {
            tokio::spawn(async move {
                let workspace = this.workspace_identity();
                let init = this.start_init(Stdio::piped(), Stdio::piped()).await?;
                Ok(SpareInit { sandbox_init: init, workspace })
            })
        });
    }

    /// Returns the identity of the current workspace folder. A folder recreated at the same path is
    /// a different one.
    fn workspace_identity(&self) -> Option<(u64, u64)> {
        let meta = std::fs::symlink_metadata(self.workspace.as_ref()?).ok()?;
        Some((meta.dev(), meta.ino()))
    }
}
