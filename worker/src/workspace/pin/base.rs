//! Pins a base: turns a commit of a repository into blobs that suffice to create its workspace on any
//! machine.
//!
//! Called at submit, once per task. Everything is read in a git folder of docket's own that borrows the
//! source's objects, so the source is never written and nothing it configures is run. The pack contains
//! exactly one commit, its trees and its blobs; the manifest records each file's exact bytes, before any
//! filter.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use docket_schema::{
    content::{BlobRef, WorkspacePath},
    ids::BlobHash,
    snapshot::{Entry, EntryKind, GitBase, Manifest, Submodule, WorkspaceBase},
};

use fastcdc::v2020::StreamCDC;

use super::submodules::FoundSubmodules;
use crate::workspace::{
    blobs::BlobSink,
    repository::{
        commit_listing::{
            MODE_EXECUTABLE, MODE_GITLINK, MODE_LINK, MODE_TREE, TreeListingEntry, list_commit,
            parse_safe_path,
        },
        git::{GitCallError, GitDir, trim_output_line},
        local_repo::{
            BaseSource, DirtyTreePolicy, LocalRepo, ResolvedCommit, UntrackedListing, dirty_tree_error,
        },
        pin_error::PinError,
    },
};

/// Maximum size of a pack part, in bytes: small enough for one request body and one database row.
pub const PIN_PART_BYTES: usize = 4 * 1024 * 1024;

/// Sizes of pack parts, in bytes: minimum, average, maximum. Boundaries are content-defined, so that the
/// packs of two commits share the parts in which they do not differ.
const PACK_PART_BYTES: (usize, usize, usize) = (64 * 1024, 256 * 1024, 1024 * 1024);

/// Part sizes for a pack larger than [`LARGE_PACK_BYTES`], because one event lists all parts.
const LARGE_PACK_PART_BYTES: (usize, usize, usize) = (1024 * 1024, 2 * 1024 * 1024, PIN_PART_BYTES);

/// Packs of at least this size, in bytes, use larger parts.
const LARGE_PACK_BYTES: u64 = 128 * 1024 * 1024;

/// The first line of an LFS pointer file.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\n";

/// What to pin, and where docket may write temporary files.
#[derive(Debug, Clone)]
pub struct PinOptions {
    /// Branch, tag or commit; HEAD if `None`.
    pub rev: Option<String>,
    /// What to do with uncommitted changes. Only relevant if `rev` is `None`.
    pub dirty: DirtyTreePolicy,
    /// An existing folder of docket's own for temporary files, on a disk with room for one pack.
    pub scratch: PathBuf,
}

/// A part of the source that the base contains in a form that a person may not expect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PinNote {
    /// A submodule whose commit is not on this machine: its folder is empty in the workspace.
    EmptySubmodule(WorkspacePath),
    /// A submodule that is filled at its recorded commit; a task cannot change it.
    FilledSubmodule(WorkspacePath),
    /// A Git LFS file: the workspace contains the pointer.
    LfsPointer(WorkspacePath),
    /// Uncommitted changes of this many paths are part of the base.
    DirtyIncluded(usize),
}

/// A pinned base. Its blobs were written to the sink.
#[derive(Debug, Clone)]
pub struct PinnedBase {
    /// The base as the task records it.
    pub base: WorkspaceBase,
    /// Notes for the submitter.
    pub notes: Vec<PinNote>,
}

/// Pins `source` and writes every blob of the base to `sink`.
///
/// # Errors
/// [`PinError`]; the sink may then contain unreferenced blobs.
pub async fn pin_base(
    source: &BaseSource,
    options: &PinOptions,
    sink: &mut impl BlobSink,
) -> Result<PinnedBase, PinError> {
    let BaseSource::Local(path) = source else {
        let (base, notes) = (store_manifest(&Manifest::default(), None, sink).await?, Vec::new());
        return Ok(PinnedBase { base, notes });
    };
    if options.rev.is_some() && options.dirty == DirtyTreePolicy::Include {
        return Err(PinError::DirtyWithRevision);
    }
    let repo = LocalRepo::discover(path).await?;
    let mut resolved = repo.resolve_commit(options.rev.as_deref()).await?;
    let scratch_error = |source| PinError::ScratchFolder { path: options.scratch.clone(), source };
    let scratch =
        tempfile::Builder::new().prefix("pin-").tempdir_in(&options.scratch).map_err(scratch_error)?;
    let own =
        GitDir::create(scratch.path(), resolved.format, &[&repo.objects_folder()]).map_err(scratch_error)?;

    let mut notes = Vec::new();
    if options.rev.is_none() {
        let dirty = repo.dirty_paths(&own, &resolved.commit, UntrackedListing::Folders).await?;
        if !dirty.is_empty() {
            if options.dirty == DirtyTreePolicy::Refuse {
                return Err(dirty_tree_error(&repo, &dirty));
            }
            resolved.commit = commit_dirty_tree(&repo, &own, &resolved).await?;
            notes.push(PinNote::DirtyIncluded(dirty.len()));
        }
    }
    let mut listed = list_commit(&own, &resolved.commit).await?;
    let modules = FoundSubmodules::find(&repo, &own, &listed, sink).await?;
    listed.extend(modules.entries);
    let manifest = build_manifest(&own, &listed, &modules.submodules, &mut notes).await?;
    let git = build_pack(&own, &resolved, (&listed, &modules.root_objects), sink, &options.scratch).await?;
    let source = path.to_string_lossy().into_owned();
    let git = GitBase { source, submodules: modules.submodules, ..git };
    Ok(PinnedBase { base: store_manifest(&manifest, Some(git), sink).await?, notes })
}

async fn store_manifest(
    manifest: &Manifest,
    git: Option<GitBase>,
    sink: &mut impl BlobSink,
) -> Result<WorkspaceBase, PinError> {
    let encoded = manifest.encode();
    let blob = BlobRef::for_bytes(&encoded);
    sink.put(blob, encoded).await?;
    Ok(WorkspaceBase { manifest: blob, tree: manifest.tree_hash(), git })
}

/// Creates a commit of the current work tree on top of the resolved commit, in docket's own folder. It has
/// its parent's date, so that the same state gives the same commit.
async fn commit_dirty_tree(
    repo: &LocalRepo,
    own: &GitDir,
    resolved: &ResolvedCommit,
) -> Result<String, PinError> {
    let work_tree = repo.work_tree.as_deref().unwrap_or(Path::new("/"));
    let index = own.path().join("index");
    let from = repo.git_dir.join("index");
    if from.is_file() {
        fs::copy(&from, &index)
            .map_err(|source| PinError::ScratchFolder { path: own.path().to_owned(), source })?;
    }
    let env: [(&str, &OsStr); 2] =
        [("GIT_WORK_TREE", work_tree.as_os_str()), ("GIT_INDEX_FILE", index.as_os_str())];
    // Path by path: `git add` examines each submodule with another git process, which runs the filters
    // configured in the submodule.
    let mut paths = repo.dirty_paths(own, &resolved.commit, UntrackedListing::Files).await?.join(&0);
    paths.push(0);
    let args = ["update-index", "--add", "--remove", "--replace", "-z", "--stdin"];
    own.run_with_env(&args, &env, paths).await?;
    let tree = trim_output_line(own.run_with_env(&["write-tree"], &env, Vec::new()).await?);
    let date = trim_output_line(
        own.run(&["log", "-1", "--no-walk", "--format=@%cd", "--date=raw", &resolved.commit], Vec::new())
            .await?,
    );
    let person: [(&str, &OsStr); 6] = [
        ("GIT_AUTHOR_NAME", "docket".as_ref()),
        ("GIT_AUTHOR_EMAIL", "docket@localhost".as_ref()),
        ("GIT_AUTHOR_DATE", date.as_ref()),
        ("GIT_COMMITTER_NAME", "docket".as_ref()),
        ("GIT_COMMITTER_EMAIL", "docket@localhost".as_ref()),
        ("GIT_COMMITTER_DATE", date.as_ref()),
    ];
    let args = ["commit-tree", "-p", &resolved.commit, "-m", "Uncommitted changes at submit", &tree];
    Ok(trim_output_line(own.run_with_env(&args, &person, Vec::new()).await?))
}

/// Reads every file once and collects notes for the submitter.
async fn build_manifest(
    own: &GitDir,
    listed: &[TreeListingEntry],
    modules: &[Submodule],
    notes: &mut Vec<PinNote>,
) -> Result<Manifest, PinError> {
    let mut manifest = Manifest::default();
    let mut files = Vec::new();
    let mut seen = HashSet::with_capacity(listed.len());
    for item in listed {
        let path = parse_safe_path(&item.path)?;
        // A link and a folder of the same name: the folder's contents would be written through the link.
        if !seen.insert(&item.path) {
            let why = "two entries have this name";
            return Err(PinError::UnsafePath { path: path.to_string(), why });
        }
        match item.mode {
            MODE_TREE | MODE_GITLINK => {}
            _ => files.push((path, item)),
        }
    }
    for module in modules {
        if module.index.is_some() {
            notes.push(PinNote::FilledSubmodule(module.path.clone()));
            continue;
        }
        // git itself leaves an empty folder in place of a submodule that was not fetched.
        let entry = Entry { kind: EntryKind::Dir, mode: 0o755, size: 0, hash: BlobHash([0; 32]) };
        notes.push(PinNote::EmptySubmodule(module.path.clone()));
        manifest.entries.insert(module.path.clone(), entry);
    }
    let objects: Vec<_> = files.iter().map(|(_, item)| (item.oid.clone(), item.size)).collect();
    own.read_blobs(&objects, |at, bytes| {
        let (path, item) = &files[at];
        if bytes.starts_with(LFS_POINTER) {
            notes.push(PinNote::LfsPointer(path.clone()));
        }
        let (kind, mode) = match item.mode {
            MODE_LINK => (EntryKind::Symlink, 0),
            MODE_EXECUTABLE => (EntryKind::File, 0o755),
            _ => (EntryKind::File, 0o644),
        };
        let entry = Entry { kind, mode, size: bytes.len() as u64, hash: BlobHash::hash_bytes(&bytes) };
        manifest.entries.insert(path.clone(), entry);
        Ok::<(), GitCallError>(())
    })
    .await?;
    Ok(manifest)
}

/// Builds the pack, the pack index and the index file, and writes them to the sink.
async fn build_pack(
    own: &GitDir,
    resolved: &ResolvedCommit,
    (listed, roots): (&[TreeListingEntry], &[String]),
    sink: &mut impl BlobSink,
    scratch: &Path,
) -> Result<GitBase, PinError> {
    let root = trim_output_line(
        own.run(&["rev-parse", &format!("{}^{{tree}}", resolved.commit)], Vec::new()).await?,
    );
    let mut names = format!("{}\n{root}\n", resolved.commit).into_bytes();
    for item in listed.iter().filter(|item| item.mode != MODE_GITLINK) {
        names.extend_from_slice(item.oid.as_bytes());
        names.push(b'\n');
    }
    for root in roots {
        names.extend_from_slice(root.as_bytes());
        names.push(b'\n');
    }
    let prefix = own.path().join("base");
    // Deltas of the source are reused; searching for new ones between the files of one commit takes seconds
    // and gains little.
    let prefix_text = prefix.to_str().ok_or_else(|| PinError::ScratchFolder {
        path: scratch.to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8"),
    })?;
    let args = [
        "-c",
        "pack.writeReverseIndex=false",
        "pack-objects",
        "-q",
        "--window=0",
        "--delta-base-offset",
        prefix_text,
    ];
    let name = trim_output_line(own.run(&args, names).await?);
    let index = own.path().join("base-index");
    let env: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", index.as_os_str())];
    own.run_with_env(&["-c", "index.version=2", "read-tree", &resolved.commit], &env, Vec::new()).await?;

    let suffixed = |ext: &str| PathBuf::from(format!("{prefix_text}-{name}.{ext}"));
    let parts = store_pack_parts(&suffixed("pack"), sink).await?;
    Ok(GitBase {
        commit: resolved.commit.clone(),
        branch: resolved.branch.clone(),
        pack: parts,
        pack_index: store_file(&suffixed("idx"), sink).await?,
        index: store_file(&index, sink).await?,
        source: String::new(),
        recent: store_recent_log(own, &resolved.commit, sink).await?,
        submodules: Vec::new(),
    })
}

/// Stores the latest commits and the files they touched, as input for planning. A shallow history is left out
/// because it is not part of the base.
async fn store_recent_log(
    own: &GitDir,
    commit: &str,
    sink: &mut impl BlobSink,
) -> Result<Option<BlobRef>, PinError> {
    let args = [
        "log",
        "--max-count=10",
        "--date=short",
        "--format=%h %cd %s",
        "--name-status",
        "--no-renames",
        "--no-show-signature",
        "--no-ext-diff",
        "--no-color",
        commit,
    ];
    let Ok(said) = own.run(&args, Vec::new()).await else { return Ok(None) };
    let text = shorten_log(&String::from_utf8_lossy(&said));
    if text.is_empty() {
        return Ok(None);
    }
    let blob = BlobRef::for_bytes(text.as_bytes());
    sink.put(blob, text.into_bytes()).await?;
    Ok(Some(blob))
}

/// Most files listed per commit.
const RECENT_FILES_MAX: usize = 8;
/// Longest line, in characters.
const RECENT_LINE_CHARS_MAX: usize = 120;

/// Shortens a log to its commits with their first files, one per line.
fn shorten_log(log: &str) -> String {
    let (mut out, mut files) = (String::new(), 0);
    for line in log.lines().filter(|line| !line.is_empty()) {
        // A file line starts with a letter and a tab.
        files = if line.get(1..2) == Some("\t") { files + 1 } else { 0 };
        if files <= RECENT_FILES_MAX {
            out.extend(line.chars().take(RECENT_LINE_CHARS_MAX));
            out.push('\n');
        } else if files == RECENT_FILES_MAX + 1 {
            out.push_str("…\n");
        }
    }
    out
}

async fn store_file(path: &Path, sink: &mut impl BlobSink) -> Result<BlobRef, PinError> {
    let bytes = fs::read(path).map_err(|source| PinError::ScratchFolder { path: path.to_owned(), source })?;
    let blob = BlobRef::for_bytes(&bytes);
    sink.put(blob, bytes).await?;
    Ok(blob)
}

async fn store_pack_parts(path: &Path, sink: &mut impl BlobSink) -> Result<Vec<BlobRef>, PinError> {
    let fail = |source| PinError::ScratchFolder { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(fail)?;
    let large = file.metadata().map_err(fail)?.len() > LARGE_PACK_BYTES;
    let (least, usual, most) = if large { LARGE_PACK_PART_BYTES } else { PACK_PART_BYTES };
    let mut parts = Vec::new();
    for chunk in StreamCDC::new(file, least, usual, most) {
        let part = chunk.map_err(|e| fail(e.into()))?.data;
        let blob = BlobRef::for_bytes(&part);
        sink.put(blob, part).await?;
        parts.push(blob);
    }
    Ok(parts)
}
