//! Examines a recorded tree without a workspace: the state of a path, similar paths, differences.
//!
//! Pure, on manifests. Used by the commands that show history (`cat`, `diff`, `blame`) and by
//! [`compare_trees`](crate::workspace::compare_trees). Nothing here reads a content or follows a link.

use std::collections::BTreeMap;

use docket_schema::{
    content::WorkspacePath,
    snapshot::{Entry, EntryKind, Manifest},
};

use crate::workspace::{disk::dirfd::join_path, snapshot::index_updater::DEFAULT_FOLDER_MODE};

/// A run's changes since its base, path by path; `None` = removed.
type Overlay = BTreeMap<WorkspacePath, Option<Entry>>;

/// What a recorded tree has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathState {
    /// A file.
    File(Entry),
    /// A symbolic link; its content is the target.
    Link(Entry),
    /// A folder.
    Folder {
        /// Its permission bits.
        mode: u32,
        /// Its children, in byte order of their names.
        children: Vec<FolderEntry>,
    },
}

/// A child of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEntry {
    /// Its name, without the folder.
    pub name: Vec<u8>,
    /// Its entry; for a folder only the mode is meaningful.
    pub entry: Entry,
}

/// One path that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathDiff {
    pub path: WorkspacePath,
    /// The old entry; `None` = nothing, or a folder without an entry of its own.
    pub old: Option<Entry>,
    /// The new entry; `None` likewise.
    pub new: Option<Entry>,
}

/// Applies a run's changes since its base to the base's tree.
pub fn tree_with_overlay(base: &Manifest, overlay: &Overlay) -> Manifest {
    let mut entries = base.entries.clone();
    for (path, entry) in overlay {
        match entry {
            Some(entry) => entries.insert(path.clone(), *entry),
            None => entries.remove(path),
        };
    }
    Manifest { entries }
}

/// Returns the differences between two trees, in byte order of the paths.
pub fn changed_paths(old: &Manifest, new: &Manifest) -> Vec<PathDiff> {
    let gone_or_other = old.entries.iter().filter(|(path, entry)| new.entries.get(*path) != Some(entry));
    let mut all: Vec<PathDiff> = gone_or_other
        .map(|(path, entry)| PathDiff {
            path: path.clone(),
            old: Some(*entry),
            new: new.entries.get(path).copied(),
        })
        .collect();
    let added = new.entries.iter().filter(|(path, _)| !old.entries.contains_key(*path));
    all.extend(added.map(|(path, entry)| PathDiff { path: path.clone(), old: None, new: Some(*entry) }));
    all.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Returns the state of `path` in `tree`; `None` for the path means the tree's root.
pub fn path_state_at(tree: &Manifest, path: Option<&WorkspacePath>) -> Option<PathState> {
    let entry = path.and_then(|path| tree.entries.get(path));
    match entry {
        Some(entry) if entry.kind == EntryKind::File => return Some(PathState::File(*entry)),
        Some(entry) if entry.kind == EntryKind::Symlink => return Some(PathState::Link(*entry)),
        Some(_) | None => {}
    }
    let children = list_children(tree, path.map_or(&[][..], WorkspacePath::as_bytes));
    if children.is_empty() && entry.is_none() && path.is_some() {
        return None;
    }
    Some(PathState::Folder { mode: entry.map_or(DEFAULT_FOLDER_MODE, |entry| entry.mode), children })
}

fn list_children(tree: &Manifest, folder: &[u8]) -> Vec<FolderEntry> {
    let mut children: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
    for (path, entry) in entries_below(tree, folder) {
        let rest = strip_folder(path, folder).unwrap_or_default();
        match rest.iter().position(|b| *b == b'/') {
            None => drop(children.insert(rest.to_vec(), *entry)),
            Some(slash) => {
                children
                    .entry(rest[..slash].to_vec())
                    .or_insert(crate::workspace::snapshot::index_updater::folder_entry(DEFAULT_FOLDER_MODE));
            }
        }
    }
    children.into_iter().map(|(name, entry)| FolderEntry { name, entry }).collect()
}

/// Returns all entries below a folder; the empty folder is the root.
fn entries_below<'m>(
    tree: &'m Manifest,
    folder: &'m [u8],
) -> impl Iterator<Item = (&'m WorkspacePath, &'m Entry)> {
    // `a.b` sorts between `a` and `a/b` in byte order, so the range begins at the slash.
    let from = (!folder.is_empty()).then(|| WorkspacePath::new(join_path(folder, b"\x01"))).flatten();
    let range = match from {
        // The smallest possible name below it.
        Some(from) => tree.entries.range(from..),
        None => tree.entries.range::<WorkspacePath, _>(..),
    };
    range.take_while(move |(path, _)| strip_folder(path, folder).is_some())
}

fn strip_folder<'p>(path: &'p WorkspacePath, folder: &[u8]) -> Option<&'p [u8]> {
    if folder.is_empty() {
        return Some(path.as_bytes());
    }
    path.as_bytes().strip_prefix(folder)?.strip_prefix(b"/")
}

/// Whether there is any entry below `folder`.
pub(crate) fn has_entries_below(tree: &Manifest, folder: &WorkspacePath) -> bool {
    entries_below(tree, folder.as_bytes()).next().is_some()
}

/// Returns paths of `tree` similar to a mistyped `path`, best first: files of exactly that name elsewhere,
/// then those with similar spelling.
pub fn similar_paths(tree: &Manifest, path: &WorkspacePath, count: usize) -> Vec<WorkspacePath> {
    let text = |path: &WorkspacePath| path.to_string().to_lowercase();
    let name = |text: &str| text.rsplit('/').next().unwrap_or_default().to_owned();
    let asked = text(path);
    let asked_name = name(&asked);
    let files = tree.entries.iter().filter(|(_, entry)| entry.kind != EntryKind::Dir);
    let mut near: Vec<(u64, &WorkspacePath)> = files
        .filter_map(|(there, _)| {
            let known = text(there);
            let whole = strsim::jaro_winkler(&asked, &known);
            let named = strsim::jaro_winkler(&asked_name, &name(&known));
            let score = whole.max(named);
            // As an integer, so that ties are broken by the order of the paths.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a similarity is between 0 and 1"
            )]
            let distance = ((1.0 - score) * 1000.0) as u64;
            (score >= SIMILARITY_MIN).then_some((distance, there))
        })
        .collect();
    near.sort();
    near.into_iter().take(count).map(|(_, path)| path.clone()).collect()
}

/// Names less similar than this are not suggested.
const SIMILARITY_MIN: f64 = 0.8;

#[cfg(test)]
mod tests {
    use docket_schema::ids::BlobHash;

    use super::*;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).unwrap()
    }

    fn entry(kind: EntryKind, mode: u32, content: &str) -> Entry {
        Entry { kind, mode, size: content.len() as u64, hash: BlobHash::hash_bytes(content.as_bytes()) }
    }

    fn file(content: &str) -> Entry {
        entry(EntryKind::File, 0o644, content)
    }

    fn tree(entries: &[(&str, Entry)]) -> Manifest {
        Manifest { entries: entries.iter().map(|(name, entry)| (path(name), *entry)).collect() }
    }

    fn sample_tree() -> Manifest {
        tree(&[
            ("a", file("a")),
            ("src/lib.rs", file("l")),
            ("src-old", file("o")),
            ("src.rs", file("s")),
            ("src/deep/one.rs", file("1")),
            ("src/deep/two.rs", file("2")),
            ("src/hollow", crate::workspace::snapshot::index_updater::folder_entry(0o755)),
            ("locked", crate::workspace::snapshot::index_updater::folder_entry(0o700)),
            ("locked/key", file("k")),
            ("link", entry(EntryKind::Symlink, 0, "a")),
        ])
    }

    fn child_names(standing: Option<PathState>) -> Vec<String> {
        let Some(PathState::Folder { children, .. }) = standing else { panic!("{standing:?}") };
        children.into_iter().map(|child| String::from_utf8(child.name).unwrap()).collect()
    }

    #[test]
    fn a_path_is_a_file_a_link_a_folder_or_nothing() {
        let tree = sample_tree();
        assert_eq!(path_state_at(&tree, Some(&path("a"))), Some(PathState::File(file("a"))));
        assert!(matches!(path_state_at(&tree, Some(&path("link"))), Some(PathState::Link(_))));
        assert_eq!(path_state_at(&tree, Some(&path("sr"))), None);
        assert_eq!(path_state_at(&tree, Some(&path("a/b"))), None);
        assert_eq!(child_names(path_state_at(&tree, Some(&path("src")))), ["deep", "hollow", "lib.rs"]);
        assert_eq!(child_names(path_state_at(&tree, Some(&path("src/hollow")))), [""; 0]);
        let all = ["a", "link", "locked", "src", "src-old", "src.rs"];
        assert_eq!(child_names(path_state_at(&tree, None)), all);
        assert_eq!(child_names(path_state_at(&Manifest::default(), None)), [""; 0]);
        let Some(PathState::Folder { mode, .. }) = path_state_at(&tree, Some(&path("locked"))) else {
            panic!("a folder")
        };
        assert_eq!(mode, 0o700);
    }

    #[test]
    fn overlay_adds_and_removes_paths() {
        let base = tree(&[("keep", file("k")), ("gone", file("g")), ("other", file("1"))]);
        let overlay: Overlay = [
            (path("gone"), None),
            (path("never"), None),
            (path("other"), Some(file("2"))),
            (path("made"), Some(file("m"))),
        ]
        .into();
        let now = tree_with_overlay(&base, &overlay);
        assert_eq!(now, tree(&[("keep", file("k")), ("other", file("2")), ("made", file("m"))]));
        let changed: Vec<_> = changed_paths(&base, &now)
            .into_iter()
            .map(|diff| (diff.path.to_string(), diff.old.is_some(), diff.new.is_some()))
            .collect();
        let expected = [("gone", true, false), ("made", false, true), ("other", true, true)];
        assert_eq!(changed, expected.map(|(path, old, new)| (path.to_owned(), old, new)));
        assert!(changed_paths(&now, &now).is_empty());
    }

    #[test]
    fn misspelled_paths_are_found_by_name_and_by_spelling() {
        let tree = sample_tree();
        let near = |asked: &str| -> Vec<String> {
            similar_paths(&tree, &path(asked), 2).iter().map(ToString::to_string).collect()
        };
        assert_eq!(near("lib.rs")[0], "src/lib.rs");
        assert_eq!(near("src/libb.rs")[0], "src/lib.rs");
        assert_eq!(near("SRC/deep/One.rs")[0], "src/deep/one.rs");
        assert_eq!(near("zzz"), [""; 0]);
    }
}
