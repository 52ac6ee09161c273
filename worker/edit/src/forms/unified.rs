//! Unified diffs. The numbers in headers are often wrong: a hunk is found by its lines. Where these
//! stand in several places, a header whose counts are right may say which.

use super::{
    super::edit::{Anchor, Edit},
    error::FormError,
    hunk::Hunk,
};

/// The numbers of a hunk's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    start: usize,
    old: usize,
    new: usize,
}

/// Reads `@@ -1,2 +3,4 @@ …`.
pub(super) fn header(line: &str) -> Option<Header> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |text: &str| -> Option<(usize, usize)> {
        match text.split_once(',') {
            Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let ((start, old), (_, new)) = (range(old)?, range(new)?);
    Some(Header { start, old, new })
}

/// The files it names and its edits.
pub(super) fn read(patch: &str) -> Result<(Vec<String>, Vec<Edit>), FormError> {
    let mut files = Vec::new();
    let mut edits = Vec::new();
    let mut open: Option<(Option<Header>, Hunk)> = None;
    let lines: Vec<&str> = patch.lines().collect();
    // A fence or a mail's signature ends the patch, whatever it looks like within a hunk.
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
            close(&mut open, &mut edits)?;
            files.extend(named(&line[4..], &next[4..])?);
            // Some leave the `@@` line out.
            open = Some((None, Hunk::default()));
            at += 2;
            continue;
        }
        if line.starts_with("@@") {
            close(&mut open, &mut edits)?;
            open = Some((header(line), Hunk::default()));
        } else if line.starts_with("diff --git ") {
            close(&mut open, &mut edits)?;
        } else if let Some((_, hunk)) = &mut open {
            hunk.line(line, at + 1)?;
        } else {
            refuse(line)?;
        }
        at += 1;
    }
    close(&mut open, &mut edits)?;
    Ok((files, edits))
}

fn close(open: &mut Option<(Option<Header>, Hunk)>, edits: &mut Vec<Edit>) -> Result<(), FormError> {
    let Some((header, mut hunk)) = open.take() else { return Ok(()) };
    if hunk.is_empty() {
        return Ok(());
    }
    if let Some(header) = header.filter(|header| (header.old, header.new) == hunk.counts()) {
        hunk.anchor(if header.old == 0 { Anchor::Below(header.start) } else { Anchor::Line(header.start) });
    }
    edits.extend(hunk.edit()?);
    Ok(())
}

/// The file that a pair of `---` and `+++` names.
fn named(old: &str, new: &str) -> Result<Option<String>, FormError> {
    let name = |text: &str| {
        let text = text.split('\t').next().unwrap_or_default().trim();
        text.trim_matches('"').to_owned()
    };
    let (old, new) = (name(old), name(new));
    if old == "/dev/null" {
        return Err(FormError::new(format!("the patch adds `{new}`: make it with create_file")));
    }
    if new == "/dev/null" {
        return Err(FormError::new(format!("the patch deletes `{old}`: use run_command with rm")));
    }
    Ok((!new.is_empty()).then_some(new))
}

/// What edits of one file cannot do.
fn refuse(line: &str) -> Result<(), FormError> {
    let other = |why: &str| Err(FormError::new(why));
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
