//! Jumps: to failures, to differences, to matches of a search, to a file by its name. Pure.

use docket_schema::{content::WorkPath, history::TurnOutcome};

use super::{
    compare::Sameness,
    doc::Tone,
    files,
    find::{self, Hit},
    model::{Effect, Focus, Input, Model, Overlay, What},
    page::Pane,
    shelf::{Loaded, Want},
};

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To what comes later.
    On,
    /// To what came before.
    Back,
}

/// Where a jump ends once its page is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// At the first line that says what failed.
    Failure,
    /// At the next match in this direction.
    Match(Way),
}

/// A search, and a jump that is not done yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hunt {
    /// What is searched.
    pub(super) query: Option<String>,
    /// The line of the page that is the match.
    pub(super) found: Option<usize>,
    /// What is still to be done.
    pub(super) goal: Option<Goal>,
}

impl Model {
    pub(super) fn ask(&mut self, what: What) {
        self.overlay = Overlay::Asking(Input { what, text: String::new() });
    }

    /// Does what a typed line says.
    pub(super) fn answer(&mut self, input: Input) -> Option<Effect> {
        let text = input.text.trim().to_owned();
        match input.what {
            What::Search => {
                self.hunt =
                    Hunt { query: Some(input.text).filter(|text| !text.is_empty()), ..Hunt::default() };
                self.hunt.goal = self.hunt.query.as_ref().map(|_| Goal::Match(Way::On));
            }
            What::Open => self.open_named(&text),
            What::Beside if text.is_empty() => {}
            What::Beside => {
                self.say(Tone::Plain, "the other run is read…");
                return Some(Effect::Beside(text));
            }
        }
        None
    }

    fn open_named(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        let Some(row) = self.shown() else { return };
        // The tree is wanted while the name is typed; where it is not there yet, the loader says
        // whether there is such a file.
        let Some(Loaded::Tree(tree)) = self.shelf.get(&Want::Tree(files::after(row))) else {
            return match WorkPath::new(name.as_bytes()) {
                Some(path) => self.open(path),
                None => self.say(Tone::Warn, "that is no path in the workspace"),
            };
        };
        let exact = WorkPath::new(name.as_bytes()).filter(|path| tree.entries.contains_key(path));
        let mut fitting = tree.entries.keys().filter(|path| find::holds(&path.to_string(), name));
        match (exact, fitting.next().cloned(), fitting.count()) {
            (Some(path), _, _) | (None, Some(path), 0) => self.open(path),
            (None, Some(_), more) => {
                self.go_to_pane(Pane::Tree);
                self.focus = Focus::Pane;
                self.hunt =
                    Hunt { query: Some(name.to_owned()), found: None, goal: Some(Goal::Match(Way::On)) };
                self.say(Tone::Plain, format!("{} names hold that; n goes on, Enter opens", more + 1));
            }
            (None, None, _) => self.say(Tone::Warn, format!("no file's name holds `{name}` after this turn")),
        }
    }

    pub(super) fn again(&mut self, way: Way) {
        if self.hunt.query.is_some() {
            self.hunt.goal = Some(Goal::Match(way));
        } else {
            self.say(Tone::Warn, "nothing is searched: / begins a search; e goes to the next failure");
        }
    }

    pub(super) fn go_to_failure(&mut self, way: Way) {
        let fails = |at: &usize| self.run.turns().get(*at).is_some_and(|row| row.outcome.is_failure());
        match next_row(self.row, self.run.turns().len(), way, fails) {
            Some(row) => {
                self.go_to_row(row);
                self.look_at_failure();
            }
            None => self.say(Tone::Warn, none_that_way("failure", way)),
        }
    }

    /// Shows what failed in the turn.
    pub(super) fn look_at_failure(&mut self) {
        let pane = match self.shown().map(|row| row.outcome) {
            Some(TurnOutcome::ToolFailed(_) | TurnOutcome::CheckFailed) => Pane::Calls,
            Some(
                TurnOutcome::ModelFailed
                | TurnOutcome::Blocked
                | TurnOutcome::Ended(_)
                | TurnOutcome::Ok
                | TurnOutcome::UnderWay,
            )
            | None => Pane::Decision,
        };
        self.go_to_pane(pane);
        self.hunt.goal = Some(Goal::Failure);
    }

    pub(super) fn go_to_difference(&mut self, way: Way) {
        let Some(want) = self.sameness_wanted() else {
            return self.say(Tone::Warn, "no other run is loaded; w asks for one");
        };
        let Some(Loaded::Sameness(all)) = self.shelf.get(&want) else {
            return self.say(Tone::Dim, "the runs are still being compared");
        };
        let differs = |at: &usize| all.get(*at).copied().is_some_and(Sameness::differs);
        match next_row(self.row, self.run.turns().len(), way, differs) {
            Some(row) => {
                self.go_to_row(row);
                self.go_to_pane(Pane::Runs);
            }
            None => self.say(Tone::Warn, none_that_way("difference", way)),
        }
    }

    pub(super) fn hits_wanted(&self, query: String) -> Want {
        Want::Hits(query, self.run.events().len())
    }

    /// Takes the jump in hand as far as it goes; whether the page is another one now.
    pub(super) fn hunted(&mut self) -> bool {
        let Some(goal) = self.hunt.goal else { return false };
        if !self.page_is_whole() {
            return false;
        }
        match goal {
            Goal::Failure => {
                self.hunt.goal = None;
                if let Some(line) = self.page.doc.lines.iter().position(|line| line.tone == Tone::Bad) {
                    self.show_line(line);
                }
                false
            }
            Goal::Match(way) => self.hunt_match(way),
        }
    }

    fn hunt_match(&mut self, way: Way) -> bool {
        let Some(query) = self.hunt.query.clone() else {
            self.hunt.goal = None;
            return false;
        };
        if let Some(line) = self.match_in_page(&query, way) {
            self.hunt.goal = None;
            self.hunt.found = Some(line);
            self.show_line(line);
            return false;
        }
        if self.file.is_some() || matches!(self.pane, Pane::Tree | Pane::Ledger | Pane::Runs) {
            self.hunt.goal = None;
            let text = if self.hunt.found.take().is_some() {
                "that was the last one here"
            } else {
                "not found here"
            };
            self.say(Tone::Warn, format!("{text}: {query}"));
            return false;
        }
        match self.shelf.get(&self.hits_wanted(query.clone())) {
            Some(Loaded::Hits(hits)) => self.go_to_hit(&hits, way, &query),
            Some(Loaded::Failed(why)) => {
                self.hunt.goal = None;
                self.say(Tone::Bad, format!("the search failed: {why}"));
                false
            }
            Some(_) | None => {
                self.say(Tone::Dim, format!("searching all turns for {query} …"));
                false
            }
        }
    }

    fn match_in_page(&self, query: &str, way: Way) -> Option<usize> {
        let mut lines = find::matching(&self.page.doc, query);
        match (self.hunt.found, way) {
            (None, Way::On) => lines.next(),
            (None, Way::Back) => lines.next_back(),
            (Some(found), Way::On) => lines.find(|line| *line > found),
            (Some(found), Way::Back) => lines.rfind(|line| *line < found),
        }
    }

    fn go_to_hit(&mut self, hits: &[Hit], way: Way, query: &str) -> bool {
        let here = Hit { row: self.row, pane: self.pane };
        let (next, round) = match way {
            Way::On => (hits.iter().find(|hit| **hit > here), hits.first()),
            Way::Back => (hits.iter().rfind(|hit| **hit < here), hits.last()),
        };
        let Some(hit) = next.or(round).copied() else {
            self.hunt.goal = None;
            self.say(Tone::Warn, format!("not found: {query}"));
            return false;
        };
        if next.is_none() {
            self.say(Tone::Plain, "the search went round");
        } else {
            self.message = None;
        }
        if hit == here && self.hunt.found.is_none() {
            // What was found lies where this page does not show it: nothing more can be done here.
            self.hunt.goal = None;
            return false;
        }
        self.row = hit.row;
        self.comparing = false;
        self.request = false;
        self.go_to_pane(hit.pane);
        true
    }

    /// Brings a line of the page into sight, a third of the pane from its top.
    fn show_line(&mut self, line: usize) {
        let row = self.page.rows.iter().position(|row| row.line == line).unwrap_or(0);
        self.cursor = row;
        self.scroll = row.saturating_sub(usize::from(self.layout().pane / 3));
    }
}

fn next_row(from: usize, count: usize, way: Way, fits: impl FnMut(&usize) -> bool) -> Option<usize> {
    match way {
        Way::On => (from.saturating_add(1)..count).find(fits),
        Way::Back => (0..from.min(count)).rev().find(fits),
    }
}

fn none_that_way(what: &str, way: Way) -> String {
    match way {
        Way::On => format!("no {what} after this turn"),
        Way::Back => format!("no {what} before this turn"),
    }
}
