//! Workspace snapshots: manifests, changes between them, and the hash of a complete tree.
//!
//! The tree hash is a Merkle hash over folders, so that changing one file only costs its parent folders,
//! however large the repository is.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::{
    content::{BlobRef, WorkspacePath},
    ids::{BlobHash, TreeHash},
};

/// Kind of a path's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link; its content is the target.
    Symlink,
    /// A folder that is empty or whose mode is not 0755. Other folders are implied by their files.
    Dir,
}

impl EntryKind {
    const fn tag(self) -> u8 {
        match self {
            Self::File => b'f',
            Self::Symlink => b'l',
            Self::Dir => b'd',
        }
    }

    /// Whether git itself would write an entry of this kind with this mode.
    const fn is_git_mode(self, mode: u32) -> bool {
        match self {
            Self::File => matches!(mode, 0o644 | 0o755),
            Self::Symlink => mode == 0,
            Self::Dir => mode == DIR_MODE_IMPLIED,
        }
    }

    const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            b'f' => Some(Self::File),
            b'l' => Some(Self::Symlink),
            b'd' => Some(Self::Dir),
            _ => None,
        }
    }
}

/// Mode bits that a snapshot records: read, write and execute. Set-user-id, set-group-id and sticky bits are
/// excluded, because a recorded tree is written by any user who inspects it, including root.
pub const PERMISSION_BITS: u32 = 0o777;

fn permission_bits<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let mode = u32::deserialize(from)?;
    if mode & !PERMISSION_BITS == 0 {
        return Ok(mode);
    }
    Err(D::Error::custom(format!(
        "the mode {mode:04o} has bits beyond 0777; a snapshot holds permission bits only"
    )))
}

/// The entry of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// File, link or folder.
    pub kind: EntryKind,
    /// Permission bits within [`PERMISSION_BITS`]; 0 for links. Decoding an entry with any other bit fails,
    /// so such a log, request or archive is refused before it reaches a file system.
    #[serde(deserialize_with = "permission_bits")]
    #[schemars(range(max = 511))]
    pub mode: u32,
    /// Size in bytes: of the content, of a link's target, or 0 for a folder.
    pub size: u64,
    /// Hash of the content's blob, or of a link's target; zero for a folder.
    pub hash: BlobHash,
}

/// A changed path and its new entry; `None` means deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathChange {
    /// The path.
    pub path: WorkspacePath,
    /// The new entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Entry>,
}

/// A path omitted from a snapshot, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OmittedPath {
    /// The path.
    pub path: WorkspacePath,
    /// The reason.
    pub why: OmissionReason,
}

/// Why a path is omitted from a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OmissionReason {
    /// The base commit's ignore rules match it.
    Ignored,
    /// It exceeds the size limit of a file or of a snapshot, or its path is too long or too deep.
    TooLarge,
    /// It is a device, FIFO or socket.
    NotAFile,
    /// It could not be read.
    Unreadable,
}

/// The tree a task starts from, as blobs from which it can be created on any machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceBase {
    /// The tree's [`Manifest`], encoded.
    pub manifest: BlobRef,
    /// Hash of the tree.
    pub tree: TreeHash,
    /// The git part; `None` for a task without a repository, whose workspace starts empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitBase>,
}

/// A commit as a shallow pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GitBase {
    /// The commit's id in hexadecimal.
    pub commit: String,
    /// The branch it was taken from, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The parts of the pack file, to be concatenated in order.
    pub pack: Vec<BlobRef>,
    /// The pack's index file.
    pub pack_index: BlobRef,
    /// Git's index of the work tree at the commit, without stat data.
    pub index: BlobRef,
    /// Where the commit came from: a local folder or a remote's address. For people and for delivery.
    pub source: String,
    /// The last commits as lines of text, as far as their history was available. Absent in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent: Option<BlobRef>,
    /// The commit's submodules, including nested ones, in byte order of their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "sorted_submodules")]
    pub submodules: Vec<Submodule>,
}

/// Rejects submodules in another order: they are found by binary search, and one that is not found would be
/// delivered as files.
fn sorted_submodules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Submodule>, D::Error> {
    let submodules = Vec::<Submodule>::deserialize(from)?;
    if submodules.is_sorted_by(|a, b| a.path < b.path) {
        return Ok(submodules);
    }
    Err(D::Error::custom("submodules must be in byte order of their paths, each once"))
}

/// A submodule of a base: a commit of another repository, which a task's result never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submodule {
    /// Its folder.
    pub path: WorkspacePath,
    /// The checked-out commit, in hexadecimal.
    pub commit: String,
    /// Git's index of that commit; its objects are in the base's pack. `None` if the submitting machine did
    /// not have them: the folder is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<BlobRef>,
}

/// A complete tree, path by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// All entries in byte order of their paths.
    pub entries: BTreeMap<WorkspacePath, Entry>,
}

/// A manifest blob that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the manifest is damaged at byte {at}: {what}")]
pub struct ManifestError {
    /// Offset of the invalid entry.
    pub at: usize,
    /// The problem.
    pub what: &'static str,
}

const MANIFEST_MAGIC: &[u8] = b"docket-manifest-1\n";

impl Manifest {
    /// Encodes the manifest as a blob: the magic line, then per entry tag, mode (u32), size (u64), hash, path
    /// length (u32), path; integers little-endian; entries in path order.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MANIFEST_MAGIC.len() + self.entries.len() * 96);
        out.extend_from_slice(MANIFEST_MAGIC);
        for (path, entry) in &self.entries {
            out.push(entry.kind.tag());
            out.extend_from_slice(&entry.mode.to_le_bytes());
            out.extend_from_slice(&entry.size.to_le_bytes());
            out.extend_from_slice(&entry.hash.0);
            let path = path.as_bytes();
            out.extend_from_slice(&u32::try_from(path.len()).unwrap_or(u32::MAX).to_le_bytes());
            out.extend_from_slice(path);
        }
        out
    }

    /// Decodes the output of [`Manifest::encode`].
    ///
    /// # Errors
    ///
    /// [`ManifestError`] at the first entry that is truncated, invalid or out of order, or whose mode no
    /// commit has: a base is a commit's tree, so its files are 0644 or 0755 and its folders 0755.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let fail = |at, what| ManifestError { at, what };
        let mut rest = bytes.strip_prefix(MANIFEST_MAGIC).ok_or(fail(0, "not a manifest"))?;
        let mut entries = BTreeMap::new();
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let (head, tail) = rest.split_at_checked(49).ok_or(fail(at, "cut entry"))?;
            let kind = EntryKind::from_tag(head[0]).ok_or(fail(at, "unknown kind"))?;
            let mode = u32::from_le_bytes(head[1..5].try_into().expect("four bytes"));
            let size = u64::from_le_bytes(head[5..13].try_into().expect("eight bytes"));
            let hash = BlobHash(head[13..45].try_into().expect("thirty-two bytes"));
            let length = u32::from_le_bytes(head[45..49].try_into().expect("four bytes")) as usize;
            let (path, tail) = tail.split_at_checked(length).ok_or(fail(at, "cut path"))?;
            let path = WorkspacePath::new(path).ok_or(fail(at, "a path that leaves the workspace"))?;
            if !kind.is_git_mode(mode) {
                return Err(fail(at, "a mode that no commit can have"));
            }
            if entries.last_key_value().is_some_and(|(last, _)| *last >= path) {
                return Err(fail(at, "paths out of order"));
            }
            entries.insert(path, Entry { kind, mode, size, hash });
            rest = tail;
        }
        Ok(Self { entries })
    }

    /// Applies `changes` in order.
    pub fn apply_changes<'a>(&mut self, changes: impl IntoIterator<Item = &'a PathChange>) {
        for change in changes {
            match change.entry {
                Some(entry) => self.entries.insert(change.path.clone(), entry),
                None => self.entries.remove(&change.path),
            };
        }
    }

    /// Returns the tree hash of these entries.
    pub fn tree_hash(&self) -> TreeHash {
        let mut tree = MerkleTree::default();
        for (path, entry) in &self.entries {
            tree.set_entry(path, Some(*entry));
        }
        tree.root_hash()
    }
}

/// Mode of a folder without its own entry.
const DIR_MODE_IMPLIED: u32 = 0o755;

/// A tree whose hash is updated at the cost of the changed folders only.
///
/// Definition of the hash: a folder's hash is BLAKE3 over, for each child in byte order of its name: the
/// name's length (u32), the name, the kind's tag, the mode (u32), and 32 bytes: the blob hash of a file or
/// link, the folder's hash of a folder. Integers are little-endian. The root's mode is excluded.
#[derive(Debug, Clone, Default)]
pub struct MerkleTree {
    children: BTreeMap<Box<[u8]>, TreeNode>,
    hash: Option<TreeHash>,
}

#[derive(Debug, Clone)]
enum TreeNode {
    Leaf(Entry),
    Dir { mode: u32, explicit: bool, tree: MerkleTree },
}

impl MerkleTree {
    /// Sets or removes the entry at `path`. A file replaces a folder of that name with its contents; empty
    /// folders without their own entry disappear.
    pub fn set_entry(&mut self, path: &WorkspacePath, entry: Option<Entry>) {
        let parts: Vec<&[u8]> = path.components().collect();
        self.set_entry_at(&parts, entry);
    }

    fn set_entry_at(&mut self, parts: &[&[u8]], entry: Option<Entry>) {
        self.hash = None;
        let [name, rest @ ..] = parts else { return };
        if rest.is_empty() {
            return self.set_child(name, entry);
        }
        let slot = self.children.entry((*name).into()).or_insert_with(TreeNode::implied_dir);
        if let TreeNode::Leaf(_) = slot {
            if entry.is_none() {
                return;
            }
            *slot = TreeNode::implied_dir();
        }
        if let TreeNode::Dir { tree, explicit, .. } = slot {
            tree.set_entry_at(rest, entry);
            if tree.children.is_empty() && !*explicit {
                self.children.remove(*name);
            }
        }
    }

    fn set_child(&mut self, name: &[u8], entry: Option<Entry>) {
        match entry {
            Some(entry) if entry.kind == EntryKind::Dir => {
                let tree = match self.children.remove(name) {
                    Some(TreeNode::Dir { tree, .. }) => tree,
                    Some(TreeNode::Leaf(_)) | None => Self::default(),
                };
                self.children.insert(name.into(), TreeNode::Dir { mode: entry.mode, explicit: true, tree });
            }
            Some(entry) => {
                self.children.insert(name.into(), TreeNode::Leaf(entry));
            }
            None => match self.children.remove(name) {
                // Only the folder's own entry is removed; its children have their own entries.
                Some(TreeNode::Dir { tree, .. }) if !tree.children.is_empty() => {
                    let node = TreeNode::Dir { mode: DIR_MODE_IMPLIED, explicit: false, tree };
                    self.children.insert(name.into(), node);
                }
                Some(_) | None => {}
            },
        }
    }

    /// Returns the hash of the tree; folders unchanged since the last call are not hashed again.
    pub fn root_hash(&mut self) -> TreeHash {
        if let Some(hash) = self.hash {
            return hash;
        }
        // Folders first, in stack frames without a hasher, which would otherwise limit the depth of the tree.
        for node in self.children.values_mut() {
            if let TreeNode::Dir { tree, .. } = node {
                tree.root_hash();
            }
        }
        let hash = self.hash_children();
        self.hash = Some(hash);
        hash
    }

    /// Computes the hash from those of its child folders.
    fn hash_children(&self) -> TreeHash {
        let mut hasher = blake3::Hasher::new();
        for (name, node) in &self.children {
            hasher.update(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes());
            hasher.update(name);
            let (kind, mode, hash) = match node {
                TreeNode::Leaf(entry) => (entry.kind, entry.mode, entry.hash.0),
                TreeNode::Dir { mode, tree, .. } => {
                    (EntryKind::Dir, *mode, tree.hash.map_or([0; 32], |hash| hash.0))
                }
            };
            hasher.update(&[kind.tag()]);
            hasher.update(&mode.to_le_bytes());
            hasher.update(&hash);
        }
        TreeHash(*hasher.finalize().as_bytes())
    }
}

impl TreeNode {
    fn implied_dir() -> Self {
        Self::Dir { mode: DIR_MODE_IMPLIED, explicit: false, tree: MerkleTree::default() }
    }
}

/// Returns the hash of the tree that `manifest` describes. See [`MerkleTree`] for its definition.
pub fn tree_hash(manifest: &Manifest) -> TreeHash {
    manifest.tree_hash()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unsorted_submodules_are_rejected() {
        let read = |paths: &[&str]| {
            let blob = BlobRef::for_bytes(b"");
            let submodules: Vec<_> =
                paths.iter().map(|path| serde_json::json!({ "path": path, "commit": "c" })).collect();
            serde_json::from_value::<GitBase>(serde_json::json!({
                "commit": "c", "pack": [], "pack_index": blob, "index": blob, "source": "s",
                "submodules": submodules,
            }))
        };
        assert_eq!(read(&["a", "a/b", "b"]).expect("sorted").submodules.len(), 3);
        for paths in [["b", "a"], ["a", "a"]] {
            let error = read(&paths).expect_err("unsorted").to_string();
            assert!(error.contains("submodules must be in byte order"), "{error}");
        }
    }

    fn file(content: &[u8], mode: u32) -> Entry {
        Entry { kind: EntryKind::File, mode, size: content.len() as u64, hash: BlobHash::hash_bytes(content) }
    }

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).expect("legal path")
    }

    fn manifest(entries: &[(&str, Entry)]) -> Manifest {
        Manifest { entries: entries.iter().map(|(p, e)| (path(p), *e)).collect() }
    }

    #[test]
    fn content_mode_and_name_each_change_the_hash() {
        let base = manifest(&[("a/b", file(b"1", 0o644)), ("c", file(b"2", 0o644))]);
        let others = [
            manifest(&[("a/b", file(b"9", 0o644)), ("c", file(b"2", 0o644))]),
            manifest(&[("a/b", file(b"1", 0o755)), ("c", file(b"2", 0o644))]),
            manifest(&[("a/x", file(b"1", 0o644)), ("c", file(b"2", 0o644))]),
            manifest(&[("a/b", file(b"1", 0o644))]),
            Manifest::default(),
        ];
        for other in others {
            assert_ne!(other.tree_hash(), base.tree_hash());
        }
    }

    #[test]
    fn truncated_manifest_is_always_an_error() {
        let whole = manifest(&[("a/b", file(b"1", 0o644)), ("c", file(b"2", 0o644))]).encode();
        for cut in 0..whole.len() {
            let entry_ends = [MANIFEST_MAGIC.len(), MANIFEST_MAGIC.len() + 52];
            assert_eq!(Manifest::decode(&whole[..cut]).is_ok(), entry_ends.contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn manifest_accepts_only_git_modes() {
        let of = |kind, mode| Entry { kind, mode, size: 0, hash: BlobHash([0; 32]) };
        for (kind, legal) in [
            (EntryKind::File, &[0o644, 0o755][..]),
            (EntryKind::Symlink, &[0][..]),
            (EntryKind::Dir, &[0o755][..]),
        ] {
            for mode in (0..=0o7777).chain([0o100_644, 0o40755, u32::MAX]) {
                let decoded = Manifest::decode(&manifest(&[("a", of(kind, mode))]).encode());
                assert_eq!(decoded.is_ok(), legal.contains(&mode), "{kind:?} {mode:o}: {decoded:?}");
            }
        }
    }

    #[test]
    fn entry_with_extra_mode_bits_is_rejected() {
        for mode in (0..=0o7777).chain([0o100_644, u32::MAX]) {
            let json = serde_json::to_string(&file(b"1", mode)).expect("serializes");
            let read = serde_json::from_str::<Entry>(&json);
            assert_eq!(read.is_ok(), mode <= PERMISSION_BITS, "{mode:o}: {read:?}");
        }
    }

    prop_compose! {
        fn any_path()(parts in prop::collection::vec("[a-c]{1,2}", 1..4)) -> WorkspacePath {
            path(&parts.join("/"))
        }
    }

    proptest! {
        /// The incrementally updated tree equals a newly built one, in any order of changes.
        #[test]
        fn incremental_hash_equals_the_hash_from_scratch(
            changes in prop::collection::vec((any_path(), prop::option::of(0u8..4)), 0..40)
        ) {
            let mut tree = MerkleTree::default();
            let mut flat: BTreeMap<WorkspacePath, Entry> = BTreeMap::new();
            for (at, content) in changes {
                let entry = content.map(|byte| file(&[byte], 0o644));
                // A file cannot be below another file: remove what a real file system would have removed.
                if entry.is_some() {
                    flat.retain(|p, _| !is_under(p, &at) && !is_under(&at, p));
                } else if flat.keys().any(|p| is_under(p, &at)) {
                    continue;
                }
                match entry {
                    Some(entry) => flat.insert(at.clone(), entry),
                    None => flat.remove(&at),
                };
                tree.set_entry(&at, entry);
                let manifest = Manifest { entries: flat.clone() };
                prop_assert_eq!(tree.root_hash(), manifest.tree_hash());
                prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
            }
        }
    }

    fn is_under(inner: &WorkspacePath, outer: &WorkspacePath) -> bool {
        inner.as_bytes().strip_prefix(outer.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/'))
    }
}
