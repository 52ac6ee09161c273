//! Any prefix of any log, at any level of compaction, must render a request that the strict server
//! accepts: golden logs cut after each event, and simulated runs that fill small windows.

use std::{collections::HashMap, fs, path::PathBuf};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, Content, WorkspacePath},
    export::InMemoryExport,
    ids::{BlobHash, DecisionHash, Epoch, EventHash, IncarnationId, RunId, TaskId, TreeHash, Turn},
    message::{CallId, Message, MessagePart, MessageRole, StopReason, TokenUsage, ToolUse},
    run::*,
    snapshot::WorkspaceBase,
    tool::{FileVersion, LineRange, ToolFacts},
};
use docket_worker::{
    engine::{self, Action, Engine, ModelCall},
    model::{ModelRequest, OMITTED_REPLIES_MARK, SUMMARY_REQUEST_MARK, render, thinking_signature},
    run::ReadCache,
    tools::{self, ToolOutcome},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{request_check, responses_check};

mod long_runs;

type Blobs = HashMap<BlobHash, Bytes>;

/// Checks that each provider's strict server accepts its body of these messages.
fn check_accepted(messages: &[Message], with_tools: bool, blobs: &Blobs) -> Result<(), String> {
    for model in ["anthropic:x", "openai:x", "openai-responses:x", "scripted:x"] {
        let request = ModelRequest {
            model: model.parse().expect("a model"),
            system: "You mend code.".to_owned(),
            tools: if with_tools { tools::core_tool_specs() } else { Vec::new() },
            messages: messages.to_vec(),
            max_output_tokens: 100,
            temperature_milli: None,
            effort: None,
            use_completion_tokens_field: false,
            began_with_thought: None,
        };
        let body = render(&request, blobs).map_err(|error| format!("{model}: {error}"))?;
        let body: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        let checked = match model {
            "openai:x" => request_check::check_openai(&body),
            "openai-responses:x" => responses_check::check_responses(&body),
            _ => request_check::check_anthropic(&body),
        };
        checked.map_err(|error| format!("{model}: {error}"))?;
    }
    Ok(())
}

fn check_conversation_accepted(
    conversation: &Conversation,
    with_tools: bool,
    blobs: &Blobs,
) -> Result<(), String> {
    let messages: Vec<Message> = conversation.iter().map(|said| said.message.clone()).collect();
    check_accepted(&messages, with_tools, blobs)
}

/// A simulated run: the engine decides, and the test plays model and tools.
struct SimulatedRun {
    state: RunState,
    blobs: Blobs,
    compactions: usize,
    summaries: usize,
    /// Number of changes to each file.
    versions: [u8; 4],
    /// Every result as it was recorded.
    results: HashMap<CallId, Content>,
    /// Results replaced by references, each with the result it refers to.
    pointers: HashMap<CallId, CallId>,
    /// Size of the conversation in bytes before and after each compaction.
    shortened: Vec<(u64, u64)>,
    /// Number of summaries that had to include an earlier one.
    merged_summaries: usize,
    /// Calls whose steps were dropped.
    dropped: usize,
}

/// The content of one turn.
#[derive(Debug, Clone)]
struct SimulatedTurn {
    thinks: bool,
    says: &'static str,
    calls: Vec<SimulatedCall>,
    has_user_message: bool,
    reports_usage: bool,
    summary: u8,
}

#[derive(Debug, Clone)]
struct SimulatedCall {
    tool: &'static str,
    path: u8,
    bytes: usize,
    fails: bool,
    lines: (u64, u64),
}

/// Checks every reference to an earlier result: that result must precede it, unchanged.
fn check_pointers<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    results: &HashMap<CallId, Content>,
    pointers: &HashMap<CallId, CallId>,
) -> Result<(), String> {
    let mut whole: Vec<&CallId> = Vec::new();
    for part in messages.into_iter().flat_map(|message| &message.parts) {
        let MessagePart::ToolResult { call, content, .. } = part else { continue };
        let as_recorded = results.get(call) == Some(content);
        match pointers.get(call).filter(|_| as_recorded) {
            Some(to) if !whole.contains(&to) => return Err(format!("{call} points to {to}: {content:?}")),
            Some(_) => {}
            None if as_recorded => whole.push(call),
            None => {}
        }
    }
    Ok(())
}

impl SimulatedRun {
    fn new(context_tokens: u64) -> Self {
        let task = Bytes::from_static(b"# Task: keep books");
        let blob = BlobRef::for_bytes(&task);
        let pins = RunStarted {
            task: TaskId(uuid::Uuid::from_u128(1)),
            run: RunId(uuid::Uuid::from_u128(2)),
            attempt: 1,
            engine: EngineRef { name: "react".into(), version: 1 },
            models: RunModels::single_model(
                "scripted:x".parse().expect("a model"),
                ModelTerms { context_tokens, ..ModelTerms::default() },
            ),
            // Failures are permanent here, and no approval is requested.
            settings: RunSettings {
                turns_max: 1000,
                empty_answers_max: 1000,
                same_error_max: 0,
                failed_edits_max: 0,
                failures_max: 0,
                ask_at_blockers: false,
                ..RunSettings::default()
            },
            prompts: RunPrompts { system: blob, tools: blob, task: blob },
            base: WorkspaceBase { manifest: blob, tree: TreeHash::ZERO, git: None },
            gates: vec![],
            tests: None,
            external: vec![],
            servers_left_out: vec![],
            linters: vec![],
            roles: vec![],
            requires: vec![],
            policy: None,
            policies: Vec::new(),
            sandbox: SandboxLayers { backend: "namespaces".into(), ..SandboxLayers::default() },
            worker: IncarnationId(uuid::Uuid::from_u128(3)),
        };
        let blobs = HashMap::from([(blob.hash, task)]);
        let mut talk = Self {
            state: RunState::default(),
            blobs,
            compactions: 0,
            summaries: 0,
            versions: [0; 4],
            results: HashMap::new(),
            pointers: HashMap::new(),
            shortened: Vec::new(),
            merged_summaries: 0,
            dropped: 0,
        };
        talk.push_event(Turn(0), pins);
        talk
    }

    fn push_event(&mut self, turn: Turn, event: impl Into<RunEvent>) {
        let meta = EventMeta { seq: self.state.seq.next(), hash: EventHash::ZERO, turn, epoch: Epoch(1) };
        self.state.apply(meta, event.into()).expect("legal");
    }

    fn request_model(&mut self, call: &ModelCall) {
        self.push_event(
            call.turn,
            ModelRequested {
                call: call.call.clone(),
                purpose: call.purpose,
                model: call.model.clone(),
                attempt: call.attempt,
                decision: DecisionHash::ZERO,
                request: DecisionHash::ZERO,
                request_bytes: 0,
                nudge: call.nudge.clone(),
                worst_case_nusd: 0,
                output_tokens_max: None,
                role: None,
            },
        );
    }

    fn answer_model(&mut self, call: &ModelCall, parts: Vec<MessagePart>, input_tokens: u64) {
        self.answer_model_with_stop(call, parts, input_tokens, StopReason::EndTurn);
    }

    fn answer_model_with_stop(
        &mut self,
        call: &ModelCall,
        parts: Vec<MessagePart>,
        input_tokens: u64,
        stop: StopReason,
    ) {
        let usage = TokenUsage { input_tokens, output_tokens: 20, ..TokenUsage::default() };
        let (call, turn) = (call.call.clone(), call.turn);
        self.push_event(
            turn,
            ModelAnswered { call, parts, stop, usage, cost_nusd: 0, first_byte_ms: 0, total_ms: 0 },
        );
    }

    /// Runs one turn, up to and including the results of its calls.
    fn run_turn(&mut self, brought: &SimulatedTurn) -> Result<(), TestCaseError> {
        let react = engine::newest_engine("react").expect("there is one");
        let (compactions, before) = (self.compactions, self.conversation_bytes());
        for _ in 0..20 {
            let decision = react.decide(&self.state);
            match decision.act {
                Action::Compact(event) => self.compact(*event)?,
                Action::CallModel(call) if call.purpose == CallPurpose::Compact => {
                    self.summarize(&call, brought)?
                }
                Action::CallModel(call) => {
                    if self.compactions > compactions {
                        self.shortened.push((before, self.conversation_bytes()));
                    }
                    check_conversation_accepted(&call.messages, true, &self.blobs)
                        .map_err(TestCaseError::fail)?;
                    self.check_conversation(&call.messages)?;
                    self.request_model(&call);
                    let bytes = self.state.transcript.sealed_conversation().bytes();
                    let parts = self.answer_parts(call.turn, brought);
                    self.answer_model(&call, parts, if brought.reports_usage { bytes / 3 } else { 0 });
                    self.run_tools(&*react, brought);
                    if brought.has_user_message || brought.calls.is_empty() {
                        let turn = self.state.turn;
                        self.push_event(turn, Told { text: "And mind the cents.".into(), by: "Ann".into() });
                    }
                    return Ok(());
                }
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
        }
        Err(TestCaseError::fail("the engine makes the conversation shorter for ever"))
    }

    fn conversation_bytes(&self) -> u64 {
        self.state.transcript.conversation(None).bytes()
    }

    fn answer_parts(&self, turn: Turn, brought: &SimulatedTurn) -> Vec<MessagePart> {
        let thought = format!("thought {turn}");
        let data =
            json!({ "type": "thinking", "thinking": thought, "signature": thinking_signature(&thought) });
        let thinking = MessagePart::Thinking { provider: "anthropic".into(), data };
        let text = MessagePart::Text { text: brought.says.into() };
        let calls = brought.calls.iter().enumerate().map(|(nth, called)| {
            let mut args = json!({ "path": format!("f{}", called.path), "regex": "x", "command": "make" });
            if called.lines != FULL_FILE {
                args["start_line"] = called.lines.0.into();
                args["end_line"] = called.lines.1.into();
            }
            let (call, name) = (CallId::for_tool(turn, nth), called.tool.to_owned());
            MessagePart::ToolUse(ToolUse { call, name, args, malformed: None })
        });
        brought.thinks.then_some(thinking).into_iter().chain([text]).chain(calls).collect()
    }

    fn run_tools(&mut self, react: &dyn Engine, brought: &SimulatedTurn) {
        while !self.state.pending_calls.is_empty() {
            let decision = react.decide(&self.state);
            let Action::RunTools(batch) = decision.act else { panic!("{decision:?}") };
            let turn = self.state.turn;
            for tool in &batch {
                self.push_event(
                    turn,
                    ToolRequested {
                        call: tool.call.clone(),
                        tool: tool.tool.clone(),
                        class: tool.class,
                        policy: tool.policy.clone(),
                        labels: vec![],
                        decision: DecisionHash::ZERO,
                    },
                );
            }
            let mut rereads = ReadCache::new(&self.state);
            for tool in batch {
                let nth: usize =
                    tool.call.0.rsplit('-').next().and_then(|nth| nth.parse().ok()).expect("ours");
                let event = self.finish_tool(tool.call, &brought.calls[nth], &mut rereads);
                self.push_event(turn, event);
            }
        }
    }

    fn check_conversation(&self, conversation: &Conversation) -> Result<(), TestCaseError> {
        let messages = conversation.iter().map(|said| &said.message);
        check_pointers(messages, &self.results, &self.pointers).map_err(TestCaseError::fail)
    }

    fn finish_tool(&mut self, call: CallId, called: &SimulatedCall, rereads: &mut ReadCache) -> ToolFinished {
        let path = WorkspacePath::new(format!("f{}", called.path)).expect("legal");
        let file = usize::from(called.path);
        let changes = matches!(called.tool, "edit_file" | "create_file") && !called.fails;
        self.versions[file] += u8::from(changes);
        let mut facts = ToolFacts {
            changed: changes.then(|| path.clone()).into_iter().collect(),
            ..ToolFacts::default()
        };
        if called.tool == "read_file" && !called.fails {
            let hash = BlobHash::hash_bytes(&[called.path, self.versions[file]]);
            facts.read.push(FileVersion { path, hash });
            facts.shown.push(LineRange { first: called.lines.0, last: called.lines.1 });
        }
        let text = if called.tool == "search_codebase" && called.bytes.is_multiple_of(2) {
            tools::NO_MATCHES.to_owned()
        } else {
            format!("{} of {}\n", called.tool, call).repeat(called.bytes / 16)
        };
        let content = text.into_bytes();
        let outcome = ToolOutcome { content, is_error: called.fails, full_output: None, facts };
        let outcome = rereads.replace_repeated_read(&call, outcome);
        let (content, blob) = Content::inline_or_blob(outcome.content);
        self.results.insert(call.clone(), content.clone());
        if let Some(to) = &outcome.facts.same_as {
            self.pointers.insert(call.clone(), to.clone());
        }
        if let Some(bytes) = blob {
            self.blobs.insert(BlobRef::for_bytes(&bytes).hash, bytes.into());
        }
        let status = if called.fails { ToolStatus::Error } else { ToolStatus::Ok };
        ToolFinished { call, status, content, full: None, facts: outcome.facts, duration_ms: 0 }
    }

    fn summarize(&mut self, call: &ModelCall, brought: &SimulatedTurn) -> Result<(), TestCaseError> {
        check_conversation_accepted(&call.messages, false, &self.blobs).map_err(TestCaseError::fail)?;
        let words = format!("{:?}", call.messages.get(0));
        prop_assert!(words.contains(SUMMARY_REQUEST_MARK));
        self.merged_summaries += usize::from(words.contains("the earlier summary"));
        prop_assert!(!words.contains("You gave no plan yet"), "nobody said that");
        self.request_model(call);
        self.summaries += 1;
        match brought.summary {
            0 => self.answer_model(call, vec![MessagePart::Text { text: "Much was done.".into() }], 9),
            1 => self.answer_model(call, vec![], 9),
            3 => self.answer_model_with_stop(
                call,
                vec![MessagePart::Text { text: "Much w".into() }],
                9,
                StopReason::MaxTokens,
            ),
            _ => {
                let (error, message) = ("overloaded".into(), "busy".into());
                let (call, turn) = (call.call.clone(), call.turn);
                self.push_event(
                    turn,
                    ModelFailed {
                        call,
                        error,
                        message,
                        retry_in_ms: Some(5),
                        retry_after_ms: None,
                        needs_person: false,
                        duration_ms: 0,
                    },
                );
            }
        }
        Ok(())
    }

    fn compact(&mut self, event: Compacted) -> Result<(), TestCaseError> {
        self.compactions += 1;
        self.dropped += event.dropped.len();
        let before: Vec<Message> = self.messages();
        let turn = self.state.turn;
        self.push_event(turn, event.clone());
        let after: Vec<Message> = self.messages();
        prop_assert_eq!(&after[0].parts[0], &before[0].parts[0], "the task stays");
        let ledger = format!("{:?}", after[0].parts.last().expect("the ledger"));
        prop_assert!(ledger.contains(OMITTED_REPLIES_MARK));
        for path in self.state.ledger.files.keys() {
            prop_assert!(ledger.contains(&format!("- {path}: ")), "{} is forgotten", path);
        }
        // A reply stays as it was given, or is dropped entirely.
        let answers = |all: &[Message]| -> Vec<Message> {
            all.iter().filter(|message| message.role == MessageRole::Assistant).cloned().collect()
        };
        let (was, is) = (answers(&before), answers(&after));
        prop_assert!(is.iter().all(|answer| was.contains(answer)));
        let last = was.len().saturating_sub(5);
        prop_assert!(is.ends_with(&was[last..]), "the last five stay");
        let gone = u32::try_from(was.len() - is.len()).expect("few");
        prop_assert!(self.state.transcript.omitted_answers() >= gone);
        Ok(())
    }

    fn messages(&self) -> Vec<Message> {
        self.state.transcript.sealed_entries().iter().map(|said| said.message.clone()).collect()
    }
}

fn any_call() -> impl Strategy<Value = SimulatedCall> {
    let names = ["read_file", "edit_file", "create_file", "search_codebase", "run_command", "list_files"];
    let sizes = prop_oneof![0usize..200, 200usize..9000, Just(20_000usize)];
    let lines = prop::sample::select(vec![FULL_FILE, (10, 20), (50, 100)]);
    (prop::sample::select(names.to_vec()), 0u8..4, sizes, prop::bool::weighted(0.3), lines)
        .prop_map(|(tool, path, bytes, fails, lines)| SimulatedCall { tool, path, bytes, fails, lines })
}

/// All lines of a file of these runs.
const FULL_FILE: (u64, u64) = (1, 100);

/// Generates turns that mostly read the same few files.
fn reading_turn() -> impl Strategy<Value = SimulatedTurn> {
    let names = ["read_file", "read_file", "read_file", "read_file", "edit_file", "run_command"];
    let lines = prop::sample::select(vec![FULL_FILE, FULL_FILE, (10, 20)]);
    let called = (prop::sample::select(names.to_vec()), 0u8..3, 500usize..3000, lines)
        .prop_map(|(tool, path, bytes, lines)| SimulatedCall { tool, path, bytes, fails: false, lines });
    (prop::collection::vec(called, 1..4), 0u8..3).prop_map(|(calls, summary)| SimulatedTurn {
        thinks: false,
        says: "",
        calls,
        has_user_message: false,
        reports_usage: true,
        summary,
    })
}

fn any_turn() -> impl Strategy<Value = SimulatedTurn> {
    let says = prop::sample::select(vec!["", "I look.", "PLAN:\n- [ ] look\n- [ ] mend"]);
    let calls = prop::collection::vec(any_call(), 0..4);
    (any::<bool>(), says, calls, prop::bool::weighted(0.2), any::<bool>(), 0u8..3).prop_map(
        |(thinks, says, calls, told, counted, summary)| SimulatedTurn {
            thinks,
            says,
            calls,
            has_user_message: told,
            reports_usage: counted,
            summary,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn repeatedly_compacted_run_sends_valid_requests(
        window in prop::sample::select(vec![3000u64, 12_000, 40_000]),
        turns in prop::collection::vec(any_turn(), 1..40),
    ) {
        let mut talk = SimulatedRun::new(window);
        for turn in &turns {
            talk.run_turn(turn)?;
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever is compacted, and whenever, referenced results are present.
    #[test]
    fn referenced_results_are_present(
        window in prop::sample::select(vec![3000u64, 6000, 12_000]),
        turns in prop::collection::vec(reading_turn(), 1..40),
    ) {
        let mut talk = SimulatedRun::new(window);
        for turn in &turns {
            talk.run_turn(turn)?;
        }
        try_all_compactions(&talk.state, &talk.blobs, "a run that reads", &|conversation| {
            let messages = conversation.iter().map(|said| &said.message);
            check_pointers(messages, &talk.results, &talk.pointers)
        });
    }
}

#[test]
fn unchanged_file_is_shown_again_only_after_it_was_compacted() {
    let read = |path| SimulatedCall { tool: "read_file", path, bytes: 2000, fails: false, lines: FULL_FILE };
    let turn = |calls| SimulatedTurn {
        thinks: false,
        says: "",
        calls,
        has_user_message: false,
        reports_usage: true,
        summary: 0,
    };
    let mut talk = SimulatedRun::new(24_000);
    let of = |talk: &SimulatedRun, nth: usize| -> String {
        format!("{:?}", talk.results[&CallId::for_tool(talk.state.turn, nth)])
    };
    talk.run_turn(&turn(vec![read(0)])).expect("holds");
    // Read again, in part, and another file twice in one reply.
    let part = SimulatedCall { lines: (10, 90), ..read(0) };
    talk.run_turn(&turn(vec![read(0), part, read(1), read(1)])).expect("holds");
    assert!(of(&talk, 0).contains("f0: lines 1 to 100 unchanged since turn 1, "), "{}", of(&talk, 0));
    assert!(of(&talk, 1).contains("f0: lines 10 to 90 unchanged since turn 1, "));
    assert!(of(&talk, 2).contains("read_file of t2-2"));
    assert!(of(&talk, 3).contains("f1: lines 1 to 100 unchanged since turn 2, "));
    // A change allows one more full result; the next one is a reference again.
    let edit = SimulatedCall { tool: "edit_file", ..read(0) };
    talk.run_turn(&turn(vec![edit, read(0), read(0)])).expect("holds");
    assert!(of(&talk, 1).contains("read_file of t3-1") && of(&talk, 2).contains("since turn 3"));
    // The next read shows content that the compaction removed; the result that referred to it says
    // so.
    let verbose = SimulatedCall { tool: "run_command", bytes: 3000, ..read(3) };
    while talk.compactions == 0 {
        talk.run_turn(&turn(vec![verbose.clone()])).expect("holds");
    }
    talk.run_turn(&turn(vec![read(0), read(1)])).expect("holds");
    assert!(of(&talk, 0).contains("read_file of") && of(&talk, 1).contains("read_file of"));
    // It stays while the last replies refer to it.
    let pointed = talk.state.turn;
    let before = talk.compactions;
    while talk.compactions == before {
        talk.run_turn(&turn(vec![read(0), verbose.clone()])).expect("holds");
        assert!(of(&talk, 0).contains(&format!("since turn {pointed}")), "{}", of(&talk, 0));
    }
}

#[test]
fn compaction_cannot_separate_a_reference_from_its_target() {
    let read = SimulatedCall { tool: "read_file", path: 0, bytes: 2000, fails: false, lines: FULL_FILE };
    let turn = SimulatedTurn {
        thinks: false,
        says: "",
        calls: vec![read],
        has_user_message: false,
        reports_usage: true,
        summary: 0,
    };
    let mut talk = SimulatedRun::new(24_000);
    (0..3).for_each(|_| talk.run_turn(&turn).expect("holds"));
    let cleared = |calls: &[&str]| {
        let line = |call: &&str| ClearedResult { call: CallId((*call).to_owned()), line: "[a line]".into() };
        let cleared = calls.iter().map(line).collect();
        let event = Compacted { keeps_task: true, cleared, ..Compacted::default() };
        let mut state = talk.state.clone();
        let meta =
            EventMeta { seq: state.seq.next(), hash: EventHash::ZERO, turn: state.turn, epoch: state.epoch };
        state.apply(meta, event.into()).map_err(|error| error.to_string())
    };
    let error = cleared(&["t1-0"]).expect_err("two point to it");
    assert!(
        error.contains("t2-0 points to t1-0, which is no longer complete in the conversation"),
        "{error}"
    );
    assert!(cleared(&["t1-0", "t2-0"]).is_err());
    cleared(&["t1-0", "t2-0", "t3-0"]).expect("nothing points to it any more");
    cleared(&["t2-0"]).expect("it may go by itself");
}

#[test]
fn long_run_is_compacted_by_each_level_and_continues() {
    let called = |tool, path, bytes, fails| SimulatedCall { tool, path, bytes, fails, lines: FULL_FILE };
    let turn = |calls: Vec<SimulatedCall>, summary| SimulatedTurn {
        thinks: true,
        says: "PLAN:\n- [ ] look",
        calls,
        has_user_message: false,
        reports_usage: true,
        summary,
    };
    for summary in 0..3 {
        let mut talk = SimulatedRun::new(24_000);
        for n in 0..60u8 {
            let calls = vec![
                called("read_file", n % 3, 2000, false),
                called("edit_file", n % 3, 600, n % 2 == 0),
                called("search_codebase", 0, 100, false),
            ];
            talk.run_turn(&turn(calls, summary)).expect("holds");
            if n == 30 {
                let turn = talk.state.turn;
                talk.push_event(turn, Told { text: "Use cents.".into(), by: "Ann".into() });
            }
        }
        assert!(talk.compactions >= 3 && talk.summaries >= 1, "{} {}", talk.compactions, talk.summaries);
        assert!(talk.compactions < 20, "rare steps: {} in 60 turns", talk.compactions);
        let first = format!("{:?}", talk.messages()[0]);
        for kept in ["- [ ] look", "Ann: Use cents.", "f0: edited"] {
            assert!(first.contains(kept), "{kept} is not in {first}");
        }
    }
}

#[test]
fn every_prefix_of_golden_logs_renders_valid_requests_after_compaction() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/0.1");
    let mut compacted = 0;
    for file in fs::read_dir(folder).expect("fixtures") {
        let path = file.expect("a file").path();
        if !path.to_string_lossy().ends_with(".run.jsonl") {
            continue;
        }
        let run = InMemoryExport::parse(&fs::read(&path).expect("reads")).expect("a run");
        let blobs = run.blobs.iter().map(|(hash, bytes)| (*hash, Bytes::from(bytes.clone()))).collect();
        let mut state = RunState::default();
        for event in &run.run_events() {
            state.apply_envelope(event).expect("folds");
            // While a child is running, no model is called, so there is nothing to compact for.
            let is_due = state.pending_calls.is_empty() && state.delegation.waiting_calls.is_empty();
            if state.stage == RunStage::Deciding && is_due {
                compacted += try_all_compactions(&state, &blobs, &path.display().to_string(), &|_| Ok(()));
            }
        }
    }
    assert!(compacted > 300, "{compacted}");
}

/// Tries every compaction that the fold accepts; returns their number.
fn try_all_compactions(
    state: &RunState,
    blobs: &Blobs,
    name: &str,
    holds: &dyn Fn(&Conversation) -> Result<(), String>,
) -> usize {
    let sealed = state.transcript.sealed_entries();
    let of = |said: &std::sync::Arc<TranscriptEntry>| -> Vec<CallId> {
        tool_uses(&said.message.parts).map(|tool| tool.call.clone()).collect()
    };
    let all: Vec<Vec<CallId>> = sealed.iter().map(of).collect();
    let mut ways: Vec<Compacted> = (0..=sealed.len())
        .map(|count| Compacted { messages: u32::try_from(count).expect("few"), ..Compacted::default() })
        .collect();
    for calls in all.iter().filter(|calls| !calls.is_empty()) {
        ways.push(Compacted { dropped: calls.clone(), ..Compacted::default() });
        ways.push(Compacted { dropped: calls[..1].to_vec(), ..Compacted::default() });
    }
    let cleared =
        all.iter().flatten().map(|call| ClearedResult { call: call.clone(), line: "[a line]".into() });
    ways.push(Compacted { cleared: cleared.collect(), ..Compacted::default() });
    ways.push(Compacted { dropped: all.concat(), ..Compacted::default() });
    let mut passed = 0;
    for way in ways {
        let summary = if way.messages > 0 { "What was.".into() } else { Content::default() };
        let event = Compacted { keeps_task: true, ledger: Some("kept".into()), summary, ..way };
        let mut state = state.clone();
        let meta =
            EventMeta { seq: state.seq.next(), hash: EventHash::ZERO, turn: state.turn, epoch: state.epoch };
        if state.apply(meta, event.clone().into()).is_ok() {
            let nudged = state.transcript.conversation(Some("Go on."));
            let taken = check_conversation_accepted(&nudged, true, blobs).and_then(|()| holds(&nudged));
            taken.unwrap_or_else(|error| panic!("{name}: {error} by {event:?}"));
            passed += 1;
        }
    }
    passed
}
