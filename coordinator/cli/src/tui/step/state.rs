//! The stepper's state: the current run, turn and pane, and open prompts. Pure: a key or fetched content goes
//! in; a new state and at most one effect come out.
//!
//! Invariant: after every public call [`StepperState::page`] shows the rest of the state, and
//! [`StepperState::missing_content`] lists everything that the screen lacks.

use std::sync::Arc;

use docket_schema::{
    content::WorkspacePath,
    event::Envelope,
    history::{HistoryStatus, SkimmedEvent, StartingTurn, TurnSummary},
    ids::Turn,
};

use super::{
    content_cache::{ContentCache, ContentRequest, LoadedContent, RunSide},
    files,
    layout::ScreenLayout,
    navigation::{Direction, JumpTarget, SearchState},
    page::{self, PageRuns, PageSelection, PaneKind},
    pane_text::{PaneText, TextTone, WrappedRow},
    run::Run,
};

/// What the movement keys move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFocus {
    /// From turn to turn.
    Timeline,
    /// From line to line.
    Pane,
}

/// An overlay that receives the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScreenOverlay {
    None,
    /// The help.
    Help {
        /// The first visible line.
        top: usize,
    },
    /// A line is being typed.
    Prompt(PromptInput),
    /// An action waits for confirmation.
    Confirm(RunAction),
}

/// A line being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromptInput {
    pub(super) kind: PromptKind,
    /// The text so far.
    pub(super) text: String,
}

/// The purpose of a typed line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptKind {
    /// Search.
    Search,
    /// Open a file.
    Open,
    /// Load another run.
    OtherRun,
}

/// An action that changes more than the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunAction {
    /// Fork after the turn.
    Fork(Turn),
    /// Resume the run from the turn.
    Resume(Turn),
}

impl RunAction {
    pub(super) const fn turn(self) -> Turn {
        match self {
            Self::Fork(turn) | Self::Resume(turn) => turn,
        }
    }
}

/// Effects that the stepper performs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepperEffect {
    Quit,
    /// Redraw everything.
    Redraw,
    /// Return the terminal to the shell until the process is continued.
    Suspend,
    /// Reload the run.
    Reload,
    /// Load this run for comparison.
    LoadOther(String),
    /// Perform the confirmed action.
    Perform(RunAction),
}

/// The current page.
#[derive(Debug, Default)]
pub(super) struct CurrentPage {
    selection: Option<PageSelection>,
    columns: u16,
    pub(super) doc: PaneText,
    /// The lines wrapped to the screen.
    pub(super) rows: Vec<WrappedRow>,
    /// All content that it was rendered from.
    requests: Vec<ContentRequest>,
}

/// The stepper's state.
#[derive(Debug)]
pub(super) struct StepperState {
    pub(super) run: Arc<Run>,
    /// The run it is compared with.
    pub(super) other: Option<Arc<Run>>,
    /// Columns and rows of the screen.
    pub(super) size: (u16, u16),
    /// The current row of the timeline.
    pub(super) row: usize,
    /// The first visible row of the timeline.
    pub(super) timeline_top: usize,
    /// The current pane.
    pub(super) pane: PaneKind,
    /// What the keys move.
    pub(super) focus: KeyFocus,
    /// Whether the pane fills the screen.
    pub(super) zoomed: bool,
    /// The marked row to compare with.
    pub(super) mark: Option<usize>,
    /// Whether the diff pane compares the marked turn with the current one.
    pub(super) comparing: bool,
    /// Whether the prompt pane shows the exact request.
    pub(super) shows_request: bool,
    /// A file that replaces the pane.
    pub(super) file: Option<WorkspacePath>,
    /// The first visible row of the page.
    pub(super) scroll: usize,
    /// The row of the cursor.
    pub(super) cursor: usize,
    pub(super) overlay: ScreenOverlay,
    /// The message in the last line.
    pub(super) message: Option<(TextTone, String)>,
    pub(super) search: SearchState,
    /// Fetched content.
    pub(super) cache: ContentCache,
    /// The current page.
    pub(super) page: CurrentPage,
    /// Whether content of the page was fetched since it was rendered.
    pub(super) stale: bool,
}

impl StepperState {
    /// Creates the state, at the most interesting turn.
    pub(super) fn new(run: Arc<Run>, size: (u16, u16)) -> Self {
        let StartingTurn { turn_index: row, reason: why } = run.initial_position();
        let failed = run.turns().get(row).is_some_and(|row| row.outcome.is_failure());
        let mut model = Self {
            run,
            other: None,
            size,
            row,
            timeline_top: 0,
            pane: PaneKind::Decision,
            focus: KeyFocus::Timeline,
            zoomed: false,
            mark: None,
            comparing: false,
            shows_request: false,
            file: None,
            scroll: 0,
            cursor: 0,
            overlay: ScreenOverlay::None,
            message: None,
            search: SearchState::default(),
            cache: ContentCache::default(),
            page: CurrentPage::default(),
            stale: false,
        };
        if failed {
            model.show_failure();
        }
        model.message = Some((TextTone::Plain, why));
        model.refresh();
        model
    }

    pub(super) fn layout(&self) -> ScreenLayout {
        ScreenLayout::for_size(self.size.0, self.size.1, self.zoomed)
    }

    pub(super) fn current_turn(&self) -> Option<&TurnSummary> {
        self.run.turns().get(self.row)
    }

    pub(super) fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        self.refresh();
    }

    /// Stores fetched content.
    pub(super) fn store_loaded(&mut self, want: ContentRequest, loaded: LoadedContent) {
        self.stale |= self.page.requests.contains(&want);
        self.cache.insert(want, loaded);
        self.refresh();
    }

    /// Appends new events of the run. If the last turn is shown, the view follows to the new last turn.
    pub(super) fn append_events(&mut self, events: Vec<Envelope>) {
        let at_end = self.row + 1 >= self.run.turns().len();
        match events.into_iter().map(SkimmedEvent::parse).collect::<Result<Vec<_>, _>>() {
            Ok(events) => Arc::make_mut(&mut self.run).history.extend(events),
            Err(error) => self.set_message(TextTone::Bad, error.to_string()),
        }
        if at_end && self.focus == KeyFocus::Timeline && self.file.is_none() {
            self.row = self.run.turns().len().saturating_sub(1);
        }
        self.stale = true;
        self.refresh();
    }

    /// Replaces the reloaded run.
    pub(super) fn replace_run(&mut self, run: Arc<Run>) {
        let before = self.run.events().len();
        self.cache.remove_side(RunSide::This);
        self.run = run;
        let news = self.run.events().len().saturating_sub(before);
        self.set_message(TextTone::Plain, format!("reloaded: {news} new events"));
        self.stale = true;
        self.refresh();
    }

    /// Sets the run to compare with.
    pub(super) fn set_other_run(&mut self, other: Arc<Run>) {
        self.cache.remove_side(RunSide::Other);
        self.set_message(TextTone::Plain, format!("comparing with run {}", other.id.short()));
        self.other = Some(other);
        self.stale = true;
        self.go_to_pane(PaneKind::Runs);
        self.refresh();
    }

    /// Shows a message in the last line.
    pub(super) fn set_message(&mut self, tone: TextTone, text: impl Into<String>) {
        self.message = Some((tone, text.into()));
    }

    /// Whether the run can still change.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.run.history.status(), HistoryStatus::Ended(_))
    }

    /// Returns all content that the screen lacks.
    pub(super) fn missing_content(&self) -> Vec<ContentRequest> {
        let mut wants = self.page.requests.clone();
        // Only while a search is pending: a live run would otherwise be searched again after each event.
        if matches!(self.search.pending_jump, Some(JumpTarget::Match(_))) {
            wants.extend(self.search.query.clone().map(|query| self.hits_request(query)));
        }
        wants.extend(self.comparison_request());
        if matches!(self.overlay, ScreenOverlay::Confirm(_)) {
            wants.push(ContentRequest::TurnEnds(self.run.events().len()));
        }
        if matches!(&self.overlay, ScreenOverlay::Prompt(PromptInput { kind: PromptKind::Open, .. })) {
            wants.extend(self.current_turn().map(|row| ContentRequest::Tree(files::tree_after(row))));
        }
        wants.retain(|want| !self.cache.contains(want));
        wants
    }

    /// The request whose result is the comparison of both runs.
    pub(super) fn comparison_request(&self) -> Option<ContentRequest> {
        let other = self.other.as_ref()?;
        Some(ContentRequest::Comparison(self.run.events().len(), other.events().len()))
    }

    fn page_selection(&self) -> PageSelection {
        let row = self.run.turns().get(self.row);
        PageSelection {
            row: self.row,
            pane: self.pane,
            compared_row: self.mark.filter(|_| self.comparing),
            request: self.shows_request,
            file: self.file.clone().and_then(|path| row.map(|row| (files::tree_after(row), path))),
        }
    }

    /// Updates the page and everything in it.
    pub(super) fn refresh(&mut self) {
        // A search may go through several pages until it reaches its match or waits for one.
        for _ in 0..REFRESH_ROUNDS_MAX {
            self.row = self.row.min(self.run.turns().len().saturating_sub(1));
            self.rebuild_page();
            if !self.continue_jump() {
                break;
            }
        }
        let mut wants = self.page.requests.clone();
        wants.extend(self.search.query.clone().map(|query| self.hits_request(query)));
        wants.extend(self.comparison_request());
        self.cache.mark_used_and_evict(&wants);
        self.clamp_scroll();
    }

    fn rebuild_page(&mut self) {
        let (choice, columns) = (self.page_selection(), self.size.0);
        let other = self.page.selection.as_ref() != Some(&choice);
        if other || self.stale {
            let subject = PageRuns { run: &self.run, other: self.other.as_deref() };
            (self.page.doc, self.page.requests) = page::render_page(subject, &choice, &self.cache);
            self.page.selection = Some(choice);
            self.stale = false;
            self.page.columns = 0;
        }
        if self.page.columns != columns {
            self.page.rows = self.page.doc.wrap(usize::from(columns));
            self.page.columns = columns;
        }
    }

    /// Whether nothing of the page is still missing.
    pub(super) fn is_page_complete(&self) -> bool {
        self.page.requests.iter().all(|want| self.cache.contains(want))
    }

    fn clamp_scroll(&mut self) {
        let ScreenLayout { timeline, pane, .. } = self.layout();
        let (timeline, pane) = (usize::from(timeline.max(1)), usize::from(pane.max(1)));
        self.timeline_top = self.timeline_top.clamp((self.row + 1).saturating_sub(timeline), self.row);
        self.timeline_top = self.timeline_top.min(self.run.turns().len().saturating_sub(timeline));
        let last = self.page.rows.len().saturating_sub(1);
        self.cursor = self.cursor.min(last);
        if self.focus == KeyFocus::Pane {
            self.scroll = self.scroll.clamp((self.cursor + 1).saturating_sub(pane), self.cursor);
        }
        self.scroll = self.scroll.min(self.page.rows.len().saturating_sub(pane));
    }

    pub(super) fn page_height(&self) -> isize {
        isize::try_from(self.layout().pane.saturating_sub(1).max(1)).unwrap_or(1)
    }

    pub(super) fn help_height(&self) -> usize {
        usize::from(self.size.1.saturating_sub(4)).max(1)
    }

    /// Goes to the top of another page.
    pub(super) fn go_to_top(&mut self) {
        (self.scroll, self.cursor) = (0, 0);
        self.search.match_line = None;
    }

    pub(super) fn go_to_row(&mut self, row: usize) {
        let row = row.min(self.run.turns().len().saturating_sub(1));
        if row != self.row {
            self.row = row;
            // A file keeps its scroll position, so that its versions can be compared at one place.
            if self.file.is_none() {
                self.go_to_top();
            }
        }
    }

    pub(super) fn go_to_pane(&mut self, pane: PaneKind) {
        self.file = None;
        self.pane = pane;
        self.go_to_top();
    }

    pub(super) fn cycle_pane(&mut self, way: Direction) {
        let count = PaneKind::ALL.len() - usize::from(self.other.is_none());
        let at = PaneKind::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        let next = match way {
            Direction::Forward => at + 1,
            Direction::Back => at + count - 1,
        };
        self.go_to_pane(PaneKind::ALL[next % count]);
    }

    pub(super) fn scroll_by(&mut self, rows: isize) {
        self.scroll = self.scroll.saturating_add_signed(rows);
        if self.focus == KeyFocus::Pane {
            self.cursor = self.cursor.saturating_add_signed(rows);
        }
    }

    pub(super) fn move_cursor(&mut self, rows: isize) {
        self.cursor = self.cursor.saturating_add_signed(rows);
    }

    pub(super) fn enter_pane(&mut self) {
        if self.focus == KeyFocus::Timeline {
            self.focus = KeyFocus::Pane;
            self.cursor = self.scroll;
            return;
        }
        let line = self.page.rows.get(self.cursor).and_then(|row| self.page.doc.lines.get(row.line));
        match line.and_then(|line| line.path.clone()) {
            Some(path) => self.open_file(path),
            None => self.set_message(TextTone::Dim, "this line names no file"),
        }
    }

    pub(super) fn open_file(&mut self, path: WorkspacePath) {
        self.file = Some(path);
        self.focus = KeyFocus::Pane;
        self.go_to_top();
    }

    /// Goes back one step: from the file, the pane, the comparison, the search.
    pub(super) fn go_back(&mut self) {
        if self.file.take().is_some() {
            self.go_to_top();
        } else if self.focus == KeyFocus::Pane {
            self.focus = KeyFocus::Timeline;
        } else if self.comparing || self.shows_request || self.zoomed {
            (self.comparing, self.shows_request, self.zoomed) = (false, false, false);
            self.go_to_top();
        } else {
            self.search = SearchState::default();
        }
    }

    pub(super) fn toggle_request(&mut self) {
        self.shows_request = self.pane != PaneKind::Prompt || !self.shows_request;
        self.go_to_pane(PaneKind::Prompt);
    }

    pub(super) fn mark_here(&mut self) {
        self.mark = if self.mark == Some(self.row) { None } else { Some(self.row) };
        match self.mark {
            Some(_) => self.set_message(TextTone::Plain, "marked; go to another turn and press c to compare"),
            None => {
                self.comparing = false;
                self.set_message(TextTone::Plain, "mark removed");
            }
        }
    }

    pub(super) fn toggle_comparison(&mut self) {
        if self.mark.is_none() {
            return self
                .set_message(TextTone::Warn, "mark a turn with m first, then go to another and press c");
        }
        self.comparing = !(self.comparing && self.pane == PaneKind::Diff);
        self.go_to_pane(PaneKind::Diff);
    }

    pub(super) fn ask_confirmation(&mut self, act: fn(Turn) -> RunAction) {
        match self.current_turn() {
            Some(row) => self.overlay = ScreenOverlay::Confirm(act(row.turn)),
            None => self.set_message(TextTone::Warn, "the run has not started"),
        }
    }

    /// Whether a run can continue from that turn; `None` while that is being computed.
    pub(super) fn can_perform(&self, act: RunAction) -> Option<bool> {
        match self.cache.get(&ContentRequest::TurnEnds(self.run.events().len()))? {
            LoadedContent::TurnEnds(ends) => Some(ends.contains(&act.turn())),
            LoadedContent::Bytes(_)
            | LoadedContent::Tree(_)
            | LoadedContent::Diff(_)
            | LoadedContent::Request(_)
            | LoadedContent::Comparison(_)
            | LoadedContent::SearchHits(_)
            | LoadedContent::Failed(_) => Some(false),
        }
    }
}

/// Maximum number of pages that one update visits: a search that found a page visits it and the next one.
const REFRESH_ROUNDS_MAX: usize = 4;
