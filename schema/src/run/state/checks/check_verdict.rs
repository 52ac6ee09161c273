//! Verdict of a final check, decided from its results at the end and before the run. Pure.
//!
//! Only a check that ran can judge. One that ran neither before the run nor at its end is undecided, and the
//! run is unverified. One that ran before and does not run at the end was broken by the run, so a model that
//! breaks an import cannot escape into *unverified*. The tools installed at another worker say nothing about
//! this one, however: a check that lacks its runner at the end is only compared with a result of the same
//! worker. The tables in the tests list every pair.

use std::collections::BTreeSet;

use crate::tool::{CheckProgress, NotRun, NotRunCause, ToolFacts};

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// It ran and passed.
    Passed,
    /// It ran and failed.
    Failed,
    /// It did not run, at least in part.
    DidNotRun(NotRun),
}

/// Result of a check, as far as a verdict needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The outcome.
    pub outcome: CheckOutcome,
    /// Names of failed tests.
    pub failing: BTreeSet<String>,
    /// Whether every failure has a name.
    pub names_all: bool,
}

impl CheckResult {
    /// Reads the result from an event's facts.
    #[must_use]
    pub fn from_facts(passed: bool, facts: &ToolFacts) -> Self {
        let uncollected = facts.not_run.iter().flat_map(|why| &why.uncollected).collect::<BTreeSet<_>>();
        let failing = facts.failing.iter().filter(|name| !uncollected.contains(name)).cloned().collect();
        let failed = facts.tests.map_or(0, |tests| tests.failed.saturating_add(tests.errors));
        let ended = !facts.timed_out && facts.exit.is_some();
        let outcome = match (&facts.not_run, passed) {
            (_, true) => CheckOutcome::Passed,
            (Some(why), false) => CheckOutcome::DidNotRun(why.clone()),
            (None, false) => CheckOutcome::Failed,
        };
        let names_all = ended && failed > 0 && facts.failing.len() == failed as usize;
        Self { outcome, failing, names_all }
    }

    /// Returns how far the check got.
    #[must_use]
    pub const fn progress(&self) -> CheckProgress {
        match &self.outcome {
            CheckOutcome::Passed | CheckOutcome::Failed => CheckProgress::Ran,
            CheckOutcome::DidNotRun(why) => why.cause.progress(),
        }
    }

    /// Returns why it did not run.
    #[must_use]
    pub const fn not_run(&self) -> Option<&NotRun> {
        match &self.outcome {
            CheckOutcome::Passed | CheckOutcome::Failed => None,
            CheckOutcome::DidNotRun(why) => Some(why),
        }
    }
}

/// Result of a check on the untouched tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BaseResult<'a> {
    /// The result.
    pub result: &'a CheckResult,
    /// Whether it was run by the worker that has the run now.
    pub same_worker: bool,
}

/// Whether tests that failed before the run may fail at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldFailurePolicy {
    /// They may: docket detected the tests itself.
    Excused,
    /// They may not: a person specified the tests and wants them to pass.
    NotExcused,
}

/// Verdict of a check about the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckVerdict {
    /// It passed.
    Passed,
    /// Only tests that failed before the run fail, or the check is a linter that is not installed.
    Excused,
    /// It failed, and the model must correct that.
    Failed,
    /// It ran, or got further, before the run and does not run now: the model must correct that.
    NoLongerRuns,
    /// It is undecided: the run is unverified.
    Undecided,
}

impl CheckVerdict {
    /// Returns the name shown to people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Excused => "excused",
            Self::Failed | Self::NoLongerRuns => "failed",
            Self::Undecided => "unverified",
        }
    }

    /// Returns the verdict for a linter: one that ran neither before the run nor at its end is excused.
    #[must_use]
    pub const fn for_linter(self) -> Self {
        match self {
            Self::Undecided => Self::Excused,
            Self::Passed | Self::Excused | Self::Failed | Self::NoLongerRuns => self,
        }
    }

    /// Whether the work goes back to the model.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::NoLongerRuns)
    }
}

/// Decides the verdict of a check. `base` is `None` if it was not run on the untouched tree.
#[must_use]
pub fn decide_check(base: Option<BaseResult<'_>>, end: &CheckResult, old: OldFailurePolicy) -> CheckVerdict {
    match &end.outcome {
        CheckOutcome::Passed => CheckVerdict::Passed,
        CheckOutcome::Failed => {
            let known = |base: &CheckResult| end.failing.is_subset(&base.failing);
            let named = end.names_all && old == OldFailurePolicy::Excused;
            let excused = named && base.is_some_and(|base| base.result.names_all && known(base.result));
            if excused { CheckVerdict::Excused } else { CheckVerdict::Failed }
        }
        CheckOutcome::DidNotRun(why) => decide_not_run(base, end, why),
    }
}

/// Returns what this worker lacks for a check that ran on the untouched tree at another worker, if that is
/// why the check does not run. That is a fault of this worker. Excludes what the run itself may have broken.
#[must_use]
pub fn missing_at_this_worker<'a>(base: Option<BaseResult<'_>>, end: &'a CheckResult) -> Option<&'a NotRun> {
    let lacks = |why: &&NotRun| is_worker_dependent(why) && why.missing.is_some() && !why.by_run;
    let ran_elsewhere =
        base.is_some_and(|base| !base.same_worker && base.result.progress() > CheckProgress::NoRunner);
    end.not_run().filter(lacks).filter(|_| ran_elsewhere)
}

/// Whether the cause depends on the software installed at a worker.
fn is_worker_dependent(why: &NotRun) -> bool {
    why.cause.progress() == CheckProgress::NoRunner
}

fn decide_not_run(base: Option<BaseResult<'_>>, end: &CheckResult, why: &NotRun) -> CheckVerdict {
    // The worker reports this as its own fault. If it is recorded anyway, it says nothing about the run.
    if why.cause == NotRunCause::Sandbox {
        return CheckVerdict::Undecided;
    }
    // It ran and failed before the cleanup of the workspace failed.
    if why.cause == NotRunCause::Workspace && why.partly {
        return CheckVerdict::Failed;
    }
    // A base result whose sandbox did not start is useless, and so is one of another worker if the cause
    // depends on installed software.
    let base = base.filter(|base| base.same_worker || !is_worker_dependent(why)).map(|base| base.result);
    let Some(base) = base.filter(|base| base.progress() > CheckProgress::NotStarted) else {
        // The model cannot correct what the run cannot install; anything else may be caused by the run.
        let is_outside = is_worker_dependent(why) && !why.by_run;
        return if is_outside { CheckVerdict::Undecided } else { CheckVerdict::Failed };
    };
    if end.progress() < base.progress() {
        return CheckVerdict::NoLongerRuns;
    }
    if end.progress() == CheckProgress::NotCollected && has_new_load_failures(base, why) {
        return CheckVerdict::NoLongerRuns;
    }
    // The tests that did run decide.
    if end.failing.is_subset(&base.failing) { CheckVerdict::Undecided } else { CheckVerdict::Failed }
}

/// Whether something that could be loaded before cannot be loaded now. Assumed if names are unknown.
fn has_new_load_failures(base: &CheckResult, now: &NotRun) -> bool {
    let Some(before) = base.not_run() else { return true };
    // If loading was impossible for lack of an installation, nothing was loaded.
    if before.cause.progress() < CheckProgress::NotCollected && before.uncollected.is_empty() {
        return false;
    }
    if now.uncollected.is_empty() {
        return !before.uncollected.is_empty();
    }
    now.uncollected.iter().any(|name| !before.uncollected.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use CheckVerdict::{Excused, Failed, NoLongerRuns, Passed, Undecided};

    fn result_with_failures(failing: &[&str]) -> CheckResult {
        let outcome = if failing.is_empty() { CheckOutcome::Passed } else { CheckOutcome::Failed };
        let failing: BTreeSet<String> = failing.iter().map(|name| (*name).to_owned()).collect();
        CheckResult { outcome, names_all: !failing.is_empty(), failing }
    }

    fn result_not_run(cause: NotRunCause, uncollected: &[&str]) -> CheckResult {
        let uncollected = uncollected.iter().map(|name| (*name).to_owned()).collect();
        let why = NotRun { uncollected, ..NotRun::new(cause, "why") };
        CheckResult { outcome: CheckOutcome::DidNotRun(why), failing: BTreeSet::new(), names_all: false }
    }

    /// Decides the verdict if the base result is from the same worker.
    fn decide_same_worker(
        base: Option<&CheckResult>,
        end: &CheckResult,
        old: OldFailurePolicy,
    ) -> CheckVerdict {
        decide_check(base.map(|result| BaseResult { result, same_worker: true }), end, old)
    }

    /// Every possible result of a check, by name.
    fn sample_results() -> [(&'static str, CheckResult); 10] {
        use NotRunCause::{CollectionFailed, RunnerMissing, Sandbox, TimedOut, Workspace};
        let partly = |mut result: CheckResult, failing: &[&str]| {
            if let CheckOutcome::DidNotRun(why) = &mut result.outcome {
                why.partly = true;
            }
            result.failing = failing.iter().map(|name| (*name).to_owned()).collect();
            result
        };
        [
            ("passed", result_with_failures(&[])),
            ("old fails", result_with_failures(&["old"])),
            ("new fails", result_with_failures(&["new"])),
            ("no sandbox", result_not_run(Sandbox, &[])),
            ("no workspace", result_not_run(Workspace, &[])),
            ("no runner", result_not_run(RunnerMissing, &[])),
            ("a unloaded", result_not_run(CollectionFailed, &["a"])),
            ("b unloaded", result_not_run(CollectionFailed, &["b"])),
            ("a unloaded, new fails", partly(result_not_run(CollectionFailed, &["a"]), &["new"])),
            ("timed out", result_not_run(TimedOut, &[])),
        ]
    }

    /// Rows are the results before the run, columns the results at the end, as in [`sample_results`].
    #[test]
    fn verdict_table_covers_every_pair_of_results() {
        let none: [CheckVerdict; 10] =
            [Passed, Failed, Failed, Undecided, Failed, Undecided, Failed, Failed, Failed, Failed];
        let table: [(&str, [CheckVerdict; 10]); 11] = [
            ("not run", none),
            (
                "passed",
                [
                    Passed,
                    Failed,
                    Failed,
                    Undecided,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                ],
            ),
            (
                "old fails",
                [
                    Passed,
                    Excused,
                    Failed,
                    Undecided,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                ],
            ),
            (
                "new fails",
                [
                    Passed,
                    Failed,
                    Excused,
                    Undecided,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                ],
            ),
            ("no sandbox", none),
            (
                "no workspace",
                [
                    Passed, Failed, Failed, Undecided, Undecided, Undecided, Undecided, Undecided, Failed,
                    Undecided,
                ],
            ),
            (
                "no runner",
                [
                    Passed,
                    Failed,
                    Failed,
                    Undecided,
                    NoLongerRuns,
                    Undecided,
                    Undecided,
                    Undecided,
                    Failed,
                    Undecided,
                ],
            ),
            (
                "a unloaded",
                [
                    Passed,
                    Failed,
                    Failed,
                    Undecided,
                    NoLongerRuns,
                    NoLongerRuns,
                    Undecided,
                    NoLongerRuns,
                    Failed,
                    Undecided,
                ],
            ),
            (
                "b unloaded",
                [
                    Passed,
                    Failed,
                    Failed,
                    Undecided,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    Undecided,
                    NoLongerRuns,
                    Undecided,
                ],
            ),
            (
                "a unloaded, new fails",
                [
                    Passed,
                    Failed,
                    Failed,
                    Undecided,
                    NoLongerRuns,
                    NoLongerRuns,
                    Undecided,
                    NoLongerRuns,
                    Undecided,
                    Undecided,
                ],
            ),
            (
                "timed out",
                [
                    Passed,
                    Failed,
                    Failed,
                    Undecided,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    NoLongerRuns,
                    Undecided,
                ],
            ),
        ];
        let results = sample_results();
        let base = |name: &str| results.iter().find(|(of, _)| *of == name).map(|(_, result)| result);
        for (before, verdicts) in table {
            assert!(before == "not run" || base(before).is_some(), "{before} is listed");
            for ((now, end), verdict) in results.iter().zip(verdicts) {
                let found = decide_same_worker(base(before), end, OldFailurePolicy::Excused);
                assert_eq!(found, verdict, "before: {before}; at the end: {now}");
                // A person who specifies the tests wants them to pass; checks that did not run say as little
                // as ever.
                let held = if verdict == Excused { Failed } else { verdict };
                assert_eq!(
                    decide_same_worker(base(before), end, OldFailurePolicy::NotExcused),
                    held,
                    "{before}, {now}"
                );
            }
        }
    }

    #[test]
    fn only_a_check_that_passes_at_the_end_passes() {
        for (_, base) in sample_results() {
            for (now, end) in sample_results().iter().filter(|(name, _)| *name != "passed") {
                for base in [None, Some(&base)] {
                    assert_ne!(decide_same_worker(base, end, OldFailurePolicy::Excused), Passed, "{now}");
                }
            }
        }
    }

    #[test]
    fn linter_that_ran_before_must_run_at_the_end() {
        let missing = result_not_run(NotRunCause::ProgramMissing, &[]);
        for (base, verdict) in [
            (Some(result_with_failures(&[])), NoLongerRuns),
            (Some(result_with_failures(&["old"])), NoLongerRuns),
            (Some(missing.clone()), Excused),
            (None, Excused),
        ] {
            let found =
                decide_same_worker(base.as_ref(), &missing, OldFailurePolicy::NotExcused).for_linter();
            assert_eq!(found, verdict, "{base:?}");
        }
    }

    #[test]
    fn failed_check_stays_failed_when_cleanup_fails() {
        let mut end = result_with_failures(&["old"]);
        let why = NotRun { partly: true, ..NotRun::new(NotRunCause::Workspace, "folders nest too deep") };
        end.outcome = CheckOutcome::DidNotRun(why);
        for (before, base) in sample_results() {
            assert_eq!(decide_same_worker(Some(&base), &end, OldFailurePolicy::Excused), Failed, "{before}");
        }
        assert_eq!(decide_same_worker(None, &end, OldFailurePolicy::Excused), Failed);
    }

    #[test]
    fn check_that_the_run_may_have_broken_counts_against_it() {
        let mut end = result_not_run(NotRunCause::ProgramMissing, &[]);
        assert_eq!(decide_same_worker(None, &end, OldFailurePolicy::Excused), Undecided);
        if let CheckOutcome::DidNotRun(why) = &mut end.outcome {
            why.by_run = true;
        }
        assert_eq!(decide_same_worker(None, &end, OldFailurePolicy::Excused), Failed);
    }

    #[test]
    fn unnamed_load_failure_is_worse_only_than_a_base_with_names() {
        let unnamed = result_not_run(NotRunCause::CollectionFailed, &[]);
        let named = result_not_run(NotRunCause::CollectionFailed, &["a"]);
        assert_eq!(decide_same_worker(Some(&unnamed), &unnamed, OldFailurePolicy::Excused), Undecided);
        assert_eq!(decide_same_worker(Some(&named), &unnamed, OldFailurePolicy::Excused), NoLongerRuns);
        assert_eq!(decide_same_worker(Some(&unnamed), &named, OldFailurePolicy::Excused), NoLongerRuns);
    }

    #[test]
    fn runner_missing_at_another_worker_is_not_lost() {
        let lacking = |missing: Option<&str>, by_run: bool| {
            let mut end = result_not_run(NotRunCause::RunnerMissing, &[]);
            if let CheckOutcome::DidNotRun(why) = &mut end.outcome {
                (why.missing, why.by_run) = (missing.map(str::to_owned), by_run);
            }
            end
        };
        for (before, base) in sample_results() {
            let elsewhere = Some(BaseResult { result: &base, same_worker: false });
            let here = Some(BaseResult { result: &base, same_worker: true });
            for (now, end) in sample_results() {
                let found = decide_check(elsewhere, &end, OldFailurePolicy::Excused);
                let expected = match now {
                    "no runner" => Undecided,
                    _ => decide_check(here, &end, OldFailurePolicy::Excused),
                };
                assert_eq!(found, expected, "before: {before}; at the end: {now}");
                assert_eq!(missing_at_this_worker(here, &end), None, "before: {before}; at the end: {now}");
            }
            // It is the worker's fault if the check got further elsewhere and nothing shows that the run
            // caused it.
            let came_further = base.progress() > CheckProgress::NoRunner;
            for (missing, by_run, is_fault) in
                [(Some("pytest"), false, came_further), (None, false, false), (Some("pytest"), true, false)]
            {
                let end = lacking(missing, by_run);
                let fault = missing_at_this_worker(elsewhere, &end);
                assert_eq!(fault.is_some(), is_fault, "before: {before}; {missing:?}, by the run: {by_run}");
                let verdict = decide_check(elsewhere, &end, OldFailurePolicy::Excused);
                assert_eq!(verdict, if by_run { Failed } else { Undecided }, "before: {before}; {missing:?}");
            }
        }
        assert_eq!(missing_at_this_worker(None, &lacking(Some("pytest"), false)), None);
    }
}
