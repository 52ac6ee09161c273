//! `<<<<<<< SEARCH` / `=======` / `>>>>>>> REPLACE` blocks, also with `------- SEARCH` and `+++++++ REPLACE`.

use super::{
    super::{
        hint::{Anchor, Hint},
        plan::Edit,
    },
    hunk::whole,
    read::FormError,
};

/// Signs of a marker: seven as a rule, and models miscount.
const SIGNS_MIN: usize = 5;

fn marker(line: &str, sign: char) -> Option<&str> {
    let rest = line.trim_start_matches(sign);
    (line.len() - rest.len() >= SIGNS_MIN).then(|| rest.trim())
}

pub(super) fn opens(line: &str) -> bool {
    marker(line, '<').is_some_and(|word| matches!(word.trim_end_matches('>'), "SEARCH" | "ORIGINAL"))
        || marker(line, '-') == Some("SEARCH")
}

pub(super) fn closes(line: &str) -> bool {
    marker(line, '>').is_some_and(|word| matches!(word, "REPLACE" | "UPDATED"))
        || marker(line, '+') == Some("REPLACE")
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
                search.push(line.to_owned());
                State::Search(search)
            }
            State::Replace(..) if divides(line) => return twice("======="),
            State::Replace(search, replace) if closes(line) => {
                edits.push(edit(search, &replace));
                State::Between
            }
            State::Replace(search, mut replace) => {
                replace.push(line.to_owned());
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

fn edit(mut search: Vec<String>, replace: &[String]) -> Edit {
    let mut anchor = None;
    // Some write the line above a rule.
    if let Some(number) = search.first().and_then(|line| line.strip_prefix(":start_line:"))
        && let Some(rule) = search.iter().take(3).position(|line| line.starts_with("-----"))
    {
        anchor = number.trim().parse().ok().map(Anchor::Line);
        search.drain(..=rule);
    }
    let hint = Hint { anchor, whole_lines: true, ..Hint::default() };
    Edit { search: whole(&search), replace: whole(replace), hint }
}
