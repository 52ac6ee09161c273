//! Which artifacts a run is to leave, and which it left: the one place to extend where engines come to emit their own.
//!
//! Today's logs hold two kinds. A plan is the list behind an answer's `PLAN:`; no engine so far demands one, so that a
//! run without one lacks nothing. Paths that the task requires are artifacts too, and the check `requires` says which
//! of them are there.

use crate::{
    content::Content,
    message::Part,
    run::{GateFinished, RunEvent, RunStarted, plan_in},
};

/// What is known of the artifacts of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Artifacts {
    paths: u64,
    /// Required paths that are not there; none while no check has looked at the tree as it is.
    absent: Option<u64>,
    planned: bool,
}

impl Artifacts {
    pub(super) fn begin(&mut self, started: &RunStarted) {
        self.paths = started.requires.len() as u64;
    }

    /// The tree is not what it was when the check looked.
    pub(super) const fn changed(&mut self) {
        self.absent = None;
    }

    /// Takes the result of the check of required paths.
    pub(super) fn checked(&mut self, event: &GateFinished) {
        let gone = event.facts.failing.len() as u64;
        // Logs from before the paths were named say only that one is missing.
        self.absent = Some(if event.passed { 0 } else { gone.clamp(1, self.paths.max(1)) });
    }

    /// Takes an event; whether it holds the plan.
    pub(super) fn emits_plan(&mut self, event: &RunEvent) -> bool {
        let RunEvent::ModelAnswered(answered) = event else { return false };
        if answered.call.is_summary() {
            return false;
        }
        let is_plan =
            |part: &Part| matches!(part, Part::Text { text: Content::Text(text) } if plan_in(text).is_some());
        let planned = answered.parts.iter().any(is_plan);
        self.planned |= planned;
        planned
    }

    pub(super) const fn has_plan(&self) -> bool {
        self.planned
    }

    /// How many are there, of how many; none where nothing is required, or nobody looked.
    pub(super) fn there(&self) -> Option<(u64, u64)> {
        let paths = match (self.paths, self.absent) {
            (0, _) => (0, 0),
            (_, None) => return None,
            (all, Some(absent)) => (all.saturating_sub(absent), all),
        };
        let plan = u64::from(self.planned);
        Some((paths.0 + plan, paths.1 + plan)).filter(|(_, all)| *all > 0)
    }
}
