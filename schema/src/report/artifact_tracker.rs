//! Tracks which artifacts a run must produce and which it produced. Extend it when an engine gains its own
//! artifacts.
//!
//! A plan is the list after `PLAN:` in an answer, or an engine's recorded plan; if no engine requires it, a
//! run without a plan is still complete. Engine `sop` always requires four artifacts. Paths that the task
//! requires are artifacts too, and the `requires` check reports which of them exist.

use std::collections::BTreeSet;

use crate::{
    artifact::{PLAN_CARD, SOP_ARTIFACTS},
    content::Content,
    message::MessagePart,
    run::{EngineFact, EngineRef, GateFinished, RunEvent, RunStarted, extract_plan},
};

/// The engine that requires artifacts.
const SOP_ENGINE: &str = "sop";
/// The engine that records its sequence of roles as the plan, and its role whose answer is the plan.
const TEAM_PLANNER: (&str, &str) = ("team", "architect");

/// Returns the artifacts that an engine always requires.
pub fn required_artifacts(engine: &str) -> &'static [&'static str] {
    if engine == SOP_ENGINE { &SOP_ARTIFACTS } else { &[] }
}

/// The known artifacts of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct ArtifactTracker {
    required_paths: u64,
    /// Number of required paths that do not exist; none until a check has examined the current tree.
    missing_paths: Option<u64>,
    planned: bool,
    /// Whether the current engine requires all of [`SOP_ARTIFACTS`].
    needs_all_artifacts: bool,
    /// The only role whose plan counts, for the current engine.
    planner_role: Option<&'static str>,
    /// The artifacts produced so far.
    emitted: BTreeSet<&'static str>,
}

impl ArtifactTracker {
    pub(super) fn begin_run(&mut self, started: &RunStarted) {
        self.required_paths = started.requires.len() as u64;
        self.set_engine(&started.engine);
    }

    /// Switches to another engine.
    pub(super) fn set_engine(&mut self, engine: &EngineRef) {
        self.needs_all_artifacts = !required_artifacts(&engine.name).is_empty();
        self.planner_role = (engine.name == TEAM_PLANNER.0).then_some(TEAM_PLANNER.1);
    }

    /// Marks the tree as changed since the check examined it.
    pub(super) const fn mark_tree_changed(&mut self) {
        self.missing_paths = None;
    }

    /// Records the result of the check of required paths.
    pub(super) fn record_path_check(&mut self, event: &GateFinished) {
        let gone = event.facts.failing.len() as u64;
        // Older logs do not list the paths and only say that one is missing.
        self.missing_paths = Some(if event.passed { 0 } else { gone.clamp(1, self.required_paths.max(1)) });
    }

    /// Records an event; returns whether it contains the plan.
    pub(super) fn record_plan(&mut self, event: &RunEvent) -> bool {
        if let RunEvent::Concluded(concluded) = event {
            // Process all facts, including those after the plan.
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

    /// Records an engine's fact; returns whether it is a plan.
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

    /// Returns how many artifacts exist, of how many; none if nothing is required or nothing was checked. The
    /// artifacts of an engine are known whatever the tree's state, so a run that broke off before the check
    /// is judged by them.
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
