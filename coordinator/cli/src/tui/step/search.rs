//! Search over a whole run: texts, calls, outputs, paths. Pure. The caller fetches missing content, and the
//! searched pages are rendered with it, so the hits are what the panes show.

use docket_schema::ids::Turn;

use super::{
    content_cache::{ContentCache, ContentRequest},
    page::{self, PageRuns, PageSelection, PaneKind},
    pane_text::PaneText,
    run::Run,
};

/// Maximum number of hits kept.
const HITS_MAX: usize = 10_000;

/// The panes that are searched, in reading order.
const SEARCHED_PANES: [PaneKind; 3] = [PaneKind::Prompt, PaneKind::Decision, PaneKind::Calls];

/// A pane of a turn that contains the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SearchHit {
    pub(super) row: usize,
    pub(super) pane: PaneKind,
}

/// Whether `text` contains `query`: case-insensitive, unless the query has capitals.
pub(super) fn matches_query(text: &str, query: &str) -> bool {
    if query.chars().any(char::is_uppercase) {
        text.contains(query)
    } else {
        text.to_lowercase().contains(query)
    }
}

/// Returns the matching lines of a page.
pub(super) fn matching_lines<'a>(
    doc: &'a PaneText,
    query: &'a str,
) -> impl DoubleEndedIterator<Item = usize> + 'a {
    let lines = doc.lines.iter().enumerate();
    lines.filter(|(_, line)| !line.repeated && matches_query(&line.text, query)).map(|(at, _)| at)
}

/// Returns the hits of `query` in the cached content, and the content that is missing.
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

/// Whether the turn changed a path that contains the query.
fn has_matching_path(run: &Run, row: usize, query: &str) -> bool {
    let Some(row) = run.turns().get(row).filter(|row| row.turn >= Turn(0)) else { return false };
    let detail = run.history.turn_detail(row);
    detail
        .paths_by_run()
        .chain(detail.paths_by_person())
        .any(|change| matches_query(&change.path.to_string(), query))
}
