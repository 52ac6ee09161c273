//! State of the engines that plan, review and hand over: the fold of their recorded facts. Pure.

use std::collections::BTreeMap;

use super::checks::quality_gate::{FinishedCheck, QualityGate};
use crate::run::events::{
    conclusion::{EngineFact, GateVerdict, PlanStep, ReviewVerdict},
    turn_events::{ToolFinished, ToolStatus},
};
use crate::{
    content::{Content, WorkspacePath},
    ids::Turn,
    message::ToolUse,
    tool::{LintStatus, WorkspaceChanges},
};

/// Name of the tool that runs a project's tests.
const TEST_TOOL: &str = "run_tests";

/// A finished step.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedStep {
    /// The step's index, starting at 0.
    pub step: u32,
    /// Whether it succeeded.
    pub success: bool,
    /// Its result.
    pub output: Content,
}

/// A call with its result.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedCall {
    /// The call.
    pub tool: ToolUse,
    /// How it ended.
    pub status: ToolStatus,
    /// A command's exit status.
    pub exit: Option<i32>,
    /// The result's content.
    pub content: Content,
    /// Whether a linter found something in what the call wrote.
    pub has_findings: bool,
    /// The workspace's changes relative to its base, if they were determined.
    pub changes: Option<WorkspaceChanges>,
}

/// A failed check of the last round.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedCheck {
    /// The check's name.
    pub name: String,
    /// Its output.
    pub content: Content,
}

/// Counts that are excluded from the limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitBaseline {
    corrections: u32,
    plans: u32,
    invalid: u32,
    role_starts: BTreeMap<String, u32>,
}

/// Role engine state. See the module documentation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoleEngineState {
    /// The current role; none if the engine has a single conversation.
    pub role: Option<String>,
    /// The purpose for which it was started.
    pub about: String,
    /// How many times each role was started.
    pub role_starts: BTreeMap<String, u32>,
    /// The current plan.
    pub plan: Option<Vec<PlanStep>>,
    /// Number of plans so far.
    pub plans: u32,
    /// Outcomes of the current plan's steps; a step that was repeated occurs more than once.
    pub finished_steps: Vec<FinishedStep>,
    /// The last verdict, until a new plan is made or a step ends.
    pub last_verdict: Option<(ReviewVerdict, String)>,
    /// How many times a role was started since a plan was made or a step ended.
    pub tries: u32,
    /// Whether the last round of final checks passed, until anything else is done.
    pub checks_passed: Option<bool>,
    /// Consecutive rejected replies of the same kind.
    pub invalid_answers: u32,
    /// What was wrong with the last of them.
    pub problem: Option<String>,
    /// The counts inherited by a run that continues another one, which are excluded from its limits.
    pub limit_baseline: LimitBaseline,
    /// Why the last plan was dropped, until another one is made.
    pub plan_drop_reason: Option<String>,
    /// The phase of a fixed procedure.
    pub phase: Option<String>,
    /// The latest artifact of each name.
    pub artifacts: BTreeMap<String, serde_json::Value>,
    /// Each role's last reply.
    pub answers: BTreeMap<String, serde_json::Value>,
    /// Summaries of files.
    pub summaries: BTreeMap<WorkspacePath, String>,
    /// Number of correction rounds started by an engine.
    pub corrections: u32,
    /// Calls finished since the model's last answer, or since the runtime planned its own.
    pub finished_calls: Vec<FinishedCall>,
    /// Number of calls made by the runtime itself; their results are not part of a conversation.
    pub own_calls: u32,
    /// Number of the current role's commands that finished since it was started.
    pub commands_ended: u32,
    /// Whether the current role ran the project's tests with the test tool, they passed the last time, and no
    /// file tool wrote anything since.
    pub tests_passed: bool,
    /// Failed checks of the last round.
    pub failed_checks: Vec<FailedCheck>,
    /// Finished checks of the last round, in order.
    pub finished_checks: Vec<FinishedCheck>,
    /// Quality gates by name.
    pub quality_gates: BTreeMap<String, QualityGate>,
    /// The last allowed turn, and the reason.
    pub last_turn: Option<(Turn, String)>,
    /// The phase in which the last turn was announced.
    pub last_turn_phase: Option<String>,
    /// Messages from people that no model has read yet.
    pub unread_messages: Vec<Content>,
    /// The current role's last text, until another role starts.
    pub last_text: Option<Content>,
}

impl RoleEngineState {
    /// Returns the number of successful steps of the current plan.
    pub fn completed_steps(&self) -> usize {
        self.finished_steps.iter().filter(|end| end.success).count()
    }

    /// Returns the number of correction rounds that count toward the limit.
    pub const fn counted_corrections(&self) -> u32 {
        self.corrections.saturating_sub(self.limit_baseline.corrections)
    }

    /// Returns the number of plans that count toward the limit.
    pub const fn counted_plans(&self) -> u32 {
        self.plans.saturating_sub(self.limit_baseline.plans)
    }

    /// Returns the number of consecutive rejected replies that count toward the limit.
    pub const fn counted_invalid_answers(&self) -> u32 {
        self.invalid_answers.saturating_sub(self.limit_baseline.invalid)
    }

    /// Returns the number of starts of a role that count toward the limit.
    pub fn counted_role_starts(&self, role: &str) -> u32 {
        let of = |begun: &BTreeMap<String, u32>| begun.get(role).copied().unwrap_or_default();
        of(&self.role_starts).saturating_sub(of(&self.limit_baseline.role_starts))
    }

    /// Resets the counts for a run that continues another one.
    pub(in crate::run) fn reset_limit_counts(&mut self) {
        self.limit_baseline = LimitBaseline {
            corrections: self.corrections,
            plans: self.plans,
            invalid: self.invalid_answers,
            role_starts: self.role_starts.clone(),
        };
        self.quality_gates.values_mut().for_each(|gate| gate.forgiven = gate.failed);
        self.clear_last_turn();
    }

    /// Removes the announcement of a last turn.
    fn clear_last_turn(&mut self) {
        if self.last_turn.take().is_some() {
            self.phase = self.last_turn_phase.take();
            self.finished_calls.clear();
        }
    }

    pub(in crate::run) fn record_answer(&mut self, text: Option<Content>) {
        self.last_text = text;
        self.finished_calls.clear();
    }

    pub(in crate::run) fn record_tool_result(&mut self, tool: &ToolUse, event: &ToolFinished) {
        // Engines without roles use none of this.
        if self.role.is_none() && !event.call.is_runtime() {
            return;
        }
        let (tool, status, exit) = (tool.clone(), event.status, event.facts.exit);
        if !event.call.is_runtime() {
            self.commands_ended += u32::from(exit.is_some());
            self.tests_passed = match tool.name.as_str() {
                TEST_TOOL => exit == Some(0) && event.facts.tests.is_none_or(|counts| counts.total() > 0),
                // The effect of a command is unknown, so tests must be run again.
                _ => {
                    self.tests_passed && event.facts.changed.is_empty() && !event.facts.may_have_changed_tree
                }
            };
        }
        let findings = event.facts.lint.iter().any(|seen| seen.status == LintStatus::Findings);
        let (content, changes) = (event.content.clone(), event.facts.diff.clone());
        self.finished_calls.push(FinishedCall {
            tool,
            status,
            exit,
            content,
            has_findings: findings,
            changes,
        });
    }

    pub(in crate::run) fn apply_fact(&mut self, fact: EngineFact) {
        match fact {
            EngineFact::Planned { steps } => {
                self.plan = Some(steps);
                self.plans += 1;
                self.finished_steps.clear();
                self.finished_calls.clear();
                self.tries = 0;
                self.checks_passed = None;
                self.plan_drop_reason = None;
                self.last_verdict = None;
                self.reset_invalid_answers();
            }
            EngineFact::Invalid { problem, .. } => {
                self.invalid_answers += 1;
                self.problem = Some(problem);
                // Reported once: later results do not repeat the problem.
                self.finished_calls.clear();
            }
            EngineFact::StepEnded { step, success, output } => {
                self.finished_steps.push(FinishedStep { step, success, output });
                self.finished_calls.clear();
                self.tries = 0;
                self.checks_passed = None;
                self.last_verdict = None;
                self.reset_invalid_answers();
            }
            EngineFact::Judged { verdict, reason } => {
                self.last_verdict = Some((verdict, reason));
                self.reset_invalid_answers();
            }
            EngineFact::PlanDropped { reason } => {
                self.plan = None;
                self.tries = 0;
                self.checks_passed = None;
                self.plan_drop_reason = Some(reason);
                self.last_verdict = None;
            }
            EngineFact::PhaseBegan { phase } => {
                self.phase = Some(phase);
                self.reset_invalid_answers();
            }
            EngineFact::Artifact { name, content } => {
                self.artifacts.insert(name, content);
                self.reset_invalid_answers();
            }
            EngineFact::Answered { role, content } => {
                self.answers.insert(role, content);
                self.reset_invalid_answers();
            }
            EngineFact::Summarized { path, text } => {
                self.summaries.insert(path, text);
            }
            // The run's state handles these.
            EngineFact::Calls { .. } => {
                self.finished_calls.clear();
                self.checks_passed = None;
            }
            EngineFact::Correcting { .. } => self.corrections += 1,
            EngineFact::QualityGate { gate, verdict, reason } => {
                self.record_quality_gate(gate, verdict, reason)
            }
            EngineFact::LastTurn { turn, reason } => {
                self.last_turn = Some((turn, reason));
                self.last_turn_phase = self.phase.clone();
                self.finished_calls.clear();
            }
        }
    }

    fn record_quality_gate(&mut self, gate: String, verdict: GateVerdict, reason: String) {
        let (before, forgiven) =
            self.quality_gates.get(&gate).map_or((0, 0), |gate| (gate.failed, gate.forgiven));
        let failed = before + u32::from(verdict == GateVerdict::Failed);
        match verdict {
            GateVerdict::Failed => self.problem = Some(reason.clone()),
            GateVerdict::Passed | GateVerdict::Excused | GateVerdict::Unverified => {
                self.reset_invalid_answers()
            }
        }
        self.quality_gates.insert(gate, QualityGate { verdict, reason, failed, forgiven });
        self.finished_calls.clear();
    }

    fn reset_invalid_answers(&mut self) {
        self.invalid_answers = 0;
        self.limit_baseline.invalid = 0;
        self.problem = None;
    }
}
