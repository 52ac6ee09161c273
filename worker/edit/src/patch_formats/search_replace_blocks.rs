//! Parses `<<<<<<< SEARCH` / `=======` / `>>>>>>> REPLACE` blocks, also with `------- SEARCH` and `+++++++
//! REPLACE`.

use super::{
    super::edit::{Edit, EditHint, HunkAnchor},
    error::PatchParseError,
    hunk::join_lines,
};

/// Minimum length of a marker. Seven characters are usual, but models miscount.
const MARKER_LENGTH_MIN: usize = 5;

fn parse_marker(line: &str, sign: char) -> Option<&str> {
    let rest = line.trim_start_matches(sign);
    (line.len() - rest.len() >= MARKER_LENGTH_MIN).then(|| rest.trim())
}

pub(super) fn is_opening_line(line: &str) -> bool {
    parse_marker(line, '<').is_some_and(|word| matches!(word.trim_end_matches('>'), "SEARCH" | "ORIGINAL"))
        || parse_marker(line, '-').is_some_and(|word| word.trim_end_matches('>') == "SEARCH")
}

pub(super) fn is_closing_line(line: &str) -> bool {
    parse_marker(line, '>').is_some_and(|word| matches!(word, "REPLACE" | "UPDATED"))
        || parse_marker(line, '+').is_some_and(|word| word.trim_end_matches('>') == "REPLACE")
}

fn is_divider_line(line: &str) -> bool {
    parse_marker(line, '=') == Some("")
}

enum BlockState {
    OutsideBlock,
    InSearch(Vec<String>),
    InReplace(Vec<String>, Vec<String>),
}

/// Returns the edits. Text between blocks, such as file names and fences, is ignored.
pub(super) fn parse_blocks(patch: &str) -> Result<Vec<Edit>, PatchParseError> {
    let mut edits = Vec::new();
    let mut state = BlockState::OutsideBlock;
    for (at, line) in patch.lines().enumerate() {
        let twice = |what: &str| {
            Err(PatchParseError::new(format!(
                "line {} of the patch is a second `{what}` within one block: if the file holds such a line, use \
                 edits with search and replace",
                at + 1
            )))
        };
        state = match state {
            BlockState::OutsideBlock if is_opening_line(line) => BlockState::InSearch(Vec::new()),
            BlockState::OutsideBlock => BlockState::OutsideBlock,
            BlockState::InSearch(_) | BlockState::InReplace(..) if is_opening_line(line) => {
                return twice("<<<<<<< SEARCH");
            }
            BlockState::InSearch(search) if is_divider_line(line) => {
                BlockState::InReplace(search, Vec::new())
            }
            BlockState::InSearch(_) if is_closing_line(line) => {
                return Err(PatchParseError::new(format!(
                    "the block that ends at line {} of the patch has no `=======` between search and replace",
                    at + 1
                )));
            }
            BlockState::InSearch(mut search) => {
                search.push(unescape_marker_line(line).to_owned());
                BlockState::InSearch(search)
            }
            BlockState::InReplace(..) if is_divider_line(line) => return twice("======="),
            BlockState::InReplace(search, replace) if is_closing_line(line) => {
                edits.push(build_edit(search, &replace));
                BlockState::OutsideBlock
            }
            BlockState::InReplace(search, mut replace) => {
                replace.push(unescape_marker_line(line).to_owned());
                BlockState::InReplace(search, replace)
            }
        };
    }
    match state {
        BlockState::OutsideBlock => Ok(edits),
        BlockState::InSearch(_) | BlockState::InReplace(..) => Err(PatchParseError::new(
            "the patch was cut: its last block has no `>>>>>>> REPLACE`. Send it whole, in several calls if it \
             is long",
        )),
    }
}

/// Strips the backslash that some models put before a line of the file that looks like a marker.
fn unescape_marker_line(line: &str) -> &str {
    let bare = line.strip_prefix('\\').filter(|rest| {
        parse_line_directive(rest).is_some() || "<=>-+".chars().any(|sign| parse_marker(rest, sign).is_some())
    });
    bare.unwrap_or(line)
}

/// Parses a line above the search that gives its first line, `:start_line:6`, as some models write
/// it.
pub(super) fn parse_line_directive(line: &str) -> Option<usize> {
    let rest = line.strip_prefix(":start_line:").or_else(|| line.strip_prefix(":end_line:"))?;
    rest.trim().parse().ok()
}

fn build_edit(mut search: Vec<String>, replace: &[String]) -> Edit {
    let anchor = search.first().and_then(|line| parse_line_directive(line)).map(HunkAnchor::Line);
    if anchor.is_some() {
        let lines = search.iter().take_while(|line| parse_line_directive(line).is_some()).count();
        // A divider usually ends these lines.
        let rule = usize::from(search.get(lines).is_some_and(|line| parse_marker(line, '-') == Some("")));
        search.drain(..lines + rule);
    }
    let hint = EditHint { anchor, whole_lines: true, ..EditHint::default() };
    Edit { search: join_lines(&search), replace: join_lines(replace), hint }
}
