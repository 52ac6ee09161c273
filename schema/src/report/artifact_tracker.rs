//! Which artifacts a run is to leave, and which it left: the one place to extend where engines come to emit their own.
//!
//! A plan is the list behind an answer's `PLAN:`, or what an engine concluded as one; where no engine demands it, a run
//! without one lacks nothing. Engine `sop` demands four, whatever becomes of the run. Paths that the task requires are
//! artifacts too, and the check `requires` says which of them are there.

use std::collections::BTreeSet;

use crate::{
    artifact::{PLAN_CARD, SOP_ARTIFACTS},
    content::Content,
    message::MessagePart,
    run::{EngineFact, EngineRef, GateFinished, RunEvent, RunStarted, extract_plan},
};

/// The engine that demands artifacts.
const SOP_ENGINE: &str = "sop";
/// The engine that concludes its own sequence of roles as one, and the role of it whose answer is the plan.
const TEAM_PLANNER: (&str, &str) = ("team", "architect");

/// The artifacts that an engine demands, whatever becomes of the run.
pub fn required_artifacts(engine: &str) -> &'static [&'static str] {
    if engine == SOP_ENGINE { &SOP_ARTIFACTS } else { &[] }
}

/// What is known of the artifacts of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct ArtifactTracker {
    required_paths: u64,
    /// Required paths that are not there; none while no check has looked at the tree as it is.
    missing_paths: Option<u64>,
    planned: bool,
    /// The engine in force demands all of [`ARTIFACTS`].
    needs_all_artifacts: bool,
    /// The engine in force has a plan from this role alone.
    planner_role: Option<&'static str>,
    /// Those that came.
    emitted: BTreeSet<&'static str>,
}

impl ArtifactTracker {
    pub(super) fn begin_run(&mut self, started: &RunStarted) {
        self.required_paths = started.requires.len() as u64;
        self.set_engine(&started.engine);
    }

    /// Another engine is in force.
    pub(super) fn set_engine(&mut self, engine: &EngineRef) {
        self.needs_all_artifacts = !required_artifacts(&engine.name).is_empty();
        self.planner_role = (engine.name == TEAM_PLANNER.0).then_some(TEAM_PLANNER.1);
    }

    /// The tree is not what it was when the check looked.
    pub(super) const fn mark_tree_changed(&mut self) {
        self.missing_paths = None;
    }

    /// Takes the result of the check of required paths.
    pub(super) fn record_path_check(&mut self, event: &GateFinished) {
        let gone = event.facts.failing.len() as u64;
        // Logs from before the paths were named say only that one is missing.
        self.missing_paths = Some(if event.passed { 0 } else { gone.clamp(1, self.required_paths.max(1)) });
    }

    /// Takes an event; whether it holds the plan.
    pub(super) fn record_plan(&mut self, event: &RunEvent) -> bool {
        if let RunEvent::Concluded(concluded) = event {
            // All of them, also behind the plan.
            let planned =
                concluded.facts.iter().fold(false, |planned, fact| self.record_fact(fact) | planned);
            self.planned |= planned;
            return planned;
        }
        let RunEvent::ModelAnswered(answered) = event else { return false };
        if answered.call.is_summary() {
            return false;
        }
        let is_plan = |part: &MessagePart| matches!(part, MessagePart::Text { text: Content::Text(text) } if extract_plan(text).is_some());
        let planned = answered.parts.iter().any(is_plan);
        self.planned |= planned;
        planned
    }

    /// Takes what an engine concluded; whether that is a plan.
    fn record_fact(&mut self, fact: &EngineFact) -> bool {
        match fact {
            EngineFact::Planned { .. } => self.planner_role.is_none(),
            EngineFact::Answered { role, .. } => self.planner_role == Some(role.as_str()),
            EngineFact::Artifact { name, .. } => {
                self.emitted.extend(SOP_ARTIFACTS.into_iter().filter(|known| *known == name.as_str()));
                name == PLAN_CARD
            }
            EngineFact::Invalid { .. }
            | EngineFact::StepEnded { .. }
            | EngineFact::Judged { .. }
            | EngineFact::PlanDropped { .. }
            | EngineFact::PhaseBegan { .. }
            | EngineFact::Summarized { .. }
            | EngineFact::Calls { .. }
            | EngineFact::Correcting { .. }
            | EngineFact::QualityGate { .. }
            | EngineFact::LastTurn { .. } => false,
        }
    }

    pub(super) const fn has_plan(&self) -> bool {
        self.planned
    }

    /// How many are there, of how many; none where nothing is required, or nobody looked. What an engine owes by itself is
    /// known whatever the tree is: a run that broke off before anybody looked is told by that.
    pub(super) fn completeness(&self) -> Option<(u64, u64)> {
        let paths = match (self.required_paths, self.missing_paths) {
            (0, _) => (0, 0),
            (_, None) if self.needs_all_artifacts => (0, 0),
            (_, None) => return None,
            (all, Some(absent)) => (all.saturating_sub(absent), all),
        };
        // Its plan is one of the four.
        let own = match (self.needs_all_artifacts, u64::from(self.planned)) {
            (true, _) => (self.emitted.len() as u64, SOP_ARTIFACTS.len() as u64),
            (false, plan) => (plan, plan),
        };
        Some((paths.0 + own.0, paths.1 + own.1)).filter(|(_, all)| *all > 0)
    }
}
