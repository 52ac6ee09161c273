//! The phases of engine `sop`, the mode of each, and its allowed calls (E2). Pure.
//!
//! A call that its mode does not allow is not run: the recorded intent says so, with the reason that its model reads.

use std::fmt;

use docket_schema::run::{PolicyVerdict, RunStarted, RunState};

use super::super::{
    core::{
        call_options::current_role,
        decision::{Action, Decision, PlannedTool},
    },
    rules::delegation,
};
use crate::tools;

/// The roles.
pub(super) const PLANNER: &str = "planner";
pub(super) const BUILDER: &str = "builder";
pub(super) const REVIEWER: &str = "reviewer";

/// Tools that only read.
pub(super) const READ_TOOLS: [&str; 3] = ["read_file", "search_codebase", "list_files"];
/// Tools that change files and run commands.
pub(super) const BUILD_TOOLS: [&str; 4] = ["edit_file", "create_file", "run_command", "run_tests"];

/// The engine's name.
pub(super) const ENGINE_NAME: &str = "sop";

/// The rule by which a call outside its mode is refused.
const MODE_RULE: &str = "mode";

/// A phase of the procedure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SopPhase {
    /// The runtime surveys the workspace.
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

    /// Returns the phase of a run; `None` before the first.
    pub(super) fn from_run(run: &RunState) -> Option<Self> {
        let name = run.engine_state.phase.as_deref()?;
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
    pub(super) const fn ending_tool(self) -> &'static str {
        match self {
            Self::Understand | Self::Plan => tools::PLAN_CARD,
            Self::Implement | Self::Verify => tools::DIFF_CARD,
            Self::Review => tools::REVIEW_REPORT,
            Self::Complete => tools::COMPLETE_TASK,
        }
    }

    /// Whether a tool may be called in it.
    pub(super) fn allows_tool(self, tool: &str) -> bool {
        let reads = READ_TOOLS.contains(&tool);
        tool == self.ending_tool()
            || match self {
                Self::Understand | Self::Plan | Self::Review => reads,
                Self::Implement | Self::Verify => reads || BUILD_TOOLS.contains(&tool),
                Self::Complete => false,
            }
    }
}

impl fmt::Display for SopPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the decision, with calls refused that its phase does not allow.
pub(super) fn deny_disallowed_calls(run: &RunState, decision: Decision) -> Decision {
    let (Decision { phase, act: Action::RunTools(mut batch) }, Some(at)) =
        (decision.clone(), SopPhase::from_run(run))
    else {
        return decision;
    };
    for planned in batch.iter_mut().filter(|planned| !planned.call.is_runtime()) {
        let kind = run.pins.as_ref().map_or(SopCallKind::EngineTool, |pins| call_kind(run, pins, planned));
        if let Some(reason) = denial_reason(run, at, (&planned.tool, kind)) {
            planned.policy = PolicyVerdict::Deny { rule: MODE_RULE.to_owned(), reason };
        }
    }
    // A batch of refused calls is neither editing nor testing.
    let refused = batch.iter().all(|planned| matches!(planned.policy, PolicyVerdict::Deny { .. }));
    Decision { phase: if refused { run.phase } else { phase }, act: Action::RunTools(batch) }
}

/// The kind of a call, beyond its tool's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SopCallKind {
    /// A tool of the engine itself.
    EngineTool,
    /// An MCP tool that declares itself read-only.
    ExternalRead,
    /// An MCP tool that may change something, or a delegation whose changes are wanted.
    MayChange,
    /// A delegation of which only the reply is wanted.
    DelegatesReading,
    /// The same, with a test command.
    DelegatesTests,
}

fn call_kind(run: &RunState, pins: &RunStarted, planned: &PlannedTool) -> SopCallKind {
    if let Some(external) = pins.external_tool(&planned.tool) {
        return if external.read_only { SopCallKind::ExternalRead } else { SopCallKind::MayChange };
    }
    // A role that cannot delegate is refused by its list of tools.
    let gives = current_role(run, pins).is_some_and(|role| role.has_tool(tools::DELEGATE));
    let call = run.pending_calls.iter().find(|tool| tool.call == planned.call);
    match call.filter(|tool| gives && delegation::is_delegation(pins, tool)) {
        Some(tool) if delegation::requests_changes(tool) => SopCallKind::MayChange,
        Some(tool) if delegation::requests_tests(tool) => SopCallKind::DelegatesTests,
        Some(_) => SopCallKind::DelegatesReading,
        None => SopCallKind::EngineTool,
    }
}

/// Returns why a tool may not be called now.
fn denial_reason(run: &RunState, at: SopPhase, (tool, kind): (&str, SopCallKind)) -> Option<String> {
    let may = match (kind, at) {
        (SopCallKind::MayChange | SopCallKind::DelegatesTests, SopPhase::Implement | SopPhase::Verify) => {
            true
        }
        (SopCallKind::DelegatesReading | SopCallKind::ExternalRead, _) => at != SopPhase::Complete,
        (SopCallKind::EngineTool | SopCallKind::MayChange | SopCallKind::DelegatesTests, _) => {
            at.allows_tool(tool)
        }
    };
    if may {
        return None;
    }
    let ends_by = at.ending_tool();
    let known =
        kind != SopCallKind::EngineTool || READ_TOOLS.iter().chain(&BUILD_TOOLS).any(|name| *name == tool);
    let card =
        [tools::PLAN_CARD, tools::DIFF_CARD, tools::REVIEW_REPORT, tools::COMPLETE_TASK].contains(&tool);
    Some(match at {
        _ if !known && !card => return None,
        SopPhase::Complete if run.engine_state.last_turn.is_some() => {
            format!("this is the last turn: only `{ends_by}` may be called")
        }
        SopPhase::Complete => format!("all gates have passed: only `{ends_by}` may be called"),
        _ if card => format!("the phase is `{at}`, which ends by `{ends_by}`; `{tool}` is not its time"),
        SopPhase::Understand | SopPhase::Plan | SopPhase::Review if kind == SopCallKind::DelegatesTests => {
            format!(
                "the phase is `{at}`, which runs nothing: give a piece away without `tests`, which is a line that is run"
            )
        }
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

/// Returns the reminder for a model that called no tool.
pub(super) fn idle_nudge(at: SopPhase) -> String {
    format!(
        "You called no tool, and words end nothing here. The phase is `{at}`: go on with its tools, and end it by \
         `{}`. If you cannot go on without a person, begin your answer with `BLOCKED:` and ask one precise question.",
        at.ending_tool()
    )
}

/// Returns the reminder for the active role in addition to its results, at the beginning of a phase or if something
/// must be fixed.
pub(super) fn phase_nudge(run: &RunState, at: SopPhase) -> Option<String> {
    let answered = run.engine_state.finished_calls.iter().any(|done| !done.tool.call.is_runtime());
    if let (SopPhase::Complete, Some((_, reason))) = (at, &run.engine_state.last_turn) {
        return Some(format!(
            "This is your last turn: {reason}. What was changed is kept as it is. Call `{}` now, and nothing else: say \
             what is done, what is left, and how it stands.",
            at.ending_tool()
        ));
    }
    if answered {
        return None;
    }
    if let Some(problem) = &run.engine_state.problem {
        return Some(format!("{problem}\nMend that, then call `{}`.", at.ending_tool()));
    }
    // A new conversation's opening contains all of it.
    if run.transcript.sealed_entries().is_empty() {
        return None;
    }
    match at {
        SopPhase::Understand | SopPhase::Plan | SopPhase::Verify => None,
        SopPhase::Implement => {
            Some(format!("You may change files again. When the change is made, call `{}`.", at.ending_tool()))
        }
        SopPhase::Review => Some(format!(
            "The checks are through. The change is small: review it yourself. You may only read now. What may go wrong \
             with it, for whom, and what is not tested? Hand that in by `{}`.",
            at.ending_tool()
        )),
        SopPhase::Complete => Some(format!(
            "All gates have passed. Call `{}` with a summary for people: what was changed and why. Nothing else may \
             be called.",
            at.ending_tool()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enumerated in full, as the modes are specified.
    #[test]
    fn each_phase_allows_only_its_tools() {
        let all = READ_TOOLS.iter().chain(&BUILD_TOOLS).copied();
        let cards = [tools::PLAN_CARD, tools::DIFF_CARD, tools::REVIEW_REPORT, tools::COMPLETE_TASK];
        for phase in SopPhase::ALL {
            let may: Vec<&str> = all.clone().chain(cards).filter(|tool| phase.allows_tool(tool)).collect();
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
    fn denial_reason_names_the_next_step() {
        let run = RunState::default();
        use SopCallKind::{DelegatesReading, DelegatesTests, EngineTool, ExternalRead, MayChange};
        for (phase, tool, words) in [
            (SopPhase::Plan, "create_file", "there is no PlanCard yet"),
            (SopPhase::Plan, "run_command", "nothing is written or run"),
            (SopPhase::Plan, "complete_task", "ends by `plan_card`"),
            (SopPhase::Implement, "complete_task", "ends by `diff_card`"),
            (SopPhase::Review, "edit_file", "review mode only reads"),
            (SopPhase::Complete, "read_file", "only `complete_task`"),
        ] {
            let told = denial_reason(&run, phase, (tool, EngineTool));
            assert!(told.as_ref().is_some_and(|told| told.contains(words)), "{phase} {tool}: {told:?}");
        }
        for phase in [SopPhase::Plan, SopPhase::Review] {
            let told = denial_reason(&run, phase, (tools::DELEGATE, DelegatesTests));
            assert!(told.as_ref().is_some_and(|told| told.contains("without `tests`")), "{phase}: {told:?}");
        }
        // A name of no tool is reported as unknown elsewhere.
        assert_eq!(denial_reason(&run, SopPhase::Plan, ("make_coffee", EngineTool)), None);
        // Calls that may change something belong to the phases that build: an MCP tool, and a delegated task. Calls
        // that only ask or read are allowed in all phases but the last.
        for (phase, may) in [
            (SopPhase::Plan, false),
            (SopPhase::Implement, true),
            (SopPhase::Verify, true),
            (SopPhase::Review, false),
            (SopPhase::Complete, false),
        ] {
            for call in [
                ("mcp__notes__note", MayChange),
                (tools::DELEGATE, MayChange),
                (tools::DELEGATE, DelegatesTests),
            ] {
                assert_eq!(denial_reason(&run, phase, call).is_none(), may, "{phase} {call:?}");
            }
            for call in [(tools::DELEGATE, DelegatesReading), ("mcp__notes__count", ExternalRead)] {
                let told = denial_reason(&run, phase, call);
                assert_eq!(told.is_none(), phase != SopPhase::Complete, "{phase}: {told:?}");
            }
        }
    }
}
