//! `show_changes`: differences between the workspace and the tree that the run began with. Called by the runtime and
//! not offered to any model. The figures are in the result's facts, for engines; the text is for reviewers.

use docket_schema::{
    artifact::{FileChangeKind, FileDiff, Hunk, WorkspaceChanges},
    content::WorkspacePath,
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::tools::{
    context::{
        base_view::BaseEntry,
        tool_context::{ToolContext, ToolOutcome},
    },
    file_access::files::{FileError, load_file},
    text::encoding::{FileContent, classify_content},
};
use docket_edit::unified_diff;

pub const NAME: &str = "show_changes";
pub(crate) const DESCRIPTION: &str = "Shows what differs from the tree that the run began with.";

/// Longest text, in bytes: it must fit into a reviewer's request along with everything else.
const TEXT_BYTES_MAX: usize = 96 * 1024;
/// Longest diff of one file, in bytes: a generated file must not hide the others.
const FILE_DIFF_BYTES_MAX: usize = 24 * 1024;
/// Most files named among those that are not shown.
const NAMED_FILES_MAX: usize = 40;
/// Largest file that is compared line by line, in bytes.
const COMPARED_BYTES_MAX: usize = 1024 * 1024;
/// Most hunks listed, because an event holds them.
const HUNKS_MAX: usize = 500;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowChangesArgs {
    /// Paths that are named and not shown, for policy lets nobody read them.
    #[serde(default)]
    leave_out: Vec<String>,
}

pub(crate) fn run(context: ToolContext<'_>, args: &ShowChangesArgs) -> ToolOutcome {
    let mut changes = WorkspaceChanges { more: context.base.omitted_count, ..WorkspaceChanges::default() };
    let (mut text, mut unshown) = (String::new(), Vec::new());
    for (path, was) in &context.base.base_entries {
        let Some((change, mode, diff)) = compare_with_base(context, path, was) else { continue };
        let (added, removed) = count_changed_lines(&diff);
        changes.files.push(FileDiff { path: path.clone(), change, added, removed });
        for hunk in diff.lines().filter_map(|line| parse_hunk_header(path, line)) {
            if changes.hunks.len() < HUNKS_MAX {
                changes.hunks.push(hunk);
            } else {
                changes.more = changes.more.saturating_add(1);
            }
        }
        let shown = match args.leave_out.contains(&path.to_string()) {
            true => format!("{path}: changed; policy lets nobody read it here\n"),
            false => {
                mode.map(|mode| describe_mode_change(path, mode)).unwrap_or_default()
                    + &format_file_diff(path, (change, mode), &diff)
            }
        };
        if text.len() + shown.len() > TEXT_BYTES_MAX {
            unshown.push(path.to_string());
        } else {
            text.push_str(&shown);
        }
    }
    if !unshown.is_empty() {
        let more = if unshown.len() > NAMED_FILES_MAX { " and others" } else { "" };
        let names = unshown[..unshown.len().min(NAMED_FILES_MAX)].join(", ");
        text.push_str(&format!("[{} more files differ and are not shown: {names}{more}]\n", unshown.len()));
    }
    if changes.files.is_empty() {
        text.push_str("Nothing differs.\n");
    }
    let mut outcome = ToolOutcome::ok(text);
    outcome.facts.diff = Some(changes);
    outcome
}

/// Describes a file's change: its kind, its executable bit if that changed, and its diff; `None` if it is unchanged.
fn compare_with_base(
    context: ToolContext<'_>,
    path: &WorkspacePath,
    was: &BaseEntry,
) -> Option<(FileChangeKind, Option<bool>, String)> {
    let loaded = load_file(context.root, path);
    let is_executable = loaded.as_ref().is_ok_and(|now| now.mode & 0o111 != 0);
    let mode = match (was, &loaded) {
        (BaseEntry::File(_, before), Ok(_)) if *before != is_executable => Some(is_executable),
        (BaseEntry::Absent, Ok(_)) if is_executable => Some(true),
        _ => None,
    };
    let opaque = Some((FileChangeKind::Opaque, mode, String::new()));
    let now = match loaded {
        Ok(loaded) => Some(loaded.bytes),
        Err(FileError::Missing(_)) => None,
        Err(_) => return opaque,
    };
    let before = match was {
        BaseEntry::Absent => None,
        BaseEntry::File(bytes, _) => Some(bytes.as_ref()),
        BaseEntry::Opaque => return opaque,
    };
    let change = match (before, now.as_deref()) {
        (None, None) => return None,
        (Some(before), Some(now)) if before == now => {
            return mode.map(|mode| (FileChangeKind::Modified, Some(mode), String::new()));
        }
        (None, Some(_)) => FileChangeKind::Added,
        (Some(_), None) => FileChangeKind::Removed,
        (Some(_), Some(_)) => FileChangeKind::Modified,
    };
    let (before, now) = (before.unwrap_or_default(), now.as_deref().unwrap_or_default());
    match (decode_text(before), decode_text(now)) {
        (Some(before), Some(now)) => {
            // Redact before truncating: half a secret would no longer be recognized.
            let seen = |text: &str| context.settings.redactor.redact_text(text).into_owned();
            let (before, now) = (seen(&before), seen(&now));
            Some((change, mode, unified_diff(&path.to_string(), before.as_bytes(), now.as_bytes())))
        }
        // An added or deleted file is reported nevertheless.
        _ if change == FileChangeKind::Modified => opaque,
        _ => Some((change, mode, String::new())),
    }
}

/// Describes a change of the executable bit.
fn describe_mode_change(path: &WorkspacePath, is_executable: bool) -> String {
    let now = if is_executable { "can be executed now" } else { "cannot be executed any more" };
    format!("{path}: {now}\n")
}

/// Formats a file's diff, truncated to its limit.
fn format_file_diff(
    path: &WorkspacePath,
    (change, mode): (FileChangeKind, Option<bool>),
    diff: &str,
) -> String {
    if diff.is_empty() {
        if change == FileChangeKind::Modified && mode.is_some() {
            return String::new();
        }
        return format!("{path}: {}\n", describe_undiffed_change(change));
    }
    let head = match change {
        FileChangeKind::Added => format!("new file {path}\n"),
        FileChangeKind::Removed => format!("removed file {path}\n"),
        FileChangeKind::Modified | FileChangeKind::Opaque => String::new(),
    };
    let cut = diff.floor_char_boundary(FILE_DIFF_BYTES_MAX);
    match diff[cut..].lines().count() {
        0 => format!("{head}{diff}"),
        rest => format!("{head}{}\n[… {rest} more lines of this file's difference …]\n", &diff[..cut]),
    }
}

fn decode_text(bytes: &[u8]) -> Option<String> {
    if bytes.len() > COMPARED_BYTES_MAX {
        return None;
    }
    match classify_content(bytes) {
        FileContent::Text(text, _) => Some(text.into_owned()),
        FileContent::Binary(_) => None,
    }
}

const fn describe_undiffed_change(change: FileChangeKind) -> &'static str {
    match change {
        FileChangeKind::Added => "made, and not shown",
        FileChangeKind::Removed => "removed",
        FileChangeKind::Modified | FileChangeKind::Opaque => {
            "changed, and not shown: it is no text, or too long"
        }
    }
}

/// Counts added and removed lines, without the two header lines.
fn count_changed_lines(diff: &str) -> (u32, u32) {
    let body = || diff.lines().skip(2);
    let number =
        |sign: char| u32::try_from(body().filter(|line| line.starts_with(sign)).count()).unwrap_or(u32::MAX);
    (number('+'), number('-'))
}

/// Parses a hunk header of a unified diff: all other lines begin with a blank or a sign.
fn parse_hunk_header(path: &WorkspacePath, line: &str) -> Option<Hunk> {
    let (old, rest) = line.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let range = |text: &str| -> Option<(u32, u32)> {
        match text.split_once(',') {
            Some((start, lines)) => Some((start.parse().ok()?, lines.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let ((old_start, old_lines), (new_start, new_lines)) = (range(old)?, range(new)?);
    Some(Hunk { path: path.clone(), old_start, old_lines, new_start, new_lines })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    fn path(name: &str) -> WorkspacePath {
        WorkspacePath::new(name).expect("a path")
    }

    #[test]
    fn differences_are_counted_and_shown() {
        let mut w = TestWorkspace::new(&[("a.py", "one\n2\nthree\n"), ("new.py", "x\n"), ("same", "s\n")]);
        w.write_file("b.bin", b"\0\x01\x02");
        for (name, was) in [
            ("a.py", BaseEntry::File("one\ntwo\nthree\n".into(), false)),
            ("new.py", BaseEntry::Absent),
            ("same", BaseEntry::File("s\n".into(), false)),
            ("gone.py", BaseEntry::File("g\nh\n".into(), false)),
            ("never.py", BaseEntry::Absent),
            ("b.bin", BaseEntry::File("\0\0".into(), false)),
        ] {
            w.base.base_entries.insert(path(name), was);
        }
        let out = w.call_tool(NAME, json!({}));
        let changes = out.facts.diff.clone().expect("changes");
        let files: Vec<(String, FileChangeKind, u32, u32)> = changes
            .files
            .iter()
            .map(|file| (file.path.to_string(), file.change, file.added, file.removed))
            .collect();
        assert_eq!(
            files,
            [
                ("a.py".to_owned(), FileChangeKind::Modified, 1, 1),
                ("b.bin".to_owned(), FileChangeKind::Opaque, 0, 0),
                ("gone.py".to_owned(), FileChangeKind::Removed, 0, 2),
                ("new.py".to_owned(), FileChangeKind::Added, 1, 0),
            ]
        );
        assert_eq!((changes.hunks.len(), changes.changed_line_count(), changes.more), (3, 5, 0));
        let Hunk { old_start, old_lines, new_start, new_lines, .. } = changes.hunks[0];
        assert_eq!((old_start, old_lines, new_start, new_lines), (1, 3, 1, 3));
        assert!(out.text().contains("-two\n+2\n") && out.text().contains("b.bin: changed"), "{}", out.text());
    }

    #[test]
    fn changed_executable_bit_is_a_change() {
        let mut w = TestWorkspace::new(&[
            ("run.sh", "x\n"),
            ("was.sh", "y\n"),
            ("both.sh", "2\n"),
            ("new.sh", "z\n"),
        ]);
        for (name, mode, was) in [
            ("run.sh", 0o755, BaseEntry::File("x\n".into(), false)),
            ("was.sh", 0o644, BaseEntry::File("y\n".into(), true)),
            ("both.sh", 0o755, BaseEntry::File("1\n".into(), false)),
            ("new.sh", 0o755, BaseEntry::Absent),
        ] {
            w.set_mode(name, mode);
            w.base.base_entries.insert(path(name), was);
        }
        let out = w.call_tool(NAME, json!({}));
        let changes = out.facts.diff.clone().expect("changes");
        assert_eq!(changes.files.len(), 4, "{changes:?}");
        for told in ["run.sh: can be executed now\n", "was.sh: cannot be executed any more\n", "-1\n+2\n"] {
            assert!(out.text().contains(told), "{told}: {}", out.text());
        }
        assert!(out.text().contains("both.sh: can be") && out.text().contains("new.sh: can be"));
        assert!(!out.text().contains("it is no text"), "{}", out.text());
    }

    #[test]
    fn large_file_hides_no_other_and_omitted_files_are_named() {
        let large = "a line of a file that somebody generated\n".repeat(5000);
        let names: Vec<String> = (0..8).map(|nth| format!("g{nth}.txt")).collect();
        let mut files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), large.as_str())).collect();
        files.extend([("kept.env", "k = 1\n"), ("z.py", "z = 1\n")]);
        let mut w = TestWorkspace::new(&files);
        for (name, _) in &files {
            w.base.base_entries.insert(path(name), BaseEntry::Absent);
        }
        let out = w.call_tool(NAME, json!({"leave_out": ["kept.env"]}));
        let told = out.text();
        assert!(told.len() < TEXT_BYTES_MAX + 1024, "{}", told.len());
        for part in
            ["+z = 1", "more lines of this file's", "kept.env: changed; policy lets nobody read it here"]
        {
            assert!(told.contains(part), "{part}");
        }
        assert!(!told.contains("k = 1"));
        assert!(
            told.contains("are not shown: g3.txt, g4.txt, g5.txt, g6.txt, g7.txt]"),
            "{}",
            &told[told.len() - 200..]
        );
    }

    #[test]
    fn unchanged_workspace_has_no_differences() {
        let mut w = TestWorkspace::new(&[("a", "1\n")]);
        let out = w.call_tool(NAME, json!({}));
        assert!(
            out.text().contains("Nothing differs") && out.facts.diff == Some(WorkspaceChanges::default())
        );
    }
}
