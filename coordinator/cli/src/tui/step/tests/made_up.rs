//! A made-up run and what its pages fetch. Every text of the model, a tool or a file is hostile somewhere.

use std::sync::Arc;

use docket_schema::{
    content::{BlobRef, Content, WorkPath},
    event::{Envelope, TypedEvent as _},
    history::SkimmedEvent,
    ids::{
        BlobHash, DecisionHash, Epoch, EventHash, IncarnationId, Position, RunId, Seq, StreamId, TaskId,
        Timestamp, TreeHash, Turn,
    },
    message::{CallId, ModelRef, Part, Prices, StopReason, ToolUse, Usage},
    run::{
        EngineRef, FailureKind, GateFinished, GateRequested, GateSpec, GateStep, ModelAnswered,
        ModelRequested, ModelTerms, Models, Phase, PhaseChanged, Prompts, Purpose, RunEnded, RunEvent,
        RunOutcome, RunSettings, RunStarted, SandboxLayers, SnapshotTaken, ToolFinished, ToolRequested,
        ToolStatus, Verdict, WorkspaceEdited,
    },
    snapshot::{Base, Entry, EntryKind, Manifest, PathChange},
    tool::{RecoveryClass, TestCounts, ToolFacts},
};
use docket_worker::workspace::{ChangeView, FileDiff};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::{
    compare, find,
    model::Model,
    run::Run,
    shelf::{Loaded, Request, Want},
};

/// What a terminal would obey: clear, title, right-to-left override, C1.
pub(super) const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}txt.exe\u{9b}31m\r";

/// The whole output of the failing test, out of line.
pub(super) fn full_output() -> String {
    let mut text = String::new();
    for n in 0..200 {
        text.push_str(&format!("test case_{n:03} ... ok\n"));
    }
    text + "test needle_in_the_output ... FAILED\n" + HOSTILE + "\n"
}

fn model_ref() -> ModelRef {
    ModelRef { provider: "scripted".to_owned(), name: "x".to_owned(), base_url: None }
}

pub(super) fn path(text: &str) -> WorkPath {
    WorkPath::new(text).expect("a path")
}

fn entry(text: &str) -> Entry {
    Entry { kind: EntryKind::File, mode: 0o644, size: text.len() as u64, hash: BlobHash::of(text.as_bytes()) }
}

fn decision(text: &str) -> DecisionHash {
    DecisionHash::of(text.as_bytes())
}

/// Makes events follow each other.
pub(super) struct Maker {
    id: RunId,
    pub(super) events: Vec<Envelope>,
    turn: Turn,
}

impl Maker {
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
        envelope.hash = envelope.computed_hash();
        self.events.push(envelope);
    }

    fn start(&mut self) {
        let id = self.id;
        let base = Base { manifest: BlobRef::of(b"m"), tree: Manifest::default().tree_hash(), git: None };
        let prices = Prices { input_nusd: 3000, output_nusd: 15_000, ..Prices::default() };
        self.push(RunStarted {
            task: TaskId(id.0),
            run: id,
            attempt: 1,
            engine: EngineRef { name: "react".to_owned(), version: 1 },
            models: Models::only(model_ref(), ModelTerms { prices, priced: true, ..ModelTerms::default() }),
            settings: RunSettings::default(),
            prompts: Prompts {
                system: BlobRef::of(b"the system prompt"),
                tools: BlobRef::of(b"[]"),
                task: BlobRef::of(TASK.as_bytes()),
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

    /// A new turn in which the model says and calls this.
    pub(super) fn turn(&mut self, phase: Option<Phase>, said: &str, calls: &[(&str, Value)]) {
        self.turn = Turn(self.turn.0 + 1);
        let turn = self.turn;
        self.push(ModelRequested {
            call: CallId::model(turn, 1),
            purpose: Purpose::Decide,
            role: None,
            model: model_ref(),
            attempt: 1,
            decision: decision(&format!("ask {turn}")),
            request: decision(REQUEST),
            request_bytes: REQUEST.len() as u64,
            nudge: None,
            worst_case_nusd: 0,
            output_tokens_max: None,
        });
        let mut parts = vec![Part::Text { text: Content::from(said) }];
        for (nth, (name, args)) in calls.iter().enumerate() {
            let (name, args) = ((*name).to_owned(), args.clone());
            parts.push(Part::ToolUse(ToolUse { call: CallId::tool(turn, nth), name, args, malformed: None }));
        }
        self.push(ModelAnswered {
            call: CallId::model(turn, 1),
            parts,
            stop: StopReason::ToolUse,
            usage: Usage { input_tokens: 1000 * u64::from(turn.0), output_tokens: 50, ..Usage::default() },
            cost_nusd: 3_000_000 * u64::from(turn.0) + 750_000,
            first_byte_ms: 120,
            total_ms: 800,
        });
        if let Some(phase) = phase {
            self.push(PhaseChanged { phase });
        }
        for (nth, (name, _)) in calls.iter().enumerate() {
            self.push(ToolRequested {
                call: CallId::tool(turn, nth),
                tool: (*name).to_owned(),
                class: RecoveryClass::Workspace,
                policy: Verdict::Allow { rule: "default".to_owned() },
                labels: Vec::new(),
                decision: decision("tools"),
            });
        }
    }

    pub(super) fn result(&mut self, nth: usize, status: ToolStatus, text: &str, full: Option<&str>) {
        self.push(ToolFinished {
            call: CallId::tool(self.turn, nth),
            status,
            content: Content::from(text),
            full: full.map(|text| BlobRef::of(text.as_bytes())),
            facts: ToolFacts::default(),
            duration_ms: 31,
        });
    }

    /// The result of a tool that ran a command which ended so.
    fn ran(&mut self, exit: i32, tests: Option<TestCounts>) {
        self.push(ToolFinished {
            call: CallId::tool(self.turn, 0),
            status: ToolStatus::Ok,
            content: Content::from(format!("exit status {exit}\n").as_str()),
            full: None,
            facts: ToolFacts { exit: Some(exit), tests, ..ToolFacts::default() },
            duration_ms: 31,
        });
    }

    pub(super) fn snapshot(&mut self, changes: &[(&str, Option<&str>)]) {
        let changes = changes.iter().map(|(at, text)| PathChange { path: path(at), entry: text.map(entry) });
        self.push(SnapshotTaken {
            changes: changes.collect(),
            git_changes: Vec::new(),
            tree: TreeHash::of(format!("{}", self.turn).as_bytes()),
            left_out: Vec::new(),
            more: false,
        });
    }

    fn gate(&mut self, passed: bool) {
        let call = CallId::gate(self.turn, 0);
        let gate = GateSpec { name: "tests".to_owned(), command: "cargo test".to_owned(), mend: None };
        self.push(GateRequested {
            call: call.clone(),
            gate,
            step: GateStep::Check,
            decision: decision("gates"),
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

    fn end(&mut self, result: RunOutcome) {
        self.push(RunEnded { result, summary: None, tree: None, unverified: None, decision: None });
    }

    pub(super) fn run(self) -> Run {
        let mut run = Run::new(self.id);
        run.history.extend(read(self.events));
        run
    }
}

fn read(events: impl IntoIterator<Item = Envelope>) -> Vec<SkimmedEvent> {
    events.into_iter().map(|event| SkimmedEvent::read(event).expect("reads")).collect()
}

const TASK: &str = "Mend the failing test.\n";
const REQUEST: &str = r#"{"model":"x","messages":[{"role":"user","content":"Mend, \"quoted\""}],"tools":[]}"#;

/// Three turns that every made-up run has.
fn first_turns(id: u128) -> Maker {
    let mut run = Maker::new(id);
    run.start();
    run.turn(
        Some(Phase::Exploring),
        "I look at the parser first.",
        &[("read_file", json!({"path": "src/lib.rs"}))],
    );
    run.result(0, ToolStatus::Ok, "1  fn parse() {}\n", None);
    let said = format!("The edit goes here.{HOSTILE}");
    let args = json!({"path": "src/lib.rs", "search": "fn parse() {}\n", "replace": "fn parse() { todo }\n"});
    run.turn(Some(Phase::Editing), &said, &[("edit_file", args), ("run_tests", json!({}))]);
    run.result(0, ToolStatus::Ok, "changed 1 line", None);
    let full = full_output();
    run.result(1, ToolStatus::Error, "… cut …\ntest needle_in_the_output ... FAILED", Some(&full));
    run.snapshot(&[("src/lib.rs", Some("fn parse() { todo }\n")), ("evil\u{202e}.txt", Some("x"))]);
    run.turn(None, "A second try.", &[("edit_file", json!({"path": "src/lib.rs"}))]);
    run.result(0, ToolStatus::Ok, "changed 1 line", None);
    run.snapshot(&[("src/lib.rs", Some("fn parse() { 2 }\n"))]);
    run
}

/// A run whose final checks failed twice, and that ended so at turn 5.
pub(super) fn failing() -> Run {
    let mut run = first_turns(0xfa11);
    run.turn(Some(Phase::Verifying), "It is done.", &[]);
    run.gate(false);
    run.turn(Some(Phase::Fixing), "I cannot see why.", &[]);
    run.gate(false);
    let message = "the final checks still fail after the last correction".to_owned();
    run.end(RunOutcome::Failed { why: FailureKind::Gates, message });
    run.run()
}

/// Another run of the task: the same up to turn 2, then otherwise, and it succeeded.
pub(super) fn succeeding() -> Run {
    let mut run = first_turns(0x600d);
    run.turn(Some(Phase::Verifying), "It is done, really.", &[]);
    run.gate(true);
    run.end(RunOutcome::Succeeded);
    run.run()
}

/// A run that stands on another's turn 2, whose files a person changed in between.
pub(super) fn edited() -> Run {
    let mut run = first_turns(0xed17);
    run.push(WorkspaceEdited { by: "ann".to_owned() });
    run.snapshot(&[("src/main.rs", Some("mine"))]);
    run.turn(Some(Phase::Verifying), "I see.", &[]);
    run.run()
}

/// A run of commands and tests, some of which end badly: no tool fails in it.
pub(super) fn commands() -> Run {
    let mut run = Maker::new(0xc0de);
    run.start();
    let failed = TestCounts { passed: 4, failed: 3, ..TestCounts::default() };
    let passed = TestCounts { passed: 7, ..TestCounts::default() };
    for (tool, exit, tests) in [
        ("run_command", 0, None),
        ("run_command", 7, None),
        ("run_tests", 0, Some(passed)),
        ("run_tests", 101, Some(failed)),
        ("run_command", 0, None),
    ] {
        run.turn(None, "", &[(tool, json!({}))]);
        run.ran(exit, tests);
    }
    run.run()
}

/// The failing run, cut after so many events: as if it were still going.
pub(super) fn cut(count: usize) -> Run {
    let whole = failing();
    let mut run = Run::new(whole.id);
    run.history.extend(read(whole.events().iter().take(count).cloned()));
    run
}

/// A run of many turns, each of one call.
pub(super) fn long(turns: u32) -> Run {
    let mut run = Maker::new(0x10c6);
    run.start();
    for n in 0..turns {
        run.turn(None, &format!("step {n}"), &[("read_file", json!({"path": format!("src/f{n}.rs")}))]);
        run.result(0, ToolStatus::Ok, "text", None);
    }
    run.run()
}

/// What a fetcher would answer.
fn answer(model: &Model, want: &Want) -> Loaded {
    let file = |old: Option<&str>, new: Option<&str>, change| FileDiff {
        path: path("src/lib.rs"),
        old: old.map(entry),
        new: new.map(entry),
        change,
    };
    match want {
        Want::Blob(blob) => {
            let known = [TASK.to_owned(), "the system prompt".to_owned(), full_output()];
            let found = known.into_iter().find(|text| BlobRef::of(text.as_bytes()) == *blob);
            found.map_or_else(|| Loaded::Failed("no such blob".to_owned()), |text| Loaded::Bytes(text.into()))
        }
        Want::Tree(place) => {
            let mut tree = Manifest::default();
            for name in ["README.md", "src/lib.rs", "src/main.rs", "evil\u{202e}.txt"] {
                tree.entries.insert(path(name), entry(&format!("{name} {}", place.end)));
            }
            Loaded::Tree(Arc::new(tree))
        }
        Want::Diff(from, to) => {
            let text = format!(
                "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1 +1 @@\n-fn parse() {{ {} }}\n+fn parse() {{ {} }}{HOSTILE}\n",
                from.end, to.end
            );
            Loaded::Diff(Arc::new(vec![
                file(Some("a"), Some("b"), ChangeView::Text(text)),
                file(None, Some("b"), ChangeView::Binary),
            ]))
        }
        Want::File(place, path) => {
            Loaded::Bytes(format!("{path} after {} events\n{HOSTILE}\n", place.end).into())
        }
        Want::Request(..) => Loaded::Request(Arc::new(Request {
            body: REQUEST.into(),
            hash: decision(REQUEST),
            recorded: decision(REQUEST),
        })),
        Want::Ends(_) => Loaded::Ends(Arc::new((0..5).map(Turn).collect())),
        Want::Sameness(..) => {
            let other = model.other.as_ref().expect("asked only where there is one");
            Loaded::Sameness(Arc::new(compare::sameness(&model.run, other)))
        }
        Want::Hits(query, _) => {
            let mut shelf = super::super::shelf::Shelf::default();
            let full = full_output();
            shelf.put(Want::Blob(BlobRef::of(full.as_bytes())), Loaded::Bytes(full.into()));
            Loaded::Hits(Arc::new(find::hits(&model.run, query, &shelf).0))
        }
    }
}

/// Answers until nothing is wanted any more.
pub(super) fn fed(model: &mut Model) {
    for _ in 0..20 {
        let wants = model.wants();
        if wants.is_empty() {
            return;
        }
        for want in wants {
            let loaded = answer(model, &want);
            model.arrived(want, loaded);
        }
    }
    panic!("it wants without end: {:?}", model.wants());
}
