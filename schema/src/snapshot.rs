//! What a workspace looked like: manifests, changes between them, and the hash of a whole tree.
//!
//! The tree hash is a Merkle hash by folder, so that a change of one file costs its folders alone,
//! however large the repository is.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::{
    content::{BlobRef, WorkspacePath},
    ids::{BlobHash, TreeHash},
};

/// What kind of thing stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A symbolic link; its content is the target.
    Symlink,
    /// A folder that is empty or whose mode is not 0755: other folders follow from their files.
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

    /// Whether git itself would write a thing of this kind with this mode.
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

/// The mode bits that a snapshot records: read, write and execute. Set-user-id, set-group-id and sticky bits are left
/// out, because a recorded tree is written by whoever looks at it, root included.
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

/// One path's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// File, link or folder.
    pub kind: EntryKind,
    /// Permission bits within [`PERMISSION_BITS`]; 0 for links. Reading an entry with any other bit fails: a log, a
    /// request or an archive that names one is refused before a file system sees it.
    #[serde(deserialize_with = "permission_bits")]
    #[schemars(range(max = 511))]
    pub mode: u32,
    /// Size in bytes; of the target for a link, 0 for a folder.
    pub size: u64,
    /// The blob of the content; of the target for a link; zero for a folder.
    pub hash: BlobHash,
}

/// A path that changed, and what stands there now; `None` = nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathChange {
    /// Where.
    pub path: WorkspacePath,
    /// What, now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<Entry>,
}

/// A path that a snapshot does not hold, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OmittedPath {
    /// Where.
    pub path: WorkspacePath,
    /// Why.
    pub why: OmissionReason,
}

/// Why a snapshot does not hold a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OmissionReason {
    /// The base commit's ignore rules name it.
    Ignored,
    /// Larger than the cap for one file or for all of a snapshot, or its path is too long or too deep.
    TooLarge,
    /// A device, FIFO or socket.
    NotAFile,
    /// It could not be read.
    Unreadable,
}

/// The state a task starts from, as blobs that suffice to make it anywhere.
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
    /// The branch it was taken from, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The pack file, in parts that are to be joined in order.
    pub pack: Vec<BlobRef>,
    /// The pack's index file.
    pub pack_index: BlobRef,
    /// Git's index of the work tree at the commit, without stat data.
    pub index: BlobRef,
    /// Where the commit came from: a local folder or a remote's address. For people and for delivery.
    pub source: String,
    /// The last commits, in lines of text, as far as their history was at hand. Not in logs that lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent: Option<BlobRef>,
    /// The commit's submodules in byte order of their paths, those in submodules included.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "sorted_submodules")]
    pub submodules: Vec<Submodule>,
}

/// Refuses submodules in another order: they are searched by path, and one that is not found would be delivered as files.
fn sorted_submodules<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Submodule>, D::Error> {
    let submodules = Vec::<Submodule>::deserialize(from)?;
    if submodules.is_sorted_by(|a, b| a.path < b.path) {
        return Ok(submodules);
    }
    Err(D::Error::custom("submodules must be in byte order of their paths, each once"))
}

/// A submodule of a base: another repository's commit, which a result of the task never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submodule {
    /// Its folder.
    pub path: WorkspacePath,
    /// The commit of it that belongs there, in hexadecimal.
    pub commit: String,
    /// Git's index of that commit; its objects are in the base's pack. `None` where the submitting machine did not have
    /// them: the folder is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<BlobRef>,
}

/// A whole tree, path by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest {
    /// All entries in byte order of their paths.
    pub entries: BTreeMap<WorkspacePath, Entry>,
}

/// A manifest blob that does not decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the manifest is damaged at byte {at}: {what}")]
pub struct ManifestError {
    /// Offset of the entry that does not decode.
    pub at: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

const MANIFEST_MAGIC: &[u8] = b"docket-manifest-1\n";

impl Manifest {
    /// The manifest as a blob: the magic line, then per entry tag, mode (u32), size (u64), hash,
    /// path length (u32), path; integers little-endian; entries in path order.
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

    /// Reads what [`Manifest::encode`] wrote.
    ///
    /// # Errors
    /// [`ManifestError`] at the first entry that is cut, illegal or out of order, or whose mode no commit has: a base is
    /// a commit's tree, so its files are 0644 or 0755 and its folders 0755.
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
                return Err(fail(at, "a mode that no commit has"));
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

    /// The tree hash of these entries.
    pub fn tree_hash(&self) -> TreeHash {
        let mut tree = MerkleTree::default();
        for (path, entry) in &self.entries {
            tree.set_entry(path, Some(*entry));
        }
        tree.root_hash()
    }
}

/// Mode of a folder that no entry names.
const DIR_MODE_IMPLIED: u32 = 0o755;

/// A tree whose hash is kept current at the cost of the folders that changed.
///
/// Definition of the hash: a folder's hash is BLAKE3 over, for each child in byte order of its name:
/// the name's length (u32), the name, the kind's tag, the mode (u32), and 32 bytes: the blob hash of
/// a file or link, the folder's hash of a folder. Integers little-endian. The root's mode is left out.
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
    /// Sets or removes what stands at `path`. A file replaces a folder of that name and all in it;
    /// folders that hold nothing and have no entry of their own vanish.
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
                // Only the folder's own entry is gone; what it holds has entries of its own.
                Some(TreeNode::Dir { tree, .. }) if !tree.children.is_empty() => {
                    let node = TreeNode::Dir { mode: DIR_MODE_IMPLIED, explicit: false, tree };
                    self.children.insert(name.into(), node);
                }
                Some(_) | None => {}
            },
        }
    }

    /// The hash of the tree; folders unchanged since the last call are not hashed again.
    pub fn root_hash(&mut self) -> TreeHash {
        if let Some(hash) = self.hash {
            return hash;
        }
        // Folders first, in frames without a hasher: a tree may be deeper than the stack takes otherwise.
        for node in self.children.values_mut() {
            if let TreeNode::Dir { tree, .. } = node {
                tree.root_hash();
            }
        }
        let hash = self.hash_children();
        self.hash = Some(hash);
        hash
    }

    /// The hash, from those of the folders in it.
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

/// The hash of the tree that `manifest` describes. See [`Tree`] for its definition.
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
        Entry { kind: EntryKind::File, mode, size: content.len() as u64, hash: BlobHash::of(content) }
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
        /// The tree kept current change by change equals the one made anew, whatever the order.
        #[test]
        fn incremental_hash_equals_the_hash_from_scratch(
            changes in prop::collection::vec((any_path(), prop::option::of(0u8..4)), 0..40)
        ) {
            let mut tree = MerkleTree::default();
            let mut flat: BTreeMap<WorkspacePath, Entry> = BTreeMap::new();
            for (at, content) in changes {
                let entry = content.map(|byte| file(&[byte], 0o644));
                // A file cannot stand under a file: drop what a real file system would have dropped.
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
