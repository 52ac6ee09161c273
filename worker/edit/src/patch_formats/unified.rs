//! Parses unified diffs. Line numbers in headers are often wrong, so a hunk is located by its
//! lines. If these match in several places, a header with correct counts may select one.

use super::{
    super::edit::{Edit, HunkAnchor},
    error::PatchParseError,
    hunk::PatchHunk,
};

/// The numbers of a hunk header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HunkHeader {
    old_start: usize,
    old_count: usize,
    new_count: usize,
}

/// Parses `@@ -1,2 +3,4 @@ …`.
pub(super) fn parse_hunk_header(line: &str) -> Option<HunkHeader> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let ((start, old), (_, new)) = (range(old)?, range(new)?);
    Some(HunkHeader { old_start: start, old_count: old, new_count: new })
}

/// Returns the files that the diff names, and its edits.
pub(super) fn parse_unified_diff(patch: &str) -> Result<(Vec<String>, Vec<Edit>), PatchParseError> {
    let mut files = Vec::new();
    let mut edits = Vec::new();
    let mut open: Option<(Option<HunkHeader>, PatchHunk)> = None;
    let lines: Vec<&str> = patch.lines().collect();
    // A fence or an email signature ends the patch, even if it looks like part of a hunk.
    let end = lines.iter().rposition(|line| !line.trim().is_empty() && !line.starts_with("```"));
    let mut end = end.map_or(0, |last| last + 1);
    if let Some(at) = lines[..end].iter().rposition(|line| *line == "-- ").filter(|at| at + 2 >= end) {
        end = at;
    }
    let mut at = 0;
    while at < end {
        let line = lines[at];
        let next = lines.get(at + 1).copied().unwrap_or_default();
        if line.starts_with("--- ") && next.starts_with("+++ ") {
            finish_hunk(&mut open, &mut edits)?;
            files.extend(parse_file_name(&line[4..], &next[4..])?);
            // Some models omit the `@@` line.
            open = Some((None, PatchHunk::default()));
            at += 2;
            continue;
        }
        if line.starts_with("@@") {
            finish_hunk(&mut open, &mut edits)?;
            open = Some((parse_hunk_header(line), PatchHunk::default()));
        } else if line.starts_with("diff --git ") {
            finish_hunk(&mut open, &mut edits)?;
        } else if let Some((_, hunk)) = &mut open {
            hunk.push_line(line, at + 1)?;
        } else {
            refuse_unsupported(line)?;
        }
        at += 1;
    }
    finish_hunk(&mut open, &mut edits)?;
    Ok((files, edits))
}

fn finish_hunk(
    open: &mut Option<(Option<HunkHeader>, PatchHunk)>,
    edits: &mut Vec<Edit>,
) -> Result<(), PatchParseError> {
    let Some((header, mut hunk)) = open.take() else { return Ok(()) };
    if hunk.is_empty() {
        return Ok(());
    }
    if let Some(header) = header.filter(|header| (header.old_count, header.new_count) == hunk.line_counts()) {
        hunk.set_anchor(if header.old_count == 0 {
            HunkAnchor::BelowLine(header.old_start)
        } else {
            HunkAnchor::Line(header.old_start)
        });
    }
    edits.extend(hunk.into_edit()?);
    Ok(())
}

/// Returns the file that a `---`/`+++` pair names.
fn parse_file_name(old: &str, new: &str) -> Result<Option<String>, PatchParseError> {
    let name = |text: &str| {
        let text = text.split('\t').next().unwrap_or_default().trim();
        text.trim_matches('"').to_owned()
    };
    let (old, new) = (name(old), name(new));
    if old == "/dev/null" {
        return Err(PatchParseError::new(format!("the patch adds `{new}`: make it with create_file")));
    }
    if new == "/dev/null" {
        return Err(PatchParseError::new(format!("the patch deletes `{old}`: use run_command with rm")));
    }
    Ok((!new.is_empty()).then_some(new))
}

/// Refuses operations that edits of one file cannot do.
fn refuse_unsupported(line: &str) -> Result<(), PatchParseError> {
    let other = |why: &str| Err(PatchParseError::new(why));
    if line.starts_with("new file mode") {
        return other("the patch adds a file: make it with create_file");
    }
    if line.starts_with("deleted file mode") {
        return other("the patch deletes a file: use run_command with rm");
    }
    if line.starts_with("rename ") || line.starts_with("copy ") {
        return other("the patch moves or copies a file: do that with run_command, then edit it there");
    }
    if line.starts_with("new mode") {
        return other("the patch changes a file's mode: use run_command with chmod");
    }
    if line.starts_with("GIT binary patch") || line.starts_with("Binary files") {
        return other("the patch changes a file that is no text");
    }
    Ok(())
}
