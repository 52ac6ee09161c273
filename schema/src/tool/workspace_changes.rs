//! Changes of a workspace relative to its base: files and hunks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{content::WorkspacePath, event::is_zero};

/// Change of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileDiff {
    /// The file.
    pub path: WorkspacePath,
    /// The kind of change.
    pub change: FileChangeKind,
    /// Number of lines added.
    pub added: u32,
    /// Number of lines removed.
    pub removed: u32,
}

/// Kind of change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// The file was created.
    Added,
    /// Its text changed.
    Modified,
    /// The file was deleted.
    Removed,
    /// It changed, but is not text that could be compared.
    Opaque,
}

/// A changed region of a file, counted as in a unified diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hunk {
    /// The file.
    pub path: WorkspacePath,
    /// First line before the change.
    pub old_start: u32,
    /// Number of lines before the change.
    pub old_lines: u32,
    /// First line after the change.
    pub new_start: u32,
    /// Number of lines after the change.
    pub new_lines: u32,
}

/// Changes of a workspace relative to its base, without a description.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkspaceChanges {
    /// The files, ordered by path.
    pub files: Vec<FileDiff>,
    /// The hunks, file by file.
    pub hunks: Vec<Hunk>,
    /// Number of files and hunks that are omitted.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u32,
}

impl WorkspaceChanges {
    /// Returns the number of lines added and removed, over all files.
    #[must_use]
    pub fn changed_line_count(&self) -> u32 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.added).saturating_add(file.removed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_those_of_all_files() {
        let file = |path: &str, added, removed| FileDiff {
            path: WorkspacePath::new(path).expect("a path"),
            change: FileChangeKind::Modified,
            added,
            removed,
        };
        let changes =
            WorkspaceChanges { files: vec![file("a", 3, 1), file("b", 0, 2)], ..WorkspaceChanges::default() };
        assert_eq!((changes.changed_line_count(), WorkspaceChanges::default().changed_line_count()), (6, 0));
    }
}
