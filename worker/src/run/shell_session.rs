//! An interactive shell session in a run's workspace as of the end of a turn, created as a run process creates it:
//! same setup, same sandbox, separate folder.
//!
//! No log mentions the session until its caller turns the changes into an edit.

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

/// Git's index: rewritten by every status query, so it does not count as a change by the person.
const GIT_INDEX: &[u8] = b".git/index";

/// Folder and sandbox of a session.
#[derive(Debug, Clone)]
pub struct ShellSessionConfig {
    /// An empty folder, or one to be created. The caller removes it.
    pub folder: PathBuf,
    /// Folder for base objects, shared with the runs of this machine.
    pub cache: PathBuf,
    /// The sandbox to use.
    pub sandbox: SandboxChoice,
    /// Resource limits for all commands together.
    pub limits: Limits,
    /// Environment variables in addition to a run's.
    pub env: Vec<(String, String)>,
}

/// An open shell session.
pub struct ShellSession {
    workspace: Workspace,
    sandbox: Sandbox,
    tree_before: docket_schema::ids::TreeHash,
}

/// The changes a person made.
#[derive(Debug)]
pub struct SessionChanges {
    /// Changed paths of the work tree.
    pub paths: Vec<PathChange>,
    /// Whether the repository's own `.git` changed as well.
    pub git_changed: bool,
    /// The edit, for the request that continues the run from it.
    pub edit: WorkspaceEdit,
    /// Blobs to store before that request.
    pub blobs: Vec<(BlobRef, Vec<u8>)>,
}

impl ShellSession {
    /// Creates the workspace of `state`, a run of `spec` folded up to the end of a turn.
    ///
    /// # Errors
    /// [`StartError`], as for a run process.
    pub async fn open(
        place: ShellSessionConfig,
        spec: &TaskSpec,
        state: &RunState,
        blobs: &impl BlobReader,
    ) -> Result<Self, StartError> {
        let Some(pins) = &state.pins else {
            return Err(StartError::Environment(
                "the run has not started; it has no workspace yet".to_owned(),
            ));
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
        // As for a run that moves to this worker: setup runs first, so that snapshots override its results.
        run_setup(&spec.setup, &pins.settings, &SandboxRunner(sandbox.clone()), &Redactor::default()).await?;
        let (_, before) = restore_from_state(&mut workspace, state, blobs).await?;
        Ok(Self { workspace, sandbox, tree_before: before })
    }

    /// The sandbox in which commands of the session run.
    pub const fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The folder on this machine.
    pub fn folder(&self) -> &Path {
        self.workspace.path()
    }

    /// Returns the changes since the session began; `None` if there are none.
    ///
    /// # Errors
    /// [`StartError`]: the workspace cannot be read.
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
        // Each blob is stored just before the request, which retains it as long as naming it would.
        let names = blobs.iter().map(|(blob, _)| blob.hash).take(BLOB_HASHES_MAX).collect();
        Ok(Some(SessionChanges {
            paths,
            git_changed: git,
            edit: WorkspaceEdit { before: self.tree_before, snapshots, names },
            blobs,
        }))
    }
}
