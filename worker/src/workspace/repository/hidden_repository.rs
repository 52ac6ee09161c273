//! Repositories that a run hid in its tree under a name that is not `.git`.
//!
//! The sandbox and the file tools keep a run from making one. A tree that comes from elsewhere (an import, another
//! version) is checked again before it becomes a commit or a patch: what would make git obey a folder is left out of the
//! delivery and named, and a checkout names it. Repositories that the base has already, such as the fixtures of a git
//! library, stay as they are. Pure; used by `deliver`, `patch` and `checkout`.

use std::collections::HashMap;

use docket_sandbox::git_shape::{GitEntry, GitName, GitShape, fold_name};
use docket_schema::{
    content::WorkPath,
    snapshot::{Entry, EntryKind, Manifest},
};

/// The folders of two trees that git would take for repositories, by what they hold.
#[derive(Debug, Default)]
pub(crate) struct HiddenRepositories {
    /// By folded folder path, see [`folded`].
    folders: HashMap<Vec<u8>, HiddenFolder>,
}

/// A folder of the new tree that means something to git.
#[derive(Debug)]
struct HiddenFolder {
    shape: GitShape,
    /// Git takes orders there, and took none in the old tree.
    is_newly_armed: bool,
}

impl HiddenRepositories {
    /// Compares the tree `new` with the tree `old` that it began as.
    pub(crate) fn find(old: &Manifest, new: &Manifest) -> Self {
        let before = shapes(old);
        let folders = shapes(new).into_iter().map(|(folder, shape)| {
            let was_armed = before.get(&folder).is_some_and(|shape| shape.is_armed());
            (folder, HiddenFolder { shape, is_newly_armed: shape.is_armed() && !was_armed })
        });
        Self { folders: folders.collect() }
    }

    /// Whether `path`, which the run made or changed, must not be delivered: git would take orders from it, or it is
    /// part of what makes its folder a repository.
    pub(crate) fn holds(&self, path: &WorkPath, entry: &Entry) -> bool {
        let is_held = |(folder, name, kind): (&[u8], GitName, GitEntry)| {
            let hidden = self.folders.get(&folded(folder));
            hidden.is_some_and(|hidden| hidden.is_newly_armed || hidden.shape.obeys(name, kind))
        };
        git_names(path, entry.kind).any(is_held)
    }
}

/// The shapes of a tree's folders by folded path: folders that a file system takes for one have one shape.
fn shapes(tree: &Manifest) -> HashMap<Vec<u8>, GitShape> {
    let mut shapes: HashMap<Vec<u8>, GitShape> = HashMap::new();
    for (path, entry) in &tree.entries {
        for (folder, name, kind) in git_names(path, entry.kind) {
            shapes.entry(folded(folder)).or_default().add(name, kind);
        }
    }
    shapes
}

/// A folder's path as a file system keeps it that folds case, or that leaves out what trails or cannot be seen. Folders
/// that some file system takes for one have one folded path.
fn folded(folder: &[u8]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = folder.split(|b| *b == b'/').map(fold_name).collect();
    parts.join(&b'/')
}

/// The parts of a path that mean something to git, each with the folder that it is in.
fn git_names(path: &WorkPath, kind: EntryKind) -> impl Iterator<Item = (&[u8], GitName, GitEntry)> {
    let bytes = path.as_bytes();
    let mut start = 0;
    path.parts().filter_map(move |part| {
        let (from, end) = (start, start + part.len());
        start = end + 1;
        let name = GitName::of(part)?;
        let is_folder = end < bytes.len() || kind == EntryKind::Dir;
        let entry = if is_folder { GitEntry::Folder } else { GitEntry::Other };
        Some((&bytes[..from.saturating_sub(1)], name, entry))
    })
}

#[cfg(test)]
mod tests {
    use docket_schema::content::BlobRef;

    use super::*;

    fn tree(paths: &[&str]) -> Manifest {
        let entries = paths.iter().map(|path| (WorkPath::new(*path).expect("a path"), file()));
        Manifest { entries: entries.collect() }
    }

    #[test]
    fn folders_that_differ_in_case_alone_are_one_repository() {
        for (head, commondir) in [
            ("wt/M/HEAD", "wt/m/commondir"),
            ("WT/m/HEAD", "wt/m/commondir"),
            ("wt/m./HEAD", "wt/m/commondir"),
            ("wt/m\u{200c}/HEAD", "wt/m/commondir"),
            ("wt/\u{c9}/HEAD", "wt/\u{e9}/commondir"),
        ] {
            let hidden = HiddenRepositories::find(&Manifest::default(), &tree(&[head, commondir]));
            for path in [head, commondir] {
                assert!(hidden.holds(&WorkPath::new(path).expect("a path"), &file()), "{path}");
            }
            // What the base had already stays.
            let old = tree(&[head, commondir]);
            let kept = HiddenRepositories::find(&old, &tree(&[head, commondir, "wt/x"]));
            assert!(!kept.holds(&WorkPath::new("wt/x").expect("a path"), &file()));
        }
        let apart = HiddenRepositories::find(&Manifest::default(), &tree(&["wt/a/HEAD", "wt/b/commondir"]));
        assert!(!apart.holds(&WorkPath::new("wt/a/HEAD").expect("a path"), &file()));
    }

    fn file() -> Entry {
        Entry { kind: EntryKind::File, mode: 0o644, size: 0, hash: BlobRef::of(b"").hash }
    }
}
