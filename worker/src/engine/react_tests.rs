//! The rules of `react`, one `check` per rule: given this log, the decision is that.

use docket_schema::{
    content::{BlobRef, WorkPath},
    ids::{DecisionHash, Epoch, EventHash, IncarnationId, RunId, TaskId, TreeHash},
    message::{CallId, ModelRef, Part, StopReason, ToolUse, Usage},
    run::{
        BlockedWhy, BlockerAnswered, CancelRequested, EngineRef, GateFinished, GateRequested, GateSpec,
        Limit, LimitReached, LinterSpec, ModelAnswered, ModelFailed, ModelRequested, ModelTerms, Models,
        PauseRequested, Phase, Prompts, Purpose, RunBlocked, RunEvent, RunOutcome, RunSettings, RunStarted,
        RunState, SandboxLayers, Told, ToolFinished, ToolRequested, ToolStatus, UnverifiedPolicy, Verdict,
    },
    snapshot::{Base, Entry, EntryKind},
    tool::{LintSeen, LintStatus, TestCounts, ToolFacts},
};
use serde_json::json;

use super::{Act, Decision, Engine as _, PlannedGate, React};

pub(super) const SETTINGS: RunSettings = RunSettings {
    turns_max: 4,
    corrections_max: 1,
    correction_turns: 2,
    compaction_percent: 85,
    refuse_syntax_errors: false,
    mend_rules: 0,
    role_rules: 0,
    syntax_check: false,
    trouble_rules: 0,
    check_rules: 0,
    auto_lint: true,
    lint_timeout_ms: 1,
    self_corrections_max: 5,
    output_chars_max: 4000,
    command_timeout_ms: 1,
    command_timeout_ms_max: 1,
    output_tokens_max: 100,
    model_attempts_max: 3,
    empty_answers_max: 2,
    same_error_max: 0,
    exceeded_max: 0,
    failed_edits_max: 0,
    failures_max: 0,
    ask_at_blockers: false,
    plan_asks_max: 0,
    early_end: false,
    rest_at_outage: false,
    base_checks: false,
    unverified: UnverifiedPolicy::Ask,
    complexity: None,
    delegation_depth_max: 0,
    children_max: 0,
    fallback_after: 0,
    fallback_turns: 0,
    model_rules: 0,
    effort: None,
    temperature_milli: None,
    tokens_max: 0,
    cost_max_nusd: 0,
    time_max_ms: 0,
    heed_stops: false,
    read_cache: false,
    tool_set: docket_schema::tool::ToolSet::Core,
};

/// What a run pins that says nothing in particular.
pub(crate) fn pins() -> RunStarted {
    RunStarted::clone(
        Log::of(RunSettings::default(), &[], "namespaces").state.pins.as_ref().expect("started"),
    )
}

pub(super) struct Log {
    pub(super) state: RunState,
}

impl Log {
    fn new() -> Self {
        Self::with(&["tests"], "namespaces")
    }

    fn with(gates: &[&str], sandbox: &str) -> Self {
        Self::of(SETTINGS, gates, sandbox)
    }

    pub(super) fn of(settings: RunSettings, gates: &[&str], sandbox: &str) -> Self {
        let model = ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None };
        Self::with_models(settings, gates, sandbox, Models::only(model, ModelTerms::default()))
    }

    pub(super) fn with_models(settings: RunSettings, gates: &[&str], sandbox: &str, models: Models) -> Self {
        let blob = BlobRef::of(b"x");
        let started = RunStarted {
            task: TaskId(uuid::Uuid::from_u128(1)),
            run: RunId(uuid::Uuid::from_u128(2)),
            attempt: 1,
            engine: EngineRef { name: "react".into(), version: 1 },
            models,
            settings,
            prompts: Prompts { system: blob, tools: blob, task: blob },
            base: Base { manifest: blob, tree: TreeHash::ZERO, git: None },
            gates: gates.iter().map(|name| gate(name)).collect(),
            tests: None,
            external: vec![],
            servers_left_out: vec![],
            linters: vec![],
            roles: vec![],
            requires: vec![],
            policy: None,
            policies: Vec::new(),
            sandbox: SandboxLayers { backend: sandbox.into(), ..SandboxLayers::default() },
            worker: IncarnationId(uuid::Uuid::from_u128(3)),
        };
        let mut log = Self { state: RunState::default() };
        log.push(started);
        log
    }

    /// As if this had been pinned.
    pub(super) fn pin(&mut self, change: impl FnOnce(&mut RunStarted)) {
        let mut pins = RunStarted::clone(self.state.pins.as_ref().expect("started"));
        change(&mut pins);
        self.state.pins = Some(std::sync::Arc::new(pins));
    }

    /// As if a snapshot had found this file.
    pub(super) fn leave(&mut self, file: &str) {
        let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 1, hash: BlobRef::of(b"x").hash };
        self.state.overlay.insert(WorkPath::new(file).expect("legal"), Some(entry));
    }

    pub(super) fn push(&mut self, event: impl Into<RunEvent>) -> &mut Self {
        let event = event.into();
        let opens_turn = matches!(&event, RunEvent::ModelRequested(asked) if asked.attempt == 1);
        let turn = if opens_turn { self.state.turn.next() } else { self.state.turn };
        let meta = docket_schema::run::EventMeta {
            seq: self.state.seq.next(),
            hash: EventHash::ZERO,
            turn,
            epoch: Epoch(1),
        };
        self.state.apply(meta, event).expect("legal");
        self
    }

    fn ask(&mut self) -> &mut Self {
        let attempt = self.state.failed_attempts + 1;
        let turn = if attempt == 1 { self.state.turn.next() } else { self.state.turn };
        self.push(ModelRequested {
            call: CallId::model(turn, attempt),
            purpose: Purpose::Decide,
            role: None,
            model: ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None },
            attempt,
            decision: DecisionHash::ZERO,
            request: DecisionHash::ZERO,
            request_bytes: 0,
            nudge: None,
            worst_case_nusd: 0,
            output_tokens_max: None,
        })
    }

    fn open_call(&self) -> CallId {
        CallId::model(self.state.turn, self.state.failed_attempts + 1)
    }

    pub(super) fn say(&mut self, text: &str, tools: &[(&str, serde_json::Value)]) -> &mut Self {
        self.ask();
        let mut parts = vec![Part::Text { text: text.into() }];
        for (at, (name, args)) in tools.iter().enumerate() {
            let call = CallId::tool(self.state.turn, at);
            let (name, args) = ((*name).to_owned(), args.clone());
            parts.push(Part::ToolUse(ToolUse { call, name, args, malformed: None }));
        }
        let call = self.open_call();
        self.push(ModelAnswered {
            call,
            parts,
            stop: StopReason::EndTurn,
            usage: Usage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        })
    }

    pub(super) fn fail(&mut self, retry_in_ms: Option<u64>) -> &mut Self {
        self.fail_with(|failed| failed.retry_in_ms = retry_in_ms)
    }

    pub(super) fn fail_with(&mut self, how: impl FnOnce(&mut ModelFailed)) -> &mut Self {
        self.ask();
        let (call, error, message) = (self.open_call(), "overloaded".into(), "busy".into());
        let mut failed = ModelFailed {
            call,
            error,
            message,
            retry_in_ms: None,
            retry_after_ms: None,
            needs_person: false,
            duration_ms: 0,
        };
        how(&mut failed);
        self.push(failed)
    }

    /// Runs what the engine plans, with these facts as each result.
    fn run_batch(&mut self, facts: &ToolFacts) -> &mut Self {
        self.run_batch_with(&[(ToolStatus::Ok, "ok", facts.clone())])
    }

    /// Runs what the engine plans, each call with its own result; the last one stands for all further.
    pub(super) fn run_batch_with(&mut self, results: &[(ToolStatus, &str, ToolFacts)]) -> &mut Self {
        let Act::RunTools(batch) = self.decide().act else { panic!("no tools are planned") };
        for tool in &batch {
            self.push(ToolRequested {
                call: tool.call.clone(),
                tool: tool.tool.clone(),
                class: tool.class,
                policy: Verdict::Allow { rule: "builtin".into() },
                labels: vec![],
                decision: DecisionHash::ZERO,
            });
        }
        for (at, tool) in batch.into_iter().enumerate() {
            let (status, text, facts) = &results[at.min(results.len() - 1)];
            self.push(ToolFinished {
                call: tool.call,
                status: *status,
                content: (*text).into(),
                full: None,
                facts: facts.clone(),
                duration_ms: 0,
            });
        }
        self
    }

    pub(super) fn gates(&mut self, passed: bool) -> &mut Self {
        self.gates_with(&[passed; 8])
    }

    /// Runs the gates that the engine plans, each with its own result.
    fn gates_with(&mut self, passed: &[bool]) -> &mut Self {
        let results: Vec<(bool, ToolFacts)> =
            passed.iter().map(|passed| (*passed, ToolFacts::default())).collect();
        self.gates_said(&results)
    }

    /// The same, each with its own facts.
    pub(super) fn gates_said(&mut self, passed: &[(bool, ToolFacts)]) -> &mut Self {
        let Act::RunGates(gates) = self.decide().act else { panic!("no gates are planned") };
        assert!(gates.len() <= passed.len());
        for planned in gates.clone() {
            self.push(GateRequested {
                call: planned.call,
                gate: planned.gate,
                step: planned.step,
                decision: DecisionHash::ZERO,
            });
        }
        for (planned, (passed, facts)) in gates.into_iter().zip(passed.iter().cloned()) {
            self.push(GateFinished {
                call: planned.call,
                step: planned.step,
                passed,
                content: "1 failed".into(),
                full: None,
                facts,
                duration_ms: 0,
            });
        }
        self
    }

    pub(super) fn decide(&self) -> Decision {
        React.decide(&self.state)
    }
}

fn gate(name: &str) -> GateSpec {
    GateSpec { name: name.into(), command: "true".into(), mend: None }
}

fn read() -> (&'static str, serde_json::Value) {
    ("read_file", json!({ "path": "a" }))
}

fn command(line: &str) -> (&'static str, serde_json::Value) {
    ("run_command", json!({ "command": line }))
}

/// The decision in one word per thing that matters.
pub(super) fn gist(decision: &Decision) -> String {
    match &decision.act {
        Act::CallModel(call) => {
            let nudge = if call.nudge.is_some() { " nudged" } else { "" };
            format!("ask turn {} attempt {} wait {}{nudge}", call.turn, call.attempt, call.wait_ms)
        }
        Act::RunTools(batch) => {
            let tools: Vec<String> =
                batch.iter().map(|tool| format!("{} {:?}", tool.tool, tool.class).to_lowercase()).collect();
            format!("{}: {}", decision.phase.as_str(), tools.join(", "))
        }
        Act::RunGates(gates) => {
            format!("gates {}", gates.iter().map(|g| g.call.to_string()).collect::<Vec<_>>().join(" "))
        }
        Act::Compact(event) => format!("compact {} {}", event.cleared.len(), event.messages),
        Act::Conclude(conclusion) => {
            let begins = conclusion.begins.as_ref().map(|begins| format!(" begin {}", begins.role));
            format!("conclude {}{}", conclusion.facts.len(), begins.unwrap_or_default())
        }
        Act::Pause => "pause".into(),
        Act::Block { question, why: BlockedWhy::Model, .. } => format!("block {question:?}"),
        Act::Block { question, why: BlockedWhy::Provider, .. } => {
            format!("block for the provider: {question:?}")
        }
        Act::Block { .. } => "block for another reason".into(),
        Act::End { result: RunOutcome::Failed { why, message }, .. } => format!("failed {why:?}: {message}"),
        Act::End { result, .. } => format!("end {}", result.as_str()),
    }
}

fn check(given: &Log, then: &str) {
    assert_eq!(gist(&given.decide()), then);
}

#[test]
fn the_loop_asks_runs_and_asks_again() {
    let mut log = Log::new();
    check(&log, "ask turn 1 attempt 1 wait 0");
    log.say("I look.", &[read(), read()]);
    check(&log, "exploring: read_file reads, read_file reads");
    log.run_batch(&ToolFacts::default());
    check(&log, "ask turn 2 attempt 1 wait 0");
}

#[test]
fn text_without_a_call_is_checked_by_the_gates_before_it_is_success() {
    let mut log = Log::new();
    log.say("Done.", &[]);
    check(&log, "gates g1-0");
    log.gates(true);
    check(&log, "end succeeded");
    let mut without = Log::with(&[], "namespaces");
    without.say("Done.", &[]);
    check(&without, "end succeeded");
}

#[test]
fn failed_gates_lead_back_into_the_loop_with_more_turns_and_not_for_ever() {
    let mut log = Log::new();
    for _ in 0..3 {
        log.say("", &[read()]).run_batch(&ToolFacts::default());
    }
    log.say("Done.", &[]).gates(false);
    check(&log, "ask turn 5 attempt 1 wait 0");
    log.say("Done now.", &[]);
    check(&log, "gates g5-1");
    log.gates(false);
    check(&log, "failed Gates: the final checks still fail after 1 rounds of correction");
}

#[test]
fn the_turn_cap_ends_the_run_as_failed() {
    let mut log = Log::new();
    for _ in 0..4 {
        log.say("", &[read()]).run_batch(&ToolFacts::default());
    }
    check(&log, "failed TurnLimit: the cap of 4 turns is reached");
}

#[test]
fn a_blocker_is_asked_and_nothing_else_runs() {
    let mut log = Log::new();
    log.say("\n BLOCKED: Which of the two schemas?", &[]);
    check(&log, r#"block Text("Which of the two schemas?")"#);
}

#[test]
fn an_empty_answer_is_asked_again_and_then_given_up() {
    let mut log = Log::new();
    log.say(" \n", &[]);
    check(&log, "ask turn 2 attempt 1 wait 0 nudged");
    log.say("", &[]);
    check(&log, "failed EmptyAnswers: 2 empty answers in a row");
}

#[test]
fn a_failed_call_is_tried_again_in_the_same_turn_after_the_recorded_wait() {
    let mut log = Log::new();
    log.fail(Some(70));
    check(&log, "ask turn 1 attempt 2 wait 70");
    log.fail(Some(90));
    check(&log, "ask turn 1 attempt 3 wait 90");
    log.fail(Some(1));
    check(&log, "failed Model: 3 attempts failed; the last one: busy");
    let mut hopeless = Log::new();
    hopeless.fail(None);
    check(&hopeless, "failed Model: busy");
}

#[test]
fn what_only_a_person_can_mend_waits_for_one_and_goes_on_in_the_same_turn() {
    let mut log = Log::new();
    log.say("", &[read()]).run_batch(&ToolFacts::default());
    log.fail(Some(70)).fail(Some(90));
    log.fail_with(|failed| failed.needs_person = true);
    check(&log, r#"block for the provider: Text("busy")"#);
    let conversation = |log: &Log| log.state.transcript.conversation(None).digest();
    let before = conversation(&log);
    let question = "busy".into();
    log.push(RunBlocked {
        question,
        why: BlockedWhy::Provider,
        outages: 0,
        about: None,
        decision: DecisionHash::ZERO,
    });
    log.push(BlockerAnswered { text: "".into(), by: "a".into() });
    check(&log, "ask turn 2 attempt 4 wait 0");
    assert_eq!(conversation(&log), before, "the same request, to the byte");
    // Attempts from before count for no cap.
    log.fail(Some(7));
    check(&log, "ask turn 2 attempt 5 wait 7");
}

#[test]
fn wishes_and_limits_come_first_and_leave_no_call_without_its_result() {
    let mut log = Log::new();
    log.push(LimitReached { which: Limit::Money, message: None });
    check(&log, "failed Limit: the budget of money is used up");
    log.push(LimitReached { which: Limit::Money, message: Some("no price".to_owned()) });
    check(&log, "failed Configuration: no price");
    log.push(CancelRequested { by: "a".into(), reason: String::new() });
    check(&log, "end cancelled");

    let mut log = Log::new();
    log.say("", &[read()]).push(PauseRequested { by: "a".into() });
    check(&log, "exploring: read_file reads");
    log.run_batch(&ToolFacts::default());
    check(&log, "pause");
}

#[test]
fn a_run_whose_batch_may_use_no_more_rests_and_asks_the_same_once_it_may() {
    let mut log = Log::new();
    check(&log, "ask turn 1 attempt 1 wait 0");
    let conversation = |log: &Log| log.state.transcript.conversation(None).digest();
    let before = conversation(&log);
    log.push(LimitReached { which: Limit::Batch, message: Some("9 of 10 tokens are used".to_owned()) });
    let Decision { act: Act::Block { question, why, .. }, .. } = log.decide() else { panic!("it rests") };
    assert_eq!((&question, why), (&"9 of 10 tokens are used".into(), BlockedWhy::Budget));
    log.push(RunBlocked { question, why, outages: 0, about: None, decision: log.decide().hash() });
    log.push(BlockerAnswered { text: "".into(), by: "docket".into() });
    check(&log, "ask turn 1 attempt 1 wait 0");
    assert_eq!(conversation(&log), before, "the same request, to the byte");
}

#[test]
fn what_a_person_tells_at_the_end_goes_on_instead_of_ending() {
    let mut log = Log::new();
    log.say("Done.", &[]).push(Told { text: "Also the docs.".into(), by: "a".into() });
    check(&log, "ask turn 2 attempt 1 wait 0");
}

#[test]
fn a_call_that_may_reach_out_is_a_batch_of_its_own() {
    let mut walls = Log::new();
    walls.say("", &[read(), command("make"), read()]);
    check(&walls, "testing: read_file reads, run_command workspace, read_file reads");
    let mut none = Log::with(&[], "none");
    none.say("", &[read(), command("make"), command("make"), read()]);
    check(&none, "exploring: read_file reads");
    none.run_batch(&ToolFacts::default());
    check(&none, "testing: run_command external");
    none.run_batch(&ToolFacts::default());
    check(&none, "testing: run_command external");
}

#[test]
fn a_change_after_failing_tests_is_a_fix() {
    let edit = ("edit_file", json!({ "path": "a", "edits": [] }));
    let mut log = Log::new();
    log.say("", std::slice::from_ref(&edit));
    assert_eq!(log.decide().phase, Phase::Editing);
    let changed = ToolFacts { changed: vec![WorkPath::new("a").expect("legal")], ..ToolFacts::default() };
    log.run_batch(&changed);
    log.say("", &[("run_tests", json!({}))]);
    let failing = TestCounts { failed: 1, ..TestCounts::default() };
    log.run_batch(&ToolFacts { tests: Some(failing), ..ToolFacts::default() });
    log.say("", &[edit]);
    assert_eq!(log.decide().phase, Phase::Fixing);
}

#[test]
fn equal_states_give_equal_hashes_and_another_word_another_hash() {
    let hash = |text: &str| {
        let mut log = Log::new();
        log.say(text, &[read()]).run_batch(&ToolFacts::default());
        log.decide().hash()
    };
    assert_eq!(hash("a"), hash("a"));
    assert_ne!(hash("a"), hash("b"));
}

/// A run whose linter gates, with the files that it changed.
fn linted(files: &[&str]) -> Log {
    let linter = LinterSpec {
        name: "ruff".into(),
        extensions: vec!["py".into()],
        check: "check {files}".into(),
        project: None,
        fix: Some("fix {files}".into()),
        gates: true,
    };
    let mut log = Log::new();
    log.pin(|pins| pins.linters = vec![linter]);
    files.iter().for_each(|file| log.leave(file));
    log
}

/// The lines of the gates that are planned.
fn lines(log: &Log) -> Vec<String> {
    let Act::RunGates(gates) = log.decide().act else { panic!("no gates are planned") };
    let line = |planned: &PlannedGate| {
        let word = if planned.step.is_check() { "" } else { "mend " };
        format!("{} {word}{}", planned.call, planned.gate.command)
    };
    gates.iter().map(line).collect()
}

#[test]
fn a_linter_checks_what_the_run_changed_and_nothing_else() {
    let mut log = linted(&["b.py", "a file.py", "notes.txt"]);
    log.say("Done.", &[]);
    assert_eq!(lines(&log), ["g1-0 check 'a file.py' b.py", "g1-1 true"]);
    let mut none = linted(&["notes.txt"]);
    none.say("Done.", &[]);
    assert_eq!(lines(&none), ["g1-0 true"], "no file of its language changed");
    let mut missing = linted(&["b.py"]);
    missing.state.linters_missing.insert("ruff".into());
    missing.say("Done.", &[]);
    assert_eq!(lines(&missing), ["g1-0 true"], "it is not installed");
}

#[test]
fn a_failed_linter_is_mended_once_and_then_it_is_the_models_turn() {
    let mut log = linted(&["a.py"]);
    log.say("Done.", &[]).gates_with(&[false, true]);
    assert_eq!(lines(&log), ["g1-2 mend check a.py"], "not told to the model yet");
    log.gates_with(&[true]);
    assert_eq!(lines(&log), ["g1-3 check a.py", "g1-4 true"], "all checks run again");
    let mut passes = Log { state: log.state.clone() };
    passes.gates(true);
    check(&passes, "end succeeded");
    log.gates_with(&[false, true]);
    check(&log, "ask turn 2 attempt 1 wait 0");
    let said: Vec<String> = log
        .state
        .transcript
        .conversation(None)
        .iter()
        .flat_map(|said| said.message.parts.iter().map(|part| format!("{part:?}")).collect::<Vec<_>>())
        .collect();
    let told = said.iter().filter(|part| part.contains("The final check `ruff`")).count();
    assert_eq!(told, 1, "what was mended in between is not told: {said:?}");
}

#[test]
fn mending_costs_no_round_of_correction() {
    let mut log = linted(&["a.py"]);
    log.say("Done.", &[]).gates_with(&[false, true]).gates_with(&[true]).gates_with(&[false, true]);
    assert_eq!(log.state.corrections, 1);
    log.say("Done now.", &[]).gates_with(&[false, true]).gates_with(&[true]).gates_with(&[true, false]);
    check(&log, "failed Gates: the final checks still fail after 1 rounds of correction");
}

#[test]
fn fifteen_turns_go_beyond_the_cap_and_no_more() {
    let mut log = Log::new();
    let mut pins = RunStarted::clone(log.state.pins.as_ref().expect("started"));
    pins.settings = RunSettings::default();
    log.state.pins = Some(std::sync::Arc::new(pins));
    for _ in 0..29 {
        log.say("", &[read()]).run_batch(&ToolFacts::default());
    }
    for _ in 0..3 {
        log.say("Done.", &[]).gates(false);
        for _ in 0..4 {
            log.say("", &[read()]).run_batch(&ToolFacts::default());
        }
    }
    check(&log, "ask turn 45 attempt 1 wait 0");
    log.say("", &[read()]).run_batch(&ToolFacts::default());
    check(&log, "failed TurnLimit: the cap of 45 turns is reached");
}

#[test]
fn tests_that_the_run_wrote_are_run_where_there_were_none() {
    let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 1, hash: BlobRef::of(b"x").hash };
    let mut log = Log::with(&[], "namespaces");
    log.state.overlay.insert(WorkPath::new("tests/test_a.py").expect("legal"), Some(entry));
    log.say("Done.", &[]);
    assert!(lines(&log)[0].contains("-m pytest"), "{:?}", lines(&log));
}

#[test]
fn a_change_that_leaves_findings_is_followed_by_a_fix() {
    let edit = ("edit_file", json!({ "path": "a.py", "edits": [] }));
    let seen = |status| LintSeen { findings: 1, ..LintSeen::plain("ruff", status) };
    let facts = |status| ToolFacts {
        changed: vec![WorkPath::new("a.py").expect("legal")],
        lint: vec![seen(status)],
        ..ToolFacts::default()
    };
    let mut log = Log::new();
    log.say("", std::slice::from_ref(&edit)).run_batch(&facts(LintStatus::Findings));
    log.say("", std::slice::from_ref(&edit));
    assert_eq!((log.decide().phase, log.state.lint_failures), (Phase::Fixing, 1));
    log.run_batch(&facts(LintStatus::Clean));
    log.say("", std::slice::from_ref(&edit));
    assert_eq!((log.decide().phase, log.state.lint_failures), (Phase::Editing, 0));
    log.run_batch(&facts(LintStatus::Missing));
    assert!(
        !log.state.linters_missing.contains("ruff"),
        "it ran before: the run removed it, and it stays a check"
    );
}
