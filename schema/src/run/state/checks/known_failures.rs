//! Results of the final checks on the untouched tree: what was broken before a run is not its own to fix.
//!
//! They come from the checks that are run before the run begins to work, where its settings want that, and from the
//! model's own `run_tests` over the whole project while the workspace is as it was. [`crate::run::decide_check`] compares
//! the results at the end with them. Pure, a part of the fold.

use std::collections::{BTreeMap, BTreeSet};

use super::check_verdict::{
    BaseResult, CheckOutcome, CheckResult, CheckVerdict, OldFailurePolicy, decide_check,
    missing_at_this_worker,
};
use crate::run::events::turn_events::{BaseChecked, ToolFinished, ToolStatus};
use crate::{
    ids::{IncarnationId, Turn},
    message::ToolUse,
    snapshot::PathChange,
    tool::{NotRun, ToolFacts},
};

/// Names that a message lists.
const LISTED_MAX: usize = 5;
/// The check that runs tests.
const TESTS_CHECK: &str = "tests";

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownFailures {
    /// Something in the workspace may have changed since the run began.
    changed: bool,
    /// The turn in which a command ran last: a snapshot says only after its batch what it changed.
    last_command_turn: Option<Turn>,
    /// The worker that has the run now.
    worker: Option<IncarnationId>,
    /// What each check came to on the untouched tree, and at which worker. None: at an earlier run.
    base: BTreeMap<String, (CheckResult, Option<IncarnationId>)>,
    /// Checks that docket itself ran there: their results hold, whatever the model's own tests say.
    recorded: BTreeSet<String>,
    last_failing: BTreeSet<String>,
}

impl KnownFailures {
    /// Tests that failed in the last round of checks.
    #[must_use]
    pub fn format_last_round(&self) -> String {
        format_names(&self.last_failing)
    }

    /// What a check came to on the untouched tree; `None` where it was not run there.
    #[must_use]
    pub fn base_check_result(&self, check: &str) -> Option<&CheckResult> {
        self.base.get(check).map(|(result, _)| result)
    }

    /// The same, with whether the worker that has the run now found it.
    #[must_use]
    pub fn base_result(&self, check: &str) -> Option<BaseResult<'_>> {
        let (result, worker) = self.base.get(check)?;
        Some(BaseResult { result, same_worker: *worker == self.worker })
    }

    /// What the worker that has the run now lacks for a check that ran at another worker, if that is why it does not
    /// run.
    #[must_use]
    pub fn missing_here<'a>(&self, check: &str, end: &'a CheckResult) -> Option<&'a NotRun> {
        missing_at_this_worker(self.base_result(check), end)
    }

    /// What a check says of the run.
    pub(in crate::run) fn decide_verdict(
        &self,
        check: &str,
        end: &CheckResult,
        old: OldFailurePolicy,
    ) -> CheckVerdict {
        decide_check(self.base_result(check), end, old)
    }

    /// Takes that this worker has the run from here on.
    pub(in crate::run) fn set_worker(&mut self, worker: IncarnationId) {
        self.worker = Some(worker);
    }

    /// Takes the result of a call.
    pub(in crate::run) fn record_tool_result(&mut self, turn: Turn, tool: &ToolUse, event: &ToolFinished) {
        let facts = &event.facts;
        let whole = tool.args.get("test_path").is_none_or(serde_json::Value::is_null);
        let is_tests = tool.name == "run_tests" && whole && event.status == ToolStatus::Ok;
        if is_tests && !self.changed && self.last_command_turn != Some(turn) {
            let passed = facts.exit == Some(0) && facts.not_run.is_none();
            self.keep_base_tests(CheckResult::from_facts(passed, facts));
        }
        if facts.may_have_changed_tree {
            self.last_command_turn = Some(turn);
        }
        self.changed |= !facts.changed.is_empty();
    }

    /// Keeps what the model's own tests said, unless docket ran them itself. Named failures count over what is known; all
    /// else only where nothing is.
    fn keep_base_tests(&mut self, result: CheckResult) {
        if self.recorded.contains(TESTS_CHECK) {
            return;
        }
        if result.names_all && result.outcome == CheckOutcome::Failed {
            self.base.insert(TESTS_CHECK.to_owned(), (result, self.worker));
        } else if result.outcome != CheckOutcome::Failed {
            self.base.entry(TESTS_CHECK.to_owned()).or_insert((result, self.worker));
        }
    }

    /// Takes what a final check said before the run began to work.
    pub(in crate::run) fn record_base_check(&mut self, event: &BaseChecked) {
        if !self.changed {
            let result = CheckResult::from_facts(event.passed, &event.facts);
            // A result of an earlier run says what was installed then.
            let worker = self.worker.filter(|_| !event.shared);
            self.base.insert(event.gate.name.clone(), (result, worker));
            self.recorded.insert(event.gate.name.clone());
        }
    }

    /// Takes that a linter ran in this run: it is installed, and must run at the end too. What is known of the untouched
    /// tree holds.
    pub(in crate::run) fn record_linter_run(&mut self, linter: &str) {
        self.base.entry(linter.to_owned()).or_insert_with(|| {
            let outcome = CheckOutcome::Failed;
            (CheckResult { outcome, failing: BTreeSet::new(), names_all: false }, self.worker)
        });
    }

    /// Whether a linter is known to run.
    pub(in crate::run) fn has_linter_run(&self, linter: &str) -> bool {
        self.base_check_result(linter).is_some_and(|base| base.not_run().is_none())
    }

    /// Takes a snapshot. What setup leaves comes before the first turn.
    pub(in crate::run) fn record_snapshot(&mut self, turn: Turn, changes: &[PathChange]) {
        self.changed |= turn > Turn(0) && !changes.is_empty();
    }

    pub(in crate::run) fn begin_round(&mut self) {
        self.last_failing.clear();
    }

    /// What the model is told in addition, of tests that failed.
    pub(in crate::run) fn describe_failures(&mut self, facts: &ToolFacts, old: OldFailurePolicy) -> String {
        self.last_failing.extend(facts.failing.iter().cloned());
        if facts.failing.is_empty() {
            return String::new();
        }
        let failing: BTreeSet<String> = facts.failing.iter().cloned().collect();
        let mut words = format!(" Failing: {}.", format_names(&failing));
        let before =
            self.base_check_result(TESTS_CHECK).map(|base| &base.failing).filter(|before| !before.is_empty());
        match (old, before) {
            (OldFailurePolicy::NotExcused, _) => {}
            (OldFailurePolicy::Excused, Some(before)) => {
                words.push_str(&format!(
                    " These failed before your change; you do not need to fix them: {}.",
                    format_names(before)
                ));
            }
            (OldFailurePolicy::Excused, None) => words.push_str(
                " You do not need to fix tests that failed before your work and have nothing to do with it.",
            ),
        }
        words
    }
}

/// In a line, the first ones.
pub(in crate::run) fn format_names(tests: &BTreeSet<String>) -> String {
    let mut text = tests.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if let Some(more) = tests.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
