//! The stepper's state: which run, turn and pane are looked at, and what is asked. Pure: a key or something
//! that was fetched goes in, another state and at most one wish to the shell come out.
//!
//! Invariant: after every public call [`Model::page`] shows what the rest of the state says, and
//! [`Model::wants`] names all that the screen lacks.

use std::sync::Arc;

use docket_schema::{
    content::WorkPath,
    event::Envelope,
    history::{HistoryStatus, Opening, SkimmedEvent, TurnSummary},
    ids::Turn,
};

use super::{
    doc::{Doc, Tone, Wrapped},
    files,
    layout::Layout,
    page::{self, Choice, Pane, Subject},
    run::Run,
    shelf::{Loaded, Shelf, Side, Want},
    travel::{Goal, Hunt, Way},
};

/// What the movement keys move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    /// From turn to turn.
    Timeline,
    /// From line to line.
    Pane,
}

/// What lies over the screen and has the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Overlay {
    /// Nothing.
    None,
    /// The keys.
    Help {
        /// First line shown.
        top: usize,
    },
    /// A line is typed.
    Asking(Input),
    /// An act waits for a yes.
    Confirming(Act),
}

/// A line that is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Input {
    /// What for.
    pub(super) what: What,
    /// So far.
    pub(super) text: String,
}

/// What a typed line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A search.
    Search,
    /// A file to open.
    Open,
    /// Another run.
    Beside,
}

/// Something that changes more than the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// A fork after the turn.
    Fork(Turn),
    /// The run goes on from the turn.
    Resume(Turn),
}

impl Act {
    /// The turn.
    pub(super) const fn turn(self) -> Turn {
        match self {
            Self::Fork(turn) | Self::Resume(turn) => turn,
        }
    }
}

/// What the shell is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// End.
    Quit,
    /// Draw everything again.
    Redraw,
    /// Give the terminal back until the process is continued.
    Suspend,
    /// Read the run again.
    Reload,
    /// Load this run beside the other.
    Beside(String),
    /// Do it: it was confirmed.
    Act(Act),
}

/// The page on the screen.
#[derive(Debug, Default)]
pub(super) struct Page {
    choice: Option<Choice>,
    columns: u16,
    /// Its lines.
    pub(super) doc: Doc,
    /// The same, cut to the screen.
    pub(super) rows: Vec<Wrapped>,
    /// All that it was made from.
    wants: Vec<Want>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Model {
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
    pub(super) pane: Pane,
    /// What the keys move.
    pub(super) focus: Focus,
    /// The pane has the whole screen.
    pub(super) zoomed: bool,
    /// A row to compare with.
    pub(super) mark: Option<usize>,
    /// The pane of differences goes from the mark to the turn that is shown.
    pub(super) comparing: bool,
    /// The prompt is shown as the exact request.
    pub(super) request: bool,
    /// A file in place of the pane.
    pub(super) file: Option<WorkPath>,
    /// First row of the page on the screen.
    pub(super) scroll: usize,
    /// The row of the page that the cursor is on.
    pub(super) cursor: usize,
    /// What lies over the screen.
    pub(super) overlay: Overlay,
    /// For the last line.
    pub(super) message: Option<(Tone, String)>,
    /// The search.
    pub(super) hunt: Hunt,
    /// What was fetched.
    pub(super) shelf: Shelf,
    /// What stands in the pane.
    pub(super) page: Page,
    /// Something of the page's was fetched since it was made.
    pub(super) stale: bool,
}

impl Model {
    /// A screen of this size that shows the turn somebody wants to see first.
    pub(super) fn new(run: Arc<Run>, size: (u16, u16)) -> Self {
        let Opening { place: row, reason: why } = run.opening();
        let failed = run.turns().get(row).is_some_and(|row| row.outcome.is_failure());
        let mut model = Self {
            run,
            other: None,
            size,
            row,
            timeline_top: 0,
            pane: Pane::Decision,
            focus: Focus::Timeline,
            zoomed: false,
            mark: None,
            comparing: false,
            request: false,
            file: None,
            scroll: 0,
            cursor: 0,
            overlay: Overlay::None,
            message: None,
            hunt: Hunt::default(),
            shelf: Shelf::default(),
            page: Page::default(),
            stale: false,
        };
        if failed {
            model.look_at_failure();
        }
        model.message = Some((Tone::Plain, why));
        model.settle();
        model
    }

    /// How the screen is divided.
    pub(super) fn layout(&self) -> Layout {
        Layout::of(self.size.0, self.size.1, self.zoomed)
    }

    /// The row that is shown.
    pub(super) fn shown(&self) -> Option<&TurnSummary> {
        self.run.turns().get(self.row)
    }

    /// The screen has another size.
    pub(super) fn resized(&mut self, size: (u16, u16)) {
        self.size = size;
        self.settle();
    }

    /// Something came that was wanted.
    pub(super) fn arrived(&mut self, want: Want, loaded: Loaded) {
        self.stale |= self.page.wants.contains(&want);
        self.shelf.put(want, loaded);
        self.settle();
    }

    /// The run went on. Who looks at its last turn looks at the new last one.
    pub(super) fn grew(&mut self, events: Vec<Envelope>) {
        let at_end = self.row + 1 >= self.run.turns().len();
        match events.into_iter().map(SkimmedEvent::read).collect::<Result<Vec<_>, _>>() {
            Ok(events) => Arc::make_mut(&mut self.run).history.extend(events),
            Err(error) => self.say(Tone::Bad, error.to_string()),
        }
        if at_end && self.focus == Focus::Timeline && self.file.is_none() {
            self.row = self.run.turns().len().saturating_sub(1);
        }
        self.stale = true;
        self.settle();
    }

    /// The run was read again.
    pub(super) fn reloaded(&mut self, run: Arc<Run>) {
        let before = self.run.events().len();
        self.shelf.forget(Side::This);
        self.run = run;
        let news = self.run.events().len().saturating_sub(before);
        self.say(Tone::Plain, format!("read again: {news} new events"));
        self.stale = true;
        self.settle();
    }

    /// Another run is beside this one.
    pub(super) fn beside(&mut self, other: Arc<Run>) {
        self.shelf.forget(Side::Other);
        self.say(Tone::Plain, format!("run {} is beside this one", other.id.short()));
        self.other = Some(other);
        self.stale = true;
        self.go_to_pane(Pane::Runs);
        self.settle();
    }

    /// Says something in the last line.
    pub(super) fn say(&mut self, tone: Tone, text: impl Into<String>) {
        self.message = Some((tone, text.into()));
    }

    /// Whether the run can change by itself.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.run.history.status(), HistoryStatus::Ended(_))
    }

    /// All that the screen lacks.
    pub(super) fn wants(&self) -> Vec<Want> {
        let mut wants = self.page.wants.clone();
        // Only while somebody waits for it: a run that goes on would be searched again with each event.
        if matches!(self.hunt.goal, Some(Goal::Match(_))) {
            wants.extend(self.hunt.query.clone().map(|query| self.hits_wanted(query)));
        }
        wants.extend(self.sameness_wanted());
        if matches!(self.overlay, Overlay::Confirming(_)) {
            wants.push(Want::Ends(self.run.events().len()));
        }
        if matches!(&self.overlay, Overlay::Asking(Input { what: What::Open, .. })) {
            wants.extend(self.shown().map(|row| Want::Tree(files::after(row))));
        }
        wants.retain(|want| !self.shelf.has(want));
        wants
    }

    /// The question whose answer tells how both runs compare.
    pub(super) fn sameness_wanted(&self) -> Option<Want> {
        let other = self.other.as_ref()?;
        Some(Want::Sameness(self.run.events().len(), other.events().len()))
    }

    fn choice(&self) -> Choice {
        let row = self.run.turns().get(self.row);
        Choice {
            row: self.row,
            pane: self.pane,
            since: self.mark.filter(|_| self.comparing),
            request: self.request,
            file: self.file.clone().and_then(|path| row.map(|row| (files::after(row), path))),
        }
    }

    /// Makes the page and everything in it follow the rest.
    pub(super) fn settle(&mut self) {
        // A search may go through a few pages until it stands at its match or waits for one.
        for _ in 0..SETTLE_ROUNDS_MAX {
            self.row = self.row.min(self.run.turns().len().saturating_sub(1));
            self.lay_out();
            if !self.hunted() {
                break;
            }
        }
        let mut wants = self.page.wants.clone();
        wants.extend(self.hunt.query.clone().map(|query| self.hits_wanted(query)));
        wants.extend(self.sameness_wanted());
        self.shelf.shown(&wants);
        self.keep_in_sight();
    }

    fn lay_out(&mut self) {
        let (choice, columns) = (self.choice(), self.size.0);
        let other = self.page.choice.as_ref() != Some(&choice);
        if other || self.stale {
            let subject = Subject { run: &self.run, other: self.other.as_deref() };
            (self.page.doc, self.page.wants) = page::page(subject, &choice, &self.shelf);
            self.page.choice = Some(choice);
            self.stale = false;
            self.page.columns = 0;
        }
        if self.page.columns != columns {
            self.page.rows = self.page.doc.wrap(usize::from(columns));
            self.page.columns = columns;
        }
    }

    /// Whether nothing of the page is still to come.
    pub(super) fn page_is_whole(&self) -> bool {
        self.page.wants.iter().all(|want| self.shelf.has(want))
    }

    fn keep_in_sight(&mut self) {
        let Layout { timeline, pane, .. } = self.layout();
        let (timeline, pane) = (usize::from(timeline.max(1)), usize::from(pane.max(1)));
        self.timeline_top = self.timeline_top.clamp((self.row + 1).saturating_sub(timeline), self.row);
        self.timeline_top = self.timeline_top.min(self.run.turns().len().saturating_sub(timeline));
        let last = self.page.rows.len().saturating_sub(1);
        self.cursor = self.cursor.min(last);
        if self.focus == Focus::Pane {
            self.scroll = self.scroll.clamp((self.cursor + 1).saturating_sub(pane), self.cursor);
        }
        self.scroll = self.scroll.min(self.page.rows.len().saturating_sub(pane));
    }

    pub(super) fn page_rows(&self) -> isize {
        isize::try_from(self.layout().pane.saturating_sub(1).max(1)).unwrap_or(1)
    }

    pub(super) fn help_rows(&self) -> usize {
        usize::from(self.size.1.saturating_sub(4)).max(1)
    }

    /// Goes to the top of another page.
    pub(super) fn go_to_top(&mut self) {
        (self.scroll, self.cursor) = (0, 0);
        self.hunt.found = None;
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

    pub(super) fn go_to_pane(&mut self, pane: Pane) {
        self.file = None;
        self.pane = pane;
        self.go_to_top();
    }

    pub(super) fn turn_pane(&mut self, way: Way) {
        let count = Pane::ALL.len() - usize::from(self.other.is_none());
        let at = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        let next = match way {
            Way::On => at + 1,
            Way::Back => at + count - 1,
        };
        self.go_to_pane(Pane::ALL[next % count]);
    }

    pub(super) fn scroll_by(&mut self, rows: isize) {
        self.scroll = self.scroll.saturating_add_signed(rows);
        if self.focus == Focus::Pane {
            self.cursor = self.cursor.saturating_add_signed(rows);
        }
    }

    pub(super) fn move_cursor(&mut self, rows: isize) {
        self.cursor = self.cursor.saturating_add_signed(rows);
    }

    pub(super) fn enter(&mut self) {
        if self.focus == Focus::Timeline {
            self.focus = Focus::Pane;
            self.cursor = self.scroll;
            return;
        }
        let line = self.page.rows.get(self.cursor).and_then(|row| self.page.doc.lines.get(row.line));
        match line.and_then(|line| line.path.clone()) {
            Some(path) => self.open(path),
            None => self.say(Tone::Dim, "no file is named in this line"),
        }
    }

    pub(super) fn open(&mut self, path: WorkPath) {
        self.file = Some(path);
        self.focus = Focus::Pane;
        self.go_to_top();
    }

    /// One step back: from the file, the pane, the comparison, the search.
    pub(super) fn back(&mut self) {
        if self.file.take().is_some() {
            self.go_to_top();
        } else if self.focus == Focus::Pane {
            self.focus = Focus::Timeline;
        } else if self.comparing || self.request || self.zoomed {
            (self.comparing, self.request, self.zoomed) = (false, false, false);
            self.go_to_top();
        } else {
            self.hunt = Hunt::default();
        }
    }

    pub(super) fn toggle_request(&mut self) {
        self.request = self.pane != Pane::Prompt || !self.request;
        self.go_to_pane(Pane::Prompt);
    }

    pub(super) fn mark_here(&mut self) {
        self.mark = if self.mark == Some(self.row) { None } else { Some(self.row) };
        match self.mark {
            Some(_) => self.say(Tone::Plain, "marked; go to another turn and press c to compare"),
            None => {
                self.comparing = false;
                self.say(Tone::Plain, "the mark is gone");
            }
        }
    }

    pub(super) fn compare(&mut self) {
        if self.mark.is_none() {
            return self.say(Tone::Warn, "mark a turn with m first, then go to another and press c");
        }
        self.comparing = !(self.comparing && self.pane == Pane::Diff);
        self.go_to_pane(Pane::Diff);
    }

    pub(super) fn confirm(&mut self, act: fn(Turn) -> Act) {
        match self.shown() {
            Some(row) => self.overlay = Overlay::Confirming(act(row.turn)),
            None => self.say(Tone::Warn, "the run has not started"),
        }
    }

    /// Whether a run can go on from that turn; none while that is being worked out.
    pub(super) fn may(&self, act: Act) -> Option<bool> {
        match self.shelf.get(&Want::Ends(self.run.events().len()))? {
            Loaded::Ends(ends) => Some(ends.contains(&act.turn())),
            Loaded::Bytes(_)
            | Loaded::Tree(_)
            | Loaded::Diff(_)
            | Loaded::Request(_)
            | Loaded::Sameness(_)
            | Loaded::Hits(_)
            | Loaded::Failed(_) => Some(false),
        }
    }
}

/// Most pages that one change goes through: a search that found a page looks at it, and at the next.
const SETTLE_ROUNDS_MAX: usize = 4;
