//! Where a sandbox's inits come from: each is put into the sandbox's control group before it is told anything, and the
//! next one is made ready while nobody waits.
//!
//! To move a process into a group makes the kernel wait for every processor once, some milliseconds where nothing was
//! moved lately, and walls take some more. A spare that has its group and its walls, and waits for a command, takes both
//! out of a call. It has run nothing, and nothing of an earlier call can reach it.

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

/// An init that waits for its orders.
pub(super) struct SandboxInit {
    /// Its outputs are pipes.
    pub(super) child: Child,
    /// Orders go in, the report comes out.
    pub(super) control: UnixStream,
    /// Goes last: a group that has a process in it cannot be removed, and a closed socket ends the process.
    _group: Option<Arc<Cgroup>>,
}

/// See the module.
pub(super) struct InitPool {
    program: InitProgram,
    /// What every init of the sandbox is told first, as a frame.
    plan: Vec<u8>,
    /// The workspace on the host, where there are walls.
    workspace: Option<PathBuf>,
    spare: Mutex<Option<JoinHandle<io::Result<SpareInit>>>>,
    group: Option<Arc<Cgroup>>,
}

/// An init made ready, and the folder it has laid as its workspace.
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

    /// Space of files without a name that commands hold.
    pub(super) fn deleted_file_bytes(&self) -> u64 {
        match (&self.group, self.workspace_identity()) {
            (Some(group), Some((device, _))) => group.deleted_file_bytes(device),
            _ => 0,
        }
    }

    /// What the kernel had to do in the group so far.
    pub(super) fn interventions(&self) -> KernelInterventions {
        self.group.as_ref().map(|group| group.interventions()).unwrap_or_default()
    }

    /// An init in its group that knows the plan.
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

    /// A new one with these outputs.
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
        // An init that dies early breaks this pipe; its missing report says so.
        let _ = control.write_all(&self.plan).await;
        Ok(SandboxInit { child, control, _group: self.group.clone() })
    }

    /// Makes one ready. It ends by itself when its socket is closed, which the end of this process does too.
    pub(super) fn prepare_spare(self: &Arc<Self>) {
        // Without walls there is little to make ready.
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

    /// Which folder the workspace is now: one that was made anew in its place is another.
    fn workspace_identity(&self) -> Option<(u64, u64)> {
        let meta = std::fs::symlink_metadata(self.workspace.as_ref()?).ok()?;
        Some((meta.dev(), meta.ino()))
    }
}
