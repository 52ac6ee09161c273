//! A synthetic run and the content its pages fetch. Every text of the model, a tool or a file is hostile
//! somewhere.

use std::sync::Arc;

use docket_schema::{
    content::{BlobRef, Content, WorkspacePath},
    event::{Envelope, TypedEvent as _},
    history::SkimmedEvent,
    ids::{
        BlobHash, DecisionHash, Epoch, EventHash, IncarnationId, Position, RunId, Seq, StreamId, TaskId,
        Timestamp, TreeHash, Turn,
    },
    message::{CallId, MessagePart, ModelRef, StopReason, TokenPrices, TokenUsage, ToolUse},
    run::{
        CallPurpose, EngineRef, FailureKind, GateFinished, GateRequested, GateSpec, GateStep, ModelAnswered,
        ModelRequested, ModelTerms, PhaseChanged, PolicyVerdict, RunEnded, RunEvent, RunModels, RunOutcome,
        RunPhase, RunPrompts, RunSettings, RunStarted, SandboxLayers, SnapshotTaken, ToolFinished,
        ToolRequested, ToolStatus, WorkspaceEdited,
    },
    snapshot::{Entry, EntryKind, Manifest, PathChange, WorkspaceBase},
    tool::{RecoveryClass, TestCounts, ToolFacts},
};
use docket_worker::workspace::{ChangeView, FileDiff};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::{
    comparison,
    content_cache::{ContentRequest, LoadedContent, RebuiltRequest},
    run::Run,
    search,
    state::StepperState,
};

/// Text that a terminal would interpret: clear, title, right-to-left override, C1.
pub(super) const HOSTILE_TEXT: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}txt.exe\u{9b}31m\r";

/// The full output of the failing test, stored as a blob.
pub(super) fn full_output() -> String {
    let mut text = String::new();
    for n in 0..200 {
        text.push_str(&format!("test case_{n:03} ... ok\n"));
    }
    text + "test needle_in_the_output ... FAILED\n" + HOSTILE_TEXT + "\n"
}

fn model_ref() -> ModelRef {
    ModelRef { provider: "scripted".to_owned(), name: "x".to_owned(), base_url: None }
}

pub(super) fn workspace_path(text: &str) -> WorkspacePath {
    WorkspacePath::new(text).expect("a path")
}

fn file_entry(text: &str) -> Entry {
    Entry {
        kind: EntryKind::File,
        mode: 0o644,
        size: text.len() as u64,
        hash: BlobHash::hash_bytes(text.as_bytes()),
    }
}

fn decision_hash(text: &str) -> DecisionHash {
    DecisionHash::hash_bytes(text.as_bytes())
}

/// Builds consecutive events.
pub(super) struct RunBuilder {
    id: RunId,
    pub(super) events: Vec<Envelope>,
    turn: Turn,
}

impl RunBuilder {
    fn new(id: u128) -> Self {
        Self { id: RunId(Uuid::from_u128(id)), events: Vec::new(), turn: Turn(0) }
    }

    pub(super) fn push(&mut self, event: impl Into<RunEvent>) {
        let event = event.into().encode(self.turn);
        let seq = Seq(self.events.len() as u64 + 1);
        let mut envelope = Envelope {
            stream: StreamId::Run(self.id),
            seq,
            position: Position(seq.0),
            recorded_at: Timestamp(1_700_000_000_000_000).plus_ms(seq.0 * 250),
            turn: event.turn,
            epoch: Epoch(1),
            kind: event.kind,
            version: event.version,
            payload: event.payload,
            prev_hash: self.events.last().map_or(EventHash::ZERO, |event| event.hash),
            hash: EventHash::ZERO,
        };
        envelope.hash = envelope.compute_hash();
        self.events.push(envelope);
    }

    fn start_run(&mut self) {
        let id = self.id;
        let base = WorkspaceBase {
            manifest: BlobRef::for_bytes(b"m"),
            tree: Manifest::default().tree_hash(),
            git: None,
        };
        let prices = TokenPrices { input_nusd: 3000, output_nusd: 15_000, ..TokenPrices::default() };
        self.push(RunStarted {
            task: TaskId(id.0),
            run: id,
            attempt: 1,
            engine: EngineRef { name: "react".to_owned(), version: 1 },
            models: RunModels::single_model(
                model_ref(),
                ModelTerms { prices, priced: true, ..ModelTerms::default() },
            ),
            settings: RunSettings::default(),
            prompts: RunPrompts {
                system: BlobRef::for_bytes(b"the system prompt"),
                tools: BlobRef::for_bytes(b"[]"),
                task: BlobRef::for_bytes(TASK_TEXT.as_bytes()),
            },
            base,
            gates: Vec::new(),
            tests: None,
            external: vec![],
            servers_left_out: vec![],
            linters: vec![],
            roles: vec![],
            requires: Vec::new(),
            policy: None,
            policies: Vec::new(),
            sandbox: SandboxLayers::default(),
            worker: IncarnationId(id.0),
        });
    }

    /// Adds a turn with this reply of the model.
    pub(super) fn push_turn(&mut self, phase: Option<RunPhase>, said: &str, calls: &[(&str, Value)]) {
        self.turn = Turn(self.turn.0 + 1);
        let turn = self.turn;
        self.push(ModelRequested {
            call: CallId::for_model(turn, 1),
            purpose: CallPurpose::Decide,
            role: None,
            model: model_ref(),
            attempt: 1,
            decision: decision_hash(&format!("ask {turn}")),
            request: decision_hash(REQUEST_BODY),
            request_bytes: REQUEST_BODY.len() as u64,
            nudge: None,
            worst_case_nusd: 0,
            output_tokens_max: None,
        });
        let mut parts = vec![MessagePart::Text { text: Content::from(said) }];
        for (nth, (name, args)) in calls.iter().enumerate() {
            let (name, args) = ((*name).to_owned(), args.clone());
            parts.push(MessagePart::ToolUse(ToolUse {
                call: CallId::for_tool(turn, nth),
                name,
                args,
                malformed: None,
            }));
        }
        self.push(ModelAnswered {
            call: CallId::for_model(turn, 1),
            parts,
            stop: StopReason::ToolUse,
            usage: TokenUsage {
                input_tokens: 1000 * u64::from(turn.0),
                output_tokens: 50,
                ..TokenUsage::default()
            },
            cost_nusd: 3_000_000 * u64::from(turn.0) + 750_000,
            first_byte_ms: 120,
            total_ms: 800,
        });
        if let Some(phase) = phase {
            self.push(PhaseChanged { phase });
        }
        for (nth, (name, _)) in calls.iter().enumerate() {
            self.push(ToolRequested {
                call: CallId::for_tool(turn, nth),
                tool: (*name).to_owned(),
                class: RecoveryClass::Workspace,
                policy: PolicyVerdict::Allow { rule: "default".to_owned() },
                labels: Vec::new(),
                decision: decision_hash("tools"),
            });
        }
    }

    pub(super) fn push_result(&mut self, nth: usize, status: ToolStatus, text: &str, full: Option<&str>) {
        self.push(ToolFinished {
            call: CallId::for_tool(self.turn, nth),
            status,
            content: Content::from(text),
            full: full.map(|text| BlobRef::for_bytes(text.as_bytes())),
            facts: ToolFacts::default(),
            duration_ms: 31,
        });
    }

    /// Adds the result of a tool that ran a command.
    fn push_command_result(&mut self, exit: i32, tests: Option<TestCounts>) {
        self.push(ToolFinished {
            call: CallId::for_tool(self.turn, 0),
            status: ToolStatus::Ok,
            content: Content::from(format!("exit status {exit}\n").as_str()),
            full: None,
            facts: ToolFacts { exit: Some(exit), tests, ..ToolFacts::default() },
            duration_ms: 31,
        });
    }

    pub(super) fn push_snapshot(&mut self, changes: &[(&str, Option<&str>)]) {
        let changes = changes
            .iter()
            .map(|(at, text)| PathChange { path: workspace_path(at), entry: text.map(file_entry) });
        self.push(SnapshotTaken {
            changes: changes.collect(),
            git_changes: Vec::new(),
            tree: TreeHash::hash_bytes(format!("{}", self.turn).as_bytes()),
            left_out: Vec::new(),
            more: false,
        });
    }

    fn push_check(&mut self, passed: bool) {
        let call = CallId::for_gate(self.turn, 0);
        let gate = GateSpec { name: "tests".to_owned(), command: "cargo test".to_owned(), mend: None };
        self.push(GateRequested {
            call: call.clone(),
            gate,
            step: GateStep::Check,
            decision: decision_hash("gates"),
        });
        let content = Content::from("test needle_in_the_gate ... FAILED");
        self.push(GateFinished {
            call,
            step: GateStep::Check,
            passed,
            content,
            full: None,
            facts: ToolFacts::default(),
            duration_ms: 2100,
        });
    }

    fn end_run(&mut self, result: RunOutcome) {
        self.push(RunEnded { result, summary: None, tree: None, unverified: None, decision: None });
    }

    pub(super) fn build(self) -> Run {
        let mut run = Run::new(self.id);
        run.history.extend(skim_events(self.events));
        run
    }
}

fn skim_events(events: impl IntoIterator<Item = Envelope>) -> Vec<SkimmedEvent> {
    events.into_iter().map(|event| SkimmedEvent::parse(event).expect("reads")).collect()
}

const TASK_TEXT: &str = "Mend the failing test.\n";
const REQUEST_BODY: &str =
    r#"{"model":"x","messages":[{"role":"user","content":"Mend, \"quoted\""}],"tools":[]}"#;

/// The three turns of every synthetic run.
fn first_turns(id: u128) -> RunBuilder {
    let mut run = RunBuilder::new(id);
    run.start_run();
    run.push_turn(
        Some(RunPhase::Exploring),
        "I look at the parser first.",
        &[("read_file", json!({"path": "src/lib.rs"}))],
    );
    run.push_result(0, ToolStatus::Ok, "1  fn parse() {}\n", None);
    let said = format!("The edit goes here.{HOSTILE_TEXT}");
    let args = json!({"path": "src/lib.rs", "search": "fn parse() {}\n", "replace": "fn parse() { todo }\n"});
    run.push_turn(Some(RunPhase::Editing), &said, &[("edit_file", args), ("run_tests", json!({}))]);
    run.push_result(0, ToolStatus::Ok, "changed 1 line", None);
    let full = full_output();
    run.push_result(1, ToolStatus::Error, "… cut …\ntest needle_in_the_output ... FAILED", Some(&full));
    run.push_snapshot(&[("src/lib.rs", Some("fn parse() { todo }\n")), ("evil\u{202e}.txt", Some("x"))]);
    run.push_turn(None, "A second try.", &[("edit_file", json!({"path": "src/lib.rs"}))]);
    run.push_result(0, ToolStatus::Ok, "changed 1 line", None);
    run.push_snapshot(&[("src/lib.rs", Some("fn parse() { 2 }\n"))]);
    run
}

/// A run whose final checks failed twice, so that it failed at turn 5.
pub(super) fn failing_run() -> Run {
    let mut run = first_turns(0xfa11);
    run.push_turn(Some(RunPhase::Verifying), "It is done.", &[]);
    run.push_check(false);
    run.push_turn(Some(RunPhase::Fixing), "I cannot see why.", &[]);
    run.push_check(false);
    let message = "the final checks still fail after the last correction".to_owned();
    run.end_run(RunOutcome::Failed { why: FailureKind::Gates, message });
    run.build()
}

/// Another run of the task: equal up to turn 2, then different, and successful.
pub(super) fn succeeding_run() -> Run {
    let mut run = first_turns(0x600d);
    run.push_turn(Some(RunPhase::Verifying), "It is done, really.", &[]);
    run.push_check(true);
    run.end_run(RunOutcome::Succeeded);
    run.build()
}

/// A run that continues another run's turn 2, whose files a person changed in between.
pub(super) fn edited_run() -> Run {
    let mut run = first_turns(0xed17);
    run.push(WorkspaceEdited { by: "ann".to_owned() });
    run.push_snapshot(&[("src/main.rs", Some("mine"))]);
    run.push_turn(Some(RunPhase::Verifying), "I see.", &[]);
    run.build()
}

/// A run of commands and tests, some of which fail, although no tool does.
pub(super) fn command_run() -> Run {
    let mut run = RunBuilder::new(0xc0de);
    run.start_run();
    let failed = TestCounts { passed: 4, failed: 3, ..TestCounts::default() };
    let passed = TestCounts { passed: 7, ..TestCounts::default() };
    for (tool, exit, tests) in [
        ("run_command", 0, None),
        ("run_command", 7, None),
        ("run_tests", 0, Some(passed)),
        ("run_tests", 101, Some(failed)),
        ("run_command", 0, None),
    ] {
        run.push_turn(None, "", &[(tool, json!({}))]);
        run.push_command_result(exit, tests);
    }
    run.build()
}

/// The failing run, truncated after this number of events, as if it were still running.
pub(super) fn truncated_run(count: usize) -> Run {
    let whole = failing_run();
    let mut run = Run::new(whole.id);
    run.history.extend(skim_events(whole.events().iter().take(count).cloned()));
    run
}

/// A run of many turns with one call each.
pub(super) fn long_run(turns: u32) -> Run {
    let mut run = RunBuilder::new(0x10c6);
    run.start_run();
    for n in 0..turns {
        run.push_turn(None, &format!("step {n}"), &[("read_file", json!({"path": format!("src/f{n}.rs")}))]);
        run.push_result(0, ToolStatus::Ok, "text", None);
    }
    run.build()
}

/// Returns what a fetcher would return.
fn load_fixture(model: &StepperState, want: &ContentRequest) -> LoadedContent {
    let file = |old: Option<&str>, new: Option<&str>, change| FileDiff {
        path: workspace_path("src/lib.rs"),
        old: old.map(file_entry),
        new: new.map(file_entry),
        change,
    };
    match want {
        ContentRequest::Blob(blob) => {
            let known = [TASK_TEXT.to_owned(), "the system prompt".to_owned(), full_output()];
            let found = known.into_iter().find(|text| BlobRef::for_bytes(text.as_bytes()) == *blob);
            found.map_or_else(
                || LoadedContent::Failed("no such blob".to_owned()),
                |text| LoadedContent::Bytes(text.into()),
            )
        }
        ContentRequest::Tree(place) => {
            let mut tree = Manifest::default();
            for name in ["README.md", "src/lib.rs", "src/main.rs", "evil\u{202e}.txt"] {
                tree.entries.insert(workspace_path(name), file_entry(&format!("{name} {}", place.end)));
            }
            LoadedContent::Tree(Arc::new(tree))
        }
        ContentRequest::Diff(from, to) => {
            let text = format!(
                "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1 @@\n-fn parse() {{ {} }}\n+fn parse() {{ {} }}{HOSTILE_TEXT}\n",
                from.end, to.end
            );
            LoadedContent::Diff(Arc::new(vec![
                file(Some("a"), Some("b"), ChangeView::Text(text)),
                file(None, Some("b"), ChangeView::Binary),
            ]))
        }
        ContentRequest::File(place, path) => {
            LoadedContent::Bytes(format!("{path} after {} events\n{HOSTILE_TEXT}\n", place.end).into())
        }
        ContentRequest::Request(..) => LoadedContent::Request(Arc::new(RebuiltRequest {
            body: REQUEST_BODY.into(),
            hash: decision_hash(REQUEST_BODY),
            recorded: decision_hash(REQUEST_BODY),
        })),
        ContentRequest::TurnEnds(_) => LoadedContent::TurnEnds(Arc::new((0..5).map(Turn).collect())),
        ContentRequest::Comparison(..) => {
            let other = model.other.as_ref().expect("asked only where there is one");
            LoadedContent::Comparison(Arc::new(comparison::compare_runs(&model.run, other)))
        }
        ContentRequest::SearchHits(query, _) => {
            let mut shelf = super::super::content_cache::ContentCache::default();
            let full = full_output();
            shelf.insert(
                ContentRequest::Blob(BlobRef::for_bytes(full.as_bytes())),
                LoadedContent::Bytes(full.into()),
            );
            LoadedContent::SearchHits(Arc::new(search::find_hits(&model.run, query, &shelf).0))
        }
    }
}

/// Fetches until nothing is missing.
pub(super) fn load_all(model: &mut StepperState) {
    for _ in 0..20 {
        let wants = model.missing_content();
        if wants.is_empty() {
            return;
        }
        for want in wants {
            let loaded = load_fixture(model, &want);
            model.store_loaded(want, loaded);
        }
    }
    panic!("it keeps requesting content: {:?}", model.missing_content());
}
