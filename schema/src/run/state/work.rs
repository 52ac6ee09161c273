//! The state of the engines that plan, review and hand over: the fold of the facts that they concluded. Pure.

use std::collections::BTreeMap;

use super::checks::quality::{CheckEnd, QualityGate};
use crate::run::events::{
    conclusion::{Fact, GateVerdict, Judgement, PlanStep},
    work::{ToolFinished, ToolStatus},
};
use crate::{
    content::{Content, WorkPath},
    ids::Turn,
    message::ToolUse,
    tool::{Changes, LintStatus},
};

/// The tool that runs a project's tests, by its name in a log.
const RUNS_TESTS: &str = "run_tests";

/// A step that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEnd {
    /// Which, from 0.
    pub step: u32,
    /// Whether it did what it was for.
    pub success: bool,
    /// What it came to.
    pub output: Content,
}

/// A call with its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The call.
    pub tool: ToolUse,
    /// How it ended.
    pub status: ToolStatus,
    /// A command's exit status.
    pub exit: Option<i32>,
    /// What was answered.
    pub content: Content,
    /// A linter found something in what the call wrote.
    pub findings: bool,
    /// What the workspace differs in from its base, where that was looked at.
    pub changes: Option<Changes>,
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
pub struct WorkBefore {
    corrections: u32,
    plans: u32,
    invalid: u32,
    roles_begun: BTreeMap<String, u32>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Work {
    /// The role in hand; none = the engine has one conversation.
    pub role: Option<String>,
    /// What it is in hand for.
    pub about: String,
    /// How often each role was taken up.
    pub roles_begun: BTreeMap<String, u32>,
    /// The plan in force.
    pub plan: Option<Vec<PlanStep>>,
    /// How many plans there were.
    pub plans: u32,
    /// How the steps of the plan in force ended; a step that was tried again more than once.
    pub ended: Vec<StepEnd>,
    /// The last judgement, while nothing was planned and no step ended after it.
    pub judged: Option<(Judgement, String)>,
    /// How often a role was taken up since a plan was made or a step ended.
    pub tries: u32,
    /// How the last round of final checks ended, while nothing was done after it.
    pub checked: Option<bool>,
    /// Answers in a row that could not be taken, of one kind, and what was wrong with the last.
    pub invalid: u32,
    /// What was wrong with the last of them.
    pub problem: Option<String>,
    /// What a run that goes on from another had behind it when it began: its limits are its own.
    pub before: WorkBefore,
    /// Why the last plan was dropped, while no other was made.
    pub dropped: Option<String>,
    /// The phase of a fixed procedure.
    pub phase: Option<String>,
    /// Artifacts by name, the last of each.
    pub artifacts: BTreeMap<String, serde_json::Value>,
    /// What each role answered last.
    pub answers: BTreeMap<String, serde_json::Value>,
    /// Words on files.
    pub summaries: BTreeMap<WorkPath, String>,
    /// Rounds of correction that an engine began.
    pub corrections: u32,
    /// Calls that ended since the model answered last, or since the runtime planned its own.
    pub done: Vec<Done>,
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
    pub checks: Vec<CheckEnd>,
    /// Quality gates by name.
    pub quality: BTreeMap<String, QualityGate>,
    /// The last turn there is, and why.
    pub last_turn: Option<(Turn, String)>,
    /// The phase that the last turn came in.
    pub last_turn_in: Option<String>,
    /// Words of people that no model has read yet.
    pub heard: Vec<Content>,
    /// What the role in hand said last, while no other was taken up.
    pub said: Option<Content>,
}

impl Work {
    /// Steps of the plan in force that ended well.
    pub fn steps_done(&self) -> usize {
        self.ended.iter().filter(|end| end.success).count()
    }

    /// Rounds of correction that count for the limit of them.
    pub const fn corrections_counted(&self) -> u32 {
        self.corrections.saturating_sub(self.before.corrections)
    }

    /// Plans that count for the limit of them.
    pub const fn plans_counted(&self) -> u32 {
        self.plans.saturating_sub(self.before.plans)
    }

    /// Answers in a row that could not be taken and count for the limit of them.
    pub const fn invalid_counted(&self) -> u32 {
        self.invalid.saturating_sub(self.before.invalid)
    }

    /// How often a role was taken up, as far as that counts for a limit.
    pub fn begun_counted(&self, role: &str) -> u32 {
        let of = |begun: &BTreeMap<String, u32>| begun.get(role).copied().unwrap_or_default();
        of(&self.roles_begun).saturating_sub(of(&self.before.roles_begun))
    }

    /// A run that goes on from another has its limits before it again.
    pub(in crate::run) fn counts_anew(&mut self) {
        self.before = WorkBefore {
            corrections: self.corrections,
            plans: self.plans,
            invalid: self.invalid,
            roles_begun: self.roles_begun.clone(),
        };
        self.quality.values_mut().for_each(|gate| gate.forgiven = gate.failed);
        self.has_turns_again();
    }

    /// What was to be its last turn stands where it came.
    fn has_turns_again(&mut self) {
        if self.last_turn.take().is_some() {
            self.phase = self.last_turn_in.take();
            self.done.clear();
        }
    }

    pub(in crate::run) fn answered(&mut self, text: Option<Content>) {
        self.said = text;
        self.done.clear();
    }

    pub(in crate::run) fn finished(&mut self, tool: &ToolUse, event: &ToolFinished) {
        // Whoever has no roles looks at none of these.
        if self.role.is_none() && !event.call.is_own() {
            return;
        }
        let (tool, status, exit) = (tool.clone(), event.status, event.facts.exit);
        if !event.call.is_own() {
            self.commands_ended += u32::from(exit.is_some());
            self.tests_passed = match tool.name.as_str() {
                RUNS_TESTS => exit == Some(0) && event.facts.tests.is_none_or(|counts| counts.total() > 0),
                // What a command did is not known; whoever looked on by one runs the tests again.
                _ => {
                    self.tests_passed && event.facts.changed.is_empty() && !event.facts.may_have_changed_tree
                }
            };
        }
        let findings = event.facts.lint.iter().any(|seen| seen.status == LintStatus::Findings);
        let (content, changes) = (event.content.clone(), event.facts.diff.clone());
        self.done.push(Done { tool, status, exit, content, findings, changes });
    }

    pub(in crate::run) fn take(&mut self, fact: Fact) {
        match fact {
            Fact::Planned { steps } => {
                self.plan = Some(steps);
                self.plans += 1;
                self.ended.clear();
                self.done.clear();
                self.tries = 0;
                self.checked = None;
                self.dropped = None;
                self.judged = None;
                self.valid();
            }
            Fact::Invalid { problem, .. } => {
                self.invalid += 1;
                self.problem = Some(problem);
                // Told once: what was wrong stands in no later result.
                self.done.clear();
            }
            Fact::StepEnded { step, success, output } => {
                self.ended.push(StepEnd { step, success, output });
                self.done.clear();
                self.tries = 0;
                self.checked = None;
                self.judged = None;
                self.valid();
            }
            Fact::Judged { verdict, reason } => {
                self.judged = Some((verdict, reason));
                self.valid();
            }
            Fact::PlanDropped { reason } => {
                self.plan = None;
                self.tries = 0;
                self.checked = None;
                self.dropped = Some(reason);
                self.judged = None;
            }
            Fact::PhaseBegan { phase } => {
                self.phase = Some(phase);
                self.valid();
            }
            Fact::Artifact { name, content } => {
                self.artifacts.insert(name, content);
                self.valid();
            }
            Fact::Answered { role, content } => {
                self.answers.insert(role, content);
                self.valid();
            }
            Fact::Summarized { path, text } => {
                self.summaries.insert(path, text);
            }
            // The state takes them up.
            Fact::Calls { .. } => {
                self.done.clear();
                self.checked = None;
            }
            Fact::Correcting { .. } => self.corrections += 1,
            Fact::QualityGate { gate, verdict, reason } => self.gated(gate, verdict, reason),
            Fact::LastTurn { turn, reason } => {
                self.last_turn = Some((turn, reason));
                self.last_turn_in = self.phase.clone();
                self.done.clear();
            }
        }
    }

    fn gated(&mut self, gate: String, verdict: GateVerdict, reason: String) {
        let (before, forgiven) = self.quality.get(&gate).map_or((0, 0), |gate| (gate.failed, gate.forgiven));
        let failed = before + u32::from(verdict == GateVerdict::Failed);
        match verdict {
            GateVerdict::Failed => self.problem = Some(reason.clone()),
            GateVerdict::Passed | GateVerdict::Excused | GateVerdict::Unverified => self.valid(),
        }
        self.quality.insert(gate, QualityGate { verdict, reason, failed, forgiven });
        self.done.clear();
    }

    fn valid(&mut self) {
        self.invalid = 0;
        self.before.invalid = 0;
        self.problem = None;
    }
}
