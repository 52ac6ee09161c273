//! Outcomes are parsed from their text form; totals and comparisons are correct.

use super::*;
use crate::{
    ids::{TaskId, Timestamp},
    message::TokenUsage,
    report::{CostSums, Metric, MetricTally, Ratio},
    run::{BlockedReason, FailureKind, RunOutcome, RunStage, RunState, UnverifiedReason},
    task::TaskState,
};

fn result(task: &str, engine: &str, passed: bool, unpriced: u64) -> EvalResult {
    let mut tally = MetricTally::default();
    tally.set(Metric::TaskSuccessRate, Ratio::from_bool(Some(passed)));
    EvalResult {
        task: task.to_owned(),
        kind: EvalKind::Core,
        title: "a".to_owned(),
        engine: engine.to_owned(),
        model: "scripted:a".parse().expect("a model"),
        commit: None,
        id: TaskId(uuid::Uuid::from_u128(1)),
        run: None,
        expected: EvalExpectation::Succeeded,
        outcome: if passed { EvalOutcome::Succeeded } else { EvalOutcome::Failed(FailureKind::Gates) },
        message: None,
        checks: vec![EvalCheck {
            what: EvalCheckKind::Command,
            name: "make check".to_owned(),
            passed,
            said: None,
            duration_ms: Some(3),
        }],
        accepted: passed,
        passed,
        turns: 3,
        cost: CostSums {
            usage: TokenUsage { input_tokens: 90, output_tokens: 10, ..TokenUsage::default() },
            cost_nusd: 7,
            unpriced,
            ..CostSums::default()
        },
        worked_ms: 50,
        wall_ms: 80,
        artifacts: Ratio { of: u64::from(passed), all: 1 },
        metrics: tally.to_views(),
    }
}

fn report(results: Vec<EvalResult>) -> EvalReport {
    let head = EvalMetadata {
        suite: "s".to_owned(),
        about: None,
        docket: "0".to_owned(),
        began_at: Timestamp(0),
        took_ms: 1,
        workers: 1,
    };
    EvalReport::from_results(head, results, Vec::new())
}

#[test]
fn outcomes_round_trip_as_text() {
    for text in [
        "succeeded",
        "failed: turn_limit",
        "failed: limit",
        "blocked: policy",
        "cancelled",
        "crashed",
        "unfinished",
    ] {
        assert_eq!(text.parse::<EvalOutcome>().expect(text).to_string(), text);
    }
    for text in ["succeeded", "failed", "failed: gates", "blocked", "blocked: model", "cancelled"] {
        assert_eq!(text.parse::<EvalExpectation>().expect(text).to_string(), text);
    }
    for (text, named) in [
        ("failed: turns", "`turn_limit`"),
        ("blocked: me", "`policy`"),
        ("fine", "succeeded"),
        ("succeeded: well", "succeeded"),
        ("crashed", "cancelled"),
        ("", "succeeded"),
    ] {
        let error = text.parse::<EvalExpectation>().expect_err(text).to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn expectation_matches_only_its_outcome() {
    let outcomes = [
        EvalOutcome::Succeeded,
        EvalOutcome::Unverified,
        EvalOutcome::Failed(FailureKind::TurnLimit),
        EvalOutcome::Failed(FailureKind::Limit),
        EvalOutcome::Blocked(BlockedReason::Policy),
        EvalOutcome::Cancelled,
        EvalOutcome::Crashed,
        EvalOutcome::Unfinished,
    ];
    for (expected, met) in [
        ("succeeded", vec![0]),
        ("failed", vec![2, 3]),
        ("failed: limit", vec![3]),
        ("blocked", vec![4]),
        ("blocked: model", vec![]),
        ("cancelled", vec![5]),
    ] {
        let expected: EvalExpectation = expected.parse().expect("one");
        let found: Vec<usize> = (0..outcomes.len()).filter(|at| expected.is_met_by(outcomes[*at])).collect();
        assert_eq!(found, met, "{expected}");
    }
}

#[test]
fn a_run_whose_checks_did_not_run_has_not_succeeded() {
    let mut run = RunState::default();
    run.stage = RunStage::Ended(RunOutcome::Succeeded);
    let outcome = |run: &RunState| EvalOutcome::from_task_and_run(TaskState::Completed, Some(run));
    // A project without checks is judged by the suite's checks.
    run.unverified = Some(UnverifiedReason::without_checks());
    assert_eq!(outcome(&run), EvalOutcome::Succeeded);
    run.unverified = Some(UnverifiedReason { reason: "why".to_owned(), checks: vec!["tests".to_owned()] });
    assert_eq!(outcome(&run), EvalOutcome::Unverified);
    assert!(!EvalExpectation::Succeeded.is_met_by(outcome(&run)));
}

#[test]
fn outcome_is_derived_from_task_and_run() {
    let run = |stage| {
        let mut run = RunState::default();
        run.stage = stage;
        run
    };
    let failed = RunOutcome::Failed { why: FailureKind::Gates, message: String::new() };
    for (task, stage, outcome) in [
        (TaskState::Completed, Some(RunStage::Ended(RunOutcome::Succeeded)), EvalOutcome::Succeeded),
        (TaskState::Discarded, Some(RunStage::Ended(failed)), EvalOutcome::Failed(FailureKind::Gates)),
        (TaskState::Discarded, Some(RunStage::Tools), EvalOutcome::Crashed),
        (TaskState::Discarded, None, EvalOutcome::Crashed),
        (TaskState::Cancelled, Some(RunStage::Tools), EvalOutcome::Cancelled),
        (TaskState::Running, Some(RunStage::Tools), EvalOutcome::Unfinished),
        (TaskState::Blocked, Some(RunStage::Paused), EvalOutcome::Unfinished),
        (TaskState::Available, None, EvalOutcome::Unfinished),
    ] {
        let run = stage.map(run);
        assert_eq!(
            EvalOutcome::from_task_and_run(task, run.as_ref()),
            outcome,
            "{task} {:?}",
            run.map(|run| run.stage)
        );
    }
}

#[test]
fn results_are_summed_up_by_engine_and_kind() {
    let report = report(vec![
        result("a", "react", true, 0),
        result("b", "react", false, 0),
        result("a", "plan", true, 1),
    ]);
    assert!(!report.is_passed());
    let engines: Vec<_> =
        report.engines.iter().map(|one| (one.engine.as_str(), one.sum.passed, one.sum.tasks)).collect();
    assert_eq!(engines, [("react", 1, 2), ("plan", 1, 1)]);
    assert_eq!(report.common, ["a"], "only over it are the engines comparable");
    let common: Vec<_> = report.common_engines.iter().map(|one| (one.sum.passed, one.sum.tasks)).collect();
    assert_eq!((common, report.has_partial_coverage()), (vec![(1, 1), (1, 1)], true));
    assert_eq!(report.kinds.len(), 1, "kinds without a task are not listed");
    let all = &report.all;
    assert_eq!((all.tasks, all.passed, all.succeeded, all.turns, all.tokens), (3, 2, 2, 9, 300));
    assert_eq!((all.passed_percent(), EvalTotals::from_results([]).passed_percent()), (Some(67), None));
    assert_eq!(all.cost_nusd, None, "a price that is not known makes the sum unknown");
    assert_eq!(report.engines[0].sum.cost_nusd, Some(14));
    assert_eq!(all.artifacts, Ratio { of: 2, all: 3 });
    assert_eq!(all.metrics[0].ratio, Ratio { of: 2, all: 3 }, "metrics are added up as fractions");
}

#[test]
fn two_reports_are_compared_task_by_task() {
    let before = report(vec![
        result("stays", "react", true, 0),
        result("breaks", "react", true, 0),
        result("heals", "react", false, 0),
        result("never", "react", false, 0),
        result("leaves", "react", true, 0),
    ]);
    let after = report(vec![
        result("comes", "react", false, 0),
        result("never", "react", false, 0),
        result("heals", "react", true, 0),
        result("breaks", "react", false, 0),
        result("stays", "react", true, 0),
        result("stays", "plan", true, 0),
    ]);
    let compared = EvalComparison::from_reports(&before, &after);
    let told: Vec<_> =
        compared.tasks.iter().map(|task| format!("{} {}", task.task, task.change.as_str())).collect();
    assert_eq!(
        told,
        [
            "breaks regressed",
            "heals mended",
            "stays passes",
            "never fails",
            "leaves gone",
            "comes new",
            "stays new"
        ]
    );
    assert_eq!((compared.before.tasks, compared.after.tasks), (4, 4), "sums are over what both have");
    assert_eq!((compared.before.passed, compared.after.passed), (2, 2));
    assert_eq!((compared.count(EvalChange::Regressed), compared.count(EvalChange::New)), (1, 2));
    assert_eq!(compared.tasks[0].after.as_ref().expect("there").failed_checks, ["command make check"]);
    let back = EvalComparison::from_reports(&after, &before);
    assert_eq!((back.count(EvalChange::Regressed), back.count(EvalChange::Gone)), (1, 2));
    let text = serde_json::to_string(&compared).expect("JSON");
    assert_eq!(serde_json::from_str::<EvalComparison>(&text).expect("the same"), compared);
}
