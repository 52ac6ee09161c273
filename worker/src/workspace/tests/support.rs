//! A source repository, a cache and a blob store for one test, and the oracle: a simple reader of a folder
//! that shares no code with the snapshots.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStrExt, ffi::OsStringExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use docket_schema::{
    content::WorkspacePath,
    ids::TreeHash,
    snapshot::{Entry, OmittedPath, PathChange},
};

use crate::{
    process::{TrustedSpec, run_git, run_trusted},
    workspace::{
        BaseSource, MemoryBlobs, PinOptions, PinnedBase, RestoreError, RestoreReport, RestoreTarget,
        SnapshotDelta, Workspace, WorkspaceOptions, materialize, pin_base, restore,
    },
};

pub(super) struct WorkspaceFixture {
    pub(super) folder: tempfile::TempDir,
    pub(super) blobs: MemoryBlobs,
}

impl WorkspaceFixture {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["source", "cache", "scratch"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, blobs: MemoryBlobs::default() }
    }

    pub(super) fn path_to(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn source_repo(&self) -> PathBuf {
        self.path_to("source")
    }

    /// Makes the source a repository whose first commit contains everything in it.
    pub(super) async fn commit_source(&self) {
        let source = self.source_repo();
        git(&source, &["init", "-q", "-b", "trunk", "."]).await;
        git(&source, &["add", "-A", "-f", "."]).await;
        git(&source, &["commit", "-q", "--allow-empty", "-m", "one"]).await;
    }

    pub(super) fn pin_options(&self) -> PinOptions {
        PinOptions {
            rev: None,
            dirty: crate::workspace::DirtyTreePolicy::Refuse,
            scratch: self.path_to("scratch"),
        }
    }

    pub(super) async fn pin_source(&mut self) -> PinnedBase {
        let options = self.pin_options();
        pin_base(&BaseSource::Local(self.source_repo()), &options, &mut self.blobs).await.unwrap()
    }

    pub(super) fn workspace_options(&self) -> WorkspaceOptions {
        WorkspaceOptions::new(self.path_to("cache"))
    }

    pub(super) async fn materialize_workspace(&self, name: &str, pinned: &PinnedBase) -> Workspace {
        materialize(&self.path_to(name), &pinned.base, &self.blobs, &self.workspace_options()).await.unwrap()
    }
}

/// Runs git in `dir` with a name and a date, and expects success.
pub(super) async fn git(dir: &Path, args: &[&str]) -> String {
    git_with_stdin(dir, args, b"").await
}

pub(super) async fn git_with_stdin(dir: &Path, args: &[&str], stdin: &[u8]) -> String {
    let env: Vec<(OsString, OsString)> = [
        ("GIT_AUTHOR_NAME", "t"),
        ("GIT_AUTHOR_EMAIL", "t@example.org"),
        ("GIT_AUTHOR_DATE", "1700000000 +0000"),
        ("GIT_COMMITTER_NAME", "t"),
        ("GIT_COMMITTER_EMAIL", "t@example.org"),
        ("GIT_COMMITTER_DATE", "1700000000 +0000"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into();
    let out = run_git(args, dir, &env, stdin.to_vec()).await.unwrap();
    assert!(out.is_success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The recorded state of a run: the fold of its snapshots.
#[derive(Debug, Clone, Default)]
pub(super) struct RecordedRun {
    pub(super) overlay: BTreeMap<WorkspacePath, Option<Entry>>,
    pub(super) git_overlay: BTreeMap<WorkspacePath, Option<Entry>>,
    pub(super) left_out: Vec<OmittedPath>,
    pub(super) tree: Option<TreeHash>,
}

impl RecordedRun {
    pub(super) fn apply_delta(&mut self, delta: SnapshotDelta, blobs: &mut MemoryBlobs) {
        let fold = |changes: Vec<PathChange>, into: &mut BTreeMap<_, _>| {
            into.extend(changes.into_iter().map(|change| (change.path, change.entry)));
        };
        fold(delta.changes, &mut self.overlay);
        fold(delta.git_changes, &mut self.git_overlay);
        self.left_out.extend(delta.left_out);
        self.tree = Some(delta.tree);
        blobs.extend(delta.blobs);
    }

    pub(super) async fn restore_into(
        &self,
        workspace: &mut Workspace,
        blobs: &MemoryBlobs,
    ) -> Result<RestoreReport, RestoreError> {
        let tree = self.tree.unwrap_or_else(|| workspace.base_objects().base().tree);
        let target = RestoreTarget {
            overlay: &self.overlay,
            git_overlay: &self.git_overlay,
            left_out: &self.left_out,
            tree,
        };
        restore(workspace, &target, blobs).await
    }
}

/// A tree as seen with `ls -lR` and `cat`: type and mode, and the bytes. Without `.git`.
pub(super) type PlainTree = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

pub(super) fn read_plain_tree(dir: &Path) -> PlainTree {
    let mut all = PlainTree::new();
    read_plain_tree_into(dir, b"", &mut all);
    all
}

fn read_plain_tree_into(dir: &Path, prefix: &[u8], all: &mut PlainTree) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if prefix.is_empty() && entry.file_name() == ".git" {
            continue;
        }
        let mut path = prefix.to_vec();
        path.extend_from_slice(entry.file_name().as_bytes());
        let meta = entry.metadata().unwrap();
        let mode = meta.permissions().mode() & 0o7777;
        if meta.is_dir() {
            all.insert(path.clone(), (format!("dir {mode:o}"), Vec::new()));
            path.push(b'/');
            read_plain_tree_into(&entry.path(), &path, all);
        } else if meta.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap().into_os_string().into_vec();
            all.insert(path, ("link".to_owned(), target));
        } else if meta.is_file() {
            all.insert(path, (format!("file {mode:o}"), fs::read(entry.path()).unwrap()));
        } else {
            all.insert(path, ("special".to_owned(), Vec::new()));
        }
    }
}

pub(super) fn path(text: impl Into<Vec<u8>>) -> WorkspacePath {
    WorkspacePath::new(text).unwrap()
}

pub(super) fn path_from_bytes(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

pub(super) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Writes a file and its parent folders.
pub(super) fn write_file(dir: &Path, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Runs a script in `dir` like a model's command; success does not matter.
pub(super) async fn run_script(dir: &Path, script: &str) {
    let _output = script_output(dir, script).await;
}

/// Like [`run_script`]; returns the output.
pub(super) async fn script_output(dir: &Path, script: &str) -> String {
    let spec = TrustedSpec {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        cwd: dir.to_owned(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        stdin: Vec::new(),
        timeout: Duration::from_secs(60),
        stdout_bytes_max: 64 * 1024 * 1024,
    };
    String::from_utf8_lossy(&run_trusted(spec).await.unwrap().stdout).into_owned()
}

/// Runs git in `dir` with a name; success does not matter.
pub(super) async fn git_allow_failure(dir: &Path, args: &[&str]) {
    let env = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    let env: Vec<(OsString, OsString)> = env.map(|name| (name.into(), "t@example.org".into())).into();
    let _status = run_git(args, dir, &env, Vec::new()).await.unwrap();
}
