//! Results of the final checks on the untouched tree: failures from before a run are not its own to fix.
//!
//! They come from the checks that run before the run starts its work, if its settings request that, and from
//! the model's own full `run_tests` while the workspace is unchanged. [`crate::run::decide_check`] compares
//! the final results with them. Pure, part of the fold.

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

/// Maximum number of names in a message.
const LISTED_MAX: usize = 5;
/// The check that runs tests.
const TESTS_CHECK: &str = "tests";

/// Known failures of a run. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KnownFailures {
    /// Whether something in the workspace may have changed since the run started.
    changed: bool,
    /// The turn in which a command last ran: only the snapshot after its batch shows what it changed.
    last_command_turn: Option<Turn>,
    /// The worker that has the run now.
    worker: Option<IncarnationId>,
    /// The result of each check on the untouched tree, and the worker that ran it. None: an earlier run.
    base: BTreeMap<String, (CheckResult, Option<IncarnationId>)>,
    /// Checks that docket itself ran there: their results take precedence over the model's own tests.
    recorded: BTreeSet<String>,
    last_failing: BTreeSet<String>,
}

impl KnownFailures {
    /// Formats the tests that failed in the last round of checks.
    #[must_use]
    pub fn format_last_round(&self) -> String {
        format_names(&self.last_failing)
    }

    /// Returns the result of a check on the untouched tree; `None` if it was not run there.
    #[must_use]
    pub fn base_check_result(&self, check: &str) -> Option<&CheckResult> {
        self.base.get(check).map(|(result, _)| result)
    }

    /// Returns the same, with whether it is from the worker that has the run now.
    #[must_use]
    pub fn base_result(&self, check: &str) -> Option<BaseResult<'_>> {
        let (result, worker) = self.base.get(check)?;
        Some(BaseResult { result, same_worker: *worker == self.worker })
    }

    /// Returns what the current worker lacks for a check that ran at another worker, if that is why it does
    /// not run.
    #[must_use]
    pub fn missing_here<'a>(&self, check: &str, end: &'a CheckResult) -> Option<&'a NotRun> {
        missing_at_this_worker(self.base_result(check), end)
    }

    /// Decides the verdict of a check about the run.
    pub(in crate::run) fn decide_verdict(
        &self,
        check: &str,
        end: &CheckResult,
        old: OldFailurePolicy,
    ) -> CheckVerdict {
        decide_check(self.base_result(check), end, old)
    }

    /// Records the worker that has the run from now on.
    pub(in crate::run) fn set_worker(&mut self, worker: IncarnationId) {
        self.worker = Some(worker);
    }

    /// Records the result of a tool call.
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

    /// Stores a result of the model's own tests unless docket ran them itself. Named failures are added to
    /// the known ones; anything else is only used if nothing is known.
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

    /// Records the result of a final check made before the run started its work.
    pub(in crate::run) fn record_base_check(&mut self, event: &BaseChecked) {
        if !self.changed {
            let result = CheckResult::from_facts(event.passed, &event.facts);
            // A result from an earlier run depends on what was installed then.
            let worker = self.worker.filter(|_| !event.shared);
            self.base.insert(event.gate.name.clone(), (result, worker));
            self.recorded.insert(event.gate.name.clone());
        }
    }

    /// Records that a linter ran in this run: it is installed and must run at the end too. Known results of
    /// the untouched tree are kept.
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

    /// Records a snapshot. Setup output comes before the first turn.
    pub(in crate::run) fn record_snapshot(&mut self, turn: Turn, changes: &[PathChange]) {
        self.changed |= turn > Turn(0) && !changes.is_empty();
    }

    pub(in crate::run) fn begin_round(&mut self) {
        self.last_failing.clear();
    }

    /// Describes the failed tests for the model.
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

/// Lists the first names in one line.
pub(in crate::run) fn format_names(tests: &BTreeSet<String>) -> String {
    let mut text = tests.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if let Some(more) = tests.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
