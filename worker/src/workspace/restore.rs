//! Bringing a workspace to exactly a recorded tree, and proving that it is there.
//!
//! Called after a crash (the workspace is dirty), at a takeover (it was just made from the base) and by
//! resume, fork and the commands that look at the past. What is on disk is looked at, only what differs is
//! written, and a second look must give the recorded tree hash (invariant 7).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::fd::AsFd,
};

use docket_schema::{
    content::WorkPath,
    ids::{BlobHash, TreeHash},
    snapshot::{Entry, EntryKind, LeftOut, LeftOutWhy, PathChange},
};
use nix::errno::Errno;

use super::{
    blobs::Blobs,
    contents::Contents,
    disk::{
        file_stat::{FsTime, Kind},
        handles::{TreeWriter, join, open_folder, split, stat_child},
    },
    materialize::{git_skeleton, write_alternates},
    snapshot::{
        index::{Slot, What},
        merge::{Area, FOLDER_MODE, remember},
        open_workspace::{SnapshotDelta, Workspace, entries},
        snapshot_error::{RestoreError, SnapshotError},
        walk::{DOT_GIT, Realm},
    },
};

/// What to restore: the base with everything that was recorded since.
#[derive(Debug, Clone)]
pub struct RestoreTarget<'a> {
    /// Changed paths of the work tree since the base; `None` for those that are gone.
    pub overlay: &'a BTreeMap<WorkPath, Option<Entry>>,
    /// As `overlay`, for `.git`.
    pub git_overlay: &'a BTreeMap<WorkPath, Option<Entry>>,
    /// What the snapshots up to there left out: such paths stay where they still are.
    pub left_out: &'a [LeftOut],
    /// The recorded tree hash.
    pub tree: TreeHash,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// How many paths were written or removed.
    pub written: usize,
    /// Paths that were there but never captured, and are not here: a fresh machine lacks them.
    pub missing: Vec<LeftOut>,
}

/// Restores `workspace` to `target`. Blocks on the file system.
///
/// # Errors
/// [`RestoreError`]; the workspace is then in a state of its own and must not be used.
pub async fn restore(
    workspace: &mut Workspace,
    target: &RestoreTarget<'_>,
    blobs: &impl Blobs,
) -> Result<Restored, RestoreError> {
    let files = overlaid(workspace.base.manifest().entries.clone(), target.overlay);
    let skeleton = git_skeleton(&workspace.base);
    let git = skeleton.iter().map(|(path, entry, _)| (path.clone(), *entry)).collect();
    let git = overlaid(git, target.git_overlay);

    workspace.work.captured.clear();
    for path in workspace.base.manifest().entries.keys().chain(target.overlay.keys()) {
        remember(&mut workspace.work.captured, path.as_bytes());
    }
    look(workspace, &files, &git)?;
    let mut plan = Plan { alternates: has_info_folder(&git), ..Plan::default() };
    plan.add(&workspace.work, &files, target.left_out);
    plan.add(&workspace.git, &git, target.left_out);

    let mut made: HashMap<BlobHash, bytes::Bytes> =
        skeleton.into_iter().map(|(_, entry, bytes)| (entry.hash, bytes)).collect();
    carry_out(workspace, &plan, &mut made, blobs).await?;
    look(workspace, &files, &git)?;
    prove(workspace, &files, &git, target.tree)?;
    Ok(Restored {
        written: plan.remove.len() + plan.write.len(),
        missing: missing(workspace, target.left_out)?,
    })
}

/// What was put back, and what else is new.
#[derive(Debug)]
pub struct PutBack {
    /// What changed since the last snapshot and stays.
    pub delta: SnapshotDelta,
    /// Paths that are again as they were at the last snapshot.
    pub paths: Vec<WorkPath>,
}

/// Takes a snapshot of the paths that `may_change`, and puts every other path of the work tree back as the last snapshot
/// had it. What is ignored or left out stays, and so does what the last snapshot left out and now could be taken: nobody knows
/// what it was. Blocks on the file system.
///
/// # Errors
/// [`RestoreError`]; the workspace is then in a state of its own and must not be used.
pub async fn put_back(
    workspace: &mut Workspace,
    may_change: impl Fn(&WorkPath) -> bool,
    blobs: &impl Blobs,
) -> Result<PutBack, RestoreError> {
    let before = entries(&workspace.work);
    let unknown = outside(&workspace.work);
    let mut delta = workspace.snapshot_walk()?;
    let changed: Vec<WorkPath> = delta.changes.iter().map(|change| change.path.clone()).collect();
    if changed.iter().all(&may_change) {
        return Ok(PutBack { delta, paths: Vec::new() });
    }
    let is_unknown = |path: &WorkPath| {
        let was_there = |left: &LeftOut| left.path == *path || is_below(path, &left.path);
        !before.contains_key(path) && unknown.iter().any(was_there)
    };
    let foreign = changed.iter().filter(|path| !may_change(path) && !is_unknown(path));
    let wanted = as_before(&before, entries(&workspace.work), foreign);
    let mut plan = Plan::default();
    plan.add(&workspace.work, &wanted, &outside(&workspace.work));
    carry_out(workspace, &plan, &mut HashMap::new(), blobs).await?;
    let looked_at = workspace.now()?;
    workspace.pass(Realm::Work, looked_at, None, Some(&wanted))?;
    let after = entries(&workspace.work);
    if after != wanted {
        return Err(RestoreError::NotPutBack { first: first_difference(&after, &wanted) });
    }
    delta.changes = changes(&before, &after);
    delta.tree = workspace.tree.hash();
    let named = delta.changes.iter().chain(&delta.git_changes).filter_map(|change| change.entry);
    let named: BTreeSet<BlobHash> = named.map(|entry| entry.hash).collect();
    delta.blobs.keep(|blob| named.contains(&blob.hash));
    let paths = changed.into_iter().filter(|path| before.get(path) == after.get(path)).collect();
    Ok(PutBack { delta, paths })
}

/// The tree `now` with these paths as they were `before`, and nothing in their way.
fn as_before<'a>(before: &Entries, now: Entries, paths: impl Iterator<Item = &'a WorkPath>) -> Entries {
    let mut wanted = now;
    for path in paths {
        match before.get(path) {
            None => drop_entry(&mut wanted, path),
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
    // An empty folder is a path of its own; one that holds something that stays is none.
    let empty = |at: &WorkPath| !wanted.keys().any(|path| is_below(path, at));
    let plain = |entry: &Entry| entry.kind == EntryKind::Dir && entry.mode == FOLDER_MODE;
    let filled: Vec<WorkPath> =
        wanted.iter().filter(|(at, entry)| plain(entry) && !empty(at)).map(|(at, _)| at.clone()).collect();
    filled.iter().for_each(|at| drop_entry(&mut wanted, at));
    wanted
}

fn drop_entry(entries: &mut Entries, path: &WorkPath) {
    entries.remove(path);
}

/// What is there and no snapshot holds.
fn outside(area: &Area) -> Vec<LeftOut> {
    let all = area.index.iter().filter_map(|(folder, name, slot)| match slot.what {
        What::Out(why) => Some(LeftOut { path: WorkPath::new(join(folder, name))?, why }),
        What::Kept(_) | What::Folder { .. } => None,
    });
    all.collect()
}

/// What differs between two trees, in byte order.
fn changes(before: &Entries, after: &Entries) -> Vec<PathChange> {
    let paths: BTreeSet<&WorkPath> = before.keys().chain(after.keys()).collect();
    let differs = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
    differs.map(|path| PathChange { path: path.clone(), entry: after.get(path).copied() }).collect()
}

fn overlaid(
    mut entries: BTreeMap<WorkPath, Entry>,
    overlay: &BTreeMap<WorkPath, Option<Entry>>,
) -> BTreeMap<WorkPath, Entry> {
    for (path, entry) in overlay {
        match entry {
            Some(entry) => entries.insert(path.clone(), *entry),
            None => entries.remove(path),
        };
    }
    entries
}

type Entries = BTreeMap<WorkPath, Entry>;

fn look(workspace: &mut Workspace, files: &Entries, git: &Entries) -> Result<FsTime, SnapshotError> {
    let looked_at = workspace.now()?;
    workspace.pass(Realm::Work, looked_at, None, Some(files))?;
    workspace.pass(Realm::GitWhole, looked_at, None, Some(git))?;
    Ok(looked_at)
}

/// What has to be done to a workspace.
#[derive(Default)]
struct Plan {
    remove: BTreeSet<WorkPath>,
    write: BTreeMap<WorkPath, Entry>,
    /// Folders and the modes they must have in the end.
    modes: BTreeMap<Vec<u8>, u32>,
    /// Whether git is to be told where the borrowed objects are.
    alternates: bool,
}

impl Plan {
    fn add(&mut self, area: &Area, target: &Entries, left_out: &[LeftOut]) {
        let left_out: BTreeSet<&WorkPath> = left_out.iter().map(|left| &left.path).collect();
        let mut folders: BTreeMap<&[u8], u32> = BTreeMap::new();
        for (path, entry) in target {
            let mut path = path.as_bytes();
            if entry.kind == EntryKind::Dir {
                folders.insert(path, entry.mode);
            }
            loop {
                path = split(path).0;
                if path.is_empty() || folders.contains_key(path) {
                    break;
                }
                folders.insert(path, FOLDER_MODE);
            }
        }
        for (folder, name, slot) in area.index.iter() {
            let Some(path) = WorkPath::new(join(folder, name)) else { continue };
            let wanted = target.contains_key(&path) || folders.contains_key(path.as_bytes());
            let is_folder = folders.contains_key(path.as_bytes());
            let stays = match slot.what {
                What::Kept(entry) => target.get(&path) == Some(&entry) && is_written_plain(slot),
                What::Folder { .. } => is_folder,
                What::Out(LeftOutWhy::Ignored) => !wanted,
                What::Out(LeftOutWhy::TooLarge | LeftOutWhy::NotAFile | LeftOutWhy::Unreadable) => {
                    !wanted && left_out.contains(&path)
                }
            };
            if !stays {
                self.remove.insert(path.clone());
            }
            if is_folder && (slot.stat.permissions() != FOLDER_MODE || !slot.stat.is_plain()) {
                self.modes.insert(path.as_bytes().to_vec(), FOLDER_MODE);
            }
        }
        for (path, entry) in target {
            let (folder, name) = split(path.as_bytes());
            let slot = area.index.slot(folder, name).filter(|slot| is_written_plain(slot));
            let there = slot.and_then(super::snapshot::merge::entry_of);
            if there != Some(*entry) {
                self.write.insert(path.clone(), *entry);
            }
        }
        for (path, mode) in folders {
            if mode != FOLDER_MODE || self.modes.contains_key(path) {
                self.modes.insert(path.to_vec(), mode);
            }
        }
    }
}

/// Whether what is there has no bit that a snapshot does not record. Folders keep what they hold: their mode is set.
fn is_written_plain(slot: &Slot) -> bool {
    slot.stat.is_plain() || slot.stat.kind() == Kind::Folder
}

async fn carry_out(
    workspace: &Workspace,
    plan: &Plan,
    made: &mut HashMap<BlobHash, bytes::Bytes>,
    blobs: &impl Blobs,
) -> Result<(), RestoreError> {
    let fail = |path: &[u8], errno: Errno| RestoreError::Io {
        path: String::from_utf8_lossy(path).into_owned(),
        workspace: workspace.path.clone(),
        source: errno.into(),
    };
    let root = open_folder(workspace.root.as_fd(), b"").map_err(|errno| fail(b"", errno))?;
    let mut writer = TreeWriter::new(root, workspace.owner);
    let mut removed: Option<&WorkPath> = None;
    for path in &plan.remove {
        // What is below a folder that went is gone already.
        if removed.is_some_and(|last| is_below(path, last)) {
            continue;
        }
        writer.remove(path).map_err(|errno| fail(path.as_bytes(), errno))?;
        removed = Some(path);
    }
    let mut by_hash: HashMap<BlobHash, Vec<(&WorkPath, &Entry)>> = HashMap::new();
    let mut needed = Vec::new();
    for (path, entry) in &plan.write {
        if entry.kind == EntryKind::Dir {
            writer.put(path, entry, &[]).map_err(|errno| fail(path.as_bytes(), errno))?;
        } else if let Some(bytes) = made.get(&entry.hash) {
            writer.put(path, entry, bytes).map_err(|errno| fail(path.as_bytes(), errno))?;
        } else {
            by_hash.entry(entry.hash).or_default().push((path, entry));
            needed.push(*entry);
        }
    }
    Contents::new(&workspace.base, blobs)
        .each(&needed, |hash, bytes| {
            for (path, entry) in by_hash.remove(&hash).unwrap_or_default() {
                writer.put(path, entry, &bytes).map_err(|errno| fail(path.as_bytes(), errno))?;
            }
            Ok::<(), RestoreError>(())
        })
        .await?;
    if plan.alternates {
        write_alternates(&mut writer, &workspace.base).map_err(|errno| fail(DOT_GIT, errno))?;
    }
    for (path, mode) in plan.modes.iter().rev() {
        writer.set_folder_mode(path, *mode).map_err(|errno| fail(path, errno))?;
    }
    Ok(())
}

/// Whether the recorded workspace has the folder that names the borrowed objects: a model may have removed
/// its whole `.git`, and that too is restored.
fn has_info_folder(git: &Entries) -> bool {
    let info = WorkPath::new(".git/objects/info").expect("a constant without empty parts or dots");
    git.range(&info..)
        .next()
        .is_some_and(|(path, entry)| (*path == info && entry.kind == EntryKind::Dir) || is_below(path, &info))
}

fn is_below(path: &WorkPath, folder: &WorkPath) -> bool {
    path.as_bytes().strip_prefix(folder.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
}

fn prove(
    workspace: &mut Workspace,
    files: &Entries,
    git: &Entries,
    expected: TreeHash,
) -> Result<(), RestoreError> {
    let found = workspace.tree.hash();
    if found != expected {
        let first = first_difference(&entries(&workspace.work), files);
        return Err(RestoreError::OtherTree { expected, found, first });
    }
    let there = entries(&workspace.git);
    if there != *git {
        return Err(RestoreError::OtherGit { first: first_difference(&there, git) });
    }
    Ok(())
}

fn first_difference(left: &Entries, right: &Entries) -> String {
    let of_left = left.iter().find(|(path, entry)| right.get(*path) != Some(entry));
    let of_right = right.iter().find(|(path, entry)| left.get(*path) != Some(entry));
    let first = of_left.into_iter().chain(of_right).map(|(path, _)| path).min();
    first.map_or_else(String::new, ToString::to_string)
}

fn missing(workspace: &Workspace, left_out: &[LeftOut]) -> Result<Vec<LeftOut>, SnapshotError> {
    let absent = |left: &&LeftOut| {
        let (folder, name) = split(left.path.as_bytes());
        open_folder(workspace.root.as_fd(), folder)
            .and_then(|parent| stat_child(parent.as_fd(), name))
            .is_err()
    };
    Ok(left_out.iter().filter(absent).cloned().collect())
}
