//! Merges a child's changes into its parent's workspace: a three-way merge, path by path and line by line.
//!
//! A path that both changed differently is a conflict: the parent's version is kept and the child's is
//! reported. Nothing is guessed and nothing is left half done: the workspace is restored to the merged tree,
//! whose hash verifies it. Called by the parent's run loop before its next decision.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, WorkspacePath},
    ids::BlobHash,
    run::Overlay,
    snapshot::{Entry, EntryKind, Manifest, OmittedPath, PathChange},
};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::{
    blobs::{BlobError, BlobReader, PendingBlobs},
    content_reader::{ContentReader, ContentsError},
    restore::{RestoreTarget, restore},
    snapshot::{
        index_updater::DEFAULT_FOLDER_MODE,
        open_workspace::{SnapshotDelta, Workspace},
        snapshot_error::RestoreError,
    },
    tree_view::path_state::{changed_paths, tree_with_overlay},
};

/// Files above this size, in bytes, are not merged by lines: if both changed one, it is a conflict.
const MERGED_BYTES_MAX: u64 = 1024 * 1024;

/// A path that both changed differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeConflict {
    pub path: WorkspacePath,
    /// Why it was not merged.
    pub why: &'static str,
    /// The conflicting lines in both versions, if the file is text.
    pub lines: Option<String>,
}

/// The outcome of a merge.
#[derive(Debug)]
pub struct MergeOutcome {
    /// The resulting changes of the workspace, to be recorded.
    pub delta: SnapshotDelta,
    /// The paths that were not merged.
    pub conflicts: Vec<MergeConflict>,
}

/// The parent's workspace as its run recorded it.
#[derive(Debug, Clone, Copy)]
pub struct ParentTree<'a> {
    /// Changes against the base.
    pub overlay: &'a Overlay,
    /// Changes of `.git` against the base.
    pub git_overlay: &'a Overlay,
    /// Paths that snapshots left out.
    pub left_out: &'a [OmittedPath],
}

/// Merges the changes between `start` and `theirs` into the workspace, whose recorded state is `ours`. Blocks
/// on the file system.
///
/// # Errors
/// [`RestoreError`] if a content is missing or a file system operation fails; the workspace must then be
/// restored.
pub async fn merge_child_changes<B: BlobReader>(
    workspace: &mut Workspace,
    ours: ParentTree<'_>,
    (start, theirs): (&Overlay, &Overlay),
    blobs: &B,
) -> Result<MergeOutcome, RestoreError> {
    let base = workspace.base_manifest();
    let (start, theirs) = (tree_with_overlay(base, start), tree_with_overlay(base, theirs));
    let own = tree_with_overlay(base, ours.overlay);
    let mut merged = TreeMerge { tree: own.clone(), blobs: PendingBlobs::default(), conflicts: Vec::new() };
    let contents = ContentReader::new(&workspace.base, blobs);
    for change in changed_paths(&start, &theirs) {
        let path = change.path;
        let here = own.entries.get(&path).copied();
        if here == change.new {
            continue;
        }
        if here == change.old {
            merged.set_entry(path, change.new);
        } else {
            merged.merge_both_changed(path, [change.old, here, change.new], &contents).await?;
        }
    }
    merged.resolve_file_folder_clashes(&own);
    let TreeMerge { tree, blobs: pending, conflicts } = merged;
    let changes: Vec<PathChange> = changed_paths(&own, &tree)
        .into_iter()
        .map(|change| PathChange { path: change.path, entry: change.new })
        .collect();
    let hash = tree.tree_hash();
    if !changes.is_empty() {
        let mut overlay = ours.overlay.clone();
        overlay.extend(changes.iter().map(|change| (change.path.clone(), change.entry)));
        let (git_overlay, left_out) = (ours.git_overlay, ours.left_out);
        let made = pending.iter().map(|(blob, bytes)| (blob.hash, Bytes::from(bytes.clone()))).collect();
        let blobs = OverlaidBlobs { new_blobs: made, blobs };
        let target = RestoreTarget { overlay: &overlay, git_overlay, left_out, tree: hash };
        restore(workspace, &target, &blobs).await?;
    }
    let delta = SnapshotDelta {
        changes,
        git_changes: Vec::new(),
        tree: hash,
        left_out: Vec::new(),
        blobs: pending,
        files_read: 0,
    };
    Ok(MergeOutcome { delta, conflicts })
}

/// Looks up newly created blobs before the stored ones.
struct OverlaidBlobs<'a, B> {
    new_blobs: HashMap<BlobHash, Bytes>,
    blobs: &'a B,
}

impl<B: BlobReader> BlobReader for OverlaidBlobs<'_, B> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        match self.new_blobs.get(&blob.hash) {
            Some(bytes) => Ok(bytes.clone()),
            None => self.blobs.get(blob).await,
        }
    }
}

struct TreeMerge {
    tree: Manifest,
    blobs: PendingBlobs,
    conflicts: Vec<MergeConflict>,
}

impl TreeMerge {
    fn set_entry(&mut self, path: WorkspacePath, entry: Option<Entry>) {
        match entry {
            Some(entry) => self.tree.entries.insert(path, entry),
            None => self.tree.entries.remove(&path),
        };
    }

    fn add_conflict(&mut self, path: WorkspacePath, why: &'static str, lines: Option<String>) {
        self.conflicts.push(MergeConflict { path, why, lines });
    }

    async fn merge_both_changed<B: BlobReader>(
        &mut self,
        path: WorkspacePath,
        [old, ours, theirs]: [Option<Entry>; 3],
        contents: &ContentReader<'_, B>,
    ) -> Result<(), ContentsError> {
        let is_dir = |entry: Option<Entry>| entry.is_some_and(|entry| entry.kind == EntryKind::Dir);
        let (ours, theirs) = match (ours, theirs) {
            // Whether a folder has an entry of its own follows from its contents.
            (ours, theirs) if is_dir(ours) || is_dir(theirs) => {
                if is_dir(theirs) && ours.is_none() {
                    return Ok(());
                }
                self.add_conflict(path, "it is a folder in one of the two", None);
                return Ok(());
            }
            (Some(ours), Some(theirs)) => (ours, theirs),
            (None, _) => {
                self.add_conflict(path, "you removed it, and the child changed it", None);
                return Ok(());
            }
            (_, None) => {
                self.add_conflict(path, "you changed it, and the child removed it", None);
                return Ok(());
            }
        };
        let old = old.filter(|old| old.kind == EntryKind::File);
        let sizes = [old.map_or(0, |old| old.size), ours.size, theirs.size];
        let files = ours.kind == EntryKind::File && theirs.kind == EntryKind::File;
        if !files || sizes.iter().any(|size| *size > MERGED_BYTES_MAX) {
            self.add_conflict(path, "both changed it, and it is not merged by lines", None);
            return Ok(());
        }
        let base = match old {
            Some(old) => contents.read_entry(&old).await?,
            None => Bytes::new(),
        };
        let (here, there) = (contents.read_entry(&ours).await?, contents.read_entry(&theirs).await?);
        let mode = merge_mode(old.map(|old| old.mode), ours.mode, theirs.mode);
        let text = |bytes: &[u8]| !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok();
        if ![&base, &here, &there].into_iter().all(|bytes| text(bytes)) {
            self.add_conflict(path, "both changed it, and it is no text", None);
            return Ok(());
        }
        match merge_lines(&base, &here, &there) {
            Ok(bytes) => {
                let blob = BlobRef::for_bytes(&bytes);
                let entry = Entry { kind: EntryKind::File, mode, size: blob.bytes, hash: blob.hash };
                if entry.hash != ours.hash && entry.hash != theirs.hash {
                    self.blobs.push(blob, bytes);
                }
                self.set_entry(path, Some(entry));
            }
            Err(lines) => self.add_conflict(path, "both changed the same lines", Some(lines)),
        }
        Ok(())
    }

    /// Reverts combinations that cannot coexist (a file in place of a folder, or a path below a file), and
    /// gives folders the entries that follow from their contents.
    fn resolve_file_folder_clashes(&mut self, own: &Manifest) {
        let is_leaf = |entry: &Entry| entry.kind != EntryKind::Dir;
        let leaves: Vec<WorkspacePath> = self
            .tree
            .entries
            .iter()
            .filter(|(_, entry)| is_leaf(entry))
            .map(|(path, _)| path.clone())
            .collect();
        let mut tangled: Vec<WorkspacePath> = Vec::new();
        for path in &leaves {
            let above =
                ancestor_folders(path).find(|folder| self.tree.entries.get(folder).is_some_and(is_leaf));
            if let Some(above) = above {
                // Whichever of the two is not the parent's own.
                let theirs = if own.entries.contains_key(path) { above } else { path.clone() };
                tangled.push(theirs);
            }
        }
        tangled.sort();
        tangled.dedup();
        for path in tangled {
            self.set_entry(path.clone(), own.entries.get(&path).copied());
            self.add_conflict(path, "a file of the one stands where the other has a folder", None);
        }
        let mut filled: BTreeMap<WorkspacePath, ()> = BTreeMap::new();
        for path in self.tree.entries.keys() {
            filled.extend(ancestor_folders(path).map(|folder| (folder, ())));
        }
        self.tree.entries.retain(|path, entry| {
            entry.kind != EntryKind::Dir || entry.mode != DEFAULT_FOLDER_MODE || !filled.contains_key(path)
        });
    }
}

/// The folders that contain a path, innermost first.
fn ancestor_folders(path: &WorkspacePath) -> impl Iterator<Item = WorkspacePath> + use<> {
    let mut rest = path.as_bytes().to_vec();
    std::iter::from_fn(move || {
        let slash = rest.iter().rposition(|b| *b == b'/')?;
        rest.truncate(slash);
        WorkspacePath::new(rest.clone())
    })
}

fn merge_mode(old: Option<u32>, ours: u32, theirs: u32) -> u32 {
    if old == Some(ours) { theirs } else { ours }
}

/// Merges two versions of a text derived from `base`. Changes that touch conflict unless they are identical.
///
/// # Errors
/// The conflicting lines, with conflict markers.
fn merge_lines(base: &[u8], ours: &[u8], theirs: &[u8]) -> Result<Vec<u8>, String> {
    let (base, ours, theirs) = (split_lines(base), split_lines(ours), split_lines(theirs));
    let (left, right) = (diff_hunks(&base, &ours), diff_hunks(&base, &theirs));
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let (mut out, mut marks, mut at): (Vec<u8>, String, usize) = (Vec::new(), String::new(), 0);
    while left.peek().is_some() || right.peek().is_some() {
        // A region of the base that one of them changed, with everything that overlaps or touches it: hunks
        // of one version never touch each other.
        let begin = [left.peek(), right.peek()].into_iter().flatten().map(|hunk| hunk.old.0).min();
        let begin = begin.unwrap_or(at);
        let mut end = begin;
        let (mut of_left, mut of_right): (Vec<&LineHunk>, Vec<&LineHunk>) = (Vec::new(), Vec::new());
        loop {
            let (side, taken) = match left.next_if(|hunk| hunk.old.0 <= end) {
                Some(hunk) => (&mut of_left, hunk),
                None => match right.next_if(|hunk| hunk.old.0 <= end) {
                    Some(hunk) => (&mut of_right, hunk),
                    None => break,
                },
            };
            end = end.max(taken.old.1);
            side.push(taken);
        }
        out.extend(base[at..begin].concat());
        let versions = [
            apply_hunks(&base, &ours, &of_left, (begin, end)),
            apply_hunks(&base, &theirs, &of_right, (begin, end)),
        ];
        match (of_left.is_empty(), of_right.is_empty()) {
            (false, true) => out.extend(&versions[0]),
            (true, false) => out.extend(&versions[1]),
            _ if versions[0] == versions[1] => out.extend(&versions[0]),
            _ => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
                marks.push_str(&format!(
                    "<<<<<<< yours, line {}\n{}\n=======\n{}\n>>>>>>> the child's\n",
                    begin + 1,
                    text(&versions[0]),
                    text(&versions[1])
                ));
            }
        }
        at = end;
    }
    out.extend(base[at..].concat());
    if marks.is_empty() { Ok(out) } else { Err(marks) }
}

fn split_lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|b| *b == b'\n').collect()
}

/// Lines of the base that one version replaced, and their replacement.
#[derive(Debug, Clone, Copy)]
struct LineHunk {
    old: (usize, usize),
    new: (usize, usize),
}

fn diff_hunks(base: &[&[u8]], version: &[&[u8]]) -> Vec<LineHunk> {
    let mut all: Vec<LineHunk> = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, base, version) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let (old, new) = (op.old_range(), op.new_range());
        match all.last_mut() {
            Some(last) if last.old.1 == old.start && last.new.1 == new.start => {
                (last.old.1, last.new.1) = (old.end, new.end);
            }
            _ => all.push(LineHunk { old: (old.start, old.end), new: (new.start, new.end) }),
        }
    }
    all
}

/// Returns the region as one version has it.
fn apply_hunks(
    base: &[&[u8]],
    lines: &[&[u8]],
    hunks: &[&LineHunk],
    (begin, end): (usize, usize),
) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), begin);
    for hunk in hunks {
        out.extend(base[at..hunk.old.0].concat());
        out.extend(lines[hunk.new.0..hunk.new.1].concat());
        at = hunk.old.1;
    }
    out.extend(base[at..end].concat());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge_text(base: &str, ours: &str, theirs: &str) -> Result<String, String> {
        merge_lines(base.as_bytes(), ours.as_bytes(), theirs.as_bytes())
            .map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn one_sided_changes_are_taken() {
        let base = "a\nb\nc\nd\ne\n";
        for (ours, theirs, both) in [
            ("A\nb\nc\nd\ne\n", "a\nb\nc\nd\nE\n", "A\nb\nc\nd\nE\n"),
            (base, "a\nc\nd\ne\n", "a\nc\nd\ne\n"),
            ("0\na\nb\nc\nd\ne\n", "a\nb\nc\nd\ne\nf\n", "0\na\nb\nc\nd\ne\nf\n"),
            ("a\nB\nc\nd\ne\n", "a\nB\nc\nd\ne\n", "a\nB\nc\nd\ne\n"),
            ("a\nb\nc\n", "A\nb\nc\nd\ne\n", "A\nb\nc\n"),
            ("", base, ""),
        ] {
            assert_eq!(merge_text(base, ours, theirs).as_deref(), Ok(both), "{ours:?} {theirs:?}");
            assert_eq!(merge_text(base, theirs, ours).as_deref(), Ok(both), "{theirs:?} {ours:?}");
        }
    }

    #[test]
    fn overlapping_changes_conflict() {
        let base = "a\nb\nc\n";
        for (ours, theirs) in [
            ("a\nX\nc\n", "a\nY\nc\n"),
            ("a\nX\nb\nc\n", "a\nY\nb\nc\n"),
            ("a\nb\nc\nX\n", "a\nb\nc\nY\n"),
            ("a\nX\nc\n", "a\nb\nY\n"),
            ("X\n", "a\nb\nc\nY\n"),
            ("", "a\nB\nc\n"),
        ] {
            let told = merge_text(base, ours, theirs).unwrap_err();
            assert!(told.contains("<<<<<<< yours") && told.contains(">>>>>>> the child's"), "{told}");
        }
        assert!(merge_text("", "x\n", "y\n").unwrap_err().contains("x\n=======\ny"));
    }

    proptest::proptest! {
        /// A merge with an unchanged version yields the other version, in either order.
        #[test]
        fn unchanged_version_yields_the_other_version(
            base in proptest::collection::vec(0_u8..4, 0..12),
            ours in proptest::collection::vec(0_u8..4, 0..12),
            theirs in proptest::collection::vec(0_u8..4, 0..12),
        ) {
            let text = |lines: &[u8]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let (base, ours, theirs) = (text(&base), text(&ours), text(&theirs));
            proptest::prop_assert_eq!(merge_text(&base, &base, &theirs), Ok(theirs.clone()));
            proptest::prop_assert_eq!(merge_text(&base, &ours, &base), Ok(ours.clone()));
            proptest::prop_assert_eq!(merge_text(&base, &ours, &ours), Ok(ours.clone()));
            let (one, other) = (merge_text(&base, &ours, &theirs), merge_text(&base, &theirs, &ours));
            proptest::prop_assert_eq!(one.is_ok(), other.is_ok());
            if let (Ok(one), Ok(other)) = (one, other) {
                proptest::prop_assert_eq!(one, other);
            }
        }
    }
}
