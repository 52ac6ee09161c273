//! Submodules of a base: filled at their recorded commits if this machine has them, and never part of a
//! result.
//!
//! A commit records only the commit id of a submodule (a *gitlink*). A workspace needs the submodule's files,
//! but a result must keep the gitlink: files in its place would delete the submodule. So the files are pinned
//! with the base, changes below a submodule are refused or reverted, and any that still reach a delivery are
//! left out. Used for pinning, materializing and delivery, and by the run loop through
//! [`BaseObjects::containing_submodule`].

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use docket_schema::{
    content::{BlobRef, WorkspacePath},
    snapshot::{EntryKind, Submodule},
};

use crate::workspace::{
    blobs::BlobSink,
    content_reader::BaseObjects,
    disk::dirfd::join_path,
    repository::{
        commit_listing::{MODE_GITLINK, TreeListingEntry, list_commit, parse_safe_path},
        git::{GitCallError, GitDir, format_alternates, trim_output_line},
        local_repo::LocalRepo,
        pin_error::PinError,
    },
};

/// Most submodules to fill, including nested ones; further ones are left as empty folders.
const FILLED_SUBMODULES_MAX: usize = 1_000;

/// Deepest nesting of submodules.
const SUBMODULE_DEPTH_MAX: usize = 16;

/// The submodules found in a commit.
#[derive(Debug, Default)]
pub(crate) struct FoundSubmodules {
    /// All of them, in byte order, as the base records them.
    pub(crate) submodules: Vec<Submodule>,
    /// Entries of the filled submodules, with paths relative to the complete tree.
    pub(crate) entries: Vec<TreeListingEntry>,
    /// Objects that the pack needs in addition to those of `listed`: commits and root trees.
    pub(crate) root_objects: Vec<String>,
}

/// Where to look for a submodule.
struct SubmoduleSearch {
    path: Vec<u8>,
    commit: String,
    /// The repository that contains it as a submodule.
    repo: LocalRepo,
    /// Its path in that repository.
    inner_path: Vec<u8>,
    depth: usize,
}

impl FoundSubmodules {
    /// Finds the objects of all submodules referenced by `listed`, the tree of a commit of `repo`. `own` gets
    /// access to them through alternates; nothing that a submodule configures is run.
    pub(crate) async fn find(
        repo: &LocalRepo,
        own: &GitDir,
        listed: &[TreeListingEntry],
        sink: &mut impl BlobSink,
    ) -> Result<Self, PinError> {
        let mut found = Self::default();
        let mut alternates = vec![repo.objects_folder()];
        let mut wanted: Vec<SubmoduleSearch> = find_gitlinks(listed, repo, &[], 0).collect();
        while let Some(next) = wanted.pop() {
            let path = parse_safe_path(&next.path)?;
            let mut index = None;
            if found.submodules.len() < FILLED_SUBMODULES_MAX
                && next.depth < SUBMODULE_DEPTH_MAX
                && let Some(module) = find_submodule_repo(&next).await
                && let Some(items) =
                    borrow_and_list_commit(own, &mut alternates, &module, &next.commit).await?
            {
                index = Some(store_index(own, &next.commit, sink).await?);
                let root = format!("{}^{{tree}}", next.commit);
                found.root_objects.push(next.commit.clone());
                found.root_objects.push(trim_output_line(own.run(&["rev-parse", &root], Vec::new()).await?));
                wanted.extend(find_gitlinks(&items, &module, &next.path, next.depth + 1));
                let whole = items.into_iter().filter(|item| item.mode != MODE_GITLINK);
                found.entries.extend(
                    whole.map(|item| TreeListingEntry { path: join_path(&next.path, &item.path), ..item }),
                );
            }
            found.submodules.push(Submodule { path, commit: next.commit, index });
        }
        found.submodules.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }
}

/// Collects the gitlinks of a tree located at `prefix`.
fn find_gitlinks(
    listed: &[TreeListingEntry],
    repo: &LocalRepo,
    prefix: &[u8],
    depth: usize,
) -> impl Iterator<Item = SubmoduleSearch> {
    listed.iter().filter(|item| item.mode == MODE_GITLINK).map(move |item| SubmoduleSearch {
        path: join_path(prefix, &item.path),
        commit: item.oid.clone(),
        repo: repo.clone(),
        inner_path: item.path.clone(),
        depth,
    })
}

/// Returns the repository of a submodule: the one in its folder, otherwise the one that git keeps for it. A
/// repository elsewhere that does not belong to this work tree is rejected.
async fn find_submodule_repo(wanted: &SubmoduleSearch) -> Option<LocalRepo> {
    let inner = Path::new(OsStr::from_bytes(&wanted.inner_path));
    if let Some(folder) = wanted.repo.work_tree.as_ref().map(|tree| tree.join(inner))
        && let Ok(module) = LocalRepo::discover(&folder).await
        // Neither the surrounding repository nor the target of a link.
        && module.work_tree.as_ref() == Some(&folder)
    {
        return Some(module);
    }
    let kept = fs::canonicalize(wanted.repo.common_dir.join("modules").join(inner)).ok()?;
    if !kept.starts_with(&wanted.repo.common_dir) || !kept.join("HEAD").exists() {
        return None;
    }
    LocalRepo::open_git_dir(kept, None).ok()
}

/// Gives `own` access to the objects of `module` and lists the tree of `commit`; `None` if an object is
/// missing.
async fn borrow_and_list_commit(
    own: &GitDir,
    alternates: &mut Vec<PathBuf>,
    module: &LocalRepo,
    commit: &str,
) -> Result<Option<Vec<TreeListingEntry>>, PinError> {
    let objects = module.objects_folder();
    if !alternates.contains(&objects) {
        alternates.push(objects);
        let all: Vec<&Path> = alternates.iter().map(PathBuf::as_path).collect();
        let file = own.path().join("objects/info/alternates");
        fs::write(&file, format_alternates(&all))
            .map_err(|source| PinError::ScratchFolder { path: file.clone(), source })?;
    }
    let items = match list_commit(own, commit).await {
        Ok(items) => items,
        Err(PinError::Git(GitCallError::Failed { .. })) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut names = String::new();
    for item in items.iter().filter(|item| item.mode != MODE_GITLINK) {
        names.push_str(&item.oid);
        names.push('\n');
    }
    let found = own.run(&["cat-file", "--batch-check=%(objectname)"], names.into_bytes()).await?;
    let is_whole = !found.split(|b| *b == b'\n').any(|line| line.ends_with(b" missing"));
    Ok(is_whole.then_some(items))
}

/// Stores git's index of the tree of `commit` as a blob.
async fn store_index(own: &GitDir, commit: &str, sink: &mut impl BlobSink) -> Result<BlobRef, PinError> {
    let index = own.path().join("submodule-index");
    let scratch = |source| PinError::ScratchFolder { path: index.clone(), source };
    let env: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", index.as_os_str())];
    own.run_with_env(&["-c", "index.version=2", "read-tree", commit], &env, Vec::new()).await?;
    let bytes = fs::read(&index).map_err(scratch)?;
    fs::remove_file(&index).map_err(scratch)?;
    let blob = BlobRef::for_bytes(&bytes);
    sink.put(blob, bytes).await?;
    Ok(blob)
}

impl BaseObjects {
    /// Returns the submodule that `path` is or lies in. A result contains only the submodule's commit id.
    pub fn containing_submodule(&self, path: &WorkspacePath) -> Option<WorkspacePath> {
        let git = self.base.git.as_ref()?;
        let bytes = path.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        ends.chain([bytes.len()]).find_map(|end| {
            let above = WorkspacePath::new(&bytes[..end])?;
            // A commit contains no folders, so a folder entry is a submodule that was not filled.
            let is_empty = self.manifest.entries.get(&above).is_some_and(|e| e.kind == EntryKind::Dir);
            let is_filled = git.submodules.binary_search_by(|module| module.path.cmp(&above)).is_ok();
            (is_empty || is_filled).then_some(above)
        })
    }

    /// The folders of all submodules, in no particular order and possibly with duplicates.
    pub fn submodule_paths(&self) -> impl Iterator<Item = WorkspacePath> {
        let modules = self.base.git.iter().flat_map(|git| &git.submodules);
        let empty = self.manifest.entries.iter().filter(|(_, entry)| entry.kind == EntryKind::Dir);
        let empty = empty.filter(|_| self.base.git.is_some());
        modules.map(|module| module.path.clone()).chain(empty.map(|(path, _)| path.clone()))
    }

    pub fn has_submodules(&self) -> bool {
        self.submodule_paths().next().is_some()
    }

    /// Whether the files of this submodule are part of the base.
    pub fn is_filled_submodule(&self, module: &WorkspacePath) -> bool {
        let modules = self.base.git.iter().flat_map(|git| &git.submodules);
        modules.into_iter().any(|known| known.path == *module && known.index.is_some())
    }
}
