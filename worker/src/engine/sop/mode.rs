//! The phases of engine `sop`, the mode of each, and what may be called in it (E2). Pure.
//!
//! A call outside of its mode is not run: the intent that is recorded says so, with the reason that its model reads.

use std::fmt;

use docket_schema::run::{RunStarted, RunState, Verdict};

use super::super::{
    core::{
        call_options::role_of,
        decision::{Act, Decision, PlannedTool},
    },
    rules::delegation,
};
use crate::tools;

/// The roles.
pub(super) const PLANNER: &str = "planner";
pub(super) const BUILDER: &str = "builder";
pub(super) const REVIEWER: &str = "reviewer";

/// Tools that only read.
pub(super) const READS: [&str; 3] = ["read_file", "search_codebase", "list_files"];
/// Tools that change files and run what is there.
pub(super) const BUILDS: [&str; 4] = ["edit_file", "create_file", "run_command", "run_tests"];

/// The engine's name.
pub(super) const ENGINE: &str = "sop";

/// The rule by which a call outside of its mode is refused.
const RULE: &str = "mode";

/// A phase of the procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SopPhase {
    /// The runtime looks at the workspace.
    Understand,
    /// The planner reads and plans.
    Plan,
    /// The builder makes the change.
    Implement,
    /// The checks run.
    Verify,
    /// The change is reviewed.
    Review,
    /// All is done, or a limit is near.
    Complete,
}

impl SopPhase {
    const ALL: [Self; 6] =
        [Self::Understand, Self::Plan, Self::Implement, Self::Verify, Self::Review, Self::Complete];

    /// The phase that a run is in; none before the first.
    pub(super) fn of(run: &RunState) -> Option<Self> {
        let name = run.work.phase.as_deref()?;
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }

    /// Its name.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Understand => "understand",
            Self::Plan => "plan",
            Self::Implement => "implement",
            Self::Verify => "verify",
            Self::Review => "review",
            Self::Complete => "complete",
        }
    }

    /// The tool by which a model ends it.
    pub(super) const fn ends_by(self) -> &'static str {
        match self {
            Self::Understand | Self::Plan => tools::PLAN_CARD,
            Self::Implement | Self::Verify => tools::DIFF_CARD,
            Self::Review => tools::REVIEW_REPORT,
            Self::Complete => tools::COMPLETE_TASK,
        }
    }

    /// Whether a tool may be called in it.
    pub(super) fn allows(self, tool: &str) -> bool {
        let reads = READS.contains(&tool);
        tool == self.ends_by()
            || match self {
                Self::Understand | Self::Plan | Self::Review => reads,
                Self::Implement | Self::Verify => reads || BUILDS.contains(&tool),
                Self::Complete => false,
            }
    }
}

impl fmt::Display for SopPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The decision, with the calls refused that its phase does not allow.
pub(super) fn gated(run: &RunState, decision: Decision) -> Decision {
    let (Decision { phase, act: Act::RunTools(mut batch) }, Some(at)) = (decision.clone(), SopPhase::of(run))
    else {
        return decision;
    };
    for planned in batch.iter_mut().filter(|planned| !planned.call.is_own()) {
        let kind = run.pins.as_ref().map_or(Kind::Own, |pins| kind_of(run, pins, planned));
        if let Some(reason) = refused(run, at, (&planned.tool, kind)) {
            planned.policy = Verdict::Deny { rule: RULE.to_owned(), reason };
        }
    }
    // What is refused is no editing and no testing.
    let refused = batch.iter().all(|planned| matches!(planned.policy, Verdict::Deny { .. }));
    Decision { phase: if refused { run.phase } else { phase }, act: Act::RunTools(batch) }
}

/// What a call is, beyond its tool's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of a tool of the engine's own.
    Own,
    /// Of a server's tool, which says that it only reads.
    Looks,
    /// Of a server's tool that may change something, or it gives work away whose changes are wanted.
    Changes,
    /// It gives work away whose answer alone is wanted.
    Asks,
    /// Such work, with a line that tests it.
    Runs,
}

fn kind_of(run: &RunState, pins: &RunStarted, planned: &PlannedTool) -> Kind {
    if let Some(external) = pins.external(&planned.tool) {
        return if external.read_only { Kind::Looks } else { Kind::Changes };
    }
    // Of a role that gives nothing away its tools say so.
    let gives = role_of(run, pins).is_some_and(|role| role.may(tools::DELEGATE));
    let call = run.wanted.iter().find(|tool| tool.call == planned.call);
    match call.filter(|tool| gives && delegation::delegates(pins, tool)) {
        Some(tool) if delegation::asks_to_write(tool) => Kind::Changes,
        Some(tool) if delegation::asks_for_tests(tool) => Kind::Runs,
        Some(_) => Kind::Asks,
        None => Kind::Own,
    }
}

/// Why a tool may not be called now.
fn refused(run: &RunState, at: SopPhase, (tool, kind): (&str, Kind)) -> Option<String> {
    let may = match (kind, at) {
        (Kind::Changes | Kind::Runs, SopPhase::Implement | SopPhase::Verify) => true,
        (Kind::Asks | Kind::Looks, _) => at != SopPhase::Complete,
        (Kind::Own | Kind::Changes | Kind::Runs, _) => at.allows(tool),
    };
    if may {
        return None;
    }
    let ends_by = at.ends_by();
    let known = kind != Kind::Own || READS.iter().chain(&BUILDS).any(|name| *name == tool);
    let card =
        [tools::PLAN_CARD, tools::DIFF_CARD, tools::REVIEW_REPORT, tools::COMPLETE_TASK].contains(&tool);
    Some(match at {
        _ if !known && !card => return None,
        SopPhase::Complete if run.work.last_turn.is_some() => {
            format!("this is the last turn: only `{ends_by}` may be called")
        }
        SopPhase::Complete => format!("all gates have passed: only `{ends_by}` may be called"),
        _ if card => format!("the phase is `{at}`, which ends by `{ends_by}`; `{tool}` is not its time"),
        SopPhase::Understand | SopPhase::Plan | SopPhase::Review if kind == Kind::Runs => format!(
            "the phase is `{at}`, which runs nothing: give a piece away without `tests`, which is a line that is run"
        ),
        SopPhase::Understand | SopPhase::Plan => format!(
            "plan mode only reads: there is no PlanCard yet, and before it nothing is written or run. Hand it in by \
             `{ends_by}`"
        ),
        SopPhase::Review => {
            format!("review mode only reads: what has to be changed stands in `{ends_by}`, as must_change")
        }
        SopPhase::Implement | SopPhase::Verify => return None,
    })
}

/// What a model is told that called no tool.
pub(super) fn idle_words(at: SopPhase) -> String {
    format!(
        "You called no tool, and words end nothing here. The phase is `{at}`: go on with its tools, and end it by \
         `{}`. If you cannot go on without a person, begin your answer with `BLOCKED:` and ask one precise question.",
        at.ends_by()
    )
}

/// What the role in hand is told beside its results, at a phase's begin or where something is to be mended.
pub(super) fn words(run: &RunState, at: SopPhase) -> Option<String> {
    let answered = run.work.done.iter().any(|done| !done.tool.call.is_own());
    if let (SopPhase::Complete, Some((_, reason))) = (at, &run.work.last_turn) {
        return Some(format!(
            "This is your last turn: {reason}. What was changed is kept as it is. Call `{}` now, and nothing else: say \
             what is done, what is left, and how it stands.",
            at.ends_by()
        ));
    }
    if answered {
        return None;
    }
    if let Some(problem) = &run.work.problem {
        return Some(format!("{problem}\nMend that, then call `{}`.", at.ends_by()));
    }
    // Whoever begins was told all of it.
    if run.transcript.sealed().is_empty() {
        return None;
    }
    match at {
        SopPhase::Understand | SopPhase::Plan | SopPhase::Verify => None,
        SopPhase::Implement => {
            Some(format!("You may change files again. When the change is made, call `{}`.", at.ends_by()))
        }
        SopPhase::Review => Some(format!(
            "The checks are through. The change is small: review it yourself. You may only read now. What may go wrong \
             with it, for whom, and what is not tested? Hand that in by `{}`.",
            at.ends_by()
        )),
        SopPhase::Complete => Some(format!(
            "All gates have passed. Call `{}` with a summary for people: what was changed and why. Nothing else may \
             be called.",
            at.ends_by()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enumerated in full, as the modes are written down.
    #[test]
    fn each_phase_allows_what_its_mode_allows() {
        let all = READS.iter().chain(&BUILDS).copied();
        let cards = [tools::PLAN_CARD, tools::DIFF_CARD, tools::REVIEW_REPORT, tools::COMPLETE_TASK];
        for phase in SopPhase::ALL {
            let may: Vec<&str> = all.clone().chain(cards).filter(|tool| phase.allows(tool)).collect();
            let expected: &[&str] = match phase {
                SopPhase::Understand | SopPhase::Plan => {
                    &["read_file", "search_codebase", "list_files", "plan_card"]
                }
                SopPhase::Implement | SopPhase::Verify => &[
                    "read_file",
                    "search_codebase",
                    "list_files",
                    "edit_file",
                    "create_file",
                    "run_command",
                    "run_tests",
                    "diff_card",
                ],
                SopPhase::Review => &["read_file", "search_codebase", "list_files", "review_report"],
                SopPhase::Complete => &["complete_task"],
            };
            assert_eq!(may, expected, "{phase}");
        }
    }

    #[test]
    fn a_refusal_says_what_is_to_be_done() {
        let run = RunState::default();
        use Kind::{Asks, Changes, Looks, Own, Runs};
        for (phase, tool, words) in [
            (SopPhase::Plan, "create_file", "there is no PlanCard yet"),
            (SopPhase::Plan, "run_command", "nothing is written or run"),
            (SopPhase::Plan, "complete_task", "ends by `plan_card`"),
            (SopPhase::Implement, "complete_task", "ends by `diff_card`"),
            (SopPhase::Review, "edit_file", "review mode only reads"),
            (SopPhase::Complete, "read_file", "only `complete_task`"),
        ] {
            let told = refused(&run, phase, (tool, Own));
            assert!(told.as_ref().is_some_and(|told| told.contains(words)), "{phase} {tool}: {told:?}");
        }
        for phase in [SopPhase::Plan, SopPhase::Review] {
            let told = refused(&run, phase, (tools::DELEGATE, Runs));
            assert!(told.as_ref().is_some_and(|told| told.contains("without `tests`")), "{phase}: {told:?}");
        }
        // A name that no tool has is told as that.
        assert_eq!(refused(&run, SopPhase::Plan, ("make_coffee", Own)), None);
        // What may change something is for the phases that build: a server's tool, and a piece of work given away.
        // What only asks or looks is for all but the last.
        for (phase, may) in [
            (SopPhase::Plan, false),
            (SopPhase::Implement, true),
            (SopPhase::Verify, true),
            (SopPhase::Review, false),
            (SopPhase::Complete, false),
        ] {
            for call in [("mcp__notes__note", Changes), (tools::DELEGATE, Changes), (tools::DELEGATE, Runs)] {
                assert_eq!(refused(&run, phase, call).is_none(), may, "{phase} {call:?}");
            }
            for call in [(tools::DELEGATE, Asks), ("mcp__notes__count", Looks)] {
                let told = refused(&run, phase, call);
                assert_eq!(told.is_none(), phase != SopPhase::Complete, "{phase}: {told:?}");
            }
        }
    }
}
