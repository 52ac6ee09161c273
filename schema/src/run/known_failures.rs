//! Tests that failed before a run changed anything: what was broken then is not the run's to mend.
//!
//! What is known comes from the checks that were run before the run began to work, where its settings want that, and
//! from the model's own `run_tests` over the whole, while the workspace was as it began. Final checks whose failures are all among these pass; that is so only for tests that docket found by looking, for who
//! names the tests of a task wants them to pass. Pure, a part of the fold; logs from before the names of failing
//! tests were noted hold none, and nothing here changes for them.

use std::collections::BTreeSet;

use super::event_work::{BaseChecked, ToolFinished, ToolStatus};
use crate::{ids::Turn, message::ToolUse, snapshot::PathChange, tool::ToolFacts};

/// Names that a message lists.
const LISTED_MAX: usize = 5;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownFailures {
    /// Something in the workspace may have changed since the run began.
    changed: bool,
    /// The turn in which a command ran last: a snapshot says only after its batch what it changed.
    ran_in: Option<Turn>,
    before: BTreeSet<String>,
    last: BTreeSet<String>,
}

impl KnownFailures {
    /// Tests that failed in the last round of checks.
    #[must_use]
    pub fn last(&self) -> String {
        listed(&self.last)
    }

    /// Takes the result of a call.
    pub(super) fn ran(&mut self, turn: Turn, tool: &ToolUse, event: &ToolFinished) {
        let facts = &event.facts;
        let whole = tool.args.get("test_path").is_none_or(serde_json::Value::is_null);
        let is_tests = tool.name == "run_tests" && whole && event.status == ToolStatus::Ok;
        if is_tests && !self.changed && self.ran_in != Some(turn) && is_whole(facts) {
            self.before = facts.failing.iter().cloned().collect();
        }
        if facts.may_have_changed_tree {
            self.ran_in = Some(turn);
        }
        self.changed |= !facts.changed.is_empty();
    }

    /// Takes what a final check said before the run began to work.
    pub(super) fn at_base(&mut self, event: &BaseChecked) {
        if event.gate.name == "tests" && !self.changed && is_whole(&event.facts) {
            self.before = event.facts.failing.iter().cloned().collect();
        }
    }

    /// Takes a snapshot. What setup leaves comes before the first turn.
    pub(super) fn snapshot(&mut self, turn: Turn, changes: &[PathChange]) {
        self.changed |= turn > Turn(0) && !changes.is_empty();
    }

    pub(super) fn round_begins(&mut self) {
        self.last.clear();
    }

    /// Whether these tests failed before all the same.
    pub(super) fn excuse(&self, facts: &ToolFacts) -> bool {
        is_whole(facts) && facts.failing.iter().all(|test| self.before.contains(test))
    }

    /// What the model is told beside, of tests that failed; `found`: docket found them by looking.
    pub(super) fn words(&mut self, facts: &ToolFacts, found: bool) -> String {
        self.last.extend(facts.failing.iter().cloned());
        if facts.failing.is_empty() {
            return String::new();
        }
        let failing: BTreeSet<String> = facts.failing.iter().cloned().collect();
        let mut words = format!(" Failing: {}.", listed(&failing));
        if found && !self.before.is_empty() {
            words.push_str(&format!(" Not yours to mend, for they failed before: {}.", listed(&self.before)));
        } else if found {
            words.push_str(
                " Tests that failed before your work and have nothing to do with it are not yours to mend.",
            );
        }
        words
    }
}

/// Each failure has its name: nothing else went wrong.
fn is_whole(facts: &ToolFacts) -> bool {
    let failed = facts.tests.map_or(0, |tests| tests.failed.saturating_add(tests.errors));
    failed > 0 && facts.failing.len() == failed as usize && !facts.timed_out && facts.exit.is_some()
}

/// In a line, the first ones.
pub(super) fn listed(tests: &BTreeSet<String>) -> String {
    let mut text = tests.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if let Some(more) = tests.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
