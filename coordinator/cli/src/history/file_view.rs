//! Entries of a recorded tree in the form that programs read.

use docket_schema::{
    api::{FileView, FolderEntry},
    content::{Content, WorkspacePath},
    ids::{RunId, Turn},
    snapshot::{Entry, EntryKind},
};
use docket_worker::workspace::PathState;

/// Returns the mode of an entry in octal; links have none.
pub(crate) fn octal_mode(entry: &Entry) -> Option<String> {
    (entry.kind != EntryKind::Symlink).then(|| format!("{:o}", entry.mode))
}

/// Returns the size of an entry in bytes; folders have none.
pub(crate) fn entry_size(entry: &Entry) -> Option<u64> {
    (entry.kind != EntryKind::Dir).then_some(entry.size)
}

/// Builds the view of an entry at a path.
pub(crate) fn build_file_view(
    run: RunId,
    turn: Turn,
    path: Option<&WorkspacePath>,
    standing: &PathState,
    content: Option<&[u8]>,
) -> FileView {
    let view = FileView {
        run,
        turn: turn.0,
        path: path.cloned(),
        kind: EntryKind::Dir,
        mode: None,
        size: None,
        hash: None,
        content: content.map(Content::inline),
        children: None,
    };
    match standing {
        PathState::File(entry) | PathState::Link(entry) => FileView {
            kind: entry.kind,
            mode: octal_mode(entry),
            size: entry_size(entry),
            hash: Some(entry.hash.to_string()),
            ..view
        },
        PathState::Folder { mode, children } => {
            let children = children.iter().filter_map(|child| {
                let name = WorkspacePath::new(child.name.clone())?;
                let entry = &child.entry;
                Some(FolderEntry {
                    name,
                    kind: entry.kind,
                    mode: self::octal_mode(entry),
                    size: entry_size(entry),
                })
            });
            FileView { mode: Some(format!("{mode:o}")), children: Some(children.collect()), ..view }
        }
    }
}
