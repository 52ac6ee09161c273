//! docket's own processing of a workspace left by a hostile command: capture, patch and delivery. A few cases
//! end with it, because it does not run inside the sandbox.

use std::{collections::BTreeMap, ffi::OsString, path::Path, time::Duration};

use docket_sandbox::workspace_owner;
use tempfile::TempDir;

use super::host_fixture::{HostFixture, contains_bytes};
use crate::{
    process::run_git,
    workspace::{
        BaseSource, CommitSignature, DeliverError, DirtyTreePolicy, FileOwner, MemoryBlobs, PinOptions,
        PinnedBase, Workspace, WorkspaceOptions, build_result, materialize, pin_base,
    },
};

/// Far longer than any capture here takes, far shorter than a hang.
const CAPTURE_TIMEOUT: Duration = Duration::from_secs(60);

/// A small repository, pinned once for all cases.
pub(super) struct CaptureFixture {
    folder: TempDir,
    pinned: PinnedBase,
    blobs: MemoryBlobs,
}

async fn run_git_as_test_user(dir: &Path, args: &[&str]) {
    let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    let env: Vec<(OsString, OsString)> = names.map(|name| (name.into(), "t@example.org".into())).into();
    let out = run_git(args, dir, &env, Vec::new()).await.unwrap();
    assert!(out.is_success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

impl CaptureFixture {
    pub(super) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        for name in ["source", "cache", "scratch"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(source.join("given.txt"), "given\n").unwrap();
        std::fs::write(source.join(".gitattributes"), "*.up filter=up diff=up merge=up\n").unwrap();
        run_git_as_test_user(&source, &["init", "-q", "-b", "trunk", "."]).await;
        run_git_as_test_user(&source, &["add", "-A", "."]).await;
        run_git_as_test_user(&source, &["commit", "-q", "-m", "one"]).await;
        let mut blobs = MemoryBlobs::default();
        let scratch = folder.path().join("scratch");
        let options = PinOptions { rev: None, dirty: DirtyTreePolicy::Refuse, scratch };
        let pinned = pin_base(&BaseSource::Local(source), &options, &mut blobs).await.unwrap();
        Self { folder, pinned, blobs }
    }

    pub(super) async fn materialize_workspace(&self, world: &HostFixture) -> Workspace {
        let mut options = WorkspaceOptions::new(self.folder.path().join("cache"));
        options.owner = workspace_owner().map(|(uid, gid)| FileOwner { uid, gid });
        materialize(&world.workspace_path(), &self.pinned.base, &self.blobs, &options).await.unwrap()
    }

    /// Captures the workspace as at the end of a run. Returns what went wrong: a hang, or a secret among the
    /// contents. A refusal is not a failure.
    pub(super) async fn capture_and_deliver(
        &self,
        world: &HostFixture,
        mut workspace: Workspace,
    ) -> Vec<String> {
        let walked = tokio::task::spawn_blocking(move || {
            let delta = workspace.snapshot_walk();
            (workspace, delta)
        });
        let Ok(walked) = tokio::time::timeout(CAPTURE_TIMEOUT, walked).await else {
            return vec!["docket's capture hangs".to_owned()];
        };
        let (workspace, delta) = walked.unwrap();
        let Ok(delta) = delta else { return Vec::new() };
        let mut wrong = Vec::new();
        let canary = world.substitute_names("canary-{nonce}");
        if delta.blobs.iter().any(|(_, bytes)| contains_bytes(bytes, &canary)) {
            wrong.push("docket took bytes from outside into a snapshot".to_owned());
        }
        let mut blobs = self.blobs.clone();
        let overlay: BTreeMap<_, _> =
            delta.changes.into_iter().map(|change| (change.path, change.entry)).collect();
        blobs.extend(delta.blobs);
        let deliver = async {
            let base = workspace.base_objects();
            let result = build_result(base, &overlay, &blobs, &self.folder.path().join("scratch")).await?;
            let is_unchanged = result.to_patch().await?.is_empty();
            let by = CommitSignature { name: "d".to_owned(), email: "d@localhost".to_owned(), at_seconds: 1 };
            match result.deliver_new_branch(&self.folder.path().join("source"), &world.nonce, "m", &by).await
            {
                // A case that leaves no change has no branch.
                Err(DeliverError::NoChanges) if is_unchanged => Ok(()),
                delivered => delivered.map(drop),
            }
        };
        match tokio::time::timeout(CAPTURE_TIMEOUT, deliver).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => wrong.push(format!("docket could not deliver: {error:?}")),
            Err(_) => wrong.push("docket's delivery hangs".to_owned()),
        }
        wrong
    }
}
