//! Detects repositories that a run hid in its tree under a name other than `.git`.
//!
//! The sandbox and the file tools prevent a run from creating one. A tree from elsewhere (an import, another
//! version) is checked again before it becomes a commit or a patch: files that would make git treat a folder
//! as a repository are left out of the delivery and reported, and a checkout reports them. Repositories that
//! the base already contains, such as the fixtures of a git library, are kept. Pure; used for delivery and
//! `checkout`.

use std::collections::HashMap;

use docket_sandbox::git_repository::{GitEntryKind, GitName, RepositoryShape, fold_file_name};
use docket_schema::{
    content::WorkspacePath,
    snapshot::{Entry, EntryKind, Manifest},
};

/// The folders of two trees that git would treat as repositories, with their relevant contents.
#[derive(Debug, Default)]
pub(crate) struct HiddenRepositories {
    /// By folded folder path, see [`fold_path`].
    folders: HashMap<Vec<u8>, HiddenFolder>,
}

/// A folder of the new tree that is relevant to git.
#[derive(Debug)]
struct HiddenFolder {
    shape: RepositoryShape,
    /// git would treat it as a repository now, but not in the old tree.
    is_newly_armed: bool,
}

impl HiddenRepositories {
    /// Compares the tree `new` with the tree `old` that it started from.
    pub(crate) fn find(old: &Manifest, new: &Manifest) -> Self {
        let before = folder_shapes(old);
        let folders = folder_shapes(new).into_iter().map(|(folder, shape)| {
            let was_armed = before.get(&folder).is_some_and(|shape| shape.can_run_programs());
            (folder, HiddenFolder { shape, is_newly_armed: shape.can_run_programs() && !was_armed })
        });
        Self { folders: folders.collect() }
    }

    /// Whether `path`, which the run created or changed, must not be delivered: git would act on it, or it is
    /// part of what makes its folder a repository.
    pub(crate) fn is_undeliverable(&self, path: &WorkspacePath, entry: &Entry) -> bool {
        let is_held = |(folder, name, kind): (&[u8], GitName, GitEntryKind)| {
            let hidden = self.folders.get(&fold_path(folder));
            hidden.is_some_and(|hidden| hidden.is_newly_armed || hidden.shape.obeys(name, kind))
        };
        git_relevant_parts(path, entry.kind).any(is_held)
    }
}

/// Returns the shapes of a tree's folders by folded path: folders that some file system treats as the same
/// one share a shape.
fn folder_shapes(tree: &Manifest) -> HashMap<Vec<u8>, RepositoryShape> {
    let mut shapes: HashMap<Vec<u8>, RepositoryShape> = HashMap::new();
    for (path, entry) in &tree.entries {
        for (folder, name, kind) in git_relevant_parts(path, entry.kind) {
            shapes.entry(fold_path(folder)).or_default().add_entry(name, kind);
        }
    }
    shapes
}

/// Folds a folder path as a file system that ignores case, trailing characters or invisible ones does.
/// Folders that some file system treats as the same one have the same folded path.
fn fold_path(folder: &[u8]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = folder.split(|b| *b == b'/').map(fold_file_name).collect();
    parts.join(&b'/')
}

/// Returns the components of a path that are relevant to git, each with its folder.
fn git_relevant_parts(
    path: &WorkspacePath,
    kind: EntryKind,
) -> impl Iterator<Item = (&[u8], GitName, GitEntryKind)> {
    let bytes = path.as_bytes();
    let mut start = 0;
    path.components().filter_map(move |part| {
        let (from, end) = (start, start + part.len());
        start = end + 1;
        let name = GitName::from_file_name(part)?;
        let is_folder = end < bytes.len() || kind == EntryKind::Dir;
        let entry = if is_folder { GitEntryKind::Folder } else { GitEntryKind::Other };
        Some((&bytes[..from.saturating_sub(1)], name, entry))
    })
}

#[cfg(test)]
mod tests {
    use docket_schema::content::BlobRef;

    use super::*;

    fn manifest_with_files(paths: &[&str]) -> Manifest {
        let entries = paths.iter().map(|path| (WorkspacePath::new(*path).expect("a path"), file_entry()));
        Manifest { entries: entries.collect() }
    }

    #[test]
    fn folders_differing_only_by_case_are_one_repository() {
        for (head, commondir) in [
            ("wt/M/HEAD", "wt/m/commondir"),
            ("WT/m/HEAD", "wt/m/commondir"),
            ("wt/m./HEAD", "wt/m/commondir"),
            ("wt/m\u{200c}/HEAD", "wt/m/commondir"),
            ("wt/\u{c9}/HEAD", "wt/\u{e9}/commondir"),
        ] {
            let hidden =
                HiddenRepositories::find(&Manifest::default(), &manifest_with_files(&[head, commondir]));
            for path in [head, commondir] {
                assert!(
                    hidden.is_undeliverable(&WorkspacePath::new(path).expect("a path"), &file_entry()),
                    "{path}"
                );
            }
            // Files that the base already had are kept.
            let old = manifest_with_files(&[head, commondir]);
            let kept = HiddenRepositories::find(&old, &manifest_with_files(&[head, commondir, "wt/x"]));
            assert!(!kept.is_undeliverable(&WorkspacePath::new("wt/x").expect("a path"), &file_entry()));
        }
        let apart = HiddenRepositories::find(
            &Manifest::default(),
            &manifest_with_files(&["wt/a/HEAD", "wt/b/commondir"]),
        );
        assert!(!apart.is_undeliverable(&WorkspacePath::new("wt/a/HEAD").expect("a path"), &file_entry()));
    }

    fn file_entry() -> Entry {
        Entry { kind: EntryKind::File, mode: 0o644, size: 0, hash: BlobRef::for_bytes(b"").hash }
    }
}
