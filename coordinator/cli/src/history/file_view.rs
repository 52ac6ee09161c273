//! What stands at a path of a recorded tree, as programs read it.

use docket_schema::{
    content::{Content, WorkPath},
    ids::{RunId, Turn},
    snapshot::{Entry, EntryKind},
    wire::{FileView, FolderEntry},
};
use docket_worker::workspace::Standing;

/// The mode of an entry in octal; a link has none of its own.
pub(crate) fn mode(entry: &Entry) -> Option<String> {
    (entry.kind != EntryKind::Symlink).then(|| format!("{:o}", entry.mode))
}

/// The bytes of an entry; a folder has none.
pub(crate) fn size(entry: &Entry) -> Option<u64> {
    (entry.kind != EntryKind::Dir).then_some(entry.size)
}

/// What stands at a path, as programs read it.
pub(crate) fn view(
    run: RunId,
    turn: Turn,
    path: Option<&WorkPath>,
    standing: &Standing,
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
        Standing::File(entry) | Standing::Link(entry) => FileView {
            kind: entry.kind,
            mode: mode(entry),
            size: size(entry),
            hash: Some(entry.hash.to_string()),
            ..view
        },
        Standing::Folder { mode, children } => {
            let children = children.iter().filter_map(|child| {
                let name = WorkPath::new(child.name.clone())?;
                let entry = &child.entry;
                Some(FolderEntry { name, kind: entry.kind, mode: self::mode(entry), size: size(entry) })
            });
            FileView { mode: Some(format!("{mode:o}")), children: Some(children.collect()), ..view }
        }
    }
}
