//! How a run's tree stands: what was tested and checked, on which state of it, and what failed before it was touched.
//!
//! A result speaks of the tree as it was. It counts while nothing has changed since, by whatever hand; a result that
//! something followed is forgotten, and nothing is concluded from it.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    content::WorkPath,
    ids::Turn,
    message::{CallId, ToolUse},
    run::{
        BaseChecked, Fact, GateFinished, Hands, RunEvent, RunOutcome, SnapshotTaken, ToolFinished,
        ToolStatus, calls_of,
    },
    tool::{LintStatus, ToolFacts},
};

const TESTS: &str = "tests";
const REQUIRES: &str = "requires";
const SYNTAX: &str = "syntax";
/// Checks that tell whether the tree builds. Tests do as well: what they cannot collect or compile is an error.
const BUILDS: [&str; 2] = ["build", SYNTAX];

/// Which tests failed before the run changed anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Before {
    /// Nobody ran them then.
    #[default]
    Unknown,
    /// None.
    None,
    /// These.
    These(BTreeSet<String>),
    /// Some, and not all their names are known.
    Some,
}

/// A run of tests.
#[derive(Debug, Clone)]
struct Tests {
    passed: bool,
    /// All there are, and not some of them.
    whole: bool,
    /// Names of those that failed, where each has one.
    failing: Option<BTreeSet<String>>,
    /// Some could not be run at all.
    errors: bool,
    /// Files lost their tests.
    removed: bool,
}

impl Tests {
    /// None where nothing was tested: no runner, or no test.
    fn of(facts: &ToolFacts, passed: bool, whole: bool) -> Option<Self> {
        if facts.not_run.is_some() || facts.tests.is_some_and(|tests| tests.total() == 0) {
            return None;
        }
        let failed = facts.tests.map_or(0, |tests| tests.failed.saturating_add(tests.errors));
        let named = !passed && failed > 0 && facts.failing.len() == failed as usize && !facts.timed_out;
        Some(Self {
            passed,
            whole,
            failing: named.then(|| facts.failing.iter().cloned().collect()),
            errors: facts.tests.is_some_and(|tests| tests.errors > 0),
            removed: !facts.removed_tests.is_empty(),
        })
    }

    /// A check that ran before the run and does not run now: that is a failure without names.
    fn lost(facts: &ToolFacts) -> Self {
        let removed = !facts.removed_tests.is_empty();
        Self { passed: false, whole: true, failing: None, errors: true, removed }
    }

    fn before(&self) -> Before {
        match &self.failing {
            _ if self.passed => Before::None,
            Some(names) => Before::These(names.clone()),
            None => Before::Some,
        }
    }

    /// Whether a test fails that did not fail before; none where nobody can know.
    fn adds_failures(&self, before: &Before) -> Option<bool> {
        if self.passed {
            return Some(false);
        }
        match (before, &self.failing) {
            (Before::Unknown | Before::Some, _) | (Before::These(_), None) => None,
            (Before::None, _) => Some(true),
            (Before::These(then), Some(now)) => Some(!now.is_subset(then)),
        }
    }
}

/// Whether work that was said to be done had to be edited again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Again {
    /// No check has said anything.
    #[default]
    Unasked,
    /// It had not.
    No,
    /// It had, for something that may have been so before the run.
    Perhaps,
    /// It had.
    Yes,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    calls: BTreeMap<CallId, ToolUse>,
    gates: BTreeMap<CallId, String>,
    hands: Hands,
    before: Before,
    checks_before: BTreeMap<String, bool>,
    changed: bool,
    /// A command ran since the last snapshot, and may have changed what that will say.
    commands: bool,
    /// Paths whose change was told since the last snapshot.
    told: BTreeSet<WorkPath>,
    tests: Option<Tests>,
    /// Other checks of the tree as it is.
    checks: BTreeMap<String, bool>,
    /// A check has judged the tree as it is.
    judged: bool,
    open_checks: u32,
    /// What the last round sent back.
    sent_back: Again,
    again: Again,
}

impl Standing {
    /// The call that a result answers.
    pub(super) fn call(&self, call: &CallId) -> Option<&ToolUse> {
        self.calls.get(call)
    }

    /// Takes the next event. Whether the tree changed by it.
    pub(super) fn take(&mut self, turn: Turn, event: &RunEvent) -> bool {
        let by_person = self.hands.take(event).is_some();
        if let RunEvent::ModelAnswered(answered) = event {
            self.calls.clear();
            self.calls.extend(calls_of(&answered.parts).map(|tool| (tool.call.clone(), tool.clone())));
        } else if let RunEvent::Concluded(concluded) = event {
            // Calls that the runtime makes itself stand in no answer.
            for fact in &concluded.facts {
                if let Fact::Calls { calls } = fact {
                    self.calls.extend(calls.iter().map(|tool| (tool.call.clone(), tool.clone())));
                }
            }
        } else if let RunEvent::ToolFinished(finished) = event {
            return self.tool_finished(finished);
        } else if let RunEvent::BaseChecked(checked) = event {
            self.base_checked(checked);
        } else if let RunEvent::GateRequested(asked) = event {
            self.gates.insert(asked.call.clone(), asked.gate.name.clone());
            if asked.step.is_check() {
                if self.open_checks == 0 {
                    self.sent_back = Again::Unasked;
                }
                self.open_checks += 1;
            }
        } else if let RunEvent::GateFinished(finished) = event {
            self.gate_finished(finished);
        } else if let RunEvent::SnapshotTaken(snapshot) = event {
            return self.snapshot(turn, snapshot, by_person);
        } else if let RunEvent::RunEnded(ended) = event
            && matches!(ended.result, RunOutcome::Failed { .. })
        {
            // It was to be edited again, and there was no turn left for it.
            self.again = self.again.max(self.sent_back);
        }
        false
    }

    fn base_checked(&mut self, event: &BaseChecked) {
        // What a linter finds in the whole project says little of the files that a run changes.
        if self.changed || event.gate.is_linter() {
            return;
        }
        if event.gate.name == TESTS {
            self.before =
                Tests::of(&event.facts, event.passed, true).map_or(Before::Unknown, |tests| tests.before());
        } else {
            self.checks_before.insert(event.gate.name.clone(), event.passed);
        }
    }

    fn tool_finished(&mut self, event: &ToolFinished) -> bool {
        let facts = &event.facts;
        let tool = self.calls.get(&event.call);
        let is_tests = tool.is_some_and(|tool| tool.name == "run_tests") && event.status == ToolStatus::Ok;
        let whole =
            tool.is_some_and(|tool| tool.args.get("test_path").is_none_or(serde_json::Value::is_null));
        if !facts.changed.is_empty() {
            self.told.extend(facts.changed.iter().cloned());
            self.edited();
        }
        if is_tests {
            let failed = facts.tests.is_some_and(|tests| tests.failed.saturating_add(tests.errors) > 0);
            let passed = facts.exit == Some(0) && !failed;
            if let Some(tests) = Tests::of(facts, passed, whole) {
                if whole && !self.changed && !self.commands {
                    self.before = tests.before();
                }
                self.tests = Some(tests);
            }
            // Whatever commands before it left was there when the tests ran.
            self.changed |= self.commands;
            self.commands = false;
        } else if facts.may_have_changed_tree {
            self.commands = true;
        }
        !facts.changed.is_empty()
    }

    /// The run itself changed the tree.
    fn edited(&mut self) {
        self.again = self.again.max(self.sent_back);
        self.sent_back = Again::Unasked;
        self.forget();
    }

    fn forget(&mut self) {
        self.changed = true;
        self.tests = None;
        self.checks.clear();
        self.judged = false;
    }

    fn snapshot(&mut self, turn: Turn, event: &SnapshotTaken, by_person: bool) -> bool {
        let (commands, told) = (std::mem::take(&mut self.commands), std::mem::take(&mut self.told));
        let others = event.changes.iter().any(|change| !told.contains(&change.path));
        // What setup leaves comes before the first turn; what tests and checks leave behind changes nothing for them.
        if turn == Turn(0) || !others {
            return false;
        }
        if by_person {
            self.forget();
            return true;
        }
        if commands {
            self.edited();
        }
        commands
    }

    fn gate_finished(&mut self, event: &GateFinished) {
        let facts = &event.facts;
        if !event.step.is_check() {
            // docket's own mending: no work of the model, and the checks run again after it.
            if !facts.changed.is_empty() {
                self.told.extend(facts.changed.iter().cloned());
                self.forget();
            }
            return;
        }
        self.open_checks = self.open_checks.saturating_sub(1);
        let Some(name) = self.gates.remove(&event.call) else { return };
        let absent = facts.lint.iter().any(|seen| seen.status == LintStatus::Missing);
        if absent {
            return;
        }
        let sent_back = if name == TESTS {
            let lost = facts.not_run.is_some() && self.before != Before::Unknown;
            let lost = lost.then(|| Tests::lost(facts));
            let Some(tests) = lost.or_else(|| Tests::of(facts, event.passed, true)) else {
                // Nothing is known of the tree as it is now.
                self.tests = None;
                return;
            };
            let adds = tests.adds_failures(&self.before);
            self.tests = Some(tests);
            adds
        } else {
            let is_own =
                matches!(name.as_str(), REQUIRES | SYNTAX) || self.checks_before.get(&name) == Some(&true);
            self.checks.insert(name, event.passed);
            if event.passed { Some(false) } else { is_own.then_some(true) }
        };
        self.judged = true;
        self.again = self.again.max(Again::No);
        let sent_back = match sent_back {
            Some(false) => Again::No,
            None => Again::Perhaps,
            Some(true) => Again::Yes,
        };
        self.sent_back = self.sent_back.max(sent_back);
    }

    /// The check that a result is of.
    pub(super) fn gate(&self, call: &CallId) -> Option<&str> {
        self.gates.get(call).map(String::as_str)
    }

    /// Whether a check judged the tree as it is.
    pub(super) const fn is_judged(&self) -> bool {
        self.judged
    }

    /// Whether the work had to be edited again.
    pub(super) const fn again(&self) -> Again {
        self.again
    }

    /// Whether the last tests of the tree as it is passed, but for what failed before the run.
    pub(super) fn tests_pass(&self) -> Option<bool> {
        let tests = self.tests.as_ref()?;
        let excused =
            matches!(self.before, Before::These(_)) && tests.adds_failures(&self.before) == Some(false);
        Some(tests.passed || excused)
    }

    /// Whether a test fails now that did not fail before.
    pub(super) fn regresses(&self) -> Option<bool> {
        let tests = self.tests.as_ref().filter(|tests| tests.whole && !tests.removed)?;
        tests.adds_failures(&self.before)
    }

    /// Whether the tree builds, where the run changed it.
    pub(super) fn builds(&self) -> Option<bool> {
        let checks = BUILDS.iter().filter_map(|name| self.checks.get(*name).copied());
        let tests = self.tests.as_ref().map(|tests| !tests.errors || self.tests_pass() == Some(true));
        let all: Vec<bool> = checks.chain(tests).collect();
        (self.changed && !all.is_empty()).then(|| all.iter().all(|builds| *builds))
    }
}
