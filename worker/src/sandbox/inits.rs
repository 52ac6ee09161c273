//! Where a sandbox's inits come from: each is put into the sandbox's control group before it is told anything, and the
//! next one is made ready while nobody waits.
//!
//! To move a process into a group makes the kernel wait for every processor once, some milliseconds where nothing was
//! moved lately. A spare that was moved beforehand takes that, and its own start, out of a call.

use std::{
    io,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{net::UnixStream, process::Child};

use super::{
    cgroup::{Cgroup, Interventions},
    config::InitProgram,
    run::start_init,
};

/// An init that waits for its orders.
pub(super) struct Init {
    /// Its outputs are pipes.
    pub(super) child: Child,
    /// Orders go in, the report comes out.
    pub(super) control: UnixStream,
}

/// See the module.
pub(super) struct Inits {
    program: InitProgram,
    spare: Mutex<Option<Init>>,
    group: Option<Cgroup>,
}

impl Inits {
    pub(super) const fn new(program: InitProgram, group: Option<Cgroup>) -> Self {
        Self { program, spare: Mutex::new(None), group }
    }

    pub(super) const fn program(&self) -> &InitProgram {
        &self.program
    }

    #[cfg(test)]
    pub(super) fn group_name(&self) -> Option<String> {
        self.group.as_ref().map(Cgroup::name)
    }

    /// What the kernel had to do in the group so far.
    pub(super) fn interventions(&self) -> Interventions {
        self.group.as_ref().map(Cgroup::interventions).unwrap_or_default()
    }

    /// An init in its group.
    pub(super) async fn take(self: &Arc<Self>) -> io::Result<Init> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut init) = spare
            && matches!(init.child.try_wait(), Ok(None))
        {
            return Ok(init);
        }
        self.start(Stdio::piped(), Stdio::piped()).await
    }

    /// A new one with these outputs.
    pub(super) async fn start(self: &Arc<Self>, stdout: Stdio, stderr: Stdio) -> io::Result<Init> {
        let (child, control) = start_init(&self.program, stdout, stderr)?;
        if let (Some(pid), true) = (child.id(), self.group.is_some()) {
            let this = Arc::clone(self);
            let adopted = tokio::task::spawn_blocking(move || match &this.group {
                Some(group) => group.adopt(pid),
                None => Ok(()),
            });
            adopted.await.map_err(io::Error::other)??;
        }
        Ok(Init { child, control })
    }

    /// Makes one ready. It ends by itself when its socket is closed, which the end of this process does too.
    pub(super) fn make_ready(self: &Arc<Self>) {
        if self.group.is_none() || self.spare.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            // Where it fails, the next call says why.
            if let Ok(init) = this.start(Stdio::piped(), Stdio::piped()).await {
                this.spare.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(init);
            }
        });
    }
}

impl Drop for Inits {
    fn drop(&mut self) {
        let spare = self.spare.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A group with a process in it cannot be removed, and this one would take a moment to see its end of file.
        if let Some(pid) =
            spare.as_ref().and_then(|init| init.child.id()).and_then(|pid| i32::try_from(pid).ok())
        {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}
