//! Search over a whole run: texts, calls, outputs, paths. Pure; what lies out of line is fetched by whoever
//! asks, and the pages are written with it, so that what is found is what the panes show.

use docket_schema::ids::Turn;

use super::{
    doc::Doc,
    page::{self, Choice, Pane, Subject},
    run::Run,
    shelf::{Shelf, Want},
};

/// Most hits kept: more than anybody steps through.
const HITS_MAX: usize = 10_000;

/// The panes that are searched, in the order in which they are read.
const SEARCHED: [Pane; 3] = [Pane::Prompt, Pane::Decision, Pane::Calls];

/// A pane of a turn in which the text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hit {
    /// The row.
    pub(super) row: usize,
    /// The pane.
    pub(super) pane: Pane,
}

/// Whether `text` holds `query`: without regard to case, unless the query has capitals.
pub(super) fn holds(text: &str, query: &str) -> bool {
    if query.chars().any(char::is_uppercase) {
        text.contains(query)
    } else {
        text.to_lowercase().contains(query)
    }
}

/// The lines of a page that a search stops at.
pub(super) fn matching<'a>(doc: &'a Doc, query: &'a str) -> impl DoubleEndedIterator<Item = usize> + 'a {
    let lines = doc.lines.iter().enumerate();
    lines.filter(|(_, line)| !line.echo && holds(&line.text, query)).map(|(at, _)| at)
}

/// Where `query` stands, as far as `shelf` has what lies out of line; and what it has not.
pub(super) fn hits(run: &Run, query: &str, shelf: &Shelf) -> (Vec<Hit>, Vec<Want>) {
    let (mut hits, mut wants) = (Vec::new(), Vec::new());
    for row in 0..run.turns().len() {
        for pane in SEARCHED {
            let choice = Choice { row, pane, since: None, request: false, file: None };
            let (doc, asked) = page::page(Subject { run, other: None }, &choice, shelf);
            wants.extend(asked.into_iter().filter(|want| !shelf.has(want)));
            if matching(&doc, query).next().is_some() {
                hits.push(Hit { row, pane });
            }
        }
        if changed(run, row, query) {
            hits.push(Hit { row, pane: Pane::Diff });
        }
        if hits.len() >= HITS_MAX {
            break;
        }
    }
    hits.sort_unstable();
    (hits, wants)
}

/// Whether the turn changed a path that holds the query.
fn changed(run: &Run, row: usize, query: &str) -> bool {
    let Some(row) = run.turns().get(row).filter(|row| row.turn >= Turn(0)) else { return false };
    let detail = run.history.detail(row);
    detail.own_paths().chain(detail.paths_by_hand()).any(|change| holds(&change.path.to_string(), query))
}
