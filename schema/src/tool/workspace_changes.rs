//! What a workspace differs in from its base: files, and places in them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{content::WorkspacePath, event::is_zero};

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileDiff {
    /// The file.
    pub path: WorkspacePath,
    /// What happened to it.
    pub change: FileChangeKind,
    /// Lines added.
    pub added: u32,
    /// Lines removed.
    pub removed: u32,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileChangeKind {
    /// It was made.
    Added,
    /// Its text is another.
    Modified,
    /// It is gone.
    Removed,
    /// It is another, and no text that could be compared.
    Opaque,
}

/// A place in a file that changed, as a unified diff counts it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hunk {
    /// The file.
    pub path: WorkspacePath,
    /// First line before.
    pub old_start: u32,
    /// Lines before.
    pub old_lines: u32,
    /// First line now.
    pub new_start: u32,
    /// Lines now.
    pub new_lines: u32,
}

/// What a workspace differs in from its base, without anybody's words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WorkspaceChanges {
    /// The files, in order of their paths.
    pub files: Vec<FileDiff>,
    /// The places, file by file.
    pub hunks: Vec<Hunk>,
    /// Files and places that are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u32,
}

impl WorkspaceChanges {
    /// Lines added and removed, over all files.
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
