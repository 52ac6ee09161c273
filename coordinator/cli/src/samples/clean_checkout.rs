//! A clean checkout: a run's base or result, rebuilt from the log in its own directory, with commands run in
//! the sandbox. Ignored files and caches of the run's workspace are absent.

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

/// A clean checkout. Deleted when dropped.
pub(crate) struct CleanCheckout {
    folder: TempDir,
    workspace: Workspace,
}

impl CleanCheckout {
    /// Checks out the tree that a run started from.
    pub(crate) async fn from_base(
        cx: &CliContext,
        client: &CoordinatorClient,
        pins: &RunStarted,
    ) -> CliResult<Self> {
        let failed = || "cannot create a clean checkout".to_owned();
        let folder = tempfile::Builder::new().prefix("check-").tempdir_in(cx.home.ensure_folder("scratch")?);
        let folder = folder.fail_with(ExitKind::Failed, failed)?;
        let owner = workspace_owner().map(|(uid, gid)| FileOwner { uid, gid });
        let options = WorkspaceOptions { owner, ..WorkspaceOptions::new(cx.home.ensure_folder("cache")?) };
        let root = folder.path().join("workspace");
        let made = materialize(&root, &pins.base, &RemoteBlobs(client), &options).await;
        Ok(Self { workspace: made.fail_with(ExitKind::Failed, failed)?, folder })
    }

    /// Updates it to the run's result.
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
            // Before the first snapshot this is the base's tree.
            tree: state.tree.unwrap_or(pins.base.tree),
        };
        restore(&mut self.workspace, &target, &RemoteBlobs(client))
            .await
            .fail_with(ExitKind::Failed, || "cannot rebuild the result from the log".to_owned())?;
        Ok(())
    }

    pub(crate) fn root(&self) -> std::path::PathBuf {
        self.folder.path().join("workspace")
    }

    /// Whether `path` exists, including as a dangling link.
    pub(crate) fn path_exists(&self, path: &WorkspacePath) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        let path = Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()));
        std::fs::symlink_metadata(self.root().join(path)).is_ok()
    }

    /// Creates a sandbox around it according to the settings.
    pub(crate) async fn prepare_sandbox(&self, cx: &CliContext) -> CliResult<Sandbox> {
        let mut config = SandboxConfig::new(values::to_backend_choice(cx.config.sandbox), &self.root());
        config.limits = cx.config.sandbox_limits;
        Sandbox::prepare(config).await.fail_with(ExitKind::Failed, || "cannot create a sandbox".to_owned())
    }
}
