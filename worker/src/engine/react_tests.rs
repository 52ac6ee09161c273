//! The rules of `react`, one `check` per rule: given this log, expect that decision.

use docket_schema::{
    content::{BlobRef, WorkspacePath},
    ids::{DecisionHash, Epoch, EventHash, IncarnationId, RunId, TaskId, TreeHash},
    message::{CallId, MessagePart, ModelRef, StopReason, TokenUsage, ToolUse},
    run::{
        BlockedReason, BlockerAnswered, CallPurpose, CancelRequested, EngineRef, GateFinished, GateRequested,
        GateSpec, LimitKind, LimitReached, LinterSpec, ModelAnswered, ModelFailed, ModelRequested,
        ModelTerms, PauseRequested, PolicyVerdict, RunBlocked, RunEvent, RunModels, RunOutcome, RunPhase,
        RunPrompts, RunSettings, RunStarted, RunState, SandboxLayers, Told, ToolFinished, ToolRequested,
        ToolStatus, UnverifiedPolicy,
    },
    snapshot::{Entry, EntryKind, WorkspaceBase},
    tool::{LintResult, LintStatus, TestCounts, ToolFacts},
};
use serde_json::json;

use super::{Action, Decision, Engine as _, PlannedGate, ReactEngine};

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

/// The default pins of a run.
pub(crate) fn sample_pins() -> RunStarted {
    RunStarted::clone(
        TestLog::with_settings(RunSettings::default(), &[], "namespaces")
            .state
            .pins
            .as_ref()
            .expect("started"),
    )
}

pub(super) struct TestLog {
    pub(super) state: RunState,
}

impl TestLog {
    fn new() -> Self {
        Self::with_gates(&["tests"], "namespaces")
    }

    fn with_gates(gates: &[&str], sandbox: &str) -> Self {
        Self::with_settings(SETTINGS, gates, sandbox)
    }

    pub(super) fn with_settings(settings: RunSettings, gates: &[&str], sandbox: &str) -> Self {
        let model = ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None };
        Self::with_models(settings, gates, sandbox, RunModels::single_model(model, ModelTerms::default()))
    }

    pub(super) fn with_models(
        settings: RunSettings,
        gates: &[&str],
        sandbox: &str,
        models: RunModels,
    ) -> Self {
        let blob = BlobRef::for_bytes(b"x");
        let started = RunStarted {
            task: TaskId(uuid::Uuid::from_u128(1)),
            run: RunId(uuid::Uuid::from_u128(2)),
            attempt: 1,
            engine: EngineRef { name: "react".into(), version: 1 },
            models,
            settings,
            prompts: RunPrompts { system: blob, tools: blob, task: blob },
            base: WorkspaceBase { manifest: blob, tree: TreeHash::ZERO, git: None },
            gates: gates.iter().map(|name| sample_gate(name)).collect(),
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

    /// Overrides the pins.
    pub(super) fn edit_pins(&mut self, change: impl FnOnce(&mut RunStarted)) {
        let mut pins = RunStarted::clone(self.state.pins.as_ref().expect("started"));
        change(&mut pins);
        self.state.pins = Some(std::sync::Arc::new(pins));
    }

    /// Adds a file as if a snapshot had found it.
    pub(super) fn add_file(&mut self, file: &str) {
        let entry =
            Entry { kind: EntryKind::File, mode: 0o644, size: 1, hash: BlobRef::for_bytes(b"x").hash };
        self.state.overlay.insert(WorkspacePath::new(file).expect("legal"), Some(entry));
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

    fn request_model(&mut self) -> &mut Self {
        let attempt = self.state.failed_attempts + 1;
        let turn = if attempt == 1 { self.state.turn.next() } else { self.state.turn };
        self.push(ModelRequested {
            call: CallId::for_model(turn, attempt),
            purpose: CallPurpose::Decide,
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
        CallId::for_model(self.state.turn, self.state.failed_attempts + 1)
    }

    pub(super) fn answer_with(&mut self, text: &str, tools: &[(&str, serde_json::Value)]) -> &mut Self {
        self.request_model();
        let mut parts = vec![MessagePart::Text { text: text.into() }];
        for (at, (name, args)) in tools.iter().enumerate() {
            let call = CallId::for_tool(self.state.turn, at);
            let (name, args) = ((*name).to_owned(), args.clone());
            parts.push(MessagePart::ToolUse(ToolUse { call, name, args, malformed: None }));
        }
        let call = self.open_call();
        self.push(ModelAnswered {
            call,
            parts,
            stop: StopReason::EndTurn,
            usage: TokenUsage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        })
    }

    pub(super) fn fail_call(&mut self, retry_in_ms: Option<u64>) -> &mut Self {
        self.fail_with(|failed| failed.retry_in_ms = retry_in_ms)
    }

    pub(super) fn fail_with(&mut self, how: impl FnOnce(&mut ModelFailed)) -> &mut Self {
        self.request_model();
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

    /// Runs what the engine plans, each call with its own result; the last one is reused for all others.
    pub(super) fn run_batch_with(&mut self, results: &[(ToolStatus, &str, ToolFacts)]) -> &mut Self {
        let Action::RunTools(batch) = self.decide().act else { panic!("no tools are planned") };
        for tool in &batch {
            self.push(ToolRequested {
                call: tool.call.clone(),
                tool: tool.tool.clone(),
                class: tool.class,
                policy: PolicyVerdict::Allow { rule: "builtin".into() },
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

    pub(super) fn end_gates(&mut self, passed: bool) -> &mut Self {
        self.end_each_gate(&[passed; 8])
    }

    /// Runs the gates that the engine plans, each with its own result.
    fn end_each_gate(&mut self, passed: &[bool]) -> &mut Self {
        let results: Vec<(bool, ToolFacts)> =
            passed.iter().map(|passed| (*passed, ToolFacts::default())).collect();
        self.end_gates_with_facts(&results)
    }

    /// The same, each with its own facts.
    pub(super) fn end_gates_with_facts(&mut self, passed: &[(bool, ToolFacts)]) -> &mut Self {
        let Action::RunGates(gates) = self.decide().act else { panic!("no gates are planned") };
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
        ReactEngine.decide(&self.state)
    }
}

fn sample_gate(name: &str) -> GateSpec {
    GateSpec { name: name.into(), command: "true".into(), mend: None }
}

fn read_call() -> (&'static str, serde_json::Value) {
    ("read_file", json!({ "path": "a" }))
}

fn command_call(line: &str) -> (&'static str, serde_json::Value) {
    ("run_command", json!({ "command": line }))
}

/// The decision in one word per relevant property.
pub(super) fn describe_decision(decision: &Decision) -> String {
    match &decision.act {
        Action::CallModel(call) => {
            let nudge = if call.nudge.is_some() { " nudged" } else { "" };
            format!("ask turn {} attempt {} wait {}{nudge}", call.turn, call.attempt, call.wait_ms)
        }
        Action::RunTools(batch) => {
            let tools: Vec<String> =
                batch.iter().map(|tool| format!("{} {:?}", tool.tool, tool.class).to_lowercase()).collect();
            format!("{}: {}", decision.phase.as_str(), tools.join(", "))
        }
        Action::RunGates(gates) => {
            format!("gates {}", gates.iter().map(|g| g.call.to_string()).collect::<Vec<_>>().join(" "))
        }
        Action::Compact(event) => format!("compact {} {}", event.cleared.len(), event.messages),
        Action::Conclude(conclusion) => {
            let begins = conclusion.begins.as_ref().map(|begins| format!(" begin {}", begins.role));
            format!("conclude {}{}", conclusion.facts.len(), begins.unwrap_or_default())
        }
        Action::Pause => "pause".into(),
        Action::Block { question, why: BlockedReason::Model, .. } => format!("block {question:?}"),
        Action::Block { question, why: BlockedReason::Provider, .. } => {
            format!("block for the provider: {question:?}")
        }
        Action::Block { .. } => "block for another reason".into(),
        Action::End { result: RunOutcome::Failed { why, message }, .. } => {
            format!("failed {why:?}: {message}")
        }
        Action::End { result, .. } => format!("end {}", result.as_str()),
    }
}

fn assert_decision(given: &TestLog, then: &str) {
    assert_eq!(describe_decision(&given.decide()), then);
}

#[test]
fn loop_alternates_model_calls_and_tools() {
    let mut log = TestLog::new();
    assert_decision(&log, "ask turn 1 attempt 1 wait 0");
    log.answer_with("I look.", &[read_call(), read_call()]);
    assert_decision(&log, "exploring: read_file reads, read_file reads");
    log.run_batch(&ToolFacts::default());
    assert_decision(&log, "ask turn 2 attempt 1 wait 0");
}

#[test]
fn answer_without_a_call_must_pass_the_gates() {
    let mut log = TestLog::new();
    log.answer_with("Done.", &[]);
    assert_decision(&log, "gates g1-0");
    log.end_gates(true);
    assert_decision(&log, "end succeeded");
    let mut without = TestLog::with_gates(&[], "namespaces");
    without.answer_with("Done.", &[]);
    assert_decision(&without, "end succeeded");
}

#[test]
fn failed_gates_return_to_the_loop_a_limited_number_of_times() {
    let mut log = TestLog::new();
    for _ in 0..3 {
        log.answer_with("", &[read_call()]).run_batch(&ToolFacts::default());
    }
    log.answer_with("Done.", &[]).end_gates(false);
    assert_decision(&log, "ask turn 5 attempt 1 wait 0");
    log.answer_with("Done now.", &[]);
    assert_decision(&log, "gates g5-1");
    log.end_gates(false);
    assert_decision(&log, "failed Gates: the final checks still fail after 1 rounds of correction");
}

#[test]
fn turn_limit_fails_the_run() {
    let mut log = TestLog::new();
    for _ in 0..4 {
        log.answer_with("", &[read_call()]).run_batch(&ToolFacts::default());
    }
    assert_decision(&log, "failed TurnLimit: the cap of 4 turns is reached");
}

#[test]
fn blocker_asks_a_person_and_nothing_else_runs() {
    let mut log = TestLog::new();
    log.answer_with("\n BLOCKED: Which of the two schemas?", &[]);
    assert_decision(&log, r#"block Text("Which of the two schemas?")"#);
}

#[test]
fn empty_answers_are_retried_then_fail_the_run() {
    let mut log = TestLog::new();
    log.answer_with(" \n", &[]);
    assert_decision(&log, "ask turn 2 attempt 1 wait 0 nudged");
    log.answer_with("", &[]);
    assert_decision(&log, "failed EmptyAnswers: 2 empty answers in a row");
}

#[test]
fn failed_call_is_retried_in_the_same_turn_after_the_recorded_wait() {
    let mut log = TestLog::new();
    log.fail_call(Some(70));
    assert_decision(&log, "ask turn 1 attempt 2 wait 70");
    log.fail_call(Some(90));
    assert_decision(&log, "ask turn 1 attempt 3 wait 90");
    log.fail_call(Some(1));
    assert_decision(&log, "failed Model: 3 attempts failed; the last one: busy");
    let mut hopeless = TestLog::new();
    hopeless.fail_call(None);
    assert_decision(&hopeless, "failed Model: busy");
}

#[test]
fn failure_needing_a_person_blocks_and_resumes_in_the_same_turn() {
    let mut log = TestLog::new();
    log.answer_with("", &[read_call()]).run_batch(&ToolFacts::default());
    log.fail_call(Some(70)).fail_call(Some(90));
    log.fail_with(|failed| failed.needs_person = true);
    assert_decision(&log, r#"block for the provider: Text("busy")"#);
    let conversation = |log: &TestLog| log.state.transcript.conversation(None).digest();
    let before = conversation(&log);
    let question = "busy".into();
    log.push(RunBlocked {
        question,
        why: BlockedReason::Provider,
        outages: 0,
        about: None,
        decision: DecisionHash::ZERO,
    });
    log.push(BlockerAnswered { text: "".into(), by: "a".into() });
    assert_decision(&log, "ask turn 2 attempt 4 wait 0");
    assert_eq!(conversation(&log), before, "the same request, to the byte");
    // Earlier attempts do not count toward any limit.
    log.fail_call(Some(7));
    assert_decision(&log, "ask turn 2 attempt 5 wait 7");
}

#[test]
fn requests_and_limits_come_first_and_leave_no_call_without_a_result() {
    let mut log = TestLog::new();
    log.push(LimitReached { which: LimitKind::Money, message: None });
    assert_decision(&log, "failed Limit: the budget of money is used up");
    log.push(LimitReached { which: LimitKind::Money, message: Some("no price".to_owned()) });
    assert_decision(&log, "failed Configuration: no price");
    log.push(CancelRequested { by: "a".into(), reason: String::new() });
    assert_decision(&log, "end cancelled");

    let mut log = TestLog::new();
    log.answer_with("", &[read_call()]).push(PauseRequested { by: "a".into() });
    assert_decision(&log, "exploring: read_file reads");
    log.run_batch(&ToolFacts::default());
    assert_decision(&log, "pause");
}

#[test]
fn run_waits_at_the_batch_budget_and_repeats_the_same_call() {
    let mut log = TestLog::new();
    assert_decision(&log, "ask turn 1 attempt 1 wait 0");
    let conversation = |log: &TestLog| log.state.transcript.conversation(None).digest();
    let before = conversation(&log);
    log.push(LimitReached { which: LimitKind::Batch, message: Some("9 of 10 tokens are used".to_owned()) });
    let Decision { act: Action::Block { question, why, .. }, .. } = log.decide() else { panic!("it rests") };
    assert_eq!((&question, why), (&"9 of 10 tokens are used".into(), BlockedReason::Budget));
    log.push(RunBlocked { question, why, outages: 0, about: None, decision: log.decide().hash() });
    log.push(BlockerAnswered { text: "".into(), by: "docket".into() });
    assert_decision(&log, "ask turn 1 attempt 1 wait 0");
    assert_eq!(conversation(&log), before, "the same request, to the byte");
}

#[test]
fn user_message_at_the_end_continues_the_run() {
    let mut log = TestLog::new();
    log.answer_with("Done.", &[]).push(Told { text: "Also the docs.".into(), by: "a".into() });
    assert_decision(&log, "ask turn 2 attempt 1 wait 0");
}

#[test]
fn external_call_is_a_batch_of_its_own() {
    let mut walls = TestLog::new();
    walls.answer_with("", &[read_call(), command_call("make"), read_call()]);
    assert_decision(&walls, "testing: read_file reads, run_command workspace, read_file reads");
    let mut none = TestLog::with_gates(&[], "none");
    none.answer_with("", &[read_call(), command_call("make"), command_call("make"), read_call()]);
    assert_decision(&none, "exploring: read_file reads");
    none.run_batch(&ToolFacts::default());
    assert_decision(&none, "testing: run_command external");
    none.run_batch(&ToolFacts::default());
    assert_decision(&none, "testing: run_command external");
}

#[test]
fn edit_after_failing_tests_is_the_fixing_phase() {
    let edit = ("edit_file", json!({ "path": "a", "edits": [] }));
    let mut log = TestLog::new();
    log.answer_with("", std::slice::from_ref(&edit));
    assert_eq!(log.decide().phase, RunPhase::Editing);
    let changed =
        ToolFacts { changed: vec![WorkspacePath::new("a").expect("legal")], ..ToolFacts::default() };
    log.run_batch(&changed);
    log.answer_with("", &[("run_tests", json!({}))]);
    let failing = TestCounts { failed: 1, ..TestCounts::default() };
    log.run_batch(&ToolFacts { tests: Some(failing), ..ToolFacts::default() });
    log.answer_with("", &[edit]);
    assert_eq!(log.decide().phase, RunPhase::Fixing);
}

#[test]
fn equal_states_give_equal_hashes_and_different_text_a_different_hash() {
    let hash = |text: &str| {
        let mut log = TestLog::new();
        log.answer_with(text, &[read_call()]).run_batch(&ToolFacts::default());
        log.decide().hash()
    };
    assert_eq!(hash("a"), hash("a"));
    assert_ne!(hash("a"), hash("b"));
}

/// A run whose linter gates, with the files that it changed.
fn log_with_linter(files: &[&str]) -> TestLog {
    let linter = LinterSpec {
        name: "ruff".into(),
        extensions: vec!["py".into()],
        check: "check {files}".into(),
        project: None,
        fix: Some("fix {files}".into()),
        gates: true,
    };
    let mut log = TestLog::new();
    log.edit_pins(|pins| pins.linters = vec![linter]);
    files.iter().for_each(|file| log.add_file(file));
    log
}

/// The lines of the planned gates.
fn gate_lines(log: &TestLog) -> Vec<String> {
    let Action::RunGates(gates) = log.decide().act else { panic!("no gates are planned") };
    let line = |planned: &PlannedGate| {
        let word = if planned.step.is_check() { "" } else { "mend " };
        format!("{} {word}{}", planned.call, planned.gate.command)
    };
    gates.iter().map(line).collect()
}

#[test]
fn linter_checks_only_changed_files() {
    let mut log = log_with_linter(&["b.py", "a file.py", "notes.txt"]);
    log.answer_with("Done.", &[]);
    assert_eq!(gate_lines(&log), ["g1-0 check 'a file.py' b.py", "g1-1 true"]);
    let mut none = log_with_linter(&["notes.txt"]);
    none.answer_with("Done.", &[]);
    assert_eq!(gate_lines(&none), ["g1-0 true"], "no file of its language changed");
    let mut missing = log_with_linter(&["b.py"]);
    missing.state.linters_missing.insert("ruff".into());
    missing.answer_with("Done.", &[]);
    assert_eq!(gate_lines(&missing), ["g1-0 true"], "it is not installed");
}

#[test]
fn failed_linter_is_fixed_once_then_goes_to_the_model() {
    let mut log = log_with_linter(&["a.py"]);
    log.answer_with("Done.", &[]).end_each_gate(&[false, true]);
    assert_eq!(gate_lines(&log), ["g1-2 mend check a.py"], "not told to the model yet");
    log.end_each_gate(&[true]);
    assert_eq!(gate_lines(&log), ["g1-3 check a.py", "g1-4 true"], "all checks run again");
    let mut passes = TestLog { state: log.state.clone() };
    passes.end_gates(true);
    assert_decision(&passes, "end succeeded");
    log.end_each_gate(&[false, true]);
    assert_decision(&log, "ask turn 2 attempt 1 wait 0");
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
fn automatic_fix_costs_no_correction_round() {
    let mut log = log_with_linter(&["a.py"]);
    log.answer_with("Done.", &[])
        .end_each_gate(&[false, true])
        .end_each_gate(&[true])
        .end_each_gate(&[false, true]);
    assert_eq!(log.state.corrections, 1);
    log.answer_with("Done now.", &[])
        .end_each_gate(&[false, true])
        .end_each_gate(&[true])
        .end_each_gate(&[true, false]);
    assert_decision(&log, "failed Gates: the final checks still fail after 1 rounds of correction");
}

#[test]
fn correction_adds_a_fixed_number_of_turns() {
    let mut log = TestLog::new();
    let mut pins = RunStarted::clone(log.state.pins.as_ref().expect("started"));
    pins.settings = RunSettings::default();
    log.state.pins = Some(std::sync::Arc::new(pins));
    for _ in 0..29 {
        log.answer_with("", &[read_call()]).run_batch(&ToolFacts::default());
    }
    for _ in 0..3 {
        log.answer_with("Done.", &[]).end_gates(false);
        for _ in 0..4 {
            log.answer_with("", &[read_call()]).run_batch(&ToolFacts::default());
        }
    }
    assert_decision(&log, "ask turn 45 attempt 1 wait 0");
    log.answer_with("", &[read_call()]).run_batch(&ToolFacts::default());
    assert_decision(&log, "failed TurnLimit: the cap of 45 turns is reached");
}

#[test]
fn new_tests_are_run_if_none_existed_before() {
    let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 1, hash: BlobRef::for_bytes(b"x").hash };
    let mut log = TestLog::with_gates(&[], "namespaces");
    log.state.overlay.insert(WorkspacePath::new("tests/test_a.py").expect("legal"), Some(entry));
    log.answer_with("Done.", &[]);
    assert!(gate_lines(&log)[0].contains("-m pytest"), "{:?}", gate_lines(&log));
}

#[test]
fn edit_with_findings_is_followed_by_a_fix() {
    let edit = ("edit_file", json!({ "path": "a.py", "edits": [] }));
    let seen = |status| LintResult { findings: 1, ..LintResult::without_findings("ruff", status) };
    let facts = |status| ToolFacts {
        changed: vec![WorkspacePath::new("a.py").expect("legal")],
        lint: vec![seen(status)],
        ..ToolFacts::default()
    };
    let mut log = TestLog::new();
    log.answer_with("", std::slice::from_ref(&edit)).run_batch(&facts(LintStatus::Findings));
    log.answer_with("", std::slice::from_ref(&edit));
    assert_eq!((log.decide().phase, log.state.lint_failures), (RunPhase::Fixing, 1));
    log.run_batch(&facts(LintStatus::Clean));
    log.answer_with("", std::slice::from_ref(&edit));
    assert_eq!((log.decide().phase, log.state.lint_failures), (RunPhase::Editing, 0));
    log.run_batch(&facts(LintStatus::Missing));
    assert!(
        !log.state.linters_missing.contains("ruff"),
        "it ran before: the run removed it, and it stays a check"
    );
}
