//! Creates a workspace from a recorded base, on a machine that may never have seen its repository.
//!
//! The pack goes into a cache shared by all workspaces of the base; the workspace gets a `.git` of its own
//! that borrows from there. docket writes every file from the exact bytes of the commit and checks it against
//! the manifest; git checks nothing out, so no filter can run. Called by the run loop at the start of a run,
//! and by the commands that show history.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use docket_schema::{
    content::WorkspacePath,
    ids::BlobHash,
    snapshot::{Entry, EntryKind, GitBase, Manifest, ManifestError, MerkleTree, WorkspaceBase},
};
use nix::{
    errno::Errno,
    unistd::{Gid, Uid, fchown},
};

use super::{
    blobs::{BlobError, BlobReader, get_verified},
    content_reader::{BaseObjects, CachedGitBase},
    disk::{
        dirfd::{FileOwner, TreeWriter, join_path, open_folder, open_root, split_path, stat_child},
        file_stat::StatData,
    },
    repository::{
        commit_listing::parse_safe_path,
        git::{GitCallError, GitDir, ObjectFormat, format_alternates, parse_git_index},
    },
    snapshot::{
        ignore_rules::IgnoreRules,
        index::{IndexSlot, SlotState, SnapshotIndex},
        index_updater::{DEFAULT_FOLDER_MODE, SnapshotLimits, TrackedArea, folder_entry},
        open_workspace::{FILE_BYTES_MAX, SNAPSHOT_BYTES_MAX, Workspace},
        snapshot_error::SnapshotError,
        walk::{ALTERNATES_PATH, detect_listing_mode},
    },
};

/// How workspaces are created on this machine.
#[derive(Debug, Clone)]
pub struct WorkspaceOptions {
    /// Folder for packs of bases, shared by all processes of this machine; created if missing.
    pub cache_dir: PathBuf,
    /// Owner of written files; docket's own user if `None`.
    pub owner: Option<FileOwner>,
    /// Files larger than this, in bytes, are left out of snapshots.
    pub file_bytes_max: u64,
}

impl WorkspaceOptions {
    /// The defaults, with the given cache folder.
    pub fn new(cache_dir: PathBuf) -> Self {
        Self { cache_dir, owner: None, file_bytes_max: FILE_BYTES_MAX }
    }
}

/// Why a workspace could not be created.
#[derive(Debug, thiserror::Error)]
pub enum MaterializeError {
    /// The folder is not empty.
    #[error("{0} is not empty: a workspace needs a new folder; remove this one or choose another")]
    NotEmpty(PathBuf),
    /// A file system operation failed.
    #[error("cannot write {path}: check the permissions and the free space")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A blob of the base could not be read.
    #[error("a blob of the base could not be read")]
    Blob(#[from] BlobError),
    /// The manifest cannot be decoded.
    #[error("the base's list of files is damaged")]
    Manifest(#[from] ManifestError),
    /// The parts of the base contradict each other.
    #[error("the base of this task is damaged: {0}; submit the task again")]
    DamagedBase(String),
    /// git could not read the pack.
    #[error("git could not read the base's pack")]
    Git(#[from] GitCallError),
    /// The finished workspace could not be scanned.
    #[error("the workspace could not be read after it was created")]
    Scan(#[from] SnapshotError),
}

impl MaterializeError {
    fn io_error_at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    fn errno_error_at(path: &Path) -> impl Fn(Errno) -> Self {
        move |errno| Self::Io { path: path.to_owned(), source: errno.into() }
    }
}

/// Creates a workspace of `base` in `dir`, which must be empty or missing. Blocks on the file system.
///
/// # Errors
/// [`MaterializeError`]; `dir` may then contain some of the files.
pub async fn materialize(
    dir: &Path,
    base: &WorkspaceBase,
    blobs: &impl BlobReader,
    options: &WorkspaceOptions,
) -> Result<Workspace, MaterializeError> {
    let io = MaterializeError::io_error_at(dir);
    fs::create_dir_all(dir).map_err(&io)?;
    if fs::read_dir(dir).map_err(&io)?.next().is_some() {
        return Err(MaterializeError::NotEmpty(dir.to_owned()));
    }
    let cached = ensure_cached_base(base, blobs, &options.cache_dir).await?;
    let mut workspace = Workspace::with_empty_index(dir, cached, options)?;
    if let Some(owner) = options.owner {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        fchown(&workspace.root, Some(uid), Some(gid)).map_err(MaterializeError::errno_error_at(dir))?;
    }
    let result = write_base_files(&mut workspace).await;
    let base = &workspace.base.base;
    match result {
        // A damaged cache entry: fetch the blobs once more, then report the error.
        Err(MaterializeError::Git(_) | MaterializeError::DamagedBase(_)) if base.git.is_some() => {
            remove_cached_base(base, &options.cache_dir);
            let again = ensure_cached_base(base, blobs, &options.cache_dir).await?;
            workspace.base = again;
            write_base_files(&mut workspace).await?;
        }
        result => result?,
    }
    Ok(workspace)
}

impl Workspace {
    /// Opens an existing workspace in `dir`, whatever its state: it must be [restored](super::restore) before
    /// its first snapshot.
    ///
    /// # Errors
    /// [`MaterializeError`] if the base cannot be read or `dir` cannot be opened.
    pub async fn open(
        dir: &Path,
        base: &WorkspaceBase,
        blobs: &impl BlobReader,
        options: &WorkspaceOptions,
    ) -> Result<Self, MaterializeError> {
        let cached = ensure_cached_base(base, blobs, &options.cache_dir).await?;
        let mut workspace = Self::with_empty_index(dir, cached, options)?;
        workspace.ignore_rules = read_ignore_rules(&workspace.base).await?;
        Ok(workspace)
    }

    fn with_empty_index(
        dir: &Path,
        base: BaseObjects,
        options: &WorkspaceOptions,
    ) -> Result<Self, MaterializeError> {
        let path = fs::canonicalize(dir).map_err(MaterializeError::io_error_at(dir))?;
        let root = open_root(&path).map_err(MaterializeError::errno_error_at(&path))?;
        let listing = detect_listing_mode(root.as_fd());
        Ok(Self {
            path,
            root,
            base,
            ignore_rules: IgnoreRules::default(),
            work_area: TrackedArea::default(),
            git_area: TrackedArea::default(),
            tree: MerkleTree::default(),
            owner: options.owner,
            limits: SnapshotLimits { file_bytes: options.file_bytes_max, total_bytes: SNAPSHOT_BYTES_MAX },
            listing_mode: listing,
        })
    }
}

/// Writes all files and the git folder, and fills the index with the written files.
async fn write_base_files(workspace: &mut Workspace) -> Result<(), MaterializeError> {
    let path = workspace.path.clone();
    let errno = MaterializeError::errno_error_at(&path);
    let root = || open_folder(workspace.root.as_fd(), b"").map_err(&errno);
    let (mut writer, reader) = (TreeWriter::new(root()?, workspace.owner), root()?);
    let mut written = Vec::new();
    let mut rules = IgnoreRules::default();
    let base = &workspace.base;

    if let Some(git) = &base.git {
        let files: Vec<_> = base.manifest.entries.iter().filter(|(_, e)| e.kind != EntryKind::Dir).collect();
        let objects = files.iter().map(|(path, entry)| {
            git.objects
                .get(&entry.hash)
                .cloned()
                .ok_or_else(|| MaterializeError::DamagedBase(format!("git's index lacks `{path}`")))
        });
        let objects = objects.collect::<Result<Vec<_>, _>>()?;
        git.dir
            .read_blobs(&objects, |at, bytes| {
                let (path, entry) = files[at];
                if BlobHash::hash_bytes(&bytes) != entry.hash {
                    return Err(MaterializeError::DamagedBase(format!(
                        "the content of `{path}` differs from the record"
                    )));
                }
                if split_path(path.as_bytes()).1 == b".gitignore" {
                    rules.add_gitignore(split_path(path.as_bytes()).0, &bytes);
                }
                writer.write_entry(path, entry, &bytes).map_err(&errno)?;
                written.push((path.clone(), *entry, writer.stat_path(path).map_err(&errno)?));
                Ok(())
            })
            .await?;
    }
    for (path, entry) in base.manifest.entries.iter().filter(|(_, entry)| entry.kind == EntryKind::Dir) {
        writer.write_entry(path, entry, &[]).map_err(&errno)?;
    }
    for (path, entry) in base.manifest.entries.iter().rev().filter(|(_, e)| e.kind == EntryKind::Dir) {
        writer.set_folder_mode(path.as_bytes(), entry.mode).map_err(&errno)?;
    }
    let mut git_written = Vec::new();
    for (path, entry, bytes) in initial_git_files(base) {
        writer.write_entry(&path, &entry, &bytes).map_err(&errno)?;
        if entry.kind == EntryKind::File {
            git_written.push((path.clone(), entry, writer.stat_path(&path).map_err(&errno)?));
        }
    }
    write_alternates(&mut writer, base).map_err(&errno)?;

    let looked_at = workspace.filesystem_time()?;
    let folders: Vec<_> = base.manifest.entries.iter().filter(|(_, e)| e.kind == EntryKind::Dir).collect();
    let work = build_index(&reader, &rules, written, &folders, looked_at).map_err(&errno)?;
    let skeleton = initial_git_files(base);
    let folders: Vec<_> =
        skeleton.iter().filter(|(_, e, _)| e.kind == EntryKind::Dir).map(|(p, e, _)| (p, e)).collect();
    let no_rules = IgnoreRules::default();
    let git = build_index(&reader, &no_rules, git_written, &folders, looked_at).map_err(&errno)?;
    workspace.tree = MerkleTree::default();
    for (path, entry) in &workspace.base.manifest.entries {
        workspace.tree.set_entry(path, Some(*entry));
    }
    workspace.work_area = TrackedArea { index: work, ..TrackedArea::default() };
    workspace.git_area = TrackedArea { index: git, ..TrackedArea::default() };
    workspace.ignore_rules = rules;
    Ok(())
}

type WrittenFiles = Vec<(WorkspacePath, Entry, nix::sys::stat::FileStat)>;

/// Builds the index of freshly written files, so that the first walk reads none of them again.
fn build_index(
    root: &impl AsFd,
    rules: &IgnoreRules,
    written: WrittenFiles,
    folders: &[(&WorkspacePath, &Entry)],
    looked_at: (i64, i64),
) -> nix::Result<SnapshotIndex> {
    let mut index = SnapshotIndex::default();
    for (path, entry, stat) in written {
        let stat = StatData::from_stat(&stat);
        let racy = stat.is_racy(looked_at);
        let (folder, name) = split_path(path.as_bytes());
        index.set_slot(folder, name, IndexSlot { stat, racy, state: SlotState::Captured(entry) });
        index_folder(root, rules, &mut index, folder, None)?;
    }
    for (path, entry) in folders {
        index_folder(root, rules, &mut index, path.as_bytes(), Some(entry.mode))?;
    }
    Ok(index)
}

/// The slot records whether the ignore rules match the folder: inside such a folder only paths of the base
/// are captured.
fn index_folder(
    root: &impl AsFd,
    rules: &IgnoreRules,
    index: &mut SnapshotIndex,
    path: &[u8],
    recorded: Option<u32>,
) -> nix::Result<bool> {
    if path.is_empty() {
        return Ok(false);
    }
    let (folder, name) = split_path(path);
    if recorded.is_none()
        && let Some(SlotState::Folder { ignored, .. }) = index.slot(folder, name).map(|slot| slot.state)
    {
        return Ok(ignored);
    }
    let ignored = index_folder(root, rules, index, folder, None)? || rules.matches(path, true);
    let stat = StatData::from_stat(&stat_child(root.as_fd(), path)?);
    index.set_slot(
        folder,
        name,
        IndexSlot { stat, racy: false, state: SlotState::Folder { recorded, ignored } },
    );
    Ok(ignored)
}

async fn read_ignore_rules(base: &BaseObjects) -> Result<IgnoreRules, MaterializeError> {
    let mut rules = IgnoreRules::default();
    let Some(git) = &base.git else { return Ok(rules) };
    let is_rules = |path: &WorkspacePath| split_path(path.as_bytes()).1 == b".gitignore";
    let files = base.manifest.entries.iter().filter(|(path, e)| is_rules(path) && e.kind != EntryKind::Dir);
    let (folders, objects): (Vec<_>, Vec<_>) = files
        .filter_map(|(path, entry)| {
            Some((split_path(path.as_bytes()).0, git.objects.get(&entry.hash)?.clone()))
        })
        .unzip();
    git.dir
        .read_blobs(&objects, |at, bytes| {
            rules.add_gitignore(folders[at], &bytes);
            Ok::<(), GitCallError>(())
        })
        .await?;
    Ok(rules)
}

/// The `.git` of a new workspace, path by path; identical on every machine.
pub(super) fn initial_git_files(base: &BaseObjects) -> Vec<(WorkspacePath, Entry, Bytes)> {
    let (Some(git), Some(recorded)) = (&base.git, &base.base.git) else { return Vec::new() };
    let branch = recorded.branch.as_deref().filter(|name| is_branch_name(name)).unwrap_or("main");
    let config = format!(
        "{}[core]\n\tlogAllRefUpdates = true\n\thooksPath = /dev/null\n[gc]\n\tauto = 0\n\
         [maintenance]\n\tauto = false\n[user]\n\tname = docket\n\temail = docket@localhost\n",
        git.format.config_header()
    );
    let files: [(String, Bytes); 5] = [
        (".git/HEAD".to_owned(), format!("ref: refs/heads/{branch}\n").into()),
        (".git/config".to_owned(), config.into()),
        (".git/index".to_owned(), git.index.clone()),
        (format!(".git/refs/heads/{branch}"), format!("{}\n", recorded.commit).into()),
        (".git/shallow".to_owned(), format!("{}\n", recorded.commit).into()),
    ];
    let files = files.into_iter().map(|(path, bytes)| {
        let (size, hash) = (bytes.len() as u64, BlobHash::hash_bytes(&bytes));
        (path, Entry { kind: EntryKind::File, mode: 0o644, size, hash }, bytes)
    });
    // `info` contains only the alternates, which snapshots exclude, so it counts as empty.
    let folders = [".git/objects/info", ".git/objects/pack", ".git/refs/tags"];
    let folders = folders.map(|path| (path.to_owned(), folder_entry(DEFAULT_FOLDER_MODE), Bytes::new()));
    let all = files.chain(folders);
    all.map(|(path, entry, bytes)| {
        (WorkspacePath::new(path).expect("no part is empty or dots"), entry, bytes)
    })
    .collect()
}

/// Whether git accepts the name below `refs/heads/`; stricter than git itself.
fn is_branch_name(name: &str) -> bool {
    let part_ok = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.') && !part.ends_with(".lock")
    };
    let odd = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    !name.contains("..") && !name.contains("@{") && !name.contains(odd) && name.split('/').all(part_ok)
}

/// Tells the workspace's git where the cached base is on this machine.
pub(super) fn write_alternates(writer: &mut TreeWriter, base: &BaseObjects) -> nix::Result<()> {
    let Some(objects) = base.objects_folder() else { return Ok(()) };
    let bytes = format_alternates(&[&objects]);
    let entry = Entry {
        kind: EntryKind::File,
        mode: 0o644,
        size: bytes.len() as u64,
        hash: BlobHash::hash_bytes(&bytes),
    };
    let path = WorkspacePath::new(ALTERNATES_PATH).expect("a constant without empty parts or dots");
    writer.write_entry(&path, &entry, &bytes)
}

/// Returns the base's objects on this machine: from the cache, or written there from `blobs`. If two
/// processes do this at the same time, one folder wins and both use it.
///
/// # Errors
/// [`MaterializeError`] if a blob is missing or damaged, or the cache cannot be written.
pub async fn ensure_cached_base(
    base: &WorkspaceBase,
    blobs: &impl BlobReader,
    cache_dir: &Path,
) -> Result<BaseObjects, MaterializeError> {
    let manifest = Manifest::decode(&get_verified(blobs, &base.manifest).await?)?;
    if manifest.tree_hash() != base.tree {
        return Err(MaterializeError::DamagedBase(
            "the tree hash of its file list differs from the record".to_owned(),
        ));
    }
    for path in manifest.entries.keys() {
        parse_safe_path(path.as_bytes()).map_err(|error| MaterializeError::DamagedBase(error.to_string()))?;
    }
    let Some(recorded) = &base.git else {
        return Ok(BaseObjects { base: base.clone(), manifest, git: None });
    };
    let format = ObjectFormat::from_hex_oid(&recorded.commit)
        .ok_or_else(|| MaterializeError::DamagedBase("its commit is not a valid object name".to_owned()))?;
    let dir = cache_dir.join(base_cache_key(recorded));
    if !dir.is_dir() {
        write_cached_base(&dir, recorded, format, blobs, cache_dir).await?;
    }
    let index = match fs::read(dir.join("index")) {
        Ok(bytes) if BlobHash::hash_bytes(&bytes) == recorded.index.hash => Bytes::from(bytes),
        Ok(_) | Err(_) => get_verified(blobs, &recorded.index).await?,
    };
    let mut objects = HashMap::new();
    let unread = || MaterializeError::DamagedBase("git's index file cannot be parsed".to_owned());
    let mut add = |index: &[u8], prefix: &[u8]| {
        for file in parse_git_index(index, format).ok_or_else(unread)? {
            let entry = WorkspacePath::new(join_path(prefix, &file.path))
                .and_then(|path| manifest.entries.get(&path));
            if let Some(entry) = entry.filter(|entry| entry.kind != EntryKind::Dir) {
                objects.insert(entry.hash, (file.oid, entry.size));
            }
        }
        Ok::<(), MaterializeError>(())
    };
    add(&index, &[])?;
    for module in &recorded.submodules {
        if let Some(index) = &module.index {
            add(&get_verified(blobs, index).await?, module.path.as_bytes())?;
        }
    }
    let git = CachedGitBase { dir: GitDir::open(&dir), format, index, objects };
    Ok(BaseObjects { base: base.clone(), manifest, git: Some(git) })
}

async fn write_cached_base(
    dir: &Path,
    base: &GitBase,
    format: ObjectFormat,
    blobs: &impl BlobReader,
    cache_dir: &Path,
) -> Result<(), MaterializeError> {
    let io = MaterializeError::io_error_at(dir);
    fs::create_dir_all(cache_dir).map_err(&io)?;
    let temporary = tempfile::Builder::new().prefix(".making-").tempdir_in(cache_dir).map_err(&io)?;
    GitDir::create(temporary.path(), format, &[]).map_err(&io)?;
    let name = format!("objects/pack/pack-{}", &base_cache_key(base)[..40]);
    let mut pack = fs::File::create(temporary.path().join(format!("{name}.pack"))).map_err(&io)?;
    for part in &base.pack {
        io::Write::write_all(&mut pack, &get_verified(blobs, part).await?).map_err(&io)?;
    }
    let idx = get_verified(blobs, &base.pack_index).await?;
    fs::write(temporary.path().join(format!("{name}.idx")), &idx).map_err(&io)?;
    fs::write(temporary.path().join("index"), get_verified(blobs, &base.index).await?).map_err(&io)?;
    // Without it git would look for the commit's parents.
    fs::write(temporary.path().join("shallow"), format!("{}\n", base.commit)).map_err(&io)?;
    // The sandboxed user reads here.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(temporary.path(), readable).map_err(&io)?;
    match fs::rename(temporary.path(), dir) {
        Ok(()) => {
            // The folder was renamed, so the guard has nothing left to remove.
            let _moved = temporary.keep();
            Ok(())
        }
        // Another process was faster; our copy is removed with its guard.
        Err(_) if dir.is_dir() => Ok(()),
        Err(error) => Err(io(error)),
    }
}

/// Moves a cached base aside before removing it, so that no process finds a partial one.
fn remove_cached_base(base: &WorkspaceBase, cache_dir: &Path) {
    let Some(git) = &base.git else { return };
    if let Ok(grave) = tempfile::Builder::new().prefix(".damaged-").tempdir_in(cache_dir) {
        // If it cannot be moved, the second attempt fails like the first and reports the error.
        let _moved = fs::rename(cache_dir.join(base_cache_key(git)), grave.path().join(OsStr::new("base")));
    }
}

/// The cache key of a base, derived from its git part.
fn base_cache_key(base: &GitBase) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(base.commit.as_bytes());
    for blob in base.pack.iter().chain([&base.pack_index, &base.index]) {
        hasher.update(&blob.hash.0);
    }
    hasher.finalize().to_hex().to_string()
}
