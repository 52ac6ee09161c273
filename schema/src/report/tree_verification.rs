//! Verification state of a run's tree: what was tested and checked in which state, and what failed before it
//! was touched.
//!
//! A result is about the tree at that time. It is valid until anything changes, by whomever; an outdated
//! result is discarded and nothing is concluded from it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    content::WorkspacePath,
    ids::Turn,
    message::{CallId, ToolUse},
    run::{
        BaseChecked, ChangeAttribution, EngineFact, GateFinished, RunEvent, RunOutcome, SnapshotTaken,
        ToolFinished, ToolStatus, tool_uses,
    },
    tool::{LintStatus, ToolFacts},
};

const TESTS_CHECK: &str = "tests";
const REQUIRES_CHECK: &str = "requires";
const SYNTAX_CHECK: &str = "syntax";
/// Checks that show whether the tree builds. Tests do as well: what they cannot collect or compile is an
/// error.
const BUILD_CHECKS: [&str; 2] = ["build", SYNTAX_CHECK];

/// Which tests failed before the run changed anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum BaselineTests {
    /// They were not run.
    #[default]
    Unknown,
    /// None failed.
    NoneFailed,
    /// These failed.
    FailedNamed(BTreeSet<String>),
    /// Some failed, and not all their names are known.
    FailedUnnamed,
}

/// A test run.
#[derive(Debug, Clone)]
struct TestRun {
    passed: bool,
    /// Whether it ran all tests.
    is_full_suite: bool,
    /// Names of the failed tests, if every failure has one.
    failing: Option<BTreeSet<String>>,
    /// Whether some tests could not be run.
    errors: bool,
    /// Whether files lost their tests.
    tests_removed: bool,
}

impl TestRun {
    /// Returns `None` if nothing was tested: no runner, or no test.
    fn from_facts(facts: &ToolFacts, passed: bool, whole: bool) -> Option<Self> {
        if facts.not_run.is_some() || facts.tests.is_some_and(|tests| tests.total() == 0) {
            return None;
        }
        let failed = facts.tests.map_or(0, |tests| tests.failed.saturating_add(tests.errors));
        let named = !passed && failed > 0 && facts.failing.len() == failed as usize && !facts.timed_out;
        Some(Self {
            passed,
            is_full_suite: whole,
            failing: named.then(|| facts.failing.iter().cloned().collect()),
            errors: facts.tests.is_some_and(|tests| tests.errors > 0),
            tests_removed: !facts.removed_tests.is_empty(),
        })
    }

    /// Creates the result of a check that ran before the run and no longer does: a failure without names.
    fn from_lost_check(facts: &ToolFacts) -> Self {
        let removed = !facts.removed_tests.is_empty();
        Self { passed: false, is_full_suite: true, failing: None, errors: true, tests_removed: removed }
    }

    fn to_baseline(&self) -> BaselineTests {
        match &self.failing {
            _ if self.passed => BaselineTests::NoneFailed,
            Some(names) => BaselineTests::FailedNamed(names.clone()),
            None => BaselineTests::FailedUnnamed,
        }
    }

    /// Whether a test fails that did not fail before; `None` if unknown.
    fn has_new_failures(&self, before: &BaselineTests) -> Option<bool> {
        if self.passed {
            return Some(false);
        }
        match (before, &self.failing) {
            (BaselineTests::Unknown | BaselineTests::FailedUnnamed, _)
            | (BaselineTests::FailedNamed(_), None) => None,
            (BaselineTests::NoneFailed, _) => Some(true),
            (BaselineTests::FailedNamed(then), Some(now)) => Some(!now.is_subset(then)),
        }
    }
}

/// Whether work that was reported done had to be edited again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum ReworkState {
    /// No check has judged the work.
    #[default]
    Unjudged,
    /// No rework was needed.
    No,
    /// Rework was needed for something that may have existed before the run.
    Unclear,
    /// Rework was needed.
    Yes,
}

/// Tracks the verification state. See the module documentation.
#[derive(Debug, Clone, Default)]
pub(super) struct TreeVerification {
    calls: BTreeMap<CallId, ToolUse>,
    gates: BTreeMap<CallId, String>,
    attribution: ChangeAttribution,
    baseline: BaselineTests,
    baseline_checks: BTreeMap<String, bool>,
    changed: bool,
    /// Whether a command ran since the last snapshot; it may have changed the tree.
    command_ran: bool,
    /// Paths reported as changed since the last snapshot.
    reported_paths: BTreeSet<WorkspacePath>,
    tests: Option<TestRun>,
    /// Other checks of the current tree.
    checks: BTreeMap<String, bool>,
    /// Whether a check has judged the current tree.
    judged: bool,
    open_checks: u32,
    /// What the last round sent back.
    sent_back: ReworkState,
    rework: ReworkState,
}

impl TreeVerification {
    /// Returns the call that a result belongs to.
    pub(super) fn tool_call(&self, call: &CallId) -> Option<&ToolUse> {
        self.calls.get(call)
    }

    /// Applies the next event. Returns whether it changed the tree.
    pub(super) fn apply_event(&mut self, turn: Turn, event: &RunEvent) -> bool {
        let by_person = self.attribution.attribute_event(event).is_some();
        if let RunEvent::ModelAnswered(answered) = event {
            self.calls.clear();
            self.calls.extend(tool_uses(&answered.parts).map(|tool| (tool.call.clone(), tool.clone())));
        } else if let RunEvent::Concluded(concluded) = event {
            // Calls that the runtime makes itself are not part of an answer.
            for fact in &concluded.facts {
                if let EngineFact::Calls { calls } = fact {
                    self.calls.extend(calls.iter().map(|tool| (tool.call.clone(), tool.clone())));
                }
            }
        } else if let RunEvent::ToolFinished(finished) = event {
            return self.record_tool_result(finished);
        } else if let RunEvent::BaseChecked(checked) = event {
            self.record_baseline(checked);
        } else if let RunEvent::GateRequested(asked) = event {
            self.gates.insert(asked.call.clone(), asked.gate.name.clone());
            if asked.step.is_check() {
                if self.open_checks == 0 {
                    self.sent_back = ReworkState::Unjudged;
                }
                self.open_checks += 1;
            }
        } else if let RunEvent::GateFinished(finished) = event {
            self.record_gate_result(finished);
        } else if let RunEvent::SnapshotTaken(snapshot) = event {
            return self.record_snapshot(turn, snapshot, by_person);
        } else if let RunEvent::RunEnded(ended) = event
            && matches!(ended.result, RunOutcome::Failed { .. })
        {
            // It had to be edited again, but there was no turn left.
            self.rework = self.rework.max(self.sent_back);
        }
        false
    }

    fn record_baseline(&mut self, event: &BaseChecked) {
        // Lint results for the whole project say little about the files that a run changes.
        if self.changed || event.gate.is_linter() {
            return;
        }
        if event.gate.name == TESTS_CHECK {
            self.baseline = TestRun::from_facts(&event.facts, event.passed, true)
                .map_or(BaselineTests::Unknown, |tests| tests.to_baseline());
        } else {
            self.baseline_checks.insert(event.gate.name.clone(), event.passed);
        }
    }

    fn record_tool_result(&mut self, event: &ToolFinished) -> bool {
        let facts = &event.facts;
        let tool = self.calls.get(&event.call);
        let is_tests = tool.is_some_and(|tool| tool.name == "run_tests") && event.status == ToolStatus::Ok;
        let whole =
            tool.is_some_and(|tool| tool.args.get("test_path").is_none_or(serde_json::Value::is_null));
        if !facts.changed.is_empty() {
            self.reported_paths.extend(facts.changed.iter().cloned());
            self.record_edit();
        }
        if is_tests {
            let failed = facts.tests.is_some_and(|tests| tests.failed.saturating_add(tests.errors) > 0);
            let passed = facts.exit == Some(0) && !failed;
            if let Some(tests) = TestRun::from_facts(facts, passed, whole) {
                if whole && !self.changed && !self.command_ran {
                    self.baseline = tests.to_baseline();
                }
                self.tests = Some(tests);
            }
            // Anything earlier commands left was there when the tests ran.
            self.changed |= self.command_ran;
            self.command_ran = false;
        } else if facts.may_have_changed_tree {
            self.command_ran = true;
        }
        !facts.changed.is_empty()
    }

    /// Records that the run itself changed the tree.
    fn record_edit(&mut self) {
        self.rework = self.rework.max(self.sent_back);
        self.sent_back = ReworkState::Unjudged;
        self.discard_results();
    }

    fn discard_results(&mut self) {
        self.changed = true;
        self.tests = None;
        self.checks.clear();
        self.judged = false;
    }

    fn record_snapshot(&mut self, turn: Turn, event: &SnapshotTaken, by_person: bool) -> bool {
        let (commands, told) =
            (std::mem::take(&mut self.command_ran), std::mem::take(&mut self.reported_paths));
        let others = event.changes.iter().any(|change| !told.contains(&change.path));
        // Setup output comes before the first turn; leftovers of tests and checks do not affect their
        // results.
        if turn == Turn(0) || !others {
            return false;
        }
        if by_person {
            self.discard_results();
            return true;
        }
        if commands {
            self.record_edit();
        }
        commands
    }

    fn record_gate_result(&mut self, event: &GateFinished) {
        let facts = &event.facts;
        if !event.step.is_check() {
            // An automatic fix by docket: not the model's work, and the checks run again after it.
            if !facts.changed.is_empty() {
                self.reported_paths.extend(facts.changed.iter().cloned());
                self.discard_results();
            }
            return;
        }
        self.open_checks = self.open_checks.saturating_sub(1);
        let Some(name) = self.gates.remove(&event.call) else { return };
        let absent = facts.lint.iter().any(|seen| seen.status == LintStatus::Missing);
        if absent {
            return;
        }
        let sent_back = if name == TESTS_CHECK {
            let lost = facts.not_run.is_some() && self.baseline != BaselineTests::Unknown;
            let lost = lost.then(|| TestRun::from_lost_check(facts));
            let Some(tests) = lost.or_else(|| TestRun::from_facts(facts, event.passed, true)) else {
                // Nothing is known about the current tree.
                self.tests = None;
                return;
            };
            let adds = tests.has_new_failures(&self.baseline);
            self.tests = Some(tests);
            adds
        } else {
            let is_own = matches!(name.as_str(), REQUIRES_CHECK | SYNTAX_CHECK)
                || self.baseline_checks.get(&name) == Some(&true);
            self.checks.insert(name, event.passed);
            if event.passed { Some(false) } else { is_own.then_some(true) }
        };
        self.judged = true;
        self.rework = self.rework.max(ReworkState::No);
        let sent_back = match sent_back {
            Some(false) => ReworkState::No,
            None => ReworkState::Unclear,
            Some(true) => ReworkState::Yes,
        };
        self.sent_back = self.sent_back.max(sent_back);
    }

    /// Returns the check that a result belongs to.
    pub(super) fn gate_name(&self, call: &CallId) -> Option<&str> {
        self.gates.get(call).map(String::as_str)
    }

    /// Whether a check judged the current tree.
    pub(super) const fn is_judged(&self) -> bool {
        self.judged
    }

    /// Returns whether the work had to be edited again.
    pub(super) const fn rework_state(&self) -> ReworkState {
        self.rework
    }

    /// Whether the last tests of the current tree passed, apart from failures that existed before the run.
    pub(super) fn tests_pass(&self) -> Option<bool> {
        let tests = self.tests.as_ref()?;
        let excused = matches!(self.baseline, BaselineTests::FailedNamed(_))
            && tests.has_new_failures(&self.baseline) == Some(false);
        Some(tests.passed || excused)
    }

    /// Whether a test fails now that did not fail before.
    pub(super) fn has_regression(&self) -> Option<bool> {
        let tests = self.tests.as_ref().filter(|tests| tests.is_full_suite && !tests.tests_removed)?;
        tests.has_new_failures(&self.baseline)
    }

    /// Whether the tree builds, if the run changed it.
    pub(super) fn build_passes(&self) -> Option<bool> {
        let checks = BUILD_CHECKS.iter().filter_map(|name| self.checks.get(*name).copied());
        let tests = self.tests.as_ref().map(|tests| !tests.errors || self.tests_pass() == Some(true));
        let all: Vec<bool> = checks.chain(tests).collect();
        (self.changed && !all.is_empty()).then(|| all.iter().all(|builds| *builds))
    }
}
