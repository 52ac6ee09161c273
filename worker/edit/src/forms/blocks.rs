//! `<<<<<<< SEARCH` / `=======` / `>>>>>>> REPLACE` blocks, also with `------- SEARCH` and `+++++++ REPLACE`.

use super::{
    super::edit::{Anchor, Edit, Hint},
    error::FormError,
    hunk::whole,
};

/// Signs of a marker: seven as a rule, and models miscount.
const SIGNS_MIN: usize = 5;

fn marker(line: &str, sign: char) -> Option<&str> {
    let rest = line.trim_start_matches(sign);
    (line.len() - rest.len() >= SIGNS_MIN).then(|| rest.trim())
}

pub(super) fn opens(line: &str) -> bool {
    marker(line, '<').is_some_and(|word| matches!(word.trim_end_matches('>'), "SEARCH" | "ORIGINAL"))
        || marker(line, '-').is_some_and(|word| word.trim_end_matches('>') == "SEARCH")
}

pub(super) fn closes(line: &str) -> bool {
    marker(line, '>').is_some_and(|word| matches!(word, "REPLACE" | "UPDATED"))
        || marker(line, '+').is_some_and(|word| word.trim_end_matches('>') == "REPLACE")
}

fn divides(line: &str) -> bool {
    marker(line, '=') == Some("")
}

enum State {
    Between,
    Search(Vec<String>),
    Replace(Vec<String>, Vec<String>),
}

/// Its edits. What stands between blocks, such as names of files and fences, is no part of them.
pub(super) fn read(patch: &str) -> Result<Vec<Edit>, FormError> {
    let mut edits = Vec::new();
    let mut state = State::Between;
    for (at, line) in patch.lines().enumerate() {
        let twice = |what: &str| {
            Err(FormError::new(format!(
                "line {} of the patch is a second `{what}` within one block: if the file holds such a line, use \
                 edits with search and replace",
                at + 1
            )))
        };
        state = match state {
            State::Between if opens(line) => State::Search(Vec::new()),
            State::Between => State::Between,
            State::Search(_) | State::Replace(..) if opens(line) => return twice("<<<<<<< SEARCH"),
            State::Search(search) if divides(line) => State::Replace(search, Vec::new()),
            State::Search(_) if closes(line) => {
                return Err(FormError::new(format!(
                    "the block that ends at line {} of the patch has no `=======` between search and replace",
                    at + 1
                )));
            }
            State::Search(mut search) => {
                search.push(unescaped(line).to_owned());
                State::Search(search)
            }
            State::Replace(..) if divides(line) => return twice("======="),
            State::Replace(search, replace) if closes(line) => {
                edits.push(edit(search, &replace));
                State::Between
            }
            State::Replace(search, mut replace) => {
                replace.push(unescaped(line).to_owned());
                State::Replace(search, replace)
            }
        };
    }
    match state {
        State::Between => Ok(edits),
        State::Search(_) | State::Replace(..) => Err(FormError::new(
            "the patch was cut: its last block has no `>>>>>>> REPLACE`. Send it whole, in several calls if it \
             is long",
        )),
    }
}

/// Some write a backslash before a line of the file that looks like a marker.
fn unescaped(line: &str) -> &str {
    let bare = line
        .strip_prefix('\\')
        .filter(|rest| numbered(rest).is_some() || "<=>-+".chars().any(|sign| marker(rest, sign).is_some()));
    bare.unwrap_or(line)
}

/// Some write lines above the search that say where it begins: `:start_line:6`.
pub(super) fn numbered(line: &str) -> Option<usize> {
    let rest = line.strip_prefix(":start_line:").or_else(|| line.strip_prefix(":end_line:"))?;
    rest.trim().parse().ok()
}

fn edit(mut search: Vec<String>, replace: &[String]) -> Edit {
    let anchor = search.first().and_then(|line| numbered(line)).map(Anchor::Line);
    if anchor.is_some() {
        let lines = search.iter().take_while(|line| numbered(line).is_some()).count();
        // A rule ends them as a rule.
        let rule = usize::from(search.get(lines).is_some_and(|line| marker(line, '-') == Some("")));
        search.drain(..lines + rule);
    }
    let hint = Hint { anchor, whole_lines: true, ..Hint::default() };
    Edit { search: whole(&search), replace: whole(replace), hint }
}
