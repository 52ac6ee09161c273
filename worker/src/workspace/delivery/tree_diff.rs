//! Two recorded trees compared by git: a patch that `git apply` takes, and counts of lines.
//!
//! The trees that git sees hold the differing paths alone, in a git folder of docket's own, so that the cost
//! follows what changed and no repository is needed. Called by `docket diff`. Invariants: no workspace is
//! touched, nothing that a repository configures is read, and what git cannot hold is named.

use std::{ffi::OsStr, path::Path};

use docket_schema::{
    content::WorkspacePath,
    snapshot::{Entry, EntryKind, Manifest},
};

use super::result_commit::{
    DeliverError, PATCH_DIFF_ARGS, PathChanges, format_index_info, is_forbidden_link, write_objects,
};
use crate::workspace::{
    blobs::BlobReader,
    content_reader::BaseObjects,
    repository::{
        dot_git::is_dot_git,
        git::{GitCallError, GitDir, ObjectFormat, trim_output_line},
        hidden_repository::HiddenRepositories,
    },
    snapshot::index_updater::DEFAULT_FOLDER_MODE,
    tree_view::path_state::{PathDiff, changed_paths, has_entries_below},
};

/// What two trees differ in.
#[derive(Debug)]
pub struct TreeDiff {
    own: GitDir,
    _scratch: tempfile::TempDir,
    old_tree: String,
    new_tree: String,
    paths: Vec<PathDiff>,
    omissions: Vec<(WorkspacePath, PatchOmission)>,
}

/// Why a difference is in no patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchOmission {
    /// git records no folders.
    Folder,
    /// git records of a mode only whether its owner may execute the file.
    Mode,
    /// git does not look into the git folder of a repository inside the tree.
    NestedGit,
    /// Of a submodule a commit holds only which commit of it belongs there.
    Submodule,
    /// With it git would take its folder for a repository, and run what is configured there.
    HiddenRepository,
    /// git takes no link of this name into a tree.
    ForbiddenLink,
}

impl PatchOmission {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Folder => "git records no folders of their own",
            Self::Mode => "git records of modes only 644 and 755",
            Self::ForbiddenLink => "git takes no link of this name into a tree",
            Self::Submodule => "a commit holds no files of a submodule",
            Self::HiddenRepository => "git would take its folder for a repository and obey it",
            Self::NestedGit => "git leaves out git folders inside a tree",
        }
    }
}

/// Lines added and removed in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCounts {
    /// Lines of the new file that the old one lacks.
    pub added: u64,
    /// Lines of the old file that the new one lacks.
    pub removed: u64,
}

/// Compares `old` with `new`. `scratch` is an existing folder for temporary files.
///
/// # Errors
/// [`DeliverError`].
pub async fn compare_trees(
    base: &BaseObjects,
    old: &Manifest,
    new: &Manifest,
    blobs: &impl BlobReader,
    scratch: &Path,
) -> Result<TreeDiff, DeliverError> {
    let fail = |source| DeliverError::ScratchFolder { path: scratch.to_owned(), source };
    let temporary = tempfile::Builder::new().prefix("diff-").tempdir_in(scratch).map_err(fail)?;
    let format = base.git.as_ref().map_or(ObjectFormat::Sha1, |git| git.format);
    let own = GitDir::create(temporary.path(), format, &[]).map_err(fail)?;

    let paths = changed_paths(old, new);
    let hidden = HiddenRepositories::find(old, new);
    let is_hidden = |diff: &PathDiff| diff.new.is_some_and(|now| hidden.is_undeliverable(&diff.path, &now));
    let in_submodule = |diff: &PathDiff| base.containing_submodule(&diff.path).is_some();
    let why = |diff: &PathDiff| {
        if in_submodule(diff) {
            Some(PatchOmission::Submodule)
        } else if is_hidden(diff) {
            Some(PatchOmission::HiddenRepository)
        } else {
            patch_omission(diff, new)
        }
    };
    let beyond = paths.iter().filter_map(|diff| Some((diff.path.clone(), why(diff)?))).collect();
    let side = |of: fn(&PathDiff) -> Option<Entry>| -> PathChanges {
        let held =
            paths.iter().filter(|diff| !is_nested_git(&diff.path) && !is_hidden(diff) && !in_submodule(diff));
        let held = held.filter_map(|diff| Some((diff.path.clone(), of(diff)?)));
        let held = held.filter(|(path, entry)| !is_forbidden_link(path, entry));
        held.filter(|(_, entry)| entry.kind != EntryKind::Dir).map(|(path, e)| (path, Some(e))).collect()
    };
    let sides = [("index-old", side(|diff| diff.old)), ("index-new", side(|diff| diff.new))];
    let entries: Vec<Entry> = sides.iter().flat_map(|(_, side)| side.values().copied().flatten()).collect();
    let names = write_objects(&own, &entries, base, blobs).await?;
    let mut trees = Vec::new();
    for (index, side) in &sides {
        let index = own.path().join(index);
        let env: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", index.as_os_str())];
        let listed = format_index_info(side, &names, format);
        own.run_with_env(&["update-index", "-z", "--index-info"], &env, listed).await?;
        trees.push(trim_output_line(own.run_with_env(&["write-tree"], &env, Vec::new()).await?));
    }
    let [old, new] = <[String; 2]>::try_from(trees).expect("one tree per side");
    Ok(TreeDiff { own, _scratch: temporary, old_tree: old, new_tree: new, paths, omissions: beyond })
}

fn is_nested_git(path: &WorkspacePath) -> bool {
    path.components().any(is_dot_git)
}

/// Whether applying a patch would leave this path other than it is in the new tree.
fn patch_omission(diff: &PathDiff, new: &Manifest) -> Option<PatchOmission> {
    if is_nested_git(&diff.path) {
        return Some(PatchOmission::NestedGit);
    }
    if diff.new.is_some_and(|now| is_forbidden_link(&diff.path, &now)) {
        return Some(PatchOmission::ForbiddenLink);
    }
    let odd_mode = |entry: &Entry| entry.kind == EntryKind::File && !matches!(entry.mode, 0o644 | 0o755);
    match (diff.old, diff.new) {
        (_, Some(now)) if now.kind == EntryKind::Dir => Some(PatchOmission::Folder),
        (_, Some(now)) if odd_mode(&now) => Some(PatchOmission::Mode),
        // git sees no difference between, say, 600 and 644, and so would leave the mode as it is.
        (Some(was), Some(now)) if odd_mode(&was) && was.hash == now.hash && now.kind == EntryKind::File => {
            Some(PatchOmission::Mode)
        }
        (Some(was), None) if was.kind == EntryKind::Dir => {
            let goes_with_its_files = was.mode == DEFAULT_FOLDER_MODE && has_entries_below(new, &diff.path);
            (!goes_with_its_files).then_some(PatchOmission::Folder)
        }
        (Some(_) | None, Some(_) | None) => None,
    }
}

impl TreeDiff {
    /// All paths that differ, in byte order.
    pub fn paths(&self) -> &[PathDiff] {
        &self.paths
    }

    /// Those that the patch cannot carry as they are, and why.
    pub fn patch_omissions(&self) -> &[(WorkspacePath, PatchOmission)] {
        &self.omissions
    }

    /// The difference as `git apply` takes it; empty if git sees none.
    ///
    /// # Errors
    /// [`DeliverError::Git`].
    pub async fn to_patch(&self) -> Result<Vec<u8>, DeliverError> {
        let args = [&PATCH_DIFF_ARGS[..], &[&self.old_tree, &self.new_tree]].concat();
        Ok(self.own.run(&args, Vec::new()).await?)
    }

    /// Lines added and removed, by path; `None` where a file is not text. A path that git does not see is
    /// not among them.
    ///
    /// # Errors
    /// [`DeliverError::Git`].
    pub async fn count_lines(&self) -> Result<Vec<(WorkspacePath, Option<LineCounts>)>, DeliverError> {
        let args = ["diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"];
        let output =
            self.own.run(&[&args[..], &[&self.old_tree, &self.new_tree]].concat(), Vec::new()).await?;
        let records = output.split(|b| *b == 0).filter(|record| !record.is_empty());
        let all: Option<Vec<_>> = records.map(parse_numstat).collect();
        Ok(all.ok_or(GitCallError::UnexpectedOutput { verb: "diff", what: "a count of another form" })?)
    }
}

/// `<added or ->\t<removed or ->\t<path>`
fn parse_numstat(record: &[u8]) -> Option<(WorkspacePath, Option<LineCounts>)> {
    let mut parts = record.splitn(3, |b| *b == b'\t');
    let mut count = || std::str::from_utf8(parts.next()?).ok();
    let (added, removed) = (count()?, count()?);
    let path = WorkspacePath::new(parts.next()?)?;
    if (added, removed) == ("-", "-") {
        return Some((path, None));
    }
    Some((path, Some(LineCounts { added: added.parse().ok()?, removed: removed.parse().ok()? })))
}
