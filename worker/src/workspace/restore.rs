//! Restores a workspace to exactly a recorded tree, and verifies the result.
//!
//! Called after a crash (the workspace is dirty), at a takeover (it was just created from the base) and by
//! resume, fork and the commands that show history. The files on disk are examined, only those that differ
//! are written, and a second scan must give the recorded tree hash (invariant 7).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::fd::AsFd,
};

use docket_schema::{
    content::WorkspacePath,
    ids::{BlobHash, TreeHash},
    snapshot::{Entry, EntryKind, OmissionReason, OmittedPath, PathChange},
};
use nix::errno::Errno;

use super::{
    blobs::BlobReader,
    content_reader::ContentReader,
    disk::{
        dirfd::{TreeWriter, join_path, open_folder, split_path, stat_child},
        file_stat::{FileKind, FsTime},
    },
    materialize::{initial_git_files, write_alternates},
    snapshot::{
        index::{IndexSlot, SlotState},
        index_updater::{DEFAULT_FOLDER_MODE, TrackedArea, insert_with_ancestors},
        open_workspace::{SnapshotDelta, Workspace, area_entries},
        snapshot_error::{RestoreError, SnapshotError},
        walk::{DOT_GIT, WalkScope},
    },
};

/// The state to restore: the base with everything recorded since.
#[derive(Debug, Clone)]
pub struct RestoreTarget<'a> {
    /// Changed paths of the work tree since the base; `None` = removed.
    pub overlay: &'a BTreeMap<WorkspacePath, Option<Entry>>,
    /// Like `overlay`, for `.git`.
    pub git_overlay: &'a BTreeMap<WorkspacePath, Option<Entry>>,
    /// Paths that snapshots up to this state left out. They are kept if they still exist.
    pub left_out: &'a [OmittedPath],
    /// The recorded tree hash.
    pub tree: TreeHash,
}

/// The outcome of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// Number of paths written or removed.
    pub written_paths: usize,
    /// Paths that existed but were never captured, and are missing here, such as on a new machine.
    pub missing: Vec<OmittedPath>,
}

/// Restores `workspace` to `target`. Blocks on the file system.
///
/// # Errors
/// [`RestoreError`]; the workspace is then in an undefined state and must not be used.
pub async fn restore(
    workspace: &mut Workspace,
    target: &RestoreTarget<'_>,
    blobs: &impl BlobReader,
) -> Result<RestoreReport, RestoreError> {
    let files = apply_overlay(workspace.base.manifest().entries.clone(), target.overlay);
    let skeleton = initial_git_files(&workspace.base);
    let git = skeleton.iter().map(|(path, entry, _)| (path.clone(), *entry)).collect();
    let git = apply_overlay(git, target.git_overlay);

    workspace.work_area.captured.clear();
    for path in workspace.base.manifest().entries.keys().chain(target.overlay.keys()) {
        insert_with_ancestors(&mut workspace.work_area.captured, path.as_bytes());
    }
    scan_workspace(workspace, &files, &git)?;
    let mut plan = RestorePlan { needs_alternates: has_info_folder(&git), ..RestorePlan::default() };
    plan.add_area(&workspace.work_area, &files, target.left_out);
    plan.add_area(&workspace.git_area, &git, target.left_out);

    let mut made: HashMap<BlobHash, bytes::Bytes> =
        skeleton.into_iter().map(|(_, entry, bytes)| (entry.hash, bytes)).collect();
    execute_plan(workspace, &plan, &mut made, blobs).await?;
    scan_workspace(workspace, &files, &git)?;
    verify_restored(workspace, &files, &git, target.tree)?;
    Ok(RestoreReport {
        written_paths: plan.remove.len() + plan.write.len(),
        missing: find_missing(workspace, target.left_out)?,
    })
}

/// The outcome of a revert.
#[derive(Debug)]
pub struct RevertOutcome {
    /// Changes since the last snapshot that were kept.
    pub delta: SnapshotDelta,
    /// Paths that were reverted to the last snapshot.
    pub reverted_paths: Vec<WorkspacePath>,
}

/// Takes a snapshot of the paths accepted by `may_change`, and reverts every other path of the work tree to
/// the last snapshot. Ignored and left-out paths are kept. So are paths that the last snapshot left out and
/// that could be captured now, because their previous content is unknown. Blocks on the file system.
///
/// # Errors
/// [`RestoreError`]; the workspace is then in an undefined state and must not be used.
pub async fn revert_disallowed_changes(
    workspace: &mut Workspace,
    may_change: impl Fn(&WorkspacePath) -> bool,
    blobs: &impl BlobReader,
) -> Result<RevertOutcome, RestoreError> {
    let before = area_entries(&workspace.work_area);
    let unknown = left_out_paths(&workspace.work_area);
    let mut delta = workspace.snapshot_walk()?;
    let changed: Vec<WorkspacePath> = delta.changes.iter().map(|change| change.path.clone()).collect();
    if changed.iter().all(&may_change) {
        return Ok(RevertOutcome { delta, reverted_paths: Vec::new() });
    }
    let is_unknown = |path: &WorkspacePath| {
        let was_there = |left: &OmittedPath| left.path == *path || is_below(path, &left.path);
        !before.contains_key(path) && unknown.iter().any(was_there)
    };
    let foreign = changed.iter().filter(|path| !may_change(path) && !is_unknown(path));
    let wanted = revert_paths(&before, area_entries(&workspace.work_area), foreign);
    let mut plan = RestorePlan::default();
    plan.add_area(&workspace.work_area, &wanted, &left_out_paths(&workspace.work_area));
    execute_plan(workspace, &plan, &mut HashMap::new(), blobs).await?;
    let looked_at = workspace.filesystem_time()?;
    workspace.scan_scope(WalkScope::WorkTree, looked_at, None, Some(&wanted))?;
    let after = area_entries(&workspace.work_area);
    if after != wanted {
        return Err(RestoreError::NotReverted { first: first_difference(&after, &wanted) });
    }
    delta.changes = diff_entries(&before, &after);
    delta.tree = workspace.tree.root_hash();
    let named = delta.changes.iter().chain(&delta.git_changes).filter_map(|change| change.entry);
    let named: BTreeSet<BlobHash> = named.map(|entry| entry.hash).collect();
    delta.blobs.retain(|blob| named.contains(&blob.hash));
    let paths = changed.into_iter().filter(|path| before.get(path) == after.get(path)).collect();
    Ok(RevertOutcome { delta, reverted_paths: paths })
}

/// Returns the tree `now` with these paths as they were in `before`, removing whatever is in their way.
fn revert_paths<'a>(
    before: &EntryMap,
    now: EntryMap,
    paths: impl Iterator<Item = &'a WorkspacePath>,
) -> EntryMap {
    let mut wanted = now;
    for path in paths {
        match before.get(path) {
            None => remove_entry(&mut wanted, path),
            Some(entry) => {
                wanted.insert(path.clone(), *entry);
                let is_folder = entry.kind == EntryKind::Dir;
                wanted.retain(|at, found| {
                    let above = is_below(path, at) && found.kind != EntryKind::Dir;
                    !above && (is_folder || !is_below(at, path))
                });
            }
        }
    }
    // An empty folder has an entry of its own; a folder with remaining contents does not.
    let empty = |at: &WorkspacePath| !wanted.keys().any(|path| is_below(path, at));
    let plain = |entry: &Entry| entry.kind == EntryKind::Dir && entry.mode == DEFAULT_FOLDER_MODE;
    let filled: Vec<WorkspacePath> =
        wanted.iter().filter(|(at, entry)| plain(entry) && !empty(at)).map(|(at, _)| at.clone()).collect();
    filled.iter().for_each(|at| remove_entry(&mut wanted, at));
    wanted
}

fn remove_entry(entries: &mut EntryMap, path: &WorkspacePath) {
    entries.remove(path);
}

/// Returns existing paths that no snapshot contains.
fn left_out_paths(area: &TrackedArea) -> Vec<OmittedPath> {
    let all = area.index.iter_slots().filter_map(|(folder, name, slot)| match slot.state {
        SlotState::LeftOut(why) => {
            Some(OmittedPath { path: WorkspacePath::new(join_path(folder, name))?, why })
        }
        SlotState::Captured(_) | SlotState::Folder { .. } => None,
    });
    all.collect()
}

/// Returns the differences between two trees, in byte order.
fn diff_entries(before: &EntryMap, after: &EntryMap) -> Vec<PathChange> {
    let paths: BTreeSet<&WorkspacePath> = before.keys().chain(after.keys()).collect();
    let differs = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
    differs.map(|path| PathChange { path: path.clone(), entry: after.get(path).copied() }).collect()
}

fn apply_overlay(
    mut entries: BTreeMap<WorkspacePath, Entry>,
    overlay: &BTreeMap<WorkspacePath, Option<Entry>>,
) -> BTreeMap<WorkspacePath, Entry> {
    for (path, entry) in overlay {
        match entry {
            Some(entry) => entries.insert(path.clone(), *entry),
            None => entries.remove(path),
        };
    }
    entries
}

type EntryMap = BTreeMap<WorkspacePath, Entry>;

fn scan_workspace(
    workspace: &mut Workspace,
    files: &EntryMap,
    git: &EntryMap,
) -> Result<FsTime, SnapshotError> {
    let looked_at = workspace.filesystem_time()?;
    workspace.scan_scope(WalkScope::WorkTree, looked_at, None, Some(files))?;
    workspace.scan_scope(WalkScope::FullGitFolder, looked_at, None, Some(git))?;
    Ok(looked_at)
}

/// The steps that bring a workspace to its target.
#[derive(Default)]
struct RestorePlan {
    remove: BTreeSet<WorkspacePath>,
    write: BTreeMap<WorkspacePath, Entry>,
    /// Folders and their final modes.
    modes: BTreeMap<Vec<u8>, u32>,
    /// Whether the alternates file that points git to the borrowed objects must be written.
    needs_alternates: bool,
}

impl RestorePlan {
    fn add_area(&mut self, area: &TrackedArea, target: &EntryMap, left_out: &[OmittedPath]) {
        let left_out: BTreeSet<&WorkspacePath> = left_out.iter().map(|left| &left.path).collect();
        let mut folders: BTreeMap<&[u8], u32> = BTreeMap::new();
        for (path, entry) in target {
            let mut path = path.as_bytes();
            if entry.kind == EntryKind::Dir {
                folders.insert(path, entry.mode);
            }
            loop {
                path = split_path(path).0;
                if path.is_empty() || folders.contains_key(path) {
                    break;
                }
                folders.insert(path, DEFAULT_FOLDER_MODE);
            }
        }
        for (folder, name, slot) in area.index.iter_slots() {
            let Some(path) = WorkspacePath::new(join_path(folder, name)) else { continue };
            let wanted = target.contains_key(&path) || folders.contains_key(path.as_bytes());
            let is_folder = folders.contains_key(path.as_bytes());
            let stays = match slot.state {
                SlotState::Captured(entry) => target.get(&path) == Some(&entry) && has_recordable_mode(slot),
                SlotState::Folder { .. } => is_folder,
                SlotState::LeftOut(OmissionReason::Ignored) => !wanted,
                SlotState::LeftOut(
                    OmissionReason::TooLarge | OmissionReason::NotAFile | OmissionReason::Unreadable,
                ) => !wanted && left_out.contains(&path),
            };
            if !stays {
                self.remove.insert(path.clone());
            }
            if is_folder
                && (slot.stat.permissions() != DEFAULT_FOLDER_MODE || !slot.stat.has_no_special_bits())
            {
                self.modes.insert(path.as_bytes().to_vec(), DEFAULT_FOLDER_MODE);
            }
        }
        for (path, entry) in target {
            let (folder, name) = split_path(path.as_bytes());
            let slot = area.index.slot(folder, name).filter(|slot| has_recordable_mode(slot));
            let there = slot.and_then(super::snapshot::index_updater::slot_entry);
            if there != Some(*entry) {
                self.write.insert(path.clone(), *entry);
            }
        }
        for (path, mode) in folders {
            if mode != DEFAULT_FOLDER_MODE || self.modes.contains_key(path) {
                self.modes.insert(path.to_vec(), mode);
            }
        }
    }
}

/// Whether the file has no mode bits that a snapshot does not record. Folders keep their contents: their mode
/// is set.
fn has_recordable_mode(slot: &IndexSlot) -> bool {
    slot.stat.has_no_special_bits() || slot.stat.kind() == FileKind::Folder
}

async fn execute_plan(
    workspace: &Workspace,
    plan: &RestorePlan,
    made: &mut HashMap<BlobHash, bytes::Bytes>,
    blobs: &impl BlobReader,
) -> Result<(), RestoreError> {
    let fail = |path: &[u8], errno: Errno| RestoreError::Io {
        path: String::from_utf8_lossy(path).into_owned(),
        workspace: workspace.path.clone(),
        source: errno.into(),
    };
    let root = open_folder(workspace.root.as_fd(), b"").map_err(|errno| fail(b"", errno))?;
    let mut writer = TreeWriter::new(root, workspace.owner);
    let mut removed: Option<&WorkspacePath> = None;
    for path in &plan.remove {
        // Paths below a removed folder are gone already.
        if removed.is_some_and(|last| is_below(path, last)) {
            continue;
        }
        writer.remove_path(path).map_err(|errno| fail(path.as_bytes(), errno))?;
        removed = Some(path);
    }
    let mut by_hash: HashMap<BlobHash, Vec<(&WorkspacePath, &Entry)>> = HashMap::new();
    let mut needed = Vec::new();
    for (path, entry) in &plan.write {
        if entry.kind == EntryKind::Dir {
            writer.write_entry(path, entry, &[]).map_err(|errno| fail(path.as_bytes(), errno))?;
        } else if let Some(bytes) = made.get(&entry.hash) {
            writer.write_entry(path, entry, bytes).map_err(|errno| fail(path.as_bytes(), errno))?;
        } else {
            by_hash.entry(entry.hash).or_default().push((path, entry));
            needed.push(*entry);
        }
    }
    ContentReader::new(&workspace.base, blobs)
        .for_each_content(&needed, |hash, bytes| {
            for (path, entry) in by_hash.remove(&hash).unwrap_or_default() {
                writer.write_entry(path, entry, &bytes).map_err(|errno| fail(path.as_bytes(), errno))?;
            }
            Ok::<(), RestoreError>(())
        })
        .await?;
    if plan.needs_alternates {
        write_alternates(&mut writer, &workspace.base).map_err(|errno| fail(DOT_GIT, errno))?;
    }
    for (path, mode) in plan.modes.iter().rev() {
        writer.set_folder_mode(path, *mode).map_err(|errno| fail(path, errno))?;
    }
    Ok(())
}

/// Whether the recorded workspace has the folder of the alternates file: a model may have removed its
/// complete `.git`, and that too is restored.
fn has_info_folder(git: &EntryMap) -> bool {
    let info = WorkspacePath::new(".git/objects/info").expect("a constant without empty parts or dots");
    git.range(&info..)
        .next()
        .is_some_and(|(path, entry)| (*path == info && entry.kind == EntryKind::Dir) || is_below(path, &info))
}

fn is_below(path: &WorkspacePath, folder: &WorkspacePath) -> bool {
    path.as_bytes().strip_prefix(folder.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
}

fn verify_restored(
    workspace: &mut Workspace,
    files: &EntryMap,
    git: &EntryMap,
    expected: TreeHash,
) -> Result<(), RestoreError> {
    let found = workspace.tree.root_hash();
    if found != expected {
        let first = first_difference(&area_entries(&workspace.work_area), files);
        return Err(RestoreError::TreeMismatch { expected, found, first });
    }
    let there = area_entries(&workspace.git_area);
    if there != *git {
        return Err(RestoreError::GitFolderMismatch { first: first_difference(&there, git) });
    }
    Ok(())
}

fn first_difference(left: &EntryMap, right: &EntryMap) -> String {
    let of_left = left.iter().find(|(path, entry)| right.get(*path) != Some(entry));
    let of_right = right.iter().find(|(path, entry)| left.get(*path) != Some(entry));
    let first = of_left.into_iter().chain(of_right).map(|(path, _)| path).min();
    first.map_or_else(String::new, ToString::to_string)
}

fn find_missing(workspace: &Workspace, left_out: &[OmittedPath]) -> Result<Vec<OmittedPath>, SnapshotError> {
    let absent = |left: &&OmittedPath| {
        let (folder, name) = split_path(left.path.as_bytes());
        open_folder(workspace.root.as_fd(), folder)
            .and_then(|parent| stat_child(parent.as_fd(), name))
            .is_err()
    };
    Ok(left_out.iter().filter(absent).cloned().collect())
}
