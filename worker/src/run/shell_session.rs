//! A person's visit to a run's workspace as it was at the end of a turn: made as a run process makes it,
//! with the same setup and behind the same walls, in a folder of its own.
//!
//! Nothing of a visit is in any log until its caller makes an edit of what changed.

use std::path::{Path, PathBuf};

use docket_sandbox::{Limits, Sandbox, SandboxConfig};
use docket_schema::{
    api::{BLOB_HASHES_MAX, WorkspaceEdit},
    content::BlobRef,
    redact::Redactor,
    run::RunState,
    snapshot::PathChange,
    task::TaskSpec,
};

use super::{
    environment::{
        run_workspace::{restore_from_state, workspace_options},
        sandbox_runner::{SandboxRunner, backend_choice},
        setup::run_setup,
    },
    errors::start_error::StartError,
    log::pending_append::split_snapshot,
};
use crate::{
    bootstrap::SandboxChoice,
    workspace::{self, BlobReader, Workspace},
};

/// Git's own table of what it looked at: rewritten by every look, and nobody's change.
const GIT_INDEX: &[u8] = b".git/index";

/// Where a visit takes place, and behind which walls.
#[derive(Debug, Clone)]
pub struct ShellSessionConfig {
    /// An empty folder, or one to be made. The caller removes it.
    pub folder: PathBuf,
    /// Folder for base objects, shared with the runs of this machine.
    pub cache: PathBuf,
    /// The walls.
    pub sandbox: SandboxChoice,
    /// What commands may use together.
    pub limits: Limits,
    /// Environment on top of a run's.
    pub env: Vec<(String, String)>,
}

/// See the module.
pub struct ShellSession {
    workspace: Workspace,
    sandbox: Sandbox,
    tree_before: docket_schema::ids::TreeHash,
}

/// What a person changed.
#[derive(Debug)]
pub struct SessionChanges {
    /// The paths of the work tree.
    pub paths: Vec<PathChange>,
    /// Whether the repository's own `.git` changed as well.
    pub git_changed: bool,
    /// For the request that goes on from it.
    pub edit: WorkspaceEdit,
    /// To be stored before that request.
    pub blobs: Vec<(BlobRef, Vec<u8>)>,
}

impl ShellSession {
    /// Makes the workspace of `state`, a run of `spec` folded up to a turn's end.
    ///
    /// # Errors
    /// [`StartError`], as a run process has it.
    pub async fn open(
        place: ShellSessionConfig,
        spec: &TaskSpec,
        state: &RunState,
        blobs: &impl BlobReader,
    ) -> Result<Self, StartError> {
        let Some(pins) = &state.pins else {
            return Err(StartError::Environment("the run has no start to go back to".to_owned()));
        };
        let options = workspace_options(&place.cache);
        let made = workspace::materialize(&place.folder, &pins.base, blobs, &options).await;
        let mut workspace = made.map_err(|error| StartError::from_environment_error(&error))?;
        let mut config = SandboxConfig::new(backend_choice(place.sandbox), &place.folder);
        config.readonly.extend(workspace.borrowed_objects());
        config.env = place.env;
        config.limits = place.limits;
        let sandbox =
            Sandbox::prepare(config).await.map_err(|error| StartError::from_environment_error(&error))?;
        // As for a run that moves here: setup first, for the snapshots know better.
        run_setup(&spec.setup, &pins.settings, &SandboxRunner(sandbox.clone()), &Redactor::default()).await?;
        let (_, before) = restore_from_state(&mut workspace, state, blobs).await?;
        Ok(Self { workspace, sandbox, tree_before: before })
    }

    /// The walls around it; commands are run in there.
    pub const fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The folder on this machine.
    pub fn folder(&self) -> &Path {
        self.workspace.path()
    }

    /// What has changed since the visit began; `None` where nothing has.
    ///
    /// # Errors
    /// [`StartError`]: the workspace cannot be looked at.
    pub fn collect_changes(&mut self) -> Result<Option<SessionChanges>, StartError> {
        let delta =
            self.workspace.snapshot_walk().map_err(|error| StartError::from_environment_error(&error))?;
        let git = delta.git_changes.iter().any(|change| change.path.as_bytes() != GIT_INDEX);
        if delta.changes.is_empty() && !git {
            return Ok(None);
        }
        let paths = delta.changes.clone();
        let (snapshots, blobs) = split_snapshot(delta);
        let blobs = blobs.into_vec();
        // Each is stored just before the request, which keeps it as long as a name would.
        let names = blobs.iter().map(|(blob, _)| blob.hash).take(BLOB_HASHES_MAX).collect();
        Ok(Some(SessionChanges {
            paths,
            git_changed: git,
            edit: WorkspaceEdit { before: self.tree_before, snapshots, names },
            blobs,
        }))
    }
}
