//! Navigation: jumps to failures, differences, search matches, and files by name. Pure.

use docket_schema::{content::WorkspacePath, history::TurnOutcome};

use super::{
    comparison::TurnComparison,
    content_cache::{ContentRequest, LoadedContent},
    files,
    page::PaneKind,
    pane_text::TextTone,
    search::{self, SearchHit},
    state::{KeyFocus, PromptInput, PromptKind, ScreenOverlay, StepperEffect, StepperState},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Back,
}

/// Where a jump ends once its page is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JumpTarget {
    /// At the first line that shows the failure.
    Failure,
    /// At the next match in this direction.
    Match(Direction),
}

/// A search and an unfinished jump.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SearchState {
    /// The search text.
    pub(super) query: Option<String>,
    /// The matching line of the page.
    pub(super) match_line: Option<usize>,
    /// The unfinished jump.
    pub(super) pending_jump: Option<JumpTarget>,
}

impl StepperState {
    pub(super) fn open_prompt(&mut self, what: PromptKind) {
        self.overlay = ScreenOverlay::Prompt(PromptInput { kind: what, text: String::new() });
    }

    /// Executes the typed line.
    pub(super) fn submit_prompt(&mut self, input: PromptInput) -> Option<StepperEffect> {
        let text = input.text.trim().to_owned();
        match input.kind {
            PromptKind::Search => {
                self.search = SearchState {
                    query: Some(input.text).filter(|text| !text.is_empty()),
                    ..SearchState::default()
                };
                self.search.pending_jump =
                    self.search.query.as_ref().map(|_| JumpTarget::Match(Direction::Forward));
            }
            PromptKind::Open => self.open_file_by_name(&text),
            PromptKind::OtherRun if text.is_empty() => {}
            PromptKind::OtherRun => {
                self.set_message(TextTone::Plain, "loading the other run…");
                return Some(StepperEffect::LoadOther(text));
            }
        }
        None
    }

    fn open_file_by_name(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        let Some(row) = self.current_turn() else { return };
        // The tree is only loaded while the name is typed; if it is missing, the fetcher reports whether the
        // file exists.
        let Some(LoadedContent::Tree(tree)) = self.cache.get(&ContentRequest::Tree(files::tree_after(row)))
        else {
            return match WorkspacePath::new(name.as_bytes()) {
                Some(path) => self.open_file(path),
                None => self.set_message(TextTone::Warn, "this is not a path in the workspace"),
            };
        };
        let exact = WorkspacePath::new(name.as_bytes()).filter(|path| tree.entries.contains_key(path));
        let mut fitting = tree.entries.keys().filter(|path| search::matches_query(&path.to_string(), name));
        match (exact, fitting.next().cloned(), fitting.count()) {
            (Some(path), _, _) | (None, Some(path), 0) => self.open_file(path),
            (None, Some(_), more) => {
                self.go_to_pane(PaneKind::Tree);
                self.focus = KeyFocus::Pane;
                self.search = SearchState {
                    query: Some(name.to_owned()),
                    match_line: None,
                    pending_jump: Some(JumpTarget::Match(Direction::Forward)),
                };
                self.set_message(
                    TextTone::Plain,
                    format!("{} names match; n shows the next, Enter opens", more + 1),
                );
            }
            (None, None, _) => {
                self.set_message(TextTone::Warn, format!("no file name contains `{name}` after this turn"))
            }
        }
    }

    pub(super) fn repeat_search(&mut self, way: Direction) {
        if self.search.query.is_some() {
            self.search.pending_jump = Some(JumpTarget::Match(way));
        } else {
            self.set_message(TextTone::Warn, "no search: press / to search, e for the next failure");
        }
    }

    pub(super) fn go_to_failure(&mut self, way: Direction) {
        let fails = |at: &usize| self.run.turns().get(*at).is_some_and(|row| row.outcome.is_failure());
        match next_row(self.row, self.run.turns().len(), way, fails) {
            Some(row) => {
                self.go_to_row(row);
                self.show_failure();
            }
            None => self.set_message(TextTone::Warn, none_in_direction("failure", way)),
        }
    }

    /// Shows what failed in the turn.
    pub(super) fn show_failure(&mut self) {
        let pane = match self.current_turn().map(|row| row.outcome) {
            Some(TurnOutcome::ToolFailed(_) | TurnOutcome::CheckFailed) => PaneKind::Calls,
            Some(
                TurnOutcome::ModelFailed
                | TurnOutcome::Blocked
                | TurnOutcome::Ended(_)
                | TurnOutcome::Ok
                | TurnOutcome::InProgress,
            )
            | None => PaneKind::Decision,
        };
        self.go_to_pane(pane);
        self.search.pending_jump = Some(JumpTarget::Failure);
    }

    pub(super) fn go_to_difference(&mut self, way: Direction) {
        let Some(want) = self.comparison_request() else {
            return self.set_message(TextTone::Warn, "no other run is loaded; press w to load one");
        };
        let Some(LoadedContent::Comparison(all)) = self.cache.get(&want) else {
            return self.set_message(TextTone::Dim, "the runs are still being compared");
        };
        let differs = |at: &usize| all.get(*at).copied().is_some_and(TurnComparison::is_different);
        match next_row(self.row, self.run.turns().len(), way, differs) {
            Some(row) => {
                self.go_to_row(row);
                self.go_to_pane(PaneKind::Runs);
            }
            None => self.set_message(TextTone::Warn, none_in_direction("difference", way)),
        }
    }

    pub(super) fn hits_request(&self, query: String) -> ContentRequest {
        ContentRequest::SearchHits(query, self.run.events().len())
    }

    /// Continues the unfinished jump as far as possible; returns whether the page changed.
    pub(super) fn continue_jump(&mut self) -> bool {
        let Some(goal) = self.search.pending_jump else { return false };
        if !self.is_page_complete() {
            return false;
        }
        match goal {
            JumpTarget::Failure => {
                self.search.pending_jump = None;
                if let Some(line) = self.page.doc.lines.iter().position(|line| line.tone == TextTone::Bad) {
                    self.show_line(line);
                }
                false
            }
            JumpTarget::Match(way) => self.jump_to_match(way),
        }
    }

    fn jump_to_match(&mut self, way: Direction) -> bool {
        let Some(query) = self.search.query.clone() else {
            self.search.pending_jump = None;
            return false;
        };
        if let Some(line) = self.match_in_page(&query, way) {
            self.search.pending_jump = None;
            self.search.match_line = Some(line);
            self.show_line(line);
            return false;
        }
        if self.file.is_some() || matches!(self.pane, PaneKind::Tree | PaneKind::Ledger | PaneKind::Runs) {
            self.search.pending_jump = None;
            let text = if self.search.match_line.take().is_some() {
                "no further match here"
            } else {
                "not found here"
            };
            self.set_message(TextTone::Warn, format!("{text}: {query}"));
            return false;
        }
        match self.cache.get(&self.hits_request(query.clone())) {
            Some(LoadedContent::SearchHits(hits)) => self.go_to_hit(&hits, way, &query),
            Some(LoadedContent::Failed(why)) => {
                self.search.pending_jump = None;
                self.set_message(TextTone::Bad, format!("the search failed: {why}"));
                false
            }
            Some(_) | None => {
                self.set_message(TextTone::Dim, format!("searching all turns for {query} …"));
                false
            }
        }
    }

    fn match_in_page(&self, query: &str, way: Direction) -> Option<usize> {
        let mut lines = search::matching_lines(&self.page.doc, query);
        match (self.search.match_line, way) {
            (None, Direction::Forward) => lines.next(),
            (None, Direction::Back) => lines.next_back(),
            (Some(found), Direction::Forward) => lines.find(|line| *line > found),
            (Some(found), Direction::Back) => lines.rfind(|line| *line < found),
        }
    }

    fn go_to_hit(&mut self, hits: &[SearchHit], way: Direction, query: &str) -> bool {
        let here = SearchHit { row: self.row, pane: self.pane };
        let (next, round) = match way {
            Direction::Forward => (hits.iter().find(|hit| **hit > here), hits.first()),
            Direction::Back => (hits.iter().rfind(|hit| **hit < here), hits.last()),
        };
        let Some(hit) = next.or(round).copied() else {
            self.search.pending_jump = None;
            self.set_message(TextTone::Warn, format!("not found: {query}"));
            return false;
        };
        if next.is_none() {
            self.set_message(TextTone::Plain, "the search wrapped around");
        } else {
            self.message = None;
        }
        if hit == here && self.search.match_line.is_none() {
            // The match is in content that this page does not show, so the jump ends here.
            self.search.pending_jump = None;
            return false;
        }
        self.row = hit.row;
        self.comparing = false;
        self.shows_request = false;
        self.go_to_pane(hit.pane);
        true
    }

    /// Scrolls a line of the page into view, a third of the pane from its top.
    fn show_line(&mut self, line: usize) {
        let row = self.page.rows.iter().position(|row| row.line == line).unwrap_or(0);
        self.cursor = row;
        self.scroll = row.saturating_sub(usize::from(self.layout().pane / 3));
    }
}

fn next_row(from: usize, count: usize, way: Direction, fits: impl FnMut(&usize) -> bool) -> Option<usize> {
    match way {
        Direction::Forward => (from.saturating_add(1)..count).find(fits),
        Direction::Back => (0..from.min(count)).rev().find(fits),
    }
}

fn none_in_direction(what: &str, way: Direction) -> String {
    match way {
        Direction::Forward => format!("no {what} after this turn"),
        Direction::Back => format!("no {what} before this turn"),
    }
}
