//! A source repository, a cache and a blob store for one test, and the oracle: a plain reading of a folder
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
    content::WorkPath,
    ids::TreeHash,
    snapshot::{Entry, LeftOut, PathChange},
};

use crate::{
    process::{TrustedSpec, run_git, run_trusted},
    workspace::{
        MemoryBlobs, PinOptions, Pinned, RestoreError, RestoreTarget, Restored, SnapshotDelta, Source,
        Workspace, WorkspaceOptions, materialize, pin, restore,
    },
};

pub(super) struct House {
    pub(super) folder: tempfile::TempDir,
    pub(super) blobs: MemoryBlobs,
}

impl House {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["source", "cache", "scratch"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, blobs: MemoryBlobs::default() }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn source(&self) -> PathBuf {
        self.at("source")
    }

    /// Makes the source a repository with everything that is in it as the first commit.
    pub(super) async fn commit_source(&self) {
        let source = self.source();
        git(&source, &["init", "-q", "-b", "trunk", "."]).await;
        git(&source, &["add", "-A", "-f", "."]).await;
        git(&source, &["commit", "-q", "--allow-empty", "-m", "one"]).await;
    }

    pub(super) fn pin_options(&self) -> PinOptions {
        PinOptions { rev: None, dirty: crate::workspace::DirtyTree::Refuse, scratch: self.at("scratch") }
    }

    pub(super) async fn pin(&mut self) -> Pinned {
        let options = self.pin_options();
        pin(&Source::Local(self.source()), &options, &mut self.blobs).await.unwrap()
    }

    pub(super) fn options(&self) -> WorkspaceOptions {
        WorkspaceOptions::new(self.at("cache"))
    }

    pub(super) async fn workspace(&self, name: &str, pinned: &Pinned) -> Workspace {
        materialize(&self.at(name), &pinned.base, &self.blobs, &self.options()).await.unwrap()
    }
}

/// Runs git in `dir` with a name and a date, and expects success.
pub(super) async fn git(dir: &Path, args: &[&str]) -> String {
    git_with(dir, args, b"").await
}

pub(super) async fn git_with(dir: &Path, args: &[&str], stdin: &[u8]) -> String {
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
    assert!(out.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// What the log would hold of a run: the fold of its snapshots.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorded {
    pub(super) overlay: BTreeMap<WorkPath, Option<Entry>>,
    pub(super) git_overlay: BTreeMap<WorkPath, Option<Entry>>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) tree: Option<TreeHash>,
}

impl Recorded {
    pub(super) fn take(&mut self, delta: SnapshotDelta, blobs: &mut MemoryBlobs) {
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
    ) -> Result<Restored, RestoreError> {
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

/// What a person with `ls -lR` and `cat` would see: kind and mode, and the bytes. Without `.git`.
pub(super) type Plain = BTreeMap<Vec<u8>, (String, Vec<u8>)>;

pub(super) fn plain(dir: &Path) -> Plain {
    let mut all = Plain::new();
    plain_into(dir, b"", &mut all);
    all
}

fn plain_into(dir: &Path, prefix: &[u8], all: &mut Plain) {
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
            plain_into(&entry.path(), &path, all);
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

pub(super) fn path(text: impl Into<Vec<u8>>) -> WorkPath {
    WorkPath::new(text).unwrap()
}

pub(super) fn odd(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

pub(super) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Writes a file and the folders it is in.
pub(super) fn put(dir: &Path, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Runs a script in `dir` as a command of a model would; whether it succeeds does not matter.
pub(super) async fn shell(dir: &Path, script: &str) {
    let _output = output(dir, script).await;
}

/// As [`shell`]; what it wrote.
pub(super) async fn output(dir: &Path, script: &str) -> String {
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

/// Runs git in `dir` with a name; whether it succeeds does not matter.
pub(super) async fn git_anyhow(dir: &Path, args: &[&str]) {
    let env = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    let env: Vec<(OsString, OsString)> = env.map(|name| (name.into(), "t@example.org".into())).into();
    let _status = run_git(args, dir, &env, Vec::new()).await.unwrap();
}
