//! Builds a run's result as a commit, for a patch or for a branch in the source repository.
//!
//! The commit is built in a git folder of docket's own from the recorded tree, never from the workspace:
//! anything a model wrote into its `.git` is ignored. Called when a run ends, and by the commands that show
//! history. Invariants: the same tree, message and times give the same commit; no hook runs; a branch that
//! docket did not create is never moved.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use docket_schema::{
    content::WorkspacePath,
    ids::BlobHash,
    snapshot::{Entry, EntryKind},
};

use crate::workspace::{
    blobs::BlobReader,
    content_reader::{BaseObjects, ContentReader, ContentsError},
    disk::dirfd::split_path,
    repository::{
        dot_git::{is_dot_git, is_dot_gitmodules},
        git::{GitCallError, GitDir, ObjectFormat, run_probe, trim_output_line},
        hidden_repository::HiddenRepositories,
        local_repo::LocalRepo,
        pin_error::PinError,
    },
    tree_view::path_state::tree_with_overlay,
};

/// Author and committer of a delivered commit, and its time. The time is a recorded one, so that a repeated
/// delivery gives the same commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSignature {
    pub name: String,
    /// Email address.
    pub email: String,
    /// Seconds since 1970, UTC.
    pub at_seconds: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// The task has no repository.
    #[error(
        "this task has no repository, so it cannot be delivered as a commit: use `docket checkout` to get its files"
    )]
    NoRepository,
    /// docket's own temporary files could not be accessed.
    #[error("cannot work in the temporary folder {path}: check its permissions and the free space")]
    ScratchFolder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A content could not be read.
    #[error("recorded content could not be read")]
    Contents(#[from] ContentsError),
    /// A git call failed.
    #[error("git could not create the commit")]
    Git(#[from] GitCallError),
    /// The target repository could not be read.
    #[error(transparent)]
    Target(#[from] PinError),
    /// Not a valid branch name.
    #[error("`{0}` is not a valid branch name: see `git help check-ref-format`")]
    BranchName(String),
    /// The branch exists and is at another commit.
    #[error("the branch `{branch}` exists and is at {at}: deliver under another name, or delete it first")]
    BranchTaken {
        branch: String,
        /// The commit it is at.
        at: String,
    },
    /// One branch name is a folder of the other.
    #[error("the branch `{other}` exists, so git cannot create `{branch}`: deliver under another name")]
    BranchNameConflict {
        /// The requested branch.
        branch: String,
        /// The existing branch.
        other: String,
    },
    /// The branch contains the delivery of a run that this one does not build on.
    #[error(
        "the branch `{branch}` is at {at}, the result of another run of the task: this run did not start from it and \
         would undo it if placed on top"
    )]
    WouldUndoOtherRun {
        branch: String,
        /// The commit it is at.
        at: String,
    },
    /// The run changed nothing.
    #[error("the run changed nothing that is not already there, so no branch was created")]
    NoChanges,
    /// The branch is checked out in a work tree, which would not follow it.
    #[error(
        "the branch `{0}` is checked out in a work tree, which would not be updated: check out another branch, or \
         deliver under another name"
    )]
    BranchCheckedOut(String),
    /// Refs cannot be written.
    #[error("the folder {0} of the repository is not writable: check its permissions")]
    NotWritable(PathBuf),
    /// The checked-out files differ from their commit where the result changes them.
    #[error(
        "the checked-out files have uncommitted changes where the result changes them, in {}",
        format_paths(paths)
    )]
    DirtyFiles { paths: Vec<String> },
    /// The result conflicts with commits added to the branch since the task began.
    #[error(
        "the result conflicts with changes made to `{onto}` since the task began, in {}",
        format_paths(paths)
    )]
    Conflict {
        /// The branch that the result was applied to.
        onto: String,
        /// The conflicting paths, as lossy UTF-8.
        paths: Vec<String>,
    },
}

impl DeliverError {
    /// Whether a retry may succeed without intervention: git or a disk failed, or a file is temporarily
    /// missing.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::NoRepository
            | Self::ScratchFolder { .. }
            | Self::Contents(_)
            | Self::Git(_)
            | Self::DirtyFiles { .. }
            | Self::NotWritable(_)
            | Self::Target(_) => true,
            Self::BranchName(_)
            | Self::BranchTaken { .. }
            | Self::BranchNameConflict { .. }
            | Self::WouldUndoOtherRun { .. }
            | Self::NoChanges
            | Self::BranchCheckedOut(_)
            | Self::Conflict { .. } => false,
        }
    }
}

/// Most paths named in a message.
const PATHS_SHOWN_MAX: usize = 8;

fn format_paths(paths: &[String]) -> String {
    let mut named = paths.iter().take(PATHS_SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if paths.len() > PATHS_SHOWN_MAX {
        named.push_str(&format!(" and {} more", paths.len() - PATHS_SHOWN_MAX));
    }
    named
}

/// A recorded tree as git objects, in a temporary folder of docket's own.
#[derive(Debug)]
pub struct ResultCommit {
    pub(crate) git_dir: GitDir,
    _scratch: tempfile::TempDir,
    pub(crate) base_commit: String,
    pub(crate) tree: String,
    skipped_paths: Vec<WorkspacePath>,
}

/// Builds the git tree of base and overlay. `scratch` is an existing folder for temporary files.
///
/// # Errors
/// [`DeliverError`] if a content cannot be read or git fails.
pub async fn build_result(
    base: &BaseObjects,
    overlay: &BTreeMap<WorkspacePath, Option<Entry>>,
    blobs: &impl BlobReader,
    scratch: &Path,
) -> Result<ResultCommit, DeliverError> {
    let (Some(git), Some(recorded)) = (&base.git, &base.base.git) else {
        return Err(DeliverError::NoRepository);
    };
    let fail = |source| DeliverError::ScratchFolder { path: scratch.to_owned(), source };
    let temporary = tempfile::Builder::new().prefix("deliver-").tempdir_in(scratch).map_err(fail)?;
    let objects = git.dir.path().join("objects");
    let own = GitDir::create(temporary.path(), git.format, &[&objects]).map_err(fail)?;
    fs::write(own.path().join("shallow"), format!("{}\n", recorded.commit)).map_err(fail)?;
    fs::write(own.path().join("index"), &git.index).map_err(fail)?;

    let (changes, skipped) = split_committable(overlay, base);
    let new: Vec<Entry> = changes.values().filter_map(|entry| *entry).collect();
    let names = write_objects(&own, &new, base, blobs).await?;
    own.run(&["update-index", "-z", "--index-info"], format_index_info(&changes, &names, git.format)).await?;
    let tree = trim_output_line(own.run(&["write-tree"], Vec::new()).await?);
    Ok(ResultCommit {
        git_dir: own,
        _scratch: temporary,
        base_commit: recorded.commit.clone(),
        tree,
        skipped_paths: skipped,
    })
}

/// New entries by path; `None` = removed.
pub(crate) type PathChanges = BTreeMap<WorkspacePath, Option<Entry>>;

/// Options that compare two trees in the form `git apply` accepts, regardless of any configuration.
pub(crate) const PATCH_DIFF_ARGS: [&str; 9] = [
    "diff",
    "--binary",
    "--full-index",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
];

/// Whether git refuses a link of this name in a tree, whatever its target.
pub(crate) fn is_forbidden_link(path: &WorkspacePath, entry: &Entry) -> bool {
    entry.kind == EntryKind::Symlink && is_dot_gitmodules(split_path(path.as_bytes()).1)
}

/// Splits off paths that a git tree cannot contain (folders without files, git folders of nested
/// repositories, files of submodules) and those that would make git treat a folder as a repository.
fn split_committable(overlay: &PathChanges, base: &BaseObjects) -> (PathChanges, Vec<WorkspacePath>) {
    let mut changes = PathChanges::new();
    let mut skipped = Vec::new();
    let hidden = HiddenRepositories::find(&base.manifest, &tree_with_overlay(&base.manifest, overlay));
    for (path, entry) in overlay {
        let refused = |entry: Entry| is_forbidden_link(path, &entry) || hidden.is_undeliverable(path, &entry);
        // The commit keeps the submodule's gitlink, whatever happened to its folder.
        if base.containing_submodule(path).is_some() {
            let is_its_folder = entry.is_none_or(|entry| entry.kind == EntryKind::Dir);
            if !is_its_folder || base.manifest.entries.get(path).is_some_and(|e| e.kind != EntryKind::Dir) {
                skipped.push(path.clone());
            }
            continue;
        }
        let nested = path.components().any(is_dot_git) || entry.is_some_and(refused);
        match entry {
            Some(_) if nested => skipped.push(path.clone()),
            // A file or link replaced by a folder is removed; git does not record the folder itself.
            Some(entry) if entry.kind == EntryKind::Dir => {
                if base.manifest.entries.get(path).is_some_and(|old| old.kind != EntryKind::Dir) {
                    changes.insert(path.clone(), None);
                }
            }
            None if nested => {}
            Some(_) | None => {
                changes.insert(path.clone(), *entry);
            }
        }
    }
    (changes, skipped)
}

/// Writes the contents as git objects. Returns their object names by hash.
pub(crate) async fn write_objects(
    own: &GitDir,
    entries: &[Entry],
    base: &BaseObjects,
    blobs: &impl BlobReader,
) -> Result<BTreeMap<BlobHash, String>, DeliverError> {
    let folder = own.path().join("new");
    let fail = |source| DeliverError::ScratchFolder { path: folder.clone(), source };
    fs::create_dir_all(&folder).map_err(fail)?;
    let mut hashes = Vec::new();
    ContentReader::new(base, blobs)
        .for_each_content(entries, |hash, bytes| {
            fs::write(folder.join(hashes.len().to_string()), &bytes).map_err(fail)?;
            hashes.push(hash);
            Ok::<(), DeliverError>(())
        })
        .await?;
    if hashes.is_empty() {
        return Ok(BTreeMap::new());
    }
    let list: String = (0..hashes.len()).map(|nth| format!("new/{nth}\n")).collect();
    let args = ["hash-object", "-w", "-t", "blob", "--no-filters", "--stdin-paths"];
    let names = trim_output_line(own.run(&args, list.into_bytes()).await?);
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    if names.len() != hashes.len() {
        return Err(GitCallError::UnexpectedOutput {
            verb: "hash-object",
            what: "an unexpected number of names",
        }
        .into());
    }
    Ok(hashes.into_iter().zip(names).collect())
}

/// Formats the changes as input for `update-index --index-info -z`.
pub(crate) fn format_index_info(
    changes: &PathChanges,
    names: &BTreeMap<BlobHash, String>,
    format: ObjectFormat,
) -> Vec<u8> {
    let mut lines = Vec::new();
    let zero = format.zero_oid();
    // Removals come first: a file must be gone before a folder takes its name, and vice versa.
    let removed = changes.iter().filter(|(_, entry)| entry.is_none());
    for (path, entry) in removed.chain(changes.iter().filter(|(_, entry)| entry.is_some())) {
        let named = entry.and_then(|entry| Some((entry, names.get(&entry.hash)?)));
        let head = match named {
            None => format!("0 {zero}\t"),
            Some((entry, name)) => {
                let mode = match entry.kind {
                    EntryKind::Symlink => "120000",
                    EntryKind::File if entry.mode & 0o100 != 0 => "100755",
                    EntryKind::File | EntryKind::Dir => "100644",
                };
                format!("{mode} {name}\t")
            }
        };
        lines.extend_from_slice(head.as_bytes());
        lines.extend_from_slice(path.as_bytes());
        lines.push(0);
    }
    lines
}

impl ResultCommit {
    /// Paths that are not delivered because git cannot store them or would act on them.
    pub fn skipped_paths(&self) -> &[WorkspacePath] {
        &self.skipped_paths
    }

    /// Returns the changes since the base as a patch for `git apply`; empty if there are none.
    ///
    /// # Errors
    /// [`DeliverError::Git`] if git fails.
    pub async fn to_patch(&self) -> Result<Vec<u8>, DeliverError> {
        let args = [&PATCH_DIFF_ARGS[..], &[&self.base_commit, &self.tree]].concat();
        Ok(self.git_dir.run(&args, Vec::new()).await?)
    }
}

pub(crate) async fn branch_commit(repo: &LocalRepo, reference: &str) -> Result<Option<String>, DeliverError> {
    let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", reference];
    match run_probe(&repo.git_dir, &args).await {
        Ok(output) => Ok(Some(trim_output_line(output))),
        Err(GitCallError::Failed { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
