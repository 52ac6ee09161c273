//! The artifacts: recording and reading them, the figures in them that come from recorded results rather than from a
//! model, and the verdicts of the gates on them (E4, E7). Pure.

use docket_schema::{
    artifact::{DiffCard, FileChangeKind, FileDiff, PLAN_CARD, PlanCard, TestReport, TestStatus},
    run::{CheckVerdict, EngineFact, FinishedCall, GateVerdict, RunStarted, RunState},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    super::{roles::role_conversation, rules::verification},
    sop_phase::BUILDER,
};

/// A change of at most this many lines in one file is trivial: its author reviews it alone.
const TRIVIAL_LINES_MAX: u32 = 20;
/// The check that runs tests.
const TESTS_CHECK: &str = "tests";

/// Returns the fact that records an artifact.
pub(super) fn artifact_fact(name: &str, content: &impl Serialize) -> EngineFact {
    let content = serde_json::to_value(content).expect("artifacts have string keys only");
    EngineFact::Artifact { name: name.to_owned(), content }
}

/// Loads a recorded artifact.
pub(super) fn load_artifact<T: DeserializeOwned>(run: &RunState, name: &str) -> Option<T> {
    serde_json::from_value(run.engine_state.artifacts.get(name)?.clone()).ok()
}

/// Returns the current plan.
pub(super) fn current_plan(run: &RunState) -> Option<PlanCard> {
    load_artifact(run, PLAN_CARD)
}

/// Builds the DiffCard: the runtime's view of the change, and the builder's explanation.
pub(super) fn build_diff_card(run: &RunState, shown: &FinishedCall) -> DiffCard {
    let changes = shown.changes.clone().unwrap_or_default();
    let rationale = builder_reply_field(run, "rationale").unwrap_or_default();
    DiffCard { files: changes.files, hunks: changes.hunks, rationale, more: changes.more }
}

/// Returns a field of the builder's last reply.
fn builder_reply_field(run: &RunState, field: &str) -> Option<String> {
    Some(run.engine_state.answers.get(BUILDER)?.get(field)?.as_str()?.to_owned())
}

/// Whether a change needs no second reviewer. A change that shows no line, such as binary data or an overlong text,
/// may be of any size.
pub(super) fn is_trivial_change(card: &DiffCard, pins: &RunStarted) -> bool {
    if pins.settings.role_rules > 0 && card.files.iter().any(has_no_shown_lines) {
        return false;
    }
    let lines = card.files.iter().map(|file| u64::from(file.added) + u64::from(file.removed)).sum::<u64>();
    card.files.len() <= 1 && card.more == 0 && lines <= u64::from(TRIVIAL_LINES_MAX)
}

fn has_no_shown_lines(file: &FileDiff) -> bool {
    file.change == FileChangeKind::Opaque || (file.added, file.removed) == (0, 0)
}

/// Checks whether something exists that can show that the change works.
pub(super) fn check_tests_exist(run: &RunState, pins: &RunStarted, card: &DiffCard) -> (GateVerdict, String) {
    let tests = verification::final_checks(run, pins).into_iter().find(|check| check.name == TESTS_CHECK);
    if let Some(tests) = tests {
        return (GateVerdict::Passed, format!("`{}` runs tests", tests.command));
    }
    if card.files.is_empty() {
        return (GateVerdict::Excused, "nothing was changed".to_owned());
    }
    match builder_reply_field(run, "not_verified_because") {
        Some(why) => (GateVerdict::Excused, why),
        None => {
            let reason = "No test is there that could show whether the change works. Write one where the project's \
                          runner finds it; or, where none is possible, say why in not_verified_because.";
            (GateVerdict::Failed, reason.to_owned())
        }
    }
}

/// Builds the TestReport from the check that ran tests, never from a model's claims.
pub(super) fn build_test_report(run: &RunState, pins: &RunStarted) -> TestReport {
    let checks = role_conversation::current_round_checks(run, pins);
    let Some(check) = checks.iter().rev().find(|check| check.name == TESTS_CHECK) else {
        let reason = builder_reply_field(run, "not_verified_because");
        return TestReport {
            command: String::new(),
            status: TestStatus::NotRun,
            duration_ms: 0,
            call: None,
            tests: None,
            failing: Vec::new(),
            reason: reason.unwrap_or_else(|| "nothing was changed, and there is nothing to run".to_owned()),
        };
    };
    let status = match check.verdict {
        CheckVerdict::Passed => TestStatus::Passed,
        CheckVerdict::Excused => TestStatus::FailedBefore,
        CheckVerdict::Failed | CheckVerdict::NoLongerRuns => TestStatus::Failed,
        CheckVerdict::Undecided => TestStatus::NotRun,
    };
    TestReport {
        command: check.command.clone(),
        status,
        duration_ms: check.duration_ms,
        call: Some(check.call.clone()),
        tests: check.tests,
        failing: check.failing.clone(),
        reason: check.not_run.as_ref().map(|why| why.reason.clone()).unwrap_or_default(),
    }
}

/// Checks whether the checks passed, including the tests.
pub(super) fn check_tests_pass(run: &RunState, report: &TestReport) -> (GateVerdict, String) {
    if run.engine_state.checks_passed == Some(false) {
        return (GateVerdict::Failed, format!("The final checks failed: {}.", run.failed_checks.join("; ")));
    }
    match report.status {
        TestStatus::Passed => (GateVerdict::Passed, format!("`{}` passed", report.command)),
        TestStatus::FailedBefore => {
            (GateVerdict::Excused, "only such tests fail as failed before the run".to_owned())
        }
        // Existing tests that did not run show nothing; if there are none, none are required.
        TestStatus::NotRun if report.call.is_some() => {
            (GateVerdict::Unverified, format!("`{}` did not run: {}", report.command, report.reason))
        }
        TestStatus::NotRun => (GateVerdict::Excused, report.reason.clone()),
        // Cannot happen if all checks passed, but is handled.
        TestStatus::Failed => (GateVerdict::Failed, format!("`{}` failed", report.command)),
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        content::WorkspacePath,
        message::CallId,
        run::{FinishedCheck, RunSettings},
    };

    use super::{super::super::react_tests::TestLog, *};

    fn sample_card(files: &[(&str, u32, u32)], more: u32) -> DiffCard {
        let file = |(path, added, removed): &(&str, u32, u32)| FileDiff {
            path: WorkspacePath::new(*path).expect("a path"),
            change: FileChangeKind::Modified,
            added: *added,
            removed: *removed,
        };
        DiffCard {
            files: files.iter().map(file).collect(),
            hunks: Vec::new(),
            rationale: String::new(),
            more,
        }
    }

    fn pins(role_rules: u32, gates: &[&str]) -> std::sync::Arc<RunStarted> {
        let settings = RunSettings { role_rules, ..RunSettings::default() };
        TestLog::with_settings(settings, gates, "none").state.pins.expect("it is started")
    }

    #[test]
    fn one_file_with_few_lines_is_trivial() {
        for (files, more, trivial) in [
            (&[][..], 0, true),
            (&[("a", 12, 8)], 0, true),
            (&[("a", 21, 0)], 0, false),
            (&[("a", 11, 10)], 0, false),
            (&[("a", 1, 0), ("b", 1, 0)], 0, false),
            (&[("a", 1, 0)], 1, false),
        ] {
            assert_eq!(is_trivial_change(&sample_card(files, more), &pins(1, &[])), trivial, "{files:?}");
        }
        // A file of any size that shows no line.
        for change in
            [FileChangeKind::Added, FileChangeKind::Removed, FileChangeKind::Modified, FileChangeKind::Opaque]
        {
            for (lines, trivial) in [(0, false), (1, change != FileChangeKind::Opaque)] {
                let mut card = sample_card(&[("a", lines, 0)], 0);
                card.files[0].change = change;
                assert_eq!(is_trivial_change(&card, &pins(1, &[])), trivial, "{change:?}, {lines}");
                assert!(is_trivial_change(&card, &pins(0, &[])), "as logs of before have it");
            }
        }
    }

    fn sample_check_end(name: &str, verdict: CheckVerdict) -> FinishedCheck {
        FinishedCheck {
            call: CallId("g1-0".to_owned()),
            name: name.to_owned(),
            command: format!("run {name}"),
            verdict,
            not_run: None,
            content: docket_schema::content::Content::Text(String::new()),
            tests: None,
            failing: Vec::new(),
            duration_ms: 7,
        }
    }

    #[test]
    fn test_report_follows_the_recorded_check() {
        for (checks, checked, status, verdict) in [
            (vec![], None, TestStatus::NotRun, GateVerdict::Excused),
            (
                vec![sample_check_end("tests", CheckVerdict::Passed)],
                Some(true),
                TestStatus::Passed,
                GateVerdict::Passed,
            ),
            (
                vec![sample_check_end("tests", CheckVerdict::Excused)],
                Some(true),
                TestStatus::FailedBefore,
                GateVerdict::Excused,
            ),
            (
                vec![sample_check_end("tests", CheckVerdict::Undecided)],
                Some(true),
                TestStatus::NotRun,
                GateVerdict::Unverified,
            ),
            (
                vec![sample_check_end("tests", CheckVerdict::Failed)],
                Some(false),
                TestStatus::Failed,
                GateVerdict::Failed,
            ),
            // The tests passed, but another check did not.
            (
                vec![
                    sample_check_end("ruff", CheckVerdict::Failed),
                    sample_check_end("tests", CheckVerdict::Passed),
                ],
                Some(false),
                TestStatus::Passed,
                GateVerdict::Failed,
            ),
        ] {
            let mut run = RunState::default();
            // A model's claims about it do not count.
            run.engine_state
                .answers
                .insert(BUILDER.to_owned(), serde_json::json!({ "rationale": "all tests pass" }));
            run.engine_state.finished_checks = checks;
            run.engine_state.checks_passed = checked;
            let report = build_test_report(&run, &pins(1, &[TESTS_CHECK]));
            assert_eq!((report.status, check_tests_pass(&run, &report).0), (status, verdict), "{report:?}");
        }
        // From an earlier round: only older logs have it.
        let mut run = RunState::default();
        run.engine_state.finished_checks = vec![sample_check_end("tests", CheckVerdict::Passed)];
        assert_eq!(build_test_report(&run, &pins(1, &[])).status, TestStatus::NotRun);
        assert_eq!(build_test_report(&run, &pins(0, &[])).status, TestStatus::Passed);
    }
}
