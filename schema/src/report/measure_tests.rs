//! Every metric from hand-made logs, each with what would be counted by another definition beside it.

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::{
    content::WorkPath,
    ids::{BlobHash, DecisionHash, Epoch, IncarnationId, RunId, Timestamp, TreeHash, Turn},
    message::{CallId, ModelRef, Part, StopReason, ToolUse, Usage},
    run::{
        BaseChecked, Concluded, EngineRef, Fact, FailureKind, GateFinished, GateRequested, GateSpec,
        GateStep, ModelAnswered, ModelTerms, Models, RunEnded, RunEvent, RunOutcome, RunStarted,
        SandboxLayers, SnapshotTaken, ToolFinished, ToolRequested, ToolStatus, Unverified, Verdict as Policy,
        WorkspaceEdited,
    },
    snapshot::{Entry, EntryKind, PathChange},
    task::{
        DiscardWhy, TaskAccepted, TaskCancelled, TaskCompleted, TaskDiscarded, TaskEvent, TaskLeased,
        TaskRejected,
    },
    tool::{
        Exceeded, LintSeen, LintStatus, NetworkSeen, NotRun, NotRunCause, PlaceRefused, RecoveryClass,
        TestCounts, ToolFacts,
    },
};

const RUN: RunId = RunId(Uuid::from_u128(2));

/// A task's log as it grows: a second passes with each event.
struct Log {
    fold: TaskFold,
    now_ms: u64,
    turn: u32,
    gates: u32,
    /// Whether events are of a history that the run shares.
    shared: bool,
}

impl Log {
    fn new() -> Self {
        let mut log = Self { fold: TaskFold::default(), now_ms: 0, turn: 0, gates: 0, shared: false };
        log.task(TaskEvent::from(TaskLeased {
            epoch: Epoch(1),
            run: RUN,
            worker: IncarnationId(Uuid::from_u128(3)),
            worker_name: String::new(),
        }));
        log
    }

    /// A task with a run that began.
    fn begun() -> Self {
        let mut log = Self::new();
        log.fold.begin_run();
        log.push(started("anthropic", "namespaces", &[]));
        log
    }

    fn at(&mut self) -> Timestamp {
        self.now_ms += 1000;
        Timestamp(0).plus_ms(self.now_ms)
    }

    fn task(&mut self, event: impl Into<TaskEvent>) -> &mut Self {
        let at = self.at();
        self.fold.task_event(at, &event.into());
        self
    }

    fn push(&mut self, event: impl Into<RunEvent>) -> &mut Self {
        let (at, turn) = (self.at(), Turn(self.turn));
        if self.shared {
            self.fold.share(turn, &event.into());
        } else {
            self.fold.take(at, turn, &event.into());
        }
        self
    }

    /// A turn in which the model says this and calls these tools, which come to that.
    fn turn(
        &mut self,
        text: &str,
        calls: Vec<(&str, serde_json::Value, ToolStatus, ToolFacts)>,
    ) -> &mut Self {
        self.turn += 1;
        let id = |nth: usize, turn: u32| CallId::tool(Turn(turn), nth);
        let mut parts = vec![Part::Text { text: text.into() }];
        for (nth, (name, args, ..)) in calls.iter().enumerate() {
            let (name, args) = ((*name).to_owned(), args.clone());
            parts.push(Part::ToolUse(ToolUse { call: id(nth, self.turn), name, args, malformed: None }));
        }
        self.push(ModelAnswered {
            call: CallId::model(Turn(self.turn), 1),
            parts,
            stop: StopReason::EndTurn,
            usage: Usage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        });
        for (nth, (name, _, status, facts)) in calls.into_iter().enumerate() {
            self.push(asked(id(nth, self.turn), name, allow()));
            self.push(finished(id(nth, self.turn), status, facts));
        }
        self
    }

    fn edit(&mut self, path: &str) -> &mut Self {
        self.turn("", vec![("edit_file", json!({ "path": path }), ToolStatus::Ok, wrote(path))]);
        self.snapshot(&[path])
    }

    fn tests(&mut self, facts: ToolFacts) -> &mut Self {
        self.turn("", vec![("run_tests", json!({}), ToolStatus::Ok, facts)])
    }

    fn snapshot(&mut self, changed: &[&str]) -> &mut Self {
        let entry = Entry { kind: EntryKind::File, hash: BlobHash([1; 32]), size: 1, mode: 0o644 };
        let changes =
            changed.iter().map(|name| PathChange { path: path(name), entry: Some(entry) }).collect();
        self.push(SnapshotTaken {
            changes,
            git_changes: Vec::new(),
            tree: TreeHash::ZERO,
            left_out: Vec::new(),
            more: false,
        })
    }

    /// A round of one check.
    fn gate(&mut self, name: &str, passed: bool, facts: ToolFacts) -> &mut Self {
        self.step(name, GateStep::Check, passed, facts)
    }

    fn step(&mut self, name: &str, step: GateStep, passed: bool, facts: ToolFacts) -> &mut Self {
        self.gates += 1;
        let call = CallId::gate(Turn(self.turn), self.gates as usize);
        let gate = GateSpec { name: name.to_owned(), command: String::new(), mend: None };
        self.push(GateRequested { call: call.clone(), gate, step, decision: DecisionHash::ZERO });
        let content = String::new().into();
        self.push(GateFinished { call, step, passed, content, full: None, facts, duration_ms: 1 })
    }

    fn completed(&mut self) -> &mut Self {
        self.task(TaskCompleted { run: RUN, unverified: None })
    }

    fn discarded(&mut self) -> &mut Self {
        self.task(TaskDiscarded { run: RUN, why: DiscardWhy::Failures, message: String::new() })
    }

    #[track_caller]
    fn gives(&mut self, metric: Metric, expected: Option<(u64, u64)>) -> &mut Self {
        let ratio = self.fold.finish().tally.get(metric);
        let expected = expected.map_or(Ratio::NONE, |(of, all)| Ratio { of, all });
        assert_eq!(ratio, expected, "{metric:?}");
        self
    }
}

fn path(name: &str) -> WorkPath {
    WorkPath::new(name).expect("legal")
}

fn started(provider: &str, backend: &str, requires: &[&str]) -> RunStarted {
    let RunEvent::RunStarted(started) = crate::run::tests::started() else { panic!("it begins a run") };
    let main = ModelRef { provider: provider.to_owned(), name: "x".to_owned(), base_url: None };
    RunStarted {
        models: Models::only(main, ModelTerms::default()),
        sandbox: SandboxLayers { backend: backend.to_owned(), ..SandboxLayers::default() },
        requires: requires.iter().map(|name| path(name)).collect(),
        ..started
    }
}

fn allow() -> Policy {
    Policy::Allow { rule: "builtin".to_owned() }
}

fn asked(call: CallId, tool: &str, policy: Policy) -> ToolRequested {
    let (tool, class) = (tool.to_owned(), RecoveryClass::Workspace);
    ToolRequested { call, tool, class, policy, labels: Vec::new(), decision: DecisionHash::ZERO }
}

fn finished(call: CallId, status: ToolStatus, facts: ToolFacts) -> ToolFinished {
    ToolFinished { call, status, content: String::new().into(), full: None, facts, duration_ms: 1 }
}

fn wrote(name: &str) -> ToolFacts {
    ToolFacts { changed: vec![path(name)], ..ToolFacts::default() }
}

fn ran() -> ToolFacts {
    ToolFacts { may_have_changed_tree: true, exit: Some(1), ..ToolFacts::default() }
}

fn passes() -> ToolFacts {
    let tests = Some(TestCounts { passed: 3, ..TestCounts::default() });
    ToolFacts { may_have_changed_tree: true, exit: Some(0), tests, ..ToolFacts::default() }
}

/// These tests fail, by name.
fn fails(names: &[&str]) -> ToolFacts {
    let tests = Some(TestCounts { passed: 3, failed: names.len() as u32, ..TestCounts::default() });
    let failing = names.iter().map(|name| (*name).to_owned()).collect();
    ToolFacts { may_have_changed_tree: true, exit: Some(1), tests, failing, ..ToolFacts::default() }
}

fn none() -> ToolFacts {
    ToolFacts::default()
}

const OK: ToolStatus = ToolStatus::Ok;

#[test]
fn success_is_completion_that_something_judged() {
    use Metric::TaskSuccessRate as M;
    Log::begun().edit("a").gate("tests", true, passes()).gives(M, None).completed().gives(M, Some((1, 1)));
    Log::begun().edit("a").completed().gives(M, None);
    let accepted = TaskAccepted { run: RUN, by: "me".to_owned(), comment: String::new() };
    Log::begun().edit("a").completed().task(accepted).gives(M, Some((1, 1)));
    // A check whose linter is not there judged nothing.
    let absent = ToolFacts { lint: vec![LintSeen::plain("ruff", LintStatus::Missing)], ..none() };
    Log::begun().edit("a").gate("ruff", true, absent).completed().gives(M, None);
    Log::begun().gate("tests", true, passes()).discarded().gives(M, Some((0, 1)));
    let cancelled = TaskCancelled { by: "me".to_owned(), reason: String::new() };
    Log::begun().gate("tests", true, passes()).task(cancelled).gives(M, None);
    Log::new().discarded().gives(M, None);
}

#[test]
fn what_is_completed_unverified_is_counted_apart_and_is_no_success() {
    use Metric::TaskSuccessRate as M;
    let why = |checks: &[&str]| {
        let checks = checks.iter().map(|name| (*name).to_owned()).collect();
        Unverified { reason: "why".to_owned(), checks }
    };
    let done = |checks: &[&str]| {
        let mut log = Log::begun();
        let (result, unverified) = (RunOutcome::Succeeded, Some(why(checks)));
        log.edit("a").gate("syntax", true, none());
        log.push(RunEnded { result, summary: None, tree: None, unverified, decision: None });
        log.task(TaskCompleted { run: RUN, unverified: Some("why".to_owned()) });
        log
    };
    let mut log = done(&["tests"]);
    log.gives(M, Some((0, 1)));
    assert!(log.fold.finish().unverified);
    let accepted = TaskAccepted { run: RUN, by: "me".to_owned(), comment: String::new() };
    log.task(accepted).gives(M, Some((1, 1)));
    assert!(log.fold.finish().unverified, "a person took it, and still no check verified it");
    let mut without_checks = done(&[]);
    assert!(without_checks.gives(M, None).fold.finish().unverified);
    assert!(!Log::begun().completed().fold.finish().unverified);
}

#[test]
fn a_refused_edit_is_tried_and_not_applied_and_what_nobody_knows_is_neither() {
    use Metric::{PatchApplyRate as M, ToolErrorRate as E};
    let edit = |status, facts| ("edit_file", json!({ "path": "a" }), status, facts);
    let mut log = Log::begun();
    log.turn(
        "",
        vec![
            edit(OK, wrote("a")),
            edit(ToolStatus::Error, none()),
            edit(ToolStatus::Refused, none()),
            edit(ToolStatus::Unknown, none()),
            // A change by a command is no edit; that it ended badly is its result and no error of the tool.
            ("run_command", json!({ "command": "make" }), OK, ran()),
        ],
    );
    log.gives(M, Some((1, 3))).gives(E, Some((2, 4)));
    // The file holds it already: the edit applied, with nothing to do.
    let mut log = Log::begun();
    log.turn("", vec![edit(OK, none())]).gives(M, Some((1, 1)));
    Log::begun().turn("", vec![("read_file", json!({}), OK, none())]).gives(M, None);
}

#[test]
fn what_a_person_edits_after_it_was_not_applied_without_hands() {
    use Metric::PatchApplyRate as M;
    let mut log = Log::begun();
    log.edit("a").edit("b").edit("b").gives(M, Some((3, 3)));
    log.push(WorkspaceEdited { by: "me".to_owned() }).snapshot(&["b", "c"]).gives(M, Some((1, 3)));
    // The run's own changes take nothing back.
    log.edit("a").gives(M, Some((2, 4)));
}

#[test]
fn tests_count_on_the_tree_as_it_is() {
    use Metric::TestPassRate as M;
    Log::begun().edit("a").tests(passes()).gives(M, Some((1, 1)));
    Log::begun().tests(passes()).edit("a").gives(M, None);
    Log::begun().edit("a").tests(fails(&["t"])).tests(passes()).gives(M, Some((1, 1)));
    Log::begun().edit("a").gate("tests", false, fails(&["t"])).gives(M, Some((0, 1)));
    // A command changed the tree after them; one that changed nothing did not.
    let command = || vec![("run_command", json!({ "command": "x" }), OK, ran())];
    Log::begun().tests(passes()).turn("", command()).snapshot(&["x"]).gives(M, None);
    Log::begun().tests(passes()).turn("", command()).snapshot(&[]).gives(M, Some((1, 1)));
    // What tests leave behind is no change.
    Log::begun().tests(passes()).snapshot(&["report.xml"]).gives(M, Some((1, 1)));
    Log::begun().tests(passes()).push(WorkspaceEdited { by: String::new() }).snapshot(&["a"]).gives(M, None);
    // No test, no runner: nothing was tested.
    let empty = ToolFacts { tests: Some(TestCounts::default()), ..passes() };
    Log::begun().gate("tests", true, empty).gives(M, None);
    let missing = ToolFacts { not_run: Some(NotRun::lacking(NotRunCause::RunnerMissing, "pytest")), ..ran() };
    Log::begun().gate("tests", false, missing).gives(M, None);
    // Those that failed before are not the run's.
    Log::begun().tests(fails(&["old"])).edit("a").tests(fails(&["old"])).gives(M, Some((1, 1)));
    Log::begun().tests(fails(&["old"])).edit("a").tests(fails(&["old", "new"])).gives(M, Some((0, 1)));
}

#[test]
fn a_regression_needs_to_be_known_before_and_after() {
    use Metric::RegressionRate as M;
    Log::begun().tests(passes()).edit("a").tests(fails(&["t"])).gives(M, Some((1, 1)));
    Log::begun().tests(fails(&["t"])).edit("a").tests(fails(&["t"])).gives(M, Some((0, 1)));
    Log::begun().tests(fails(&["t"])).edit("a").tests(fails(&["u"])).gives(M, Some((1, 1)));
    Log::begun().edit("a").tests(fails(&["t"])).gives(M, None);
    // Nothing fails: whatever was before, nothing was added.
    Log::begun().edit("a").tests(passes()).gives(M, Some((0, 1)));
    let removed = ToolFacts { removed_tests: vec![path("t.py")], ..passes() };
    Log::begun().edit("a").gate("tests", true, removed).gives(M, None);
    // Some without a name failed before: a failure afterwards may be one of them.
    let unnamed = ToolFacts { failing: Vec::new(), ..fails(&["t"]) };
    Log::begun().tests(unnamed.clone()).edit("a").tests(fails(&["t"])).gives(M, None);
    Log::begun().tests(fails(&["t"])).edit("a").tests(unnamed.clone()).gives(M, None);
    Log::begun().tests(passes()).edit("a").tests(unnamed).gives(M, Some((1, 1)));
    // After a first change it is too late to know what was before.
    Log::begun().edit("a").tests(passes()).edit("a").tests(fails(&["t"])).gives(M, None);
    // A part of the tests says nothing of the rest.
    let part = |facts| vec![("run_tests", json!({ "test_path": "t.py" }), OK, facts)];
    Log::begun().tests(passes()).edit("a").turn("", part(fails(&["t"]))).gives(M, None);
    Log::begun().turn("", part(passes())).edit("a").tests(fails(&["t"])).gives(M, None);
}

#[test]
fn a_build_is_what_parses_compiles_and_collects() {
    use Metric::BuildPassRate as M;
    Log::begun().edit("a").gate("syntax", true, none()).gives(M, Some((1, 1)));
    Log::begun().edit("a").gate("syntax", false, none()).gives(M, Some((0, 1)));
    Log::begun().edit("a").gate("build", false, none()).gates_also("tests", passes()).gives(M, Some((0, 1)));
    // Failing tests were built; tests that cannot be collected were not.
    Log::begun().edit("a").gate("tests", false, fails(&["t"])).gives(M, Some((1, 1)));
    let errors = ToolFacts { tests: Some(TestCounts { errors: 1, ..TestCounts::default() }), ..ran() };
    Log::begun().edit("a").gate("tests", false, errors).gives(M, Some((0, 1)));
    // What a linter finds is no failure to build; and without a change nothing was built after one.
    Log::begun().edit("a").gate("ruff", false, none()).gives(M, None);
    Log::begun().gate("syntax", true, none()).gives(M, None);
    Log::begun().edit("a").gate("syntax", true, none()).edit("a").gives(M, None);
}

impl Log {
    fn gates_also(&mut self, name: &str, facts: ToolFacts) -> &mut Self {
        self.gate(name, true, facts)
    }
}

#[test]
fn rework_is_what_a_check_or_a_person_sent_back_and_the_base_did_not_bring() {
    use Metric::ReworkRate as M;
    Log::begun().edit("a").gate("tests", true, passes()).completed().gives(M, Some((0, 1)));
    Log::begun().edit("a").completed().gives(M, None);
    let back = |before: Option<ToolFacts>, facts: ToolFacts| {
        let mut log = Log::begun();
        if let Some(before) = before {
            log.tests(before);
        }
        log.edit("a").gate("tests", false, facts).edit("a").gate("tests", true, passes()).completed();
        log
    };
    back(Some(passes()), fails(&["t"])).gives(M, Some((1, 1)));
    back(Some(fails(&["t"])), fails(&["t"])).gives(M, Some((0, 1)));
    back(Some(fails(&["t"])), fails(&["t", "u"])).gives(M, Some((1, 1)));
    // It may have been so before: nobody looked.
    back(None, fails(&["t"])).gives(M, None);
    // What the task requires was never there before; and files parsed or did not by what they were.
    Log::begun().edit("a").gate("requires", false, none()).edit("b").gives(M, Some((1, 1)));
    Log::begun().edit("a").gate("syntax", false, none()).edit("a").gives(M, Some((1, 1)));
    // docket mended it itself: nobody edited anything again.
    let mut log = Log::begun();
    log.edit("a").gate("syntax", false, none()).step("syntax", GateStep::Mend, true, wrote("a"));
    log.snapshot(&["a"]).gate("syntax", true, none()).edit("b").gives(M, Some((0, 1)));
    // It tried to, in vain.
    let mut log = Log::begun();
    log.edit("a").gate("syntax", false, none()).step("syntax", GateStep::Mend, false, none());
    log.edit("a").gate("syntax", true, none()).gives(M, Some((1, 1)));
    // No turn was left for it.
    let why = FailureKind::Gates;
    let result = RunOutcome::Failed { why, message: String::new() };
    let ended = RunEnded { result, summary: None, tree: None, unverified: None, decision: None };
    Log::begun()
        .edit("a")
        .gate("syntax", false, none())
        .gives(M, Some((0, 1)))
        .push(ended)
        .gives(M, Some((1, 1)));
    let rejected = TaskRejected { run: RUN, by: "me".to_owned(), comment: "no".to_owned() };
    Log::begun().edit("a").gate("tests", true, passes()).completed().task(rejected).gives(M, Some((1, 1)));
}

#[test]
fn what_docket_checked_before_the_work_is_known_of_the_base() {
    use Metric::{RegressionRate as R, ReworkRate as W, TestPassRate as T};
    let base = |log: &mut Log, name: &str, passed: bool, facts: ToolFacts| {
        let gate = GateSpec { name: name.to_owned(), command: String::new(), mend: None };
        log.push(BaseChecked { gate, passed, facts, duration_ms: 1, shared: false });
    };
    let mut log = Log::begun();
    base(&mut log, "tests", false, fails(&["old"]));
    log.gives(T, None).gives(R, None);
    log.edit("a").gate("tests", false, fails(&["old"])).gives(R, Some((0, 1))).gives(T, Some((1, 1)));
    log.edit("a").gate("tests", false, fails(&["old", "new"])).gives(R, Some((1, 1))).gives(W, Some((0, 1)));
    log.edit("a").gives(W, Some((1, 1)));
    // A linter that found nothing then: what it finds now is new. One that found something may find the same.
    for (passed, expected) in [(true, Some((1, 1))), (false, None)] {
        let mut log = Log::begun();
        base(&mut log, "ruff", passed, none());
        log.edit("a").gate("ruff", false, none()).edit("a").gives(W, expected);
    }
    Log::begun().edit("a").gate("ruff", false, none()).edit("a").gives(W, None);
}

#[test]
fn times_begin_with_the_first_lease() {
    use Metric::{TimeToCompleteS as C, TimeToPlanS as P};
    let mut log = Log::begun();
    log.turn("I look around.", vec![]).gives(P, None);
    log.turn("PLAN:\n- [ ] mend", vec![]).gives(P, Some((3000, 1)));
    log.turn("PLAN:\n- [x] mend", vec![]).gives(P, Some((3000, 1))).gives(C, None);
    log.completed().gives(C, Some((5000, 1)));
    let mut log = Log::begun();
    log.discarded().gives(C, None).gives(P, None);
    // A second lease does not begin it anew.
    let mut log = Log::begun();
    let lease = TaskLeased {
        epoch: Epoch(2),
        run: RUN,
        worker: IncarnationId(Uuid::nil()),
        worker_name: String::new(),
    };
    log.task(lease).completed().gives(C, Some((3000, 1)));
}

#[test]
fn denials_are_those_of_policy_and_count_per_task() {
    use Metric::{PolicyDenialRate as D, ToolErrorRate as E};
    let mut log = Log::begun();
    log.gives(D, Some((0, 1)));
    let deny = Policy::Deny { rule: "r".to_owned(), reason: String::new() };
    for nth in 0..2 {
        let call = CallId::tool(Turn(1), nth);
        log.push(asked(call.clone(), "run_command", deny.clone()));
        log.push(finished(call, ToolStatus::Refused, none()));
    }
    // A refusal by the tool itself is an error, and no denial; a question to a person is neither.
    let ask = Policy::Ask { rule: "r".to_owned(), question: String::new() };
    log.push(asked(CallId::tool(Turn(2), 0), "run_command", ask));
    log.push(finished(CallId::tool(Turn(2), 0), ToolStatus::Refused, none()));
    log.gives(D, Some((2, 1))).gives(E, Some((3, 3)));
}

#[test]
fn violations_are_what_walls_stopped_and_without_walls_nobody_knows() {
    use Metric::SandboxViolationRate as V;
    let refused = || {
        let place = PlaceRefused { place: "x:1".to_owned(), why: String::new(), times: 3 };
        let network = NetworkSeen { refused: vec![place], ..NetworkSeen::default() };
        ToolFacts { network: Some(network), ..ran() }
    };
    let exceeded = || ToolFacts { exceeded: Some(Exceeded::Memory), ..ran() };
    let run = |facts| vec![("run_command", json!({}), OK, facts)];
    Log::begun().turn("", run(ran())).gives(V, Some((0, 1)));
    Log::begun().turn("", run(refused())).turn("", run(exceeded())).gives(V, Some((4, 1)));
    Log::begun().gate("tests", false, exceeded()).gives(V, Some((1, 1)));
    let mut log = Log::new();
    log.fold.begin_run();
    log.push(started("anthropic", "none", &[])).turn("", run(refused())).gives(V, None);
}

#[test]
fn artifacts_are_the_plan_and_what_the_task_requires() {
    use Metric::ArtifactCompleteness as A;
    Log::begun().turn("done", vec![]).gives(A, None);
    Log::begun().turn("PLAN:\n- a", vec![]).gives(A, Some((1, 1)));
    let requiring = || {
        let mut log = Log::new();
        log.fold.begin_run();
        log.push(started("anthropic", "namespaces", &["a", "b", "c"]));
        log
    };
    requiring().turn("PLAN:\n- a", vec![]).gives(A, None);
    let gone = ToolFacts { failing: vec!["b".to_owned()], ..none() };
    requiring().gate("requires", false, gone.clone()).gives(A, Some((2, 3)));
    requiring()
        .gate("requires", false, gone)
        .edit("b")
        .gives(A, None)
        .gate("requires", true, none())
        .gives(A, Some((3, 3)));
}

#[test]
fn what_a_run_shares_is_known_to_it_and_counted_for_the_other() {
    use Metric::{PatchApplyRate as P, RegressionRate as R, SandboxViolationRate as V, TimeToPlanS as T};
    let mut log = Log::new();
    log.fold.begin_run();
    log.shared = true;
    log.push(started("anthropic", "namespaces", &[])).tests(passes()).edit("a").turn("PLAN:\n- a", vec![]);
    log.shared = false;
    log.gives(P, None).gives(T, None).gives(V, None);
    log.edit("a").turn("PLAN:\n- b", vec![]).tests(fails(&["t"]));
    log.gives(P, Some((1, 1))).gives(T, None).gives(R, Some((1, 1)));
}

#[test]
fn tries_count_together_and_the_last_ones_tree_is_the_tasks() {
    let mut log = Log::begun();
    log.edit("a").gate("syntax", false, none()).edit("a");
    log.fold.begin_run();
    log.push(started("anthropic", "namespaces", &[])).edit("b").gate("syntax", true, none()).completed();
    log.gives(Metric::PatchApplyRate, Some((3, 3))).gives(Metric::ReworkRate, Some((1, 1)));
    log.gives(Metric::BuildPassRate, Some((1, 1))).gives(Metric::TaskSuccessRate, Some((1, 1)));
}

#[test]
fn a_task_is_scripted_if_any_of_its_runs_is() {
    let mut log = Log::begun();
    assert!(!log.fold.finish().scripted);
    log.fold.begin_run();
    log.push(started(SCRIPTED, "namespaces", &[]));
    assert!(log.fold.finish().scripted);
}

#[test]
fn weeks_add_their_tasks_up_and_one_that_comes_twice_counts_once() {
    let task = |nth: u128, success: Option<bool>, edits: (u64, u64), at: &str| {
        let mut tally = Tally::default();
        tally.set(Metric::TaskSuccessRate, Ratio::known(success));
        tally.set(Metric::PatchApplyRate, Ratio { of: edits.0, all: edits.1 });
        let measured = Measured { scripted: false, ended_at: at.parse().ok(), unverified: nth == 2, tally };
        TaskMetrics::of(crate::ids::TaskId(Uuid::from_u128(nth)), &measured)
    };
    let tasks = vec![
        task(1, Some(true), (1, 1), "2026-11-22T23:00:00Z"),
        task(2, Some(false), (0, 9), "2026-11-23T01:00:00Z"),
        task(3, None, (9, 9), "2026-11-24T01:00:00Z"),
        task(3, None, (9, 9), "2026-11-24T01:00:00Z"),
    ];
    let report = MetricsReport::of(tasks, 0);
    let weeks: Vec<(String, u64)> =
        report.weeks.iter().map(|of| (of.week.expect("ended").to_string(), of.tasks)).collect();
    assert_eq!(weeks, [("2026-W47".to_owned(), 1), ("2026-W48".to_owned(), 2)]);
    let of = |views: &[MetricView], nth: usize| (views[nth].ratio.of, views[nth].ratio.all);
    assert_eq!((of(&report.weeks[1].metrics, 0), of(&report.weeks[1].metrics, 1)), ((0, 1), (9, 18)));
    let unverified: Vec<u64> = report.weeks.iter().map(|of| of.unverified).collect();
    assert_eq!((unverified, report.unverified), (vec![0, 1], 1));
    // Of calls, and not of tasks' rates: 10 of 19.
    assert_eq!(of(&report.all, 1), (10, 19));
}

fn concluded(facts: Vec<Fact>) -> Concluded {
    Concluded { facts, decision: DecisionHash::ZERO }
}

#[test]
fn what_engines_conclude_is_a_plan_and_their_own_calls_are_edits() {
    use Metric::{ArtifactCompleteness as A, PatchApplyRate as P, TimeToPlanS as T};
    let mut log = Log::begun();
    let begun = log.now_ms;
    log.gives(T, None).push(concluded(vec![Fact::Planned { steps: Vec::new() }]));
    let planned = log.now_ms;
    assert!(planned > begun);
    // From the lease on, which is a second before the run begins.
    log.gives(T, Some((planned - 1000, 1))).gives(A, Some((1, 1)));
    for (nth, (status, facts)) in
        [(ToolStatus::Ok, wrote("a")), (ToolStatus::Error, none())].into_iter().enumerate()
    {
        let call = CallId::own(nth as u32);
        let (name, args) = ("edit_file".to_owned(), json!({ "path": "a" }));
        let tool = ToolUse { call: call.clone(), name, args, malformed: None };
        log.push(concluded(vec![Fact::Calls { calls: vec![tool] }]));
        log.push(asked(call.clone(), "edit_file", allow())).push(finished(call, status, facts));
    }
    log.gives(P, Some((1, 2)));
    // A patch that was refused for what it says, without a call; the failed call above had its own refusal.
    let refused = || concluded(vec![Fact::Invalid { what: "patch".to_owned(), problem: String::new() }]);
    log.push(refused()).gives(P, Some((1, 2)));
    log.push(refused()).gives(P, Some((1, 3))).gives(Metric::ToolErrorRate, Some((2, 3)));
    // What only looks is no edit.
    let call = CallId::own(2);
    let tool =
        ToolUse { call: call.clone(), name: "show_changes".to_owned(), args: json!({}), malformed: None };
    log.push(concluded(vec![Fact::Calls { calls: vec![tool] }])).push(finished(call, OK, none()));
    // It is no call of the agent's either: engines that look more would have fewer errors.
    log.gives(P, Some((1, 3))).gives(Metric::ToolErrorRate, Some((2, 3)));
}

#[test]
fn a_run_of_engine_sop_owes_four_artifacts() {
    use Metric::{ArtifactCompleteness as A, TimeToPlanS as T};
    let card = |name: &str| Fact::Artifact { name: name.to_owned(), content: json!({}) };
    let under = |engine: &str| {
        let mut log = Log::new();
        log.fold.begin_run();
        let engine = EngineRef { name: engine.to_owned(), version: 1 };
        log.push(RunStarted { engine, ..started("anthropic", "namespaces", &[]) });
        log
    };
    under("sop")
        .gives(A, Some((0, 4)))
        .push(concluded(vec![card("DiffCard"), card("DiffCard")]))
        .gives(A, Some((1, 4)));
    under("sop").push(concluded(vec![card("PlanCard")])).gives(A, Some((1, 4))).gives(T, Some((2000, 1)));
    let all = ["PlanCard", "DiffCard", "TestReport", "ReviewReport", "Poem"].map(card).to_vec();
    under("sop").push(concluded(all)).gives(A, Some((4, 4)));
    // What `team` concludes as a plan is its own sequence: the plan is the architect's.
    let answered = |role: &str| Fact::Answered { role: role.to_owned(), content: json!({}) };
    under("team")
        .push(concluded(vec![Fact::Planned { steps: Vec::new() }, answered("coder")]))
        .gives(T, None)
        .push(concluded(vec![answered("architect")]))
        .gives(T, Some((3000, 1)));
    // Where nobody looked for the paths that a task wants, the four are known all the same.
    let mut log = Log::new();
    log.fold.begin_run();
    let engine = EngineRef { name: "sop".to_owned(), version: 1 };
    log.push(RunStarted { engine, ..started("anthropic", "namespaces", &["a", "b"]) });
    log.push(concluded(vec![card("PlanCard")])).gives(A, Some((1, 4)));
    log.gate("requires", true, none()).gives(A, Some((3, 6)));
    // Nobody else owes them.
    under("react").gives(A, None).push(concluded(vec![card("DiffCard")])).gives(A, None);
}
