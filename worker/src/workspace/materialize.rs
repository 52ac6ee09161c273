//! Making a workspace of a recorded base, on a machine that may never have seen its repository.
//!
//! The pack goes into a cache that all workspaces of the base share; the workspace gets a `.git` of its own
//! that borrows from there. Every file is written by docket from the exact bytes of the commit and checked
//! against the manifest; git checks nothing out, so no filter can run. Called by the driver at the start of
//! a run, and by the commands that look at the past.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use docket_schema::{
    content::WorkPath,
    ids::BlobHash,
    snapshot::{Base, Entry, EntryKind, GitBase, Manifest, ManifestError, Tree},
};
use nix::{
    errno::Errno,
    unistd::{Gid, Uid, fchown},
};

use super::{
    blobs::{BlobError, Blobs, get_checked},
    contents::{BaseObjects, CachedGit},
    disk::{
        file_stat::Stat,
        handles::{Owner, TreeWriter, join, open_folder, open_root, split, stat_child},
    },
    repository::{
        commit_listing::safe_path,
        git::{GitCallError, GitDir, ObjectFormat, alternates_file, parse_index},
    },
    snapshot::{
        ignored::IgnoreRules,
        index::{Index, Slot, What},
        merge::{Area, FOLDER_MODE, Limits, folder_entry},
        open_workspace::{FILE_BYTES_MAX, SNAPSHOT_BYTES_MAX, Workspace},
        snapshot_error::SnapshotError,
        walk::{ALTERNATES, listing_of},
    },
};

/// How workspaces are made on this machine.
#[derive(Debug, Clone)]
pub struct WorkspaceOptions {
    /// Folder for packs of bases, shared by all processes of this machine; made if missing.
    pub cache_dir: PathBuf,
    /// Owner of what is written; docket's own user if `None`.
    pub owner: Option<Owner>,
    /// Files larger than this, in bytes, are left out of snapshots.
    pub file_bytes_max: u64,
}

impl WorkspaceOptions {
    /// The defaults, with this cache.
    pub fn new(cache_dir: PathBuf) -> Self {
        Self { cache_dir, owner: None, file_bytes_max: FILE_BYTES_MAX }
    }
}

/// Why there is no workspace.
#[derive(Debug, thiserror::Error)]
pub enum MaterializeError {
    /// Something is there already.
    #[error("{0} is not empty: a workspace is made in a new folder only; remove it or name another")]
    NotEmpty(PathBuf),
    /// The file system refused.
    #[error("cannot write {path}: check the permissions and the free space")]
    Io {
        /// Where.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A blob of the base.
    #[error("a blob of the base could not be read")]
    Blob(#[from] BlobError),
    /// The manifest does not decode.
    #[error("the base's list of files is damaged")]
    Manifest(#[from] ManifestError),
    /// The parts of the base contradict each other.
    #[error("the base of this task is damaged: {0}; submit the task anew")]
    Base(String),
    /// git could not read the pack.
    #[error("git could not read the base's pack")]
    Git(#[from] GitCallError),
    /// The finished workspace could not be looked at.
    #[error("the workspace could not be read after it was made")]
    Look(#[from] SnapshotError),
}

impl MaterializeError {
    fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    fn errno(path: &Path) -> impl Fn(Errno) -> Self {
        move |errno| Self::Io { path: path.to_owned(), source: errno.into() }
    }
}

/// Makes a workspace of `base` in `dir`, which must be empty or not there. Blocks on the file system.
///
/// # Errors
/// [`MaterializeError`]; `dir` may then hold a part of the files.
pub async fn materialize(
    dir: &Path,
    base: &Base,
    blobs: &impl Blobs,
    options: &WorkspaceOptions,
) -> Result<Workspace, MaterializeError> {
    let io = MaterializeError::io(dir);
    fs::create_dir_all(dir).map_err(&io)?;
    if fs::read_dir(dir).map_err(&io)?.next().is_some() {
        return Err(MaterializeError::NotEmpty(dir.to_owned()));
    }
    let cached = cached_base(base, blobs, &options.cache_dir).await?;
    let mut workspace = Workspace::bare(dir, cached, options)?;
    if let Some(owner) = options.owner {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        fchown(&workspace.root, Some(uid), Some(gid)).map_err(MaterializeError::errno(dir))?;
    }
    let result = fill(&mut workspace).await;
    let base = &workspace.base.base;
    match result {
        // A cache that was damaged since it was written: from the blobs once more, then the error stands.
        Err(MaterializeError::Git(_) | MaterializeError::Base(_)) if base.git.is_some() => {
            forget_cached(base, &options.cache_dir);
            let again = cached_base(base, blobs, &options.cache_dir).await?;
            workspace.base = again;
            fill(&mut workspace).await?;
        }
        result => result?,
    }
    Ok(workspace)
}

impl Workspace {
    /// Takes up a workspace that stands in `dir`, in whatever state: it must be [restored](super::restore)
    /// before its first snapshot.
    ///
    /// # Errors
    /// [`MaterializeError`].
    pub async fn open(
        dir: &Path,
        base: &Base,
        blobs: &impl Blobs,
        options: &WorkspaceOptions,
    ) -> Result<Self, MaterializeError> {
        let cached = cached_base(base, blobs, &options.cache_dir).await?;
        let mut workspace = Self::bare(dir, cached, options)?;
        workspace.rules = read_rules(&workspace.base).await?;
        Ok(workspace)
    }

    fn bare(dir: &Path, base: BaseObjects, options: &WorkspaceOptions) -> Result<Self, MaterializeError> {
        let path = fs::canonicalize(dir).map_err(MaterializeError::io(dir))?;
        let root = open_root(&path).map_err(MaterializeError::errno(&path))?;
        let listing = listing_of(root.as_fd());
        Ok(Self {
            path,
            root,
            base,
            rules: IgnoreRules::default(),
            work: Area::default(),
            git: Area::default(),
            tree: Tree::default(),
            owner: options.owner,
            limits: Limits { file: options.file_bytes_max, total: SNAPSHOT_BYTES_MAX },
            listing,
        })
    }
}

/// Writes all files and the git folder, and fills the index with what was written.
async fn fill(workspace: &mut Workspace) -> Result<(), MaterializeError> {
    let path = workspace.path.clone();
    let errno = MaterializeError::errno(&path);
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
                .ok_or_else(|| MaterializeError::Base(format!("git's index lacks `{path}`")))
        });
        let objects = objects.collect::<Result<Vec<_>, _>>()?;
        git.dir
            .read_blobs(&objects, |at, bytes| {
                let (path, entry) = files[at];
                if BlobHash::of(&bytes) != entry.hash {
                    return Err(MaterializeError::Base(format!(
                        "`{path}` has another content than recorded"
                    )));
                }
                if split(path.as_bytes()).1 == b".gitignore" {
                    rules.add(split(path.as_bytes()).0, &bytes);
                }
                writer.put(path, entry, &bytes).map_err(&errno)?;
                written.push((path.clone(), *entry, writer.stat(path).map_err(&errno)?));
                Ok(())
            })
            .await?;
    }
    for (path, entry) in base.manifest.entries.iter().filter(|(_, entry)| entry.kind == EntryKind::Dir) {
        writer.put(path, entry, &[]).map_err(&errno)?;
    }
    for (path, entry) in base.manifest.entries.iter().rev().filter(|(_, e)| e.kind == EntryKind::Dir) {
        writer.set_folder_mode(path.as_bytes(), entry.mode).map_err(&errno)?;
    }
    let mut git_written = Vec::new();
    for (path, entry, bytes) in git_skeleton(base) {
        writer.put(&path, &entry, &bytes).map_err(&errno)?;
        if entry.kind == EntryKind::File {
            git_written.push((path.clone(), entry, writer.stat(&path).map_err(&errno)?));
        }
    }
    write_alternates(&mut writer, base).map_err(&errno)?;

    let looked_at = workspace.now()?;
    let folders: Vec<_> = base.manifest.entries.iter().filter(|(_, e)| e.kind == EntryKind::Dir).collect();
    let work = index_of(&reader, &rules, written, &folders, looked_at).map_err(&errno)?;
    let skeleton = git_skeleton(base);
    let folders: Vec<_> =
        skeleton.iter().filter(|(_, e, _)| e.kind == EntryKind::Dir).map(|(p, e, _)| (p, e)).collect();
    let no_rules = IgnoreRules::default();
    let git = index_of(&reader, &no_rules, git_written, &folders, looked_at).map_err(&errno)?;
    workspace.tree = Tree::default();
    for (path, entry) in &workspace.base.manifest.entries {
        workspace.tree.set(path, Some(*entry));
    }
    workspace.work = Area { index: work, ..Area::default() };
    workspace.git = Area { index: git, ..Area::default() };
    workspace.rules = rules;
    Ok(())
}

type Written = Vec<(WorkPath, Entry, nix::sys::stat::FileStat)>;

/// The index of what was just written, so that the first walk reads none of it again.
fn index_of(
    root: &impl AsFd,
    rules: &IgnoreRules,
    written: Written,
    folders: &[(&WorkPath, &Entry)],
    looked_at: (i64, i64),
) -> nix::Result<Index> {
    let mut index = Index::default();
    for (path, entry, stat) in written {
        let stat = Stat::of(&stat);
        let racy = stat.is_racy(looked_at);
        let (folder, name) = split(path.as_bytes());
        index.set(folder, name, Slot { stat, racy, what: What::Kept(entry) });
        index_folder(root, rules, &mut index, folder, None)?;
    }
    for (path, entry) in folders {
        index_folder(root, rules, &mut index, path.as_bytes(), Some(entry.mode))?;
    }
    Ok(index)
}

/// Whether the ignore rules name the folder is part of its slot: inside such a one only what the base has is
/// captured.
fn index_folder(
    root: &impl AsFd,
    rules: &IgnoreRules,
    index: &mut Index,
    path: &[u8],
    recorded: Option<u32>,
) -> nix::Result<bool> {
    if path.is_empty() {
        return Ok(false);
    }
    let (folder, name) = split(path);
    if recorded.is_none()
        && let Some(What::Folder { ignored, .. }) = index.slot(folder, name).map(|slot| slot.what)
    {
        return Ok(ignored);
    }
    let ignored = index_folder(root, rules, index, folder, None)? || rules.names(path, true);
    let stat = Stat::of(&stat_child(root.as_fd(), path)?);
    index.set(folder, name, Slot { stat, racy: false, what: What::Folder { recorded, ignored } });
    Ok(ignored)
}

async fn read_rules(base: &BaseObjects) -> Result<IgnoreRules, MaterializeError> {
    let mut rules = IgnoreRules::default();
    let Some(git) = &base.git else { return Ok(rules) };
    let is_rules = |path: &WorkPath| split(path.as_bytes()).1 == b".gitignore";
    let files = base.manifest.entries.iter().filter(|(path, e)| is_rules(path) && e.kind != EntryKind::Dir);
    let (folders, objects): (Vec<_>, Vec<_>) = files
        .filter_map(|(path, entry)| Some((split(path.as_bytes()).0, git.objects.get(&entry.hash)?.clone())))
        .unzip();
    git.dir
        .read_blobs(&objects, |at, bytes| {
            rules.add(folders[at], &bytes);
            Ok::<(), GitCallError>(())
        })
        .await?;
    Ok(rules)
}

/// The `.git` of a fresh workspace, path by path; the same bytes on every machine.
pub(super) fn git_skeleton(base: &BaseObjects) -> Vec<(WorkPath, Entry, Bytes)> {
    let (Some(git), Some(recorded)) = (&base.git, &base.base.git) else { return Vec::new() };
    let branch = recorded.branch.as_deref().filter(|name| is_branch_name(name)).unwrap_or("main");
    let config = format!(
        "{}[core]\n\tlogAllRefUpdates = true\n\thooksPath = /dev/null\n[gc]\n\tauto = 0\n\
         [maintenance]\n\tauto = false\n[user]\n\tname = docket\n\temail = docket@localhost\n",
        git.format.config()
    );
    let files: [(String, Bytes); 5] = [
        (".git/HEAD".to_owned(), format!("ref: refs/heads/{branch}\n").into()),
        (".git/config".to_owned(), config.into()),
        (".git/index".to_owned(), git.index.clone()),
        (format!(".git/refs/heads/{branch}"), format!("{}\n", recorded.commit).into()),
        (".git/shallow".to_owned(), format!("{}\n", recorded.commit).into()),
    ];
    let files = files.into_iter().map(|(path, bytes)| {
        let (size, hash) = (bytes.len() as u64, BlobHash::of(&bytes));
        (path, Entry { kind: EntryKind::File, mode: 0o644, size, hash }, bytes)
    });
    // `info` holds the alternates alone, which no snapshot sees: so it counts as empty.
    let folders = [".git/objects/info", ".git/objects/pack", ".git/refs/tags"];
    let folders = folders.map(|path| (path.to_owned(), folder_entry(FOLDER_MODE), Bytes::new()));
    let all = files.chain(folders);
    all.map(|(path, entry, bytes)| (WorkPath::new(path).expect("no part is empty or dots"), entry, bytes))
        .collect()
}

/// What git accepts below `refs/heads/`, more strictly than git itself.
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
    let bytes = alternates_file(&[&objects]);
    let entry =
        Entry { kind: EntryKind::File, mode: 0o644, size: bytes.len() as u64, hash: BlobHash::of(&bytes) };
    let path = WorkPath::new(ALTERNATES).expect("a constant without empty parts or dots");
    writer.put(&path, &entry, &bytes)
}

/// The base's objects on this machine: from the cache, or written there from `blobs`. Two processes may do
/// this at the same time; one folder wins and both use it.
///
/// # Errors
/// [`MaterializeError`].
pub async fn cached_base(
    base: &Base,
    blobs: &impl Blobs,
    cache_dir: &Path,
) -> Result<BaseObjects, MaterializeError> {
    let manifest = Manifest::decode(&get_checked(blobs, &base.manifest).await?)?;
    if manifest.tree_hash() != base.tree {
        return Err(MaterializeError::Base(
            "its list of files has another tree hash than recorded".to_owned(),
        ));
    }
    for path in manifest.entries.keys() {
        safe_path(path.as_bytes()).map_err(|error| MaterializeError::Base(error.to_string()))?;
    }
    let Some(recorded) = &base.git else {
        return Ok(BaseObjects { base: base.clone(), manifest, git: None });
    };
    let format = ObjectFormat::of_hex(&recorded.commit)
        .ok_or_else(|| MaterializeError::Base("its commit is no object name".to_owned()))?;
    let dir = cache_dir.join(base_id(recorded));
    if !dir.is_dir() {
        write_cache(&dir, recorded, format, blobs, cache_dir).await?;
    }
    let index = match fs::read(dir.join("index")) {
        Ok(bytes) if BlobHash::of(&bytes) == recorded.index.hash => Bytes::from(bytes),
        Ok(_) | Err(_) => get_checked(blobs, &recorded.index).await?,
    };
    let mut objects = HashMap::new();
    let unread = || MaterializeError::Base("git's index file does not read".to_owned());
    let mut add = |index: &[u8], prefix: &[u8]| {
        for file in parse_index(index, format).ok_or_else(unread)? {
            let entry = WorkPath::new(join(prefix, &file.path)).and_then(|path| manifest.entries.get(&path));
            if let Some(entry) = entry.filter(|entry| entry.kind != EntryKind::Dir) {
                objects.insert(entry.hash, (file.oid, entry.size));
            }
        }
        Ok::<(), MaterializeError>(())
    };
    add(&index, &[])?;
    for module in &recorded.submodules {
        if let Some(index) = &module.index {
            add(&get_checked(blobs, index).await?, module.path.as_bytes())?;
        }
    }
    let git = CachedGit { dir: GitDir::open(&dir), format, index, objects };
    Ok(BaseObjects { base: base.clone(), manifest, git: Some(git) })
}

async fn write_cache(
    dir: &Path,
    base: &GitBase,
    format: ObjectFormat,
    blobs: &impl Blobs,
    cache_dir: &Path,
) -> Result<(), MaterializeError> {
    let io = MaterializeError::io(dir);
    fs::create_dir_all(cache_dir).map_err(&io)?;
    let temporary = tempfile::Builder::new().prefix(".making-").tempdir_in(cache_dir).map_err(&io)?;
    GitDir::create(temporary.path(), format, &[]).map_err(&io)?;
    let name = format!("objects/pack/pack-{}", &base_id(base)[..40]);
    let mut pack = fs::File::create(temporary.path().join(format!("{name}.pack"))).map_err(&io)?;
    for part in &base.pack {
        io::Write::write_all(&mut pack, &get_checked(blobs, part).await?).map_err(&io)?;
    }
    let idx = get_checked(blobs, &base.pack_index).await?;
    fs::write(temporary.path().join(format!("{name}.idx")), &idx).map_err(&io)?;
    fs::write(temporary.path().join("index"), get_checked(blobs, &base.index).await?).map_err(&io)?;
    // Without it git would look for the commit's parents.
    fs::write(temporary.path().join("shallow"), format!("{}\n", base.commit)).map_err(&io)?;
    // The sandboxed user reads here.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(temporary.path(), readable).map_err(&io)?;
    match fs::rename(temporary.path(), dir) {
        Ok(()) => {
            // It has another name now, so there is nothing left for the guard to remove.
            let _moved = temporary.keep();
            Ok(())
        }
        // Another process was faster; ours goes with its guard.
        Err(_) if dir.is_dir() => Ok(()),
        Err(error) => Err(io(error)),
    }
}

/// Moves a cached base aside before removing it, so that no process ever finds half of one.
fn forget_cached(base: &Base, cache_dir: &Path) {
    let Some(git) = &base.git else { return };
    if let Ok(grave) = tempfile::Builder::new().prefix(".damaged-").tempdir_in(cache_dir) {
        // Where it cannot be moved the second try fails as the first did, and says so.
        let _moved = fs::rename(cache_dir.join(base_id(git)), grave.path().join(OsStr::new("base")));
    }
}

/// Names a base by what its git part holds.
fn base_id(base: &GitBase) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(base.commit.as_bytes());
    for blob in base.pack.iter().chain([&base.pack_index, &base.index]) {
        hasher.update(&blob.hash.0);
    }
    hasher.finalize().to_hex().to_string()
}
