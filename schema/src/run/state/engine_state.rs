//! The state of the engines that plan, review and hand over: the fold of the facts that they concluded. Pure.

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

/// The tool that runs a project's tests, by its name in a log.
const TEST_TOOL: &str = "run_tests";

/// A step that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedStep {
    /// Which, from 0.
    pub step: u32,
    /// Whether it did what it was for.
    pub success: bool,
    /// What it came to.
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
    /// What was answered.
    pub content: Content,
    /// A linter found something in what the call wrote.
    pub has_findings: bool,
    /// What the workspace differs in from its base, where that was looked at.
    pub changes: Option<WorkspaceChanges>,
}

/// A check of the last round that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedCheck {
    /// Its name.
    pub name: String,
    /// What it said.
    pub content: Content,
}

/// What of the work counts for no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitBaseline {
    corrections: u32,
    plans: u32,
    invalid: u32,
    role_starts: BTreeMap<String, u32>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoleEngineState {
    /// The role in hand; none = the engine has one conversation.
    pub role: Option<String>,
    /// What it is in hand for.
    pub about: String,
    /// How often each role was taken up.
    pub role_starts: BTreeMap<String, u32>,
    /// The plan in force.
    pub plan: Option<Vec<PlanStep>>,
    /// How many plans there were.
    pub plans: u32,
    /// How the steps of the plan in force ended; a step that was tried again more than once.
    pub finished_steps: Vec<FinishedStep>,
    /// The last judgement, while nothing was planned and no step ended after it.
    pub last_verdict: Option<(ReviewVerdict, String)>,
    /// How often a role was taken up since a plan was made or a step ended.
    pub tries: u32,
    /// How the last round of final checks ended, while nothing was done after it.
    pub checks_passed: Option<bool>,
    /// Answers in a row that could not be taken, of one kind, and what was wrong with the last.
    pub invalid_answers: u32,
    /// What was wrong with the last of them.
    pub problem: Option<String>,
    /// What a run that goes on from another had behind it when it began: its limits are its own.
    pub limit_baseline: LimitBaseline,
    /// Why the last plan was dropped, while no other was made.
    pub plan_drop_reason: Option<String>,
    /// The phase of a fixed procedure.
    pub phase: Option<String>,
    /// Artifacts by name, the last of each.
    pub artifacts: BTreeMap<String, serde_json::Value>,
    /// What each role answered last.
    pub answers: BTreeMap<String, serde_json::Value>,
    /// Words on files.
    pub summaries: BTreeMap<WorkspacePath, String>,
    /// Rounds of correction that an engine began.
    pub corrections: u32,
    /// Calls that ended since the model answered last, or since the runtime planned its own.
    pub finished_calls: Vec<FinishedCall>,
    /// Calls that the runtime made itself: their results are nobody's conversation.
    pub own_calls: u32,
    /// Commands of the role in hand that ended, since it was taken up.
    pub commands_ended: u32,
    /// Whether the role in hand, since it was taken up, ran the project's tests with the tool for that, and they passed
    /// the last time, and no file tool wrote after it.
    pub tests_passed: bool,
    /// Checks of the last round that failed.
    pub failed_checks: Vec<FailedCheck>,
    /// Checks of the last round that ended, in order.
    pub finished_checks: Vec<FinishedCheck>,
    /// Quality gates by name.
    pub quality_gates: BTreeMap<String, QualityGate>,
    /// The last turn there is, and why.
    pub last_turn: Option<(Turn, String)>,
    /// The phase that the last turn came in.
    pub last_turn_phase: Option<String>,
    /// Words of people that no model has read yet.
    pub unread_messages: Vec<Content>,
    /// What the role in hand said last, while no other was taken up.
    pub last_text: Option<Content>,
}

impl RoleEngineState {
    /// Steps of the plan in force that ended well.
    pub fn completed_steps(&self) -> usize {
        self.finished_steps.iter().filter(|end| end.success).count()
    }

    /// Rounds of correction that count for the limit of them.
    pub const fn counted_corrections(&self) -> u32 {
        self.corrections.saturating_sub(self.limit_baseline.corrections)
    }

    /// Plans that count for the limit of them.
    pub const fn counted_plans(&self) -> u32 {
        self.plans.saturating_sub(self.limit_baseline.plans)
    }

    /// Answers in a row that could not be taken and count for the limit of them.
    pub const fn counted_invalid_answers(&self) -> u32 {
        self.invalid_answers.saturating_sub(self.limit_baseline.invalid)
    }

    /// How often a role was taken up, as far as that counts for a limit.
    pub fn counted_role_starts(&self, role: &str) -> u32 {
        let of = |begun: &BTreeMap<String, u32>| begun.get(role).copied().unwrap_or_default();
        of(&self.role_starts).saturating_sub(of(&self.limit_baseline.role_starts))
    }

    /// A run that goes on from another has its limits before it again.
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

    /// What was to be its last turn stands where it came.
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
        // Whoever has no roles looks at none of these.
        if self.role.is_none() && !event.call.is_runtime() {
            return;
        }
        let (tool, status, exit) = (tool.clone(), event.status, event.facts.exit);
        if !event.call.is_runtime() {
            self.commands_ended += u32::from(exit.is_some());
            self.tests_passed = match tool.name.as_str() {
                TEST_TOOL => exit == Some(0) && event.facts.tests.is_none_or(|counts| counts.total() > 0),
                // What a command did is not known; whoever looked on by one runs the tests again.
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
                // Told once: what was wrong stands in no later result.
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
            // The state takes them up.
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
