//! What a run has changed, both sides of it, for `show_changes`: the base's files and the workspace's. Called by the
//! workbench.

use std::{collections::BTreeSet, io::Read as _};

use docket_schema::{
    content::WorkPath,
    snapshot::{Entry, EntryKind},
};

use super::workbench::Workbench;
use crate::tools::{self, Change, Side, ToolOutcome};

/// Larger files, in bytes, are named and not compared.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Paths that are looked at: beyond these a command generated them.
const PATHS_MAX: usize = 500;

impl Workbench {
    /// The difference of the tree, as the last snapshot holds it, from the base. Paths of `leave_out` are named, and not
    /// shown.
    pub(super) async fn show_changes(&self, args: &serde_json::Value) -> ToolOutcome {
        let left_out = |path: &WorkPath| {
            let names = args["leave_out"].as_array();
            names.is_some_and(|names| names.iter().any(|name| *name == path.to_string()))
        };
        let (old, new) = (self.workspace.base_manifest(), self.workspace.manifest());
        let paths: BTreeSet<&WorkPath> = old.entries.keys().chain(new.entries.keys()).collect();
        let is_shown = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.kind != EntryKind::Dir);
        let mut all = Vec::new();
        let mut more = 0_usize;
        for path in paths {
            let (before, after) = (old.entries.get(path), new.entries.get(path));
            if before == after || !(is_shown(before) || is_shown(after)) {
                continue;
            }
            if all.len() == PATHS_MAX {
                more += 1;
                continue;
            }
            let (before, after) = match left_out(path) {
                true => (Side::Nothing, Side::Other("changed; policy lets nobody read it here")),
                false => (self.before(path, before).await, self.after(path, after)),
            };
            all.push(Change { path: path.to_string(), before, after });
        }
        let mut text =
            tools::changes(&all).unwrap_or_else(|| "Nothing in the repository is changed.\n".to_owned());
        if more > 0 {
            text.push_str(&format!("[{more} more paths differ]\n"));
        }
        ToolOutcome { content: text.into_bytes(), ..ToolOutcome::default() }
    }

    async fn before(&self, path: &WorkPath, entry: Option<&Entry>) -> Side {
        match entry.map(told_without_content) {
            None => Side::Nothing,
            Some(Some(what)) => Side::Other(what),
            Some(None) => match self.workspace.base_objects().file(path).await {
                Ok(Some(bytes)) => self.side(&bytes),
                Ok(None) | Err(_) => Side::Other("changed; what it was cannot be read"),
            },
        }
    }

    fn after(&self, path: &WorkPath, entry: Option<&Entry>) -> Side {
        match entry.map(told_without_content) {
            None => Side::Nothing,
            Some(Some(what)) => Side::Other(what),
            Some(None) => {
                let mut bytes = Vec::new();
                let file = self.root.open(path.to_string());
                // A command that still runs may have made it larger meanwhile.
                match file.and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)) {
                    Ok(_) => self.side(&bytes),
                    Err(_) => Side::Other("changed; what it is cannot be read"),
                }
            }
        }
    }

    /// Struck out before anything is cut: half a secret has no shape.
    fn side(&self, bytes: &[u8]) -> Side {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Side::Text(self.redactor.text(text).into_owned()),
            Ok(_) | Err(_) => Side::Other("changed; it is not text"),
        }
    }
}

/// What is said of an entry that is not compared; none of a file that is.
fn told_without_content(entry: &Entry) -> Option<&'static str> {
    match entry.kind {
        EntryKind::File if entry.size > FILE_BYTES_MAX => Some("changed; it is too large to be shown"),
        EntryKind::File => None,
        EntryKind::Symlink => Some("a link, changed"),
        EntryKind::Dir => Some("a folder"),
    }
}
