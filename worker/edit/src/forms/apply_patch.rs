//! `*** Begin Patch` … `*** End Patch`: hunks told by `@@` lines that name what stands above them.

use super::{
    super::edit::{Anchor, Edit},
    error::FormError,
    hunk::Hunk,
    unified::header,
};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const UPDATE: &str = "*** Update File: ";
const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const MOVE: &str = "*** Move to: ";
const END_OF_FILE: &str = "*** End of File";

pub(super) fn opens(line: &str) -> bool {
    line.trim_end() == BEGIN || [UPDATE, ADD, DELETE].iter().any(|mark| line.starts_with(mark))
}

pub(super) fn closes(line: &str) -> bool {
    line.trim_end() == END || line.trim_end() == END_OF_FILE
}

/// The files it names and its edits.
pub(super) fn read(patch: &str) -> Result<(Vec<String>, Vec<Edit>), FormError> {
    let mut files: Vec<String> = Vec::new();
    let mut edits = Vec::new();
    let mut heads: Vec<String> = Vec::new();
    let mut open: Option<Hunk> = None;
    let framed = patch.lines().any(|line| line.trim_end() == BEGIN);
    if framed && !patch.lines().any(|line| line.trim_end() == END) {
        return Err(FormError::new(format!("the patch was cut: it has `{BEGIN}` and no `{END}`")));
    }
    for (at, line) in patch.lines().enumerate().skip_while(|(_, line)| !opens(line)) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.trim_end() == END {
            break;
        }
        refuse(line)?;
        if let Some(file) = line.strip_prefix(UPDATE) {
            close(&mut open, &mut edits)?;
            heads.clear();
            files.push(file.trim().to_owned());
        } else if line.trim_end() == END_OF_FILE {
            if let Some(hunk) = &mut open {
                hunk.anchor(Anchor::End);
            }
            close(&mut open, &mut edits)?;
        } else if let Some(head) = line.strip_prefix("@@") {
            close(&mut open, &mut edits)?;
            // Numbers, as a unified diff has them, are no heading.
            let head = if header(line).is_some() { "" } else { head.trim() };
            if !head.is_empty() {
                heads.push(head.trim_end_matches("@@").trim_end().to_owned());
            }
        } else if !files.is_empty() {
            if open.is_none() {
                let heads = std::mem::take(&mut heads);
                open = Some(Hunk::new((!heads.is_empty()).then_some(Anchor::After(heads))));
            }
            if let Some(hunk) = &mut open {
                hunk.line(line, at + 1)?;
            }
        }
    }
    close(&mut open, &mut edits)?;
    Ok((files, edits))
}

fn close(open: &mut Option<Hunk>, edits: &mut Vec<Edit>) -> Result<(), FormError> {
    if let Some(hunk) = open.take() {
        edits.extend(hunk.edit()?);
    }
    Ok(())
}

/// What edits of one file cannot do.
fn refuse(line: &str) -> Result<(), FormError> {
    let other = |why: String| Err(FormError::new(why));
    if let Some(file) = line.strip_prefix(ADD) {
        return other(format!("the patch adds `{}`: make it with create_file", file.trim()));
    }
    if let Some(file) = line.strip_prefix(DELETE) {
        return other(format!("the patch deletes `{}`: use run_command with rm", file.trim()));
    }
    if let Some(file) = line.strip_prefix(MOVE) {
        return other(format!(
            "the patch moves the file to `{}`: move it with run_command and mv, then edit it there",
            file.trim()
        ));
    }
    Ok(())
}
