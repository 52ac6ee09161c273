//! A clean checkout: a run's base, then its result, made again from the log in a folder of its own, and commands run in
//! it behind walls. What the run's own workspace held beside that (ignored files, caches) is not there.

use crate::config::values;
use std::path::Path;

use docket_sandbox::{Sandbox, SandboxConfig, workspace_owner};
use docket_schema::{
    content::WorkspacePath,
    run::{RunStarted, RunState},
};
use docket_worker::{
    client::CoordinatorClient,
    workspace::{FileOwner, RestoreTarget, Workspace, WorkspaceOptions, materialize, restore},
};
use tempfile::TempDir;

use crate::{
    context::CliContext,
    history::blobs::RemoteBlobs,
    output::error::{CliResult, ExitKind, FailWith as _},
};

/// See the module. Removed when it is dropped.
pub(crate) struct CleanCheckout {
    folder: TempDir,
    workspace: Workspace,
}

impl CleanCheckout {
    /// The tree that a run started from.
    pub(crate) async fn from_base(
        cx: &CliContext,
        client: &CoordinatorClient,
        pins: &RunStarted,
    ) -> CliResult<Self> {
        let failed = || "cannot make a clean checkout".to_owned();
        let folder = tempfile::Builder::new().prefix("check-").tempdir_in(cx.home.ensure_folder("scratch")?);
        let folder = folder.fail_with(ExitKind::Failed, failed)?;
        let owner = workspace_owner().map(|(uid, gid)| FileOwner { uid, gid });
        let options = WorkspaceOptions { owner, ..WorkspaceOptions::new(cx.home.ensure_folder("cache")?) };
        let root = folder.path().join("workspace");
        let made = materialize(&root, &pins.base, &RemoteBlobs(client), &options).await;
        Ok(Self { workspace: made.fail_with(ExitKind::Failed, failed)?, folder })
    }

    /// From there to the run's result.
    pub(crate) async fn restore_result(
        &mut self,
        client: &CoordinatorClient,
        pins: &RunStarted,
        state: &RunState,
    ) -> CliResult<()> {
        let target = RestoreTarget {
            overlay: &state.overlay,
            git_overlay: &state.git_overlay,
            left_out: &[],
            // Before the first snapshot it is the base's.
            tree: state.tree.unwrap_or(pins.base.tree),
        };
        restore(&mut self.workspace, &target, &RemoteBlobs(client))
            .await
            .fail_with(ExitKind::Failed, || "the result cannot be made again from the log".to_owned())?;
        Ok(())
    }

    /// Where it is.
    pub(crate) fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("workspace")
    }

    /// Whether something stands at `path`, a link that leads nowhere included.
    pub(crate) fn path_exists(&self, path: &WorkspacePath) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let path = Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()));
        std::fs::symlink_metadata(self.root().join(path)).is_ok()
    }

    /// Walls around it, as the settings have them.
    pub(crate) async fn prepare_sandbox(&self, cx: &CliContext) -> CliResult<Sandbox> {
        let mut config = SandboxConfig::new(values::to_backend_choice(cx.config.sandbox), &self.root());
        config.limits = cx.config.sandbox_limits;
        Sandbox::prepare(config).await.fail_with(ExitKind::Failed, || "cannot make a sandbox".to_owned())
    }
}
