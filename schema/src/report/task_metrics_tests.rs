//! Every metric from handwritten logs, each with a case that another definition would count differently.

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::{
    content::WorkspacePath,
    ids::{BlobHash, DecisionHash, Epoch, IncarnationId, RunId, Timestamp, TreeHash, Turn},
    message::{CallId, MessagePart, ModelRef, StopReason, TokenUsage, ToolUse},
    run::{
        BaseChecked, Concluded, EngineFact, EngineRef, FailureKind, GateFinished, GateRequested, GateSpec,
        GateStep, ModelAnswered, ModelTerms, PolicyVerdict as Policy, RunEnded, RunEvent, RunModels,
        RunOutcome, RunStarted, SandboxLayers, SnapshotTaken, ToolFinished, ToolRequested, ToolStatus,
        UnverifiedReason, WorkspaceEdited,
    },
    snapshot::{Entry, EntryKind, PathChange},
    task::{
        DiscardReason, TaskAccepted, TaskCancelled, TaskCompleted, TaskDiscarded, TaskEvent, TaskLeased,
        TaskRejected,
    },
    tool::{
        ExceededResource, LintResult, LintStatus, NetworkActivity, NotRun, NotRunCause, RecoveryClass,
        RefusedHost, TestCounts, ToolFacts,
    },
};

const RUN: RunId = RunId(Uuid::from_u128(2));

/// A task's log under construction: one second passes with each event.
struct Log {
    fold: TaskMetricsFold,
    now_ms: u64,
    turn: u32,
    gates: u32,
    /// Whether events belong to the history shared with an ancestor.
    shared: bool,
}

impl Log {
    fn new() -> Self {
        let mut log = Self { fold: TaskMetricsFold::default(), now_ms: 0, turn: 0, gates: 0, shared: false };
        log.push_task_event(TaskEvent::from(TaskLeased {
            epoch: Epoch(1),
            run: RUN,
            worker: IncarnationId(Uuid::from_u128(3)),
            worker_name: String::new(),
        }));
        log
    }

    /// A task with a run that started.
    fn with_leased_task() -> Self {
        let mut log = Self::new();
        log.fold.begin_run();
        log.push_run_event(run_started("anthropic", "namespaces", &[]));
        log
    }

    fn next_timestamp(&mut self) -> Timestamp {
        self.now_ms += 1000;
        Timestamp(0).plus_ms(self.now_ms)
    }

    fn push_task_event(&mut self, event: impl Into<TaskEvent>) -> &mut Self {
        let at = self.next_timestamp();
        self.fold.apply_task_event(at, &event.into());
        self
    }

    fn push_run_event(&mut self, event: impl Into<RunEvent>) -> &mut Self {
        let (at, turn) = (self.next_timestamp(), Turn(self.turn));
        if self.shared {
            self.fold.apply_shared_event(turn, &event.into());
        } else {
            self.fold.apply_run_event(at, turn, &event.into());
        }
        self
    }

    /// A turn in which the model writes this text and calls these tools with these results.
    fn push_turn(
        &mut self,
        text: &str,
        calls: Vec<(&str, serde_json::Value, ToolStatus, ToolFacts)>,
    ) -> &mut Self {
        self.turn += 1;
        let id = |nth: usize, turn: u32| CallId::for_tool(Turn(turn), nth);
        let mut parts = vec![MessagePart::Text { text: text.into() }];
        for (nth, (name, args, ..)) in calls.iter().enumerate() {
            let (name, args) = ((*name).to_owned(), args.clone());
            parts.push(MessagePart::ToolUse(ToolUse {
                call: id(nth, self.turn),
                name,
                args,
                malformed: None,
            }));
        }
        self.push_run_event(ModelAnswered {
            call: CallId::for_model(Turn(self.turn), 1),
            parts,
            stop: StopReason::EndTurn,
            usage: TokenUsage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        });
        for (nth, (name, _, status, facts)) in calls.into_iter().enumerate() {
            self.push_run_event(tool_requested(id(nth, self.turn), name, allow_verdict()));
            self.push_run_event(tool_finished(id(nth, self.turn), status, facts));
        }
        self
    }

    fn edit(&mut self, path: &str) -> &mut Self {
        self.push_turn(
            "",
            vec![("edit_file", json!({ "path": path }), ToolStatus::Ok, changed_file_facts(path))],
        );
        self.snapshot(&[path])
    }

    fn tests(&mut self, facts: ToolFacts) -> &mut Self {
        self.push_turn("", vec![("run_tests", json!({}), ToolStatus::Ok, facts)])
    }

    fn snapshot(&mut self, changed: &[&str]) -> &mut Self {
        let entry = Entry { kind: EntryKind::File, hash: BlobHash([1; 32]), size: 1, mode: 0o644 };
        let changes =
            changed.iter().map(|name| PathChange { path: path(name), entry: Some(entry) }).collect();
        self.push_run_event(SnapshotTaken {
            changes,
            git_changes: Vec::new(),
            tree: TreeHash::ZERO,
            left_out: Vec::new(),
            more: false,
        })
    }

    /// A round of one check.
    fn gate(&mut self, name: &str, passed: bool, facts: ToolFacts) -> &mut Self {
        self.gate_step(name, GateStep::Check, passed, facts)
    }

    fn gate_step(&mut self, name: &str, step: GateStep, passed: bool, facts: ToolFacts) -> &mut Self {
        self.gates += 1;
        let call = CallId::for_gate(Turn(self.turn), self.gates as usize);
        let gate = GateSpec { name: name.to_owned(), command: String::new(), mend: None };
        self.push_run_event(GateRequested { call: call.clone(), gate, step, decision: DecisionHash::ZERO });
        let content = String::new().into();
        self.push_run_event(GateFinished { call, step, passed, content, full: None, facts, duration_ms: 1 })
    }

    fn complete(&mut self) -> &mut Self {
        self.push_task_event(TaskCompleted { run: RUN, unverified: None })
    }

    fn discard(&mut self) -> &mut Self {
        self.push_task_event(TaskDiscarded { run: RUN, why: DiscardReason::Failures, message: String::new() })
    }

    #[track_caller]
    fn assert_metric(&mut self, metric: Metric, expected: Option<(u64, u64)>) -> &mut Self {
        let ratio = self.fold.finish().tally.get(metric);
        let expected = expected.map_or(Ratio::NONE, |(of, all)| Ratio { of, all });
        assert_eq!(ratio, expected, "{metric:?}");
        self
    }
}

fn path(name: &str) -> WorkspacePath {
    WorkspacePath::new(name).expect("legal")
}

fn run_started(provider: &str, backend: &str, requires: &[&str]) -> RunStarted {
    let RunEvent::RunStarted(started) = crate::run::tests::run_started() else { panic!("it begins a run") };
    let main = ModelRef { provider: provider.to_owned(), name: "x".to_owned(), base_url: None };
    RunStarted {
        models: RunModels::single_model(main, ModelTerms::default()),
        sandbox: SandboxLayers { backend: backend.to_owned(), ..SandboxLayers::default() },
        requires: requires.iter().map(|name| path(name)).collect(),
        ..started
    }
}

fn allow_verdict() -> Policy {
    Policy::Allow { rule: "builtin".to_owned() }
}

fn tool_requested(call: CallId, tool: &str, policy: Policy) -> ToolRequested {
    let (tool, class) = (tool.to_owned(), RecoveryClass::Workspace);
    ToolRequested { call, tool, class, policy, labels: Vec::new(), decision: DecisionHash::ZERO }
}

fn tool_finished(call: CallId, status: ToolStatus, facts: ToolFacts) -> ToolFinished {
    ToolFinished { call, status, content: String::new().into(), full: None, facts, duration_ms: 1 }
}

fn changed_file_facts(name: &str) -> ToolFacts {
    ToolFacts { changed: vec![path(name)], ..ToolFacts::default() }
}

fn failed_command_facts() -> ToolFacts {
    ToolFacts { may_have_changed_tree: true, exit: Some(1), ..ToolFacts::default() }
}

fn passing_test_facts() -> ToolFacts {
    let tests = Some(TestCounts { passed: 3, ..TestCounts::default() });
    ToolFacts { may_have_changed_tree: true, exit: Some(0), tests, ..ToolFacts::default() }
}

/// These tests fail, by name.
fn failing_test_facts(names: &[&str]) -> ToolFacts {
    let tests = Some(TestCounts { passed: 3, failed: names.len() as u32, ..TestCounts::default() });
    let failing = names.iter().map(|name| (*name).to_owned()).collect();
    ToolFacts { may_have_changed_tree: true, exit: Some(1), tests, failing, ..ToolFacts::default() }
}

fn empty_facts() -> ToolFacts {
    ToolFacts::default()
}

const OK: ToolStatus = ToolStatus::Ok;

#[test]
fn success_requires_a_judged_completion() {
    use Metric::TaskSuccessRate as M;
    Log::with_leased_task()
        .edit("a")
        .gate("tests", true, passing_test_facts())
        .assert_metric(M, None)
        .complete()
        .assert_metric(M, Some((1, 1)));
    Log::with_leased_task().edit("a").complete().assert_metric(M, None);
    let accepted = TaskAccepted { run: RUN, by: "me".to_owned(), comment: String::new() };
    Log::with_leased_task().edit("a").complete().push_task_event(accepted).assert_metric(M, Some((1, 1)));
    // A check whose linter is not installed judged nothing.
    let absent =
        ToolFacts { lint: vec![LintResult::without_findings("ruff", LintStatus::Missing)], ..empty_facts() };
    Log::with_leased_task().edit("a").gate("ruff", true, absent).complete().assert_metric(M, None);
    Log::with_leased_task()
        .gate("tests", true, passing_test_facts())
        .discard()
        .assert_metric(M, Some((0, 1)));
    let cancelled = TaskCancelled { by: "me".to_owned(), reason: String::new() };
    Log::with_leased_task()
        .gate("tests", true, passing_test_facts())
        .push_task_event(cancelled)
        .assert_metric(M, None);
    Log::new().discard().assert_metric(M, None);
}

#[test]
fn unverified_completion_is_counted_separately_and_not_as_success() {
    use Metric::TaskSuccessRate as M;
    let why = |checks: &[&str]| {
        let checks = checks.iter().map(|name| (*name).to_owned()).collect();
        UnverifiedReason { reason: "why".to_owned(), checks }
    };
    let done = |checks: &[&str]| {
        let mut log = Log::with_leased_task();
        let (result, unverified) = (RunOutcome::Succeeded, Some(why(checks)));
        log.edit("a").gate("syntax", true, empty_facts());
        log.push_run_event(RunEnded { result, summary: None, tree: None, unverified, decision: None });
        log.push_task_event(TaskCompleted { run: RUN, unverified: Some("why".to_owned()) });
        log
    };
    let mut log = done(&["tests"]);
    log.assert_metric(M, Some((0, 1)));
    assert!(log.fold.finish().unverified);
    let accepted = TaskAccepted { run: RUN, by: "me".to_owned(), comment: String::new() };
    log.push_task_event(accepted).assert_metric(M, Some((1, 1)));
    assert!(log.fold.finish().unverified, "a person took it, and still no check verified it");
    let mut without_checks = done(&[]);
    assert!(without_checks.assert_metric(M, None).fold.finish().unverified);
    assert!(!Log::with_leased_task().complete().fold.finish().unverified);
}

#[test]
fn refused_edit_counts_as_tried_and_unknown_outcome_does_not_count() {
    use Metric::{PatchApplyRate as M, ToolErrorRate as E};
    let edit = |status, facts| ("edit_file", json!({ "path": "a" }), status, facts);
    let mut log = Log::with_leased_task();
    log.push_turn(
        "",
        vec![
            edit(OK, changed_file_facts("a")),
            edit(ToolStatus::Error, empty_facts()),
            edit(ToolStatus::Refused, empty_facts()),
            edit(ToolStatus::Unknown, empty_facts()),
            // A change by a command is not an edit, and its exit status is not an error of the tool.
            ("run_command", json!({ "command": "make" }), OK, failed_command_facts()),
        ],
    );
    log.assert_metric(M, Some((1, 3))).assert_metric(E, Some((2, 4)));
    // The file already contains it: the edit applied, with nothing to do.
    let mut log = Log::with_leased_task();
    log.push_turn("", vec![edit(OK, empty_facts())]).assert_metric(M, Some((1, 1)));
    Log::with_leased_task()
        .push_turn("", vec![("read_file", json!({}), OK, empty_facts())])
        .assert_metric(M, None);
}

#[test]
fn edit_changed_by_a_person_does_not_count_as_applied() {
    use Metric::PatchApplyRate as M;
    let mut log = Log::with_leased_task();
    log.edit("a").edit("b").edit("b").assert_metric(M, Some((3, 3)));
    log.push_run_event(WorkspaceEdited { by: "me".to_owned() })
        .snapshot(&["b", "c"])
        .assert_metric(M, Some((1, 3)));
    // The run's own changes do not revert an edit.
    log.edit("a").assert_metric(M, Some((2, 4)));
}

#[test]
fn test_results_count_only_for_the_current_tree() {
    use Metric::TestPassRate as M;
    Log::with_leased_task().edit("a").tests(passing_test_facts()).assert_metric(M, Some((1, 1)));
    Log::with_leased_task().tests(passing_test_facts()).edit("a").assert_metric(M, None);
    Log::with_leased_task()
        .edit("a")
        .tests(failing_test_facts(&["t"]))
        .tests(passing_test_facts())
        .assert_metric(M, Some((1, 1)));
    Log::with_leased_task()
        .edit("a")
        .gate("tests", false, failing_test_facts(&["t"]))
        .assert_metric(M, Some((0, 1)));
    // A command changed the tree after the tests; a command without changes did not.
    let command = || vec![("run_command", json!({ "command": "x" }), OK, failed_command_facts())];
    Log::with_leased_task()
        .tests(passing_test_facts())
        .push_turn("", command())
        .snapshot(&["x"])
        .assert_metric(M, None);
    Log::with_leased_task()
        .tests(passing_test_facts())
        .push_turn("", command())
        .snapshot(&[])
        .assert_metric(M, Some((1, 1)));
    // Leftovers of tests are not a change.
    Log::with_leased_task()
        .tests(passing_test_facts())
        .snapshot(&["report.xml"])
        .assert_metric(M, Some((1, 1)));
    Log::with_leased_task()
        .tests(passing_test_facts())
        .push_run_event(WorkspaceEdited { by: String::new() })
        .snapshot(&["a"])
        .assert_metric(M, None);
    // No test, no runner: nothing was tested.
    let empty = ToolFacts { tests: Some(TestCounts::default()), ..passing_test_facts() };
    Log::with_leased_task().gate("tests", true, empty).assert_metric(M, None);
    let missing = ToolFacts {
        not_run: Some(NotRun::for_missing(NotRunCause::RunnerMissing, "pytest")),
        ..failed_command_facts()
    };
    Log::with_leased_task().gate("tests", false, missing).assert_metric(M, None);
    // Tests that failed before are not the run's fault.
    Log::with_leased_task()
        .tests(failing_test_facts(&["old"]))
        .edit("a")
        .tests(failing_test_facts(&["old"]))
        .assert_metric(M, Some((1, 1)));
    Log::with_leased_task()
        .tests(failing_test_facts(&["old"]))
        .edit("a")
        .tests(failing_test_facts(&["old", "new"]))
        .assert_metric(M, Some((0, 1)));
}

#[test]
fn regression_requires_results_before_and_after() {
    use Metric::RegressionRate as M;
    Log::with_leased_task()
        .tests(passing_test_facts())
        .edit("a")
        .tests(failing_test_facts(&["t"]))
        .assert_metric(M, Some((1, 1)));
    Log::with_leased_task()
        .tests(failing_test_facts(&["t"]))
        .edit("a")
        .tests(failing_test_facts(&["t"]))
        .assert_metric(M, Some((0, 1)));
    Log::with_leased_task()
        .tests(failing_test_facts(&["t"]))
        .edit("a")
        .tests(failing_test_facts(&["u"]))
        .assert_metric(M, Some((1, 1)));
    Log::with_leased_task().edit("a").tests(failing_test_facts(&["t"])).assert_metric(M, None);
    // Nothing fails: whatever failed before, nothing was added.
    Log::with_leased_task().edit("a").tests(passing_test_facts()).assert_metric(M, Some((0, 1)));
    let removed = ToolFacts { removed_tests: vec![path("t.py")], ..passing_test_facts() };
    Log::with_leased_task().edit("a").gate("tests", true, removed).assert_metric(M, None);
    // Unnamed tests failed before: a later failure may be one of them.
    let unnamed = ToolFacts { failing: Vec::new(), ..failing_test_facts(&["t"]) };
    Log::with_leased_task()
        .tests(unnamed.clone())
        .edit("a")
        .tests(failing_test_facts(&["t"]))
        .assert_metric(M, None);
    Log::with_leased_task()
        .tests(failing_test_facts(&["t"]))
        .edit("a")
        .tests(unnamed.clone())
        .assert_metric(M, None);
    Log::with_leased_task()
        .tests(passing_test_facts())
        .edit("a")
        .tests(unnamed)
        .assert_metric(M, Some((1, 1)));
    // After the first change it is too late to establish a baseline.
    Log::with_leased_task()
        .edit("a")
        .tests(passing_test_facts())
        .edit("a")
        .tests(failing_test_facts(&["t"]))
        .assert_metric(M, None);
    // A partial test run says nothing about the other tests.
    let part = |facts| vec![("run_tests", json!({ "test_path": "t.py" }), OK, facts)];
    Log::with_leased_task()
        .tests(passing_test_facts())
        .edit("a")
        .push_turn("", part(failing_test_facts(&["t"])))
        .assert_metric(M, None);
    Log::with_leased_task()
        .push_turn("", part(passing_test_facts()))
        .edit("a")
        .tests(failing_test_facts(&["t"]))
        .assert_metric(M, None);
}

#[test]
fn build_passes_when_code_parses_compiles_and_collects() {
    use Metric::BuildPassRate as M;
    Log::with_leased_task().edit("a").gate("syntax", true, empty_facts()).assert_metric(M, Some((1, 1)));
    Log::with_leased_task().edit("a").gate("syntax", false, empty_facts()).assert_metric(M, Some((0, 1)));
    Log::with_leased_task()
        .edit("a")
        .gate("build", false, empty_facts())
        .passing_gate("tests", passing_test_facts())
        .assert_metric(M, Some((0, 1)));
    // Failing tests were built; tests that cannot be collected were not.
    Log::with_leased_task()
        .edit("a")
        .gate("tests", false, failing_test_facts(&["t"]))
        .assert_metric(M, Some((1, 1)));
    let errors = ToolFacts {
        tests: Some(TestCounts { errors: 1, ..TestCounts::default() }),
        ..failed_command_facts()
    };
    Log::with_leased_task().edit("a").gate("tests", false, errors).assert_metric(M, Some((0, 1)));
    // Lint findings are not a build failure; without a change nothing was built after one.
    Log::with_leased_task().edit("a").gate("ruff", false, empty_facts()).assert_metric(M, None);
    Log::with_leased_task().gate("syntax", true, empty_facts()).assert_metric(M, None);
    Log::with_leased_task().edit("a").gate("syntax", true, empty_facts()).edit("a").assert_metric(M, None);
}

impl Log {
    fn passing_gate(&mut self, name: &str, facts: ToolFacts) -> &mut Self {
        self.gate(name, true, facts)
    }
}

#[test]
fn rework_counts_rejected_work_except_baseline_failures() {
    use Metric::ReworkRate as M;
    Log::with_leased_task()
        .edit("a")
        .gate("tests", true, passing_test_facts())
        .complete()
        .assert_metric(M, Some((0, 1)));
    Log::with_leased_task().edit("a").complete().assert_metric(M, None);
    let back = |before: Option<ToolFacts>, facts: ToolFacts| {
        let mut log = Log::with_leased_task();
        if let Some(before) = before {
            log.tests(before);
        }
        log.edit("a")
            .gate("tests", false, facts)
            .edit("a")
            .gate("tests", true, passing_test_facts())
            .complete();
        log
    };
    back(Some(passing_test_facts()), failing_test_facts(&["t"])).assert_metric(M, Some((1, 1)));
    back(Some(failing_test_facts(&["t"])), failing_test_facts(&["t"])).assert_metric(M, Some((0, 1)));
    back(Some(failing_test_facts(&["t"])), failing_test_facts(&["t", "u"])).assert_metric(M, Some((1, 1)));
    // It may have failed before: there is no baseline.
    back(None, failing_test_facts(&["t"])).assert_metric(M, None);
    // Required paths never existed before; whether files parsed depends on their previous state.
    Log::with_leased_task()
        .edit("a")
        .gate("requires", false, empty_facts())
        .edit("b")
        .assert_metric(M, Some((1, 1)));
    Log::with_leased_task()
        .edit("a")
        .gate("syntax", false, empty_facts())
        .edit("a")
        .assert_metric(M, Some((1, 1)));
    // docket fixed it automatically: nothing was edited again.
    let mut log = Log::with_leased_task();
    log.edit("a").gate("syntax", false, empty_facts()).gate_step(
        "syntax",
        GateStep::Mend,
        true,
        changed_file_facts("a"),
    );
    log.snapshot(&["a"]).gate("syntax", true, empty_facts()).edit("b").assert_metric(M, Some((0, 1)));
    // It tried to, without success.
    let mut log = Log::with_leased_task();
    log.edit("a").gate("syntax", false, empty_facts()).gate_step(
        "syntax",
        GateStep::Mend,
        false,
        empty_facts(),
    );
    log.edit("a").gate("syntax", true, empty_facts()).assert_metric(M, Some((1, 1)));
    // There was no turn left for it.
    let why = FailureKind::Gates;
    let result = RunOutcome::Failed { why, message: String::new() };
    let ended = RunEnded { result, summary: None, tree: None, unverified: None, decision: None };
    Log::with_leased_task()
        .edit("a")
        .gate("syntax", false, empty_facts())
        .assert_metric(M, Some((0, 1)))
        .push_run_event(ended)
        .assert_metric(M, Some((1, 1)));
    let rejected = TaskRejected { run: RUN, by: "me".to_owned(), comment: "no".to_owned() };
    Log::with_leased_task()
        .edit("a")
        .gate("tests", true, passing_test_facts())
        .complete()
        .push_task_event(rejected)
        .assert_metric(M, Some((1, 1)));
}

#[test]
fn base_checks_provide_the_baseline() {
    use Metric::{RegressionRate as R, ReworkRate as W, TestPassRate as T};
    let base = |log: &mut Log, name: &str, passed: bool, facts: ToolFacts| {
        let gate = GateSpec { name: name.to_owned(), command: String::new(), mend: None };
        log.push_run_event(BaseChecked { gate, passed, facts, duration_ms: 1, shared: false });
    };
    let mut log = Log::with_leased_task();
    base(&mut log, "tests", false, failing_test_facts(&["old"]));
    log.assert_metric(T, None).assert_metric(R, None);
    log.edit("a")
        .gate("tests", false, failing_test_facts(&["old"]))
        .assert_metric(R, Some((0, 1)))
        .assert_metric(T, Some((1, 1)));
    log.edit("a")
        .gate("tests", false, failing_test_facts(&["old", "new"]))
        .assert_metric(R, Some((1, 1)))
        .assert_metric(W, Some((0, 1)));
    log.edit("a").assert_metric(W, Some((1, 1)));
    // A linter without findings before: any finding is new. One with findings may report the same ones.
    for (passed, expected) in [(true, Some((1, 1))), (false, None)] {
        let mut log = Log::with_leased_task();
        base(&mut log, "ruff", passed, empty_facts());
        log.edit("a").gate("ruff", false, empty_facts()).edit("a").assert_metric(W, expected);
    }
    Log::with_leased_task().edit("a").gate("ruff", false, empty_facts()).edit("a").assert_metric(W, None);
}

#[test]
fn times_are_measured_from_the_first_lease() {
    use Metric::{TimeToCompleteS as C, TimeToPlanS as P};
    let mut log = Log::with_leased_task();
    log.push_turn("I look around.", vec![]).assert_metric(P, None);
    log.push_turn("PLAN:\n- [ ] mend", vec![]).assert_metric(P, Some((3000, 1)));
    log.push_turn("PLAN:\n- [x] mend", vec![]).assert_metric(P, Some((3000, 1))).assert_metric(C, None);
    log.complete().assert_metric(C, Some((5000, 1)));
    let mut log = Log::with_leased_task();
    log.discard().assert_metric(C, None).assert_metric(P, None);
    // A second lease does not restart the time.
    let mut log = Log::with_leased_task();
    let lease = TaskLeased {
        epoch: Epoch(2),
        run: RUN,
        worker: IncarnationId(Uuid::nil()),
        worker_name: String::new(),
    };
    log.push_task_event(lease).complete().assert_metric(C, Some((3000, 1)));
}

#[test]
fn policy_denials_are_counted_per_task() {
    use Metric::{PolicyDenialRate as D, ToolErrorRate as E};
    let mut log = Log::with_leased_task();
    log.assert_metric(D, Some((0, 1)));
    let deny = Policy::Deny { rule: "r".to_owned(), reason: String::new() };
    for nth in 0..2 {
        let call = CallId::for_tool(Turn(1), nth);
        log.push_run_event(tool_requested(call.clone(), "run_command", deny.clone()));
        log.push_run_event(tool_finished(call, ToolStatus::Refused, empty_facts()));
    }
    // A refusal by the tool itself is an error and not a denial; a question to a person is neither.
    let ask = Policy::Ask { rule: "r".to_owned(), question: String::new() };
    log.push_run_event(tool_requested(CallId::for_tool(Turn(2), 0), "run_command", ask));
    log.push_run_event(tool_finished(CallId::for_tool(Turn(2), 0), ToolStatus::Refused, empty_facts()));
    log.assert_metric(D, Some((2, 1))).assert_metric(E, Some((3, 3)));
}

#[test]
fn violations_are_unknown_without_a_sandbox() {
    use Metric::SandboxViolationRate as V;
    let refused = || {
        let place = RefusedHost { place: "x:1".to_owned(), why: String::new(), times: 3 };
        let network = NetworkActivity { refused: vec![place], ..NetworkActivity::default() };
        ToolFacts { network: Some(network), ..failed_command_facts() }
    };
    let exceeded = || ToolFacts { exceeded: Some(ExceededResource::Memory), ..failed_command_facts() };
    let run = |facts| vec![("run_command", json!({}), OK, facts)];
    Log::with_leased_task().push_turn("", run(failed_command_facts())).assert_metric(V, Some((0, 1)));
    Log::with_leased_task()
        .push_turn("", run(refused()))
        .push_turn("", run(exceeded()))
        .assert_metric(V, Some((4, 1)));
    Log::with_leased_task().gate("tests", false, exceeded()).assert_metric(V, Some((1, 1)));
    let mut log = Log::new();
    log.fold.begin_run();
    log.push_run_event(run_started("anthropic", "none", &[]))
        .push_turn("", run(refused()))
        .assert_metric(V, None);
}

#[test]
fn artifacts_are_the_plan_and_the_required_paths() {
    use Metric::ArtifactCompleteness as A;
    Log::with_leased_task().push_turn("done", vec![]).assert_metric(A, None);
    Log::with_leased_task().push_turn("PLAN:\n- a", vec![]).assert_metric(A, Some((1, 1)));
    let requiring = || {
        let mut log = Log::new();
        log.fold.begin_run();
        log.push_run_event(run_started("anthropic", "namespaces", &["a", "b", "c"]));
        log
    };
    requiring().push_turn("PLAN:\n- a", vec![]).assert_metric(A, None);
    let gone = ToolFacts { failing: vec!["b".to_owned()], ..empty_facts() };
    requiring().gate("requires", false, gone.clone()).assert_metric(A, Some((2, 3)));
    requiring()
        .gate("requires", false, gone)
        .edit("b")
        .assert_metric(A, None)
        .gate("requires", true, empty_facts())
        .assert_metric(A, Some((3, 3)));
}

#[test]
fn shared_history_counts_only_for_the_run_that_wrote_it() {
    use Metric::{PatchApplyRate as P, RegressionRate as R, SandboxViolationRate as V, TimeToPlanS as T};
    let mut log = Log::new();
    log.fold.begin_run();
    log.shared = true;
    log.push_run_event(run_started("anthropic", "namespaces", &[]))
        .tests(passing_test_facts())
        .edit("a")
        .push_turn("PLAN:\n- a", vec![]);
    log.shared = false;
    log.assert_metric(P, None).assert_metric(T, None).assert_metric(V, None);
    log.edit("a").push_turn("PLAN:\n- b", vec![]).tests(failing_test_facts(&["t"]));
    log.assert_metric(P, Some((1, 1))).assert_metric(T, None).assert_metric(R, Some((1, 1)));
}

#[test]
fn attempts_are_summed_and_the_last_tree_counts() {
    let mut log = Log::with_leased_task();
    log.edit("a").gate("syntax", false, empty_facts()).edit("a");
    log.fold.begin_run();
    log.push_run_event(run_started("anthropic", "namespaces", &[]))
        .edit("b")
        .gate("syntax", true, empty_facts())
        .complete();
    log.assert_metric(Metric::PatchApplyRate, Some((3, 3))).assert_metric(Metric::ReworkRate, Some((1, 1)));
    log.assert_metric(Metric::BuildPassRate, Some((1, 1)))
        .assert_metric(Metric::TaskSuccessRate, Some((1, 1)));
}

#[test]
fn a_task_is_scripted_if_any_of_its_runs_is() {
    let mut log = Log::with_leased_task();
    assert!(!log.fold.finish().scripted);
    log.fold.begin_run();
    log.push_run_event(run_started(SCRIPTED_PROVIDER, "namespaces", &[]));
    assert!(log.fold.finish().scripted);
}

#[test]
fn weeks_sum_their_tasks_and_count_duplicates_once() {
    let task = |nth: u128, success: Option<bool>, edits: (u64, u64), at: &str| {
        let mut tally = MetricTally::default();
        tally.set(Metric::TaskSuccessRate, Ratio::from_bool(success));
        tally.set(Metric::PatchApplyRate, Ratio { of: edits.0, all: edits.1 });
        let measured =
            TaskMeasurement { scripted: false, ended_at: at.parse().ok(), unverified: nth == 2, tally };
        TaskMetrics::from_measurement(crate::ids::TaskId(Uuid::from_u128(nth)), &measured)
    };
    let tasks = vec![
        task(1, Some(true), (1, 1), "2026-11-22T23:00:00Z"),
        task(2, Some(false), (0, 9), "2026-11-23T01:00:00Z"),
        task(3, None, (9, 9), "2026-11-24T01:00:00Z"),
        task(3, None, (9, 9), "2026-11-24T01:00:00Z"),
    ];
    let report = MetricsReport::from_tasks(tasks, 0);
    let weeks: Vec<(String, u64)> =
        report.weeks.iter().map(|of| (of.week.expect("ended").to_string(), of.tasks)).collect();
    assert_eq!(weeks, [("2026-W47".to_owned(), 1), ("2026-W48".to_owned(), 2)]);
    let of = |views: &[MetricView], nth: usize| (views[nth].ratio.of, views[nth].ratio.all);
    assert_eq!((of(&report.weeks[1].metrics, 0), of(&report.weeks[1].metrics, 1)), ((0, 1), (9, 18)));
    let unverified: Vec<u64> = report.weeks.iter().map(|of| of.unverified).collect();
    assert_eq!((unverified, report.unverified), (vec![0, 1], 1));
    // Over calls, not over the tasks' rates: 10 of 19.
    assert_eq!(of(&report.all, 1), (10, 19));
}

fn concluded_event(facts: Vec<EngineFact>) -> Concluded {
    Concluded { facts, decision: DecisionHash::ZERO }
}

#[test]
fn engine_plans_and_runtime_edits_are_counted() {
    use Metric::{ArtifactCompleteness as A, PatchApplyRate as P, TimeToPlanS as T};
    let mut log = Log::with_leased_task();
    let begun = log.now_ms;
    log.assert_metric(T, None)
        .push_run_event(concluded_event(vec![EngineFact::Planned { steps: Vec::new() }]));
    let planned = log.now_ms;
    assert!(planned > begun);
    // From the lease on, which is one second before the run starts.
    log.assert_metric(T, Some((planned - 1000, 1))).assert_metric(A, Some((1, 1)));
    for (nth, (status, facts)) in
        [(ToolStatus::Ok, changed_file_facts("a")), (ToolStatus::Error, empty_facts())]
            .into_iter()
            .enumerate()
    {
        let call = CallId::for_runtime(nth as u32);
        let (name, args) = ("edit_file".to_owned(), json!({ "path": "a" }));
        let tool = ToolUse { call: call.clone(), name, args, malformed: None };
        log.push_run_event(concluded_event(vec![EngineFact::Calls { calls: vec![tool] }]));
        log.push_run_event(tool_requested(call.clone(), "edit_file", allow_verdict()))
            .push_run_event(tool_finished(call, status, facts));
    }
    log.assert_metric(P, Some((1, 2)));
    // A patch refused for its content, without a call; the failed call above had its own refusal.
    let refused =
        || concluded_event(vec![EngineFact::Invalid { what: "patch".to_owned(), problem: String::new() }]);
    log.push_run_event(refused()).assert_metric(P, Some((1, 2)));
    log.push_run_event(refused())
        .assert_metric(P, Some((1, 3)))
        .assert_metric(Metric::ToolErrorRate, Some((2, 3)));
    // Read-only calls are not edits.
    let call = CallId::for_runtime(2);
    let tool =
        ToolUse { call: call.clone(), name: "show_changes".to_owned(), args: json!({}), malformed: None };
    log.push_run_event(concluded_event(vec![EngineFact::Calls { calls: vec![tool] }]))
        .push_run_event(tool_finished(call, OK, empty_facts()));
    // Nor is it a call of the agent: otherwise, engines that display more would have a lower error rate.
    log.assert_metric(P, Some((1, 3))).assert_metric(Metric::ToolErrorRate, Some((2, 3)));
}

#[test]
fn sop_run_requires_four_artifacts() {
    use Metric::{ArtifactCompleteness as A, TimeToPlanS as T};
    let card = |name: &str| EngineFact::Artifact { name: name.to_owned(), content: json!({}) };
    let under = |engine: &str| {
        let mut log = Log::new();
        log.fold.begin_run();
        let engine = EngineRef { name: engine.to_owned(), version: 1 };
        log.push_run_event(RunStarted { engine, ..run_started("anthropic", "namespaces", &[]) });
        log
    };
    under("sop")
        .assert_metric(A, Some((0, 4)))
        .push_run_event(concluded_event(vec![card("DiffCard"), card("DiffCard")]))
        .assert_metric(A, Some((1, 4)));
    under("sop")
        .push_run_event(concluded_event(vec![card("PlanCard")]))
        .assert_metric(A, Some((1, 4)))
        .assert_metric(T, Some((2000, 1)));
    let all = ["PlanCard", "DiffCard", "TestReport", "ReviewReport", "Poem"].map(card).to_vec();
    under("sop").push_run_event(concluded_event(all)).assert_metric(A, Some((4, 4)));
    // The plan that `team` records is its own sequence of roles: the real plan is the architect's.
    let answered = |role: &str| EngineFact::Answered { role: role.to_owned(), content: json!({}) };
    under("team")
        .push_run_event(concluded_event(vec![EngineFact::Planned { steps: Vec::new() }, answered("coder")]))
        .assert_metric(T, None)
        .push_run_event(concluded_event(vec![answered("architect")]))
        .assert_metric(T, Some((3000, 1)));
    // If the task's paths were not checked, the four artifacts are still known.
    let mut log = Log::new();
    log.fold.begin_run();
    let engine = EngineRef { name: "sop".to_owned(), version: 1 };
    log.push_run_event(RunStarted { engine, ..run_started("anthropic", "namespaces", &["a", "b"]) });
    log.push_run_event(concluded_event(vec![card("PlanCard")])).assert_metric(A, Some((1, 4)));
    log.gate("requires", true, empty_facts()).assert_metric(A, Some((3, 6)));
    // No other engine requires them.
    under("react")
        .assert_metric(A, None)
        .push_run_event(concluded_event(vec![card("DiffCard")]))
        .assert_metric(A, None);
}
