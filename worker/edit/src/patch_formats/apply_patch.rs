//! Parses `*** Begin Patch` … `*** End Patch`. `@@` lines name lines above a hunk to locate it.

use super::{
    super::edit::{Edit, HunkAnchor},
    error::PatchParseError,
    hunk::PatchHunk,
    unified::parse_hunk_header,
};

const BEGIN_PATCH: &str = "*** Begin Patch";
const END_PATCH: &str = "*** End Patch";
const UPDATE_FILE: &str = "*** Update File: ";
const ADD_FILE: &str = "*** Add File: ";
const DELETE_FILE: &str = "*** Delete File: ";
const MOVE_TO: &str = "*** Move to: ";
const END_OF_FILE: &str = "*** End of File";

pub(super) fn is_opening_line(line: &str) -> bool {
    line.trim_end() == BEGIN_PATCH
        || [UPDATE_FILE, ADD_FILE, DELETE_FILE].iter().any(|mark| line.starts_with(mark))
}

pub(super) fn is_closing_line(line: &str) -> bool {
    line.trim_end() == END_PATCH || line.trim_end() == END_OF_FILE
}

/// Returns the files that the patch names, and its edits.
pub(super) fn parse_apply_patch(patch: &str) -> Result<(Vec<String>, Vec<Edit>), PatchParseError> {
    let mut files: Vec<String> = Vec::new();
    let mut edits = Vec::new();
    let mut heads: Vec<String> = Vec::new();
    let mut open: Option<PatchHunk> = None;
    let framed = patch.lines().any(|line| line.trim_end() == BEGIN_PATCH);
    if framed && !patch.lines().any(|line| line.trim_end() == END_PATCH) {
        return Err(PatchParseError::new(format!(
            "the patch was cut: it has `{BEGIN_PATCH}` and no `{END_PATCH}`"
        )));
    }
    for (at, line) in patch.lines().enumerate().skip_while(|(_, line)| !is_opening_line(line)) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.trim_end() == END_PATCH {
            break;
        }
        refuse_unsupported(line)?;
        if let Some(file) = line.strip_prefix(UPDATE_FILE) {
            finish_hunk(&mut open, &mut edits)?;
            heads.clear();
            files.push(file.trim().to_owned());
        } else if line.trim_end() == END_OF_FILE {
            if let Some(hunk) = &mut open {
                hunk.set_anchor(HunkAnchor::EndOfFile);
            }
            finish_hunk(&mut open, &mut edits)?;
        } else if let Some(head) = line.strip_prefix("@@") {
            finish_hunk(&mut open, &mut edits)?;
            // Line numbers, as in a unified diff, are not a heading.
            let head = if parse_hunk_header(line).is_some() { "" } else { head.trim() };
            if !head.is_empty() {
                heads.push(head.trim_end_matches("@@").trim_end().to_owned());
            }
        } else if !files.is_empty() {
            if open.is_none() {
                let heads = std::mem::take(&mut heads);
                open = Some(PatchHunk::new((!heads.is_empty()).then_some(HunkAnchor::AfterLines(heads))));
            }
            if let Some(hunk) = &mut open {
                hunk.push_line(line, at + 1)?;
            }
        }
    }
    finish_hunk(&mut open, &mut edits)?;
    Ok((files, edits))
}

fn finish_hunk(open: &mut Option<PatchHunk>, edits: &mut Vec<Edit>) -> Result<(), PatchParseError> {
    if let Some(hunk) = open.take() {
        edits.extend(hunk.into_edit()?);
    }
    Ok(())
}

/// Refuses operations that edits of one file cannot do.
fn refuse_unsupported(line: &str) -> Result<(), PatchParseError> {
    let other = |why: String| Err(PatchParseError::new(why));
    if let Some(file) = line.strip_prefix(ADD_FILE) {
        return other(format!("the patch adds `{}`: make it with create_file", file.trim()));
    }
    if let Some(file) = line.strip_prefix(DELETE_FILE) {
        return other(format!("the patch deletes `{}`: use run_command with rm", file.trim()));
    }
    if let Some(file) = line.strip_prefix(MOVE_TO) {
        return other(format!(
            "the patch moves the file to `{}`: move it with run_command and mv, then edit it there",
            file.trim()
        ));
    }
    Ok(())
}
