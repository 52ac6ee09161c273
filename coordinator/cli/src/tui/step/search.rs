//! Search over a whole run: texts, calls, outputs, paths. Pure; what lies out of line is fetched by whoever
//! asks, and the pages are written with it, so that what is found is what the panes show.

use docket_schema::ids::Turn;

use super::{
    content_cache::{ContentCache, ContentRequest},
    page::{self, PageRuns, PageSelection, PaneKind},
    pane_text::PaneText,
    run::Run,
};

/// Most hits kept: more than anybody steps through.
const HITS_MAX: usize = 10_000;

/// The panes that are searched, in the order in which they are read.
const SEARCHED_PANES: [PaneKind; 3] = [PaneKind::Prompt, PaneKind::Decision, PaneKind::Calls];

/// A pane of a turn in which the text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SearchHit {
    /// The row.
    pub(super) row: usize,
    /// The pane.
    pub(super) pane: PaneKind,
}

/// Whether `text` holds `query`: without regard to case, unless the query has capitals.
pub(super) fn matches_query(text: &str, query: &str) -> bool {
    if query.chars().any(char::is_uppercase) {
        text.contains(query)
    } else {
        text.to_lowercase().contains(query)
    }
}

/// The lines of a page that a search stops at.
pub(super) fn matching_lines<'a>(
    doc: &'a PaneText,
    query: &'a str,
) -> impl DoubleEndedIterator<Item = usize> + 'a {
    let lines = doc.lines.iter().enumerate();
    lines.filter(|(_, line)| !line.repeated && matches_query(&line.text, query)).map(|(at, _)| at)
}

/// Where `query` stands, as far as `shelf` has what lies out of line; and what it has not.
pub(super) fn find_hits(
    run: &Run,
    query: &str,
    shelf: &ContentCache,
) -> (Vec<SearchHit>, Vec<ContentRequest>) {
    let (mut hits, mut wants) = (Vec::new(), Vec::new());
    for row in 0..run.turns().len() {
        for pane in SEARCHED_PANES {
            let choice = PageSelection { row, pane, compared_row: None, request: false, file: None };
            let (doc, asked) = page::render_page(PageRuns { run, other: None }, &choice, shelf);
            wants.extend(asked.into_iter().filter(|want| !shelf.contains(want)));
            if matching_lines(&doc, query).next().is_some() {
                hits.push(SearchHit { row, pane });
            }
        }
        if has_matching_path(run, row, query) {
            hits.push(SearchHit { row, pane: PaneKind::Diff });
        }
        if hits.len() >= HITS_MAX {
            break;
        }
    }
    hits.sort_unstable();
    (hits, wants)
}

/// Whether the turn changed a path that holds the query.
fn has_matching_path(run: &Run, row: usize, query: &str) -> bool {
    let Some(row) = run.turns().get(row).filter(|row| row.turn >= Turn(0)) else { return false };
    let detail = run.history.turn_detail(row);
    detail
        .paths_by_run()
        .chain(detail.paths_by_person())
        .any(|change| matches_query(&change.path.to_string(), query))
}
