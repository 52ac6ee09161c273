//! Which artifacts a run is to leave, and which it left: the one place to extend where engines come to emit their own.
//!
//! A plan is the list behind an answer's `PLAN:`, or what an engine concluded as one; where no engine demands it, a run
//! without one lacks nothing. Engine `sop` demands four, whatever becomes of the run. Paths that the task requires are
//! artifacts too, and the check `requires` says which of them are there.

use std::collections::BTreeSet;

use crate::{
    artifact::{ARTIFACTS, PLAN_CARD},
    content::Content,
    message::Part,
    run::{EngineRef, Fact, GateFinished, RunEvent, RunStarted, plan_in},
};

/// The engine that demands artifacts.
const SOP: &str = "sop";
/// The engine that concludes its own sequence of roles as one, and the role of it whose answer is the plan.
const TEAM: (&str, &str) = ("team", "architect");

/// The artifacts that an engine demands, whatever becomes of the run.
pub fn artifacts_owed(engine: &str) -> &'static [&'static str] {
    if engine == SOP { &ARTIFACTS } else { &[] }
}

/// What is known of the artifacts of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Artifacts {
    paths: u64,
    /// Required paths that are not there; none while no check has looked at the tree as it is.
    absent: Option<u64>,
    planned: bool,
    /// The engine in force demands all of [`ARTIFACTS`].
    demanded: bool,
    /// The engine in force has a plan from this role alone.
    planner: Option<&'static str>,
    /// Those that came.
    emitted: BTreeSet<&'static str>,
}

impl Artifacts {
    pub(super) fn begin(&mut self, started: &RunStarted) {
        self.paths = started.requires.len() as u64;
        self.under(&started.engine);
    }

    /// Another engine is in force.
    pub(super) fn under(&mut self, engine: &EngineRef) {
        self.demanded = !artifacts_owed(&engine.name).is_empty();
        self.planner = (engine.name == TEAM.0).then_some(TEAM.1);
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
        if let RunEvent::Concluded(concluded) = event {
            // All of them, also behind the plan.
            let planned = concluded.facts.iter().fold(false, |planned, fact| self.emits(fact) | planned);
            self.planned |= planned;
            return planned;
        }
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

    /// Takes what an engine concluded; whether that is a plan.
    fn emits(&mut self, fact: &Fact) -> bool {
        match fact {
            Fact::Planned { .. } => self.planner.is_none(),
            Fact::Answered { role, .. } => self.planner == Some(role.as_str()),
            Fact::Artifact { name, .. } => {
                self.emitted.extend(ARTIFACTS.into_iter().filter(|known| *known == name.as_str()));
                name == PLAN_CARD
            }
            Fact::Invalid { .. }
            | Fact::StepEnded { .. }
            | Fact::Judged { .. }
            | Fact::PlanDropped { .. }
            | Fact::PhaseBegan { .. }
            | Fact::Summarized { .. }
            | Fact::Calls { .. }
            | Fact::Correcting { .. }
            | Fact::QualityGate { .. }
            | Fact::LastTurn { .. } => false,
        }
    }

    pub(super) const fn has_plan(&self) -> bool {
        self.planned
    }

    /// How many are there, of how many; none where nothing is required, or nobody looked. What an engine owes by itself is
    /// known whatever the tree is: a run that broke off before anybody looked is told by that.
    pub(super) fn there(&self) -> Option<(u64, u64)> {
        let paths = match (self.paths, self.absent) {
            (0, _) => (0, 0),
            (_, None) if self.demanded => (0, 0),
            (_, None) => return None,
            (all, Some(absent)) => (all.saturating_sub(absent), all),
        };
        // Its plan is one of the four.
        let own = match (self.demanded, u64::from(self.planned)) {
            (true, _) => (self.emitted.len() as u64, ARTIFACTS.len() as u64),
            (false, plan) => (plan, plan),
        };
        Some((paths.0 + own.0, paths.1 + own.1)).filter(|(_, all)| *all > 0)
    }
}
