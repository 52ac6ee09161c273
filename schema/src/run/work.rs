//! What the engines that plan, review and hand over have come to: facts that they concluded from what was said and
//! done, and the fold of them. Pure.
//!
//! A fact follows from the log before it; it is recorded nevertheless, for it is what people ask for: the plan, how each
//! step ended, the verdict. Engine-neutral: what an engine makes of them is its own.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    event_work::{ToolFinished, ToolStatus},
    quality::{CheckEnd, GateVerdict, QualityGate},
};
use crate::{
    artifact::Changes,
    content::{Content, WorkPath},
    ids::{DecisionHash, Turn},
    message::ToolUse,
    tool::LintStatus,
};

/// The tool that runs a project's tests, by its name in a log.
const RUNS_TESTS: &str = "run_tests";

/// An engine concluded something from what is recorded. It decides by that from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Concluded {
    /// What, in order.
    pub facts: Vec<Fact>,
    /// The decision.
    pub decision: DecisionHash,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "fact")]
pub enum Fact {
    /// There is a plan; it takes the place of any before.
    Planned {
        /// Its steps, in order; empty where nothing is left to do.
        steps: Vec<PlanStep>,
    },
    /// A structured answer cannot be taken.
    Invalid {
        /// What it was to be: `plan`, `verdict`, an artifact's name.
        what: String,
        /// What is wrong with it, as the model is told.
        problem: String,
    },
    /// The step in hand ended.
    StepEnded {
        /// Which, from 0.
        step: u32,
        /// Whether it did what it was for.
        success: bool,
        /// What it came to.
        output: Content,
    },
    /// A judgement of the work.
    Judged {
        /// What follows.
        verdict: Judgement,
        /// Why.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The plan is dropped, and why: a new one follows.
    PlanDropped {
        /// Why.
        reason: String,
    },
    /// A phase of a fixed procedure begins.
    PhaseBegan {
        /// Its name.
        phase: String,
    },
    /// A result that somebody can read without the log.
    Artifact {
        /// `PlanCard`, `DiffCard` …
        name: String,
        /// What it holds, checked against its schema.
        content: serde_json::Value,
    },
    /// What a role answered, checked against its schema.
    Answered {
        /// The role.
        role: String,
        /// What it answered.
        content: serde_json::Value,
    },
    /// A few words on a file, for whoever changes it next.
    Summarized {
        /// The file.
        path: WorkPath,
        /// The words.
        text: String,
    },
    /// Tools that the runtime itself calls, in place of a model: to be run next, in order.
    Calls {
        /// The calls.
        calls: Vec<ToolUse>,
    },
    /// A round of correction begins.
    Correcting {
        /// What is to be corrected.
        reason: String,
    },
    /// A quality gate between two phases was looked at.
    QualityGate {
        /// Its name.
        gate: String,
        /// What it came to.
        verdict: GateVerdict,
        /// By what, in a line.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// A limit is near: one turn is left, to end the work in.
    LastTurn {
        /// That turn.
        turn: Turn,
        /// Which limit, and where the work stood.
        reason: String,
    },
}

impl Fact {
    /// Text that may lie out of line.
    pub const fn content(&self) -> Option<&Content> {
        match self {
            Self::StepEnded { output, .. } => Some(output),
            Self::Planned { .. }
            | Self::Invalid { .. }
            | Self::Judged { .. }
            | Self::PlanDropped { .. }
            | Self::PhaseBegan { .. }
            | Self::Artifact { .. }
            | Self::Answered { .. }
            | Self::Summarized { .. }
            | Self::Calls { .. }
            | Self::Correcting { .. }
            | Self::QualityGate { .. }
            | Self::LastTurn { .. } => None,
        }
    }
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanStep {
    /// What is to be done, for whoever does it.
    pub text: String,
    /// What it is.
    #[serde(default, skip_serializing_if = "StepKind::is_free")]
    pub kind: StepKind,
}

/// What a step is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum StepKind {
    /// Whatever its words say.
    #[default]
    Free,
    /// One file is made or changed.
    Edit {
        /// The file.
        path: WorkPath,
        /// What whoever changes it should know.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        hints: String,
    },
    /// A command is run.
    Command {
        /// The shell line.
        command: String,
        /// What is expected of it: `pass`, `fail`, or words; empty = `pass`.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        expect: String,
    },
    /// Tests are run.
    Tests {
        /// Which; none = all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
    },
    /// Words for people.
    Message,
}

impl StepKind {
    /// Whether nothing is said of it.
    pub const fn is_free(&self) -> bool {
        matches!(self, Self::Free)
    }
}

/// What follows from a judgement of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// The next step.
    Continue,
    /// The goal another way.
    Retry,
    /// From the beginning.
    Replan,
    /// Nothing: the goal is reached.
    Finish,
}

impl Judgement {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Retry => "retry",
            Self::Replan => "replan",
            Self::Finish => "finish",
        }
    }
}

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
    pub(super) fn counts_anew(&mut self) {
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

    pub(super) fn answered(&mut self, text: Option<Content>) {
        self.said = text;
        self.done.clear();
    }

    pub(super) fn finished(&mut self, tool: &ToolUse, event: &ToolFinished) {
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

    pub(super) fn take(&mut self, fact: Fact) {
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
