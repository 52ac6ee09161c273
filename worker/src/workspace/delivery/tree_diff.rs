//! Compares two recorded trees with git: a patch for `git apply`, and line counts.
//!
//! The trees that git sees contain only the differing paths, in a git folder of docket's own, so the cost
//! depends on the size of the change and no repository is needed. Called by `docket diff`. Invariants: no
//! workspace is touched, no repository's configuration is read, and paths that git cannot represent are
//! reported.

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

/// The differences between two trees.
#[derive(Debug)]
pub struct TreeDiff {
    own: GitDir,
    _scratch: tempfile::TempDir,
    old_tree: String,
    new_tree: String,
    paths: Vec<PathDiff>,
    omissions: Vec<(WorkspacePath, PatchOmission)>,
}

/// Why a difference is not in the patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchOmission {
    /// git does not record folders.
    Folder,
    /// git records only the owner's execute bit of a mode.
    Mode,
    /// git ignores the git folder of a nested repository.
    NestedGit,
    /// A commit records only the commit id of a submodule.
    Submodule,
    /// With this file git would treat its folder as a repository and run commands configured there.
    HiddenRepository,
    /// git does not accept a link of this name in a tree.
    ForbiddenLink,
}

impl PatchOmission {
    /// The reason as text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Folder => "git does not record folders",
            Self::Mode => "git records only the modes 644 and 755",
            Self::ForbiddenLink => "git does not accept a link of this name in a tree",
            Self::Submodule => "a commit does not contain the files of a submodule",
            Self::HiddenRepository => {
                "git would treat its folder as a repository and run commands configured there"
            }
            Self::NestedGit => "git ignores git folders inside a tree",
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
/// [`DeliverError`] if a content cannot be read or git fails.
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

/// Returns why the patch cannot reproduce this path as it is in the new tree, if so.
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
        // git sees no difference between 600 and 644, for example, and would leave the mode unchanged.
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

    /// The paths that the patch cannot represent exactly, and why.
    pub fn patch_omissions(&self) -> &[(WorkspacePath, PatchOmission)] {
        &self.omissions
    }

    /// Returns the differences as a patch for `git apply`; empty if git sees none.
    ///
    /// # Errors
    /// [`DeliverError::Git`] if git fails.
    pub async fn to_patch(&self) -> Result<Vec<u8>, DeliverError> {
        let args = [&PATCH_DIFF_ARGS[..], &[&self.old_tree, &self.new_tree]].concat();
        Ok(self.own.run(&args, Vec::new()).await?)
    }

    /// Returns lines added and removed, by path; `None` if a file is not text. Paths that git does not see
    /// are left out.
    ///
    /// # Errors
    /// [`DeliverError::Git`] if git fails.
    pub async fn count_lines(&self) -> Result<Vec<(WorkspacePath, Option<LineCounts>)>, DeliverError> {
        let args = ["diff", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv"];
        let output =
            self.own.run(&[&args[..], &[&self.old_tree, &self.new_tree]].concat(), Vec::new()).await?;
        let records = output.split(|b| *b == 0).filter(|record| !record.is_empty());
        let all: Option<Vec<_>> = records.map(parse_numstat).collect();
        Ok(all.ok_or(GitCallError::UnexpectedOutput { verb: "diff", what: "a malformed count" })?)
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
