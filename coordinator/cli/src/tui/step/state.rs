//! The stepper's state: which run, turn and pane are looked at, and what is asked. Pure: a key or something
//! that was fetched goes in, another state and at most one wish to the shell come out.
//!
//! Invariant: after every public call [`Model::page`] shows what the rest of the state says, and
//! [`Model::wants`] names all that the screen lacks.

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

/// What lies over the screen and has the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScreenOverlay {
    /// Nothing.
    None,
    /// The keys.
    Help {
        /// First line shown.
        top: usize,
    },
    /// A line is typed.
    Prompt(PromptInput),
    /// An act waits for a yes.
    Confirm(RunAction),
}

/// A line that is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PromptInput {
    /// What for.
    pub(super) kind: PromptKind,
    /// So far.
    pub(super) text: String,
}

/// What a typed line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptKind {
    /// A search.
    Search,
    /// A file to open.
    Open,
    /// Another run.
    OtherRun,
}

/// Something that changes more than the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunAction {
    /// A fork after the turn.
    Fork(Turn),
    /// The run goes on from the turn.
    Resume(Turn),
}

impl RunAction {
    /// The turn.
    pub(super) const fn turn(self) -> Turn {
        match self {
            Self::Fork(turn) | Self::Resume(turn) => turn,
        }
    }
}

/// What the shell is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepperEffect {
    /// End.
    Quit,
    /// Draw everything again.
    Redraw,
    /// Give the terminal back until the process is continued.
    Suspend,
    /// Read the run again.
    Reload,
    /// Load this run beside the other.
    LoadOther(String),
    /// Do it: it was confirmed.
    Perform(RunAction),
}

/// The page on the screen.
#[derive(Debug, Default)]
pub(super) struct CurrentPage {
    selection: Option<PageSelection>,
    columns: u16,
    /// Its lines.
    pub(super) doc: PaneText,
    /// The same, cut to the screen.
    pub(super) rows: Vec<WrappedRow>,
    /// All that it was made from.
    requests: Vec<ContentRequest>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct StepperState {
    /// The run.
    pub(super) run: Arc<Run>,
    /// Another run beside it.
    pub(super) other: Option<Arc<Run>>,
    /// Columns and rows of the screen.
    pub(super) size: (u16, u16),
    /// The row of the timeline that is shown.
    pub(super) row: usize,
    /// The first row on the screen.
    pub(super) timeline_top: usize,
    /// The pane that is shown.
    pub(super) pane: PaneKind,
    /// What the keys move.
    pub(super) focus: KeyFocus,
    /// The pane has the whole screen.
    pub(super) zoomed: bool,
    /// A row to compare with.
    pub(super) mark: Option<usize>,
    /// The pane of differences goes from the mark to the turn that is shown.
    pub(super) comparing: bool,
    /// The prompt is shown as the exact request.
    pub(super) shows_request: bool,
    /// A file in place of the pane.
    pub(super) file: Option<WorkspacePath>,
    /// First row of the page on the screen.
    pub(super) scroll: usize,
    /// The row of the page that the cursor is on.
    pub(super) cursor: usize,
    /// What lies over the screen.
    pub(super) overlay: ScreenOverlay,
    /// For the last line.
    pub(super) message: Option<(TextTone, String)>,
    /// The search.
    pub(super) search: SearchState,
    /// What was fetched.
    pub(super) cache: ContentCache,
    /// What stands in the pane.
    pub(super) page: CurrentPage,
    /// Something of the page's was fetched since it was made.
    pub(super) stale: bool,
}

impl StepperState {
    /// A screen of this size that shows the turn somebody wants to see first.
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

    /// How the screen is divided.
    pub(super) fn layout(&self) -> ScreenLayout {
        ScreenLayout::for_size(self.size.0, self.size.1, self.zoomed)
    }

    /// The row that is shown.
    pub(super) fn current_turn(&self) -> Option<&TurnSummary> {
        self.run.turns().get(self.row)
    }

    /// The screen has another size.
    pub(super) fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        self.refresh();
    }

    /// Something came that was wanted.
    pub(super) fn store_loaded(&mut self, want: ContentRequest, loaded: LoadedContent) {
        self.stale |= self.page.requests.contains(&want);
        self.cache.insert(want, loaded);
        self.refresh();
    }

    /// The run went on. Who looks at its last turn looks at the new last one.
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

    /// The run was read again.
    pub(super) fn replace_run(&mut self, run: Arc<Run>) {
        let before = self.run.events().len();
        self.cache.remove_side(RunSide::This);
        self.run = run;
        let news = self.run.events().len().saturating_sub(before);
        self.set_message(TextTone::Plain, format!("read again: {news} new events"));
        self.stale = true;
        self.refresh();
    }

    /// Another run is beside this one.
    pub(super) fn set_other_run(&mut self, other: Arc<Run>) {
        self.cache.remove_side(RunSide::Other);
        self.set_message(TextTone::Plain, format!("run {} is beside this one", other.id.short()));
        self.other = Some(other);
        self.stale = true;
        self.go_to_pane(PaneKind::Runs);
        self.refresh();
    }

    /// Says something in the last line.
    pub(super) fn set_message(&mut self, tone: TextTone, text: impl Into<String>) {
        self.message = Some((tone, text.into()));
    }

    /// Whether the run can change by itself.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.run.history.status(), HistoryStatus::Ended(_))
    }

    /// All that the screen lacks.
    pub(super) fn missing_content(&self) -> Vec<ContentRequest> {
        let mut wants = self.page.requests.clone();
        // Only while somebody waits for it: a run that goes on would be searched again with each event.
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

    /// The question whose answer tells how both runs compare.
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

    /// Makes the page and everything in it follow the rest.
    pub(super) fn refresh(&mut self) {
        // A search may go through a few pages until it stands at its match or waits for one.
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

    /// Whether nothing of the page is still to come.
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
            // A file keeps its place: who steps through its versions looks at one place of it.
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
            None => self.set_message(TextTone::Dim, "no file is named in this line"),
        }
    }

    pub(super) fn open_file(&mut self, path: WorkspacePath) {
        self.file = Some(path);
        self.focus = KeyFocus::Pane;
        self.go_to_top();
    }

    /// One step back: from the file, the pane, the comparison, the search.
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
                self.set_message(TextTone::Plain, "the mark is gone");
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

    /// Whether a run can go on from that turn; none while that is being worked out.
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

/// Most pages that one change goes through: a search that found a page looks at it, and at the next.
const REFRESH_ROUNDS_MAX: usize = 4;
