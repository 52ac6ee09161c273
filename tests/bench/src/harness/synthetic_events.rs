//! Synthetic event streams of any length, as the `react` engine and its driver write them, for
//! measuring fold and verification. The same events, order and kinds of content as in a real run;
//! payloads of about 500 bytes, like those of real runs between blobs. Pure.

use docket_schema::{
    content::{BlobRef, Content, WorkspacePath},
    event::{Envelope, Head, NewEvent, TypedEvent as _},
    ids::{
        BlobHash, DecisionHash, Epoch, EventHash, IncarnationId, Position, RunId, StreamId, TaskId,
        Timestamp, TreeHash, Turn,
    },
    message::{CallId, MessagePart, ModelRef, StopReason, TokenUsage, ToolUse},
    run::{
        CallPurpose, EngineRef, ModelAnswered, ModelRequested, ModelTerms, PhaseChanged, PolicyVerdict,
        RunEvent, RunModels, RunPhase, RunPrompts, RunSettings, RunStarted, SandboxLayers, SnapshotTaken,
        ToolFinished, ToolRequested, ToolStatus,
    },
    snapshot::{Entry, EntryKind, Manifest, PathChange, WorkspaceBase},
    tool::{FileVersion, LineCounts, RecoveryClass, ToolFacts},
};
use serde_json::json;

use crate::harness::backlog::LeasedRun;

/// A window that never fills, so that these runs can grow.
const WINDOW_TOKENS: u64 = 1 << 40;
/// Number of files the synthetic run works on, in turn.
const FILES: u32 = 60;

/// A tool's result as a model reads it: the first lines of a file.
const READ_RESULT: &str = r#"1  //! Amounts: what a recipe asks for, and how it is read.
2
3  use std::fmt;
4
5  /// An amount with its unit.
6  #[derive(Debug, Clone, PartialEq)]
7  pub struct Amount {
8      pub value: f64,
9      pub unit: Option<String>,
10 }
11
12 impl Amount {
13     /// Reads `1 1/2 cups`, `200 g`, `3`.
14     pub fn parse(text: &str) -> Option<Self> {
15         let (number, unit) = split_number(text.trim())?;
16         let unit = (!unit.is_empty()).then(|| unit.to_owned());
17         Some(Self { value: number.parse().ok()?, unit })
18     }
19
20     /// The same for `people` in place of the recipe's own number.
21     pub fn scaled(&self, people: u32, of: u32) -> Self {
22         Self { value: self.value * f64::from(people) / f64::from(of), unit: self.unit.clone() }
23     }
24 }
"#;

/// A command run by the model.
const SHELL_COMMAND: &str = "cargo clippy --quiet --all-targets 2>&1 | head -40; git diff --stat";

/// The output of a test run.
const TEST_OUTPUT: &str = "exit status 101\nstdout:\nrunning 14 tests\ntest amounts::half_a_cup ... ok\ntest amounts::mixed_number ... FAILED\n\
    test units::grams ... ok\ntest units::unknown_is_kept ... ok\n\nfailures:\n\n---- amounts::mixed_number stdout ----\n\
    thread 'amounts::mixed_number' panicked at tests/amounts.rs:41:5:\nassertion `left == right` failed: 1 1/2 cups\n  \
    left: None\n right: Some(Amount { value: 1.5, unit: Some(\"cups\") })\nnote: run with `RUST_BACKTRACE=1` environment \
    variable to display a backtrace\n\ntest result: FAILED. 13 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n";

/// The model's text before a tool call.
const MODEL_TEXT: &str = "The unit is read in one place only, so the change belongs there. I look at how the number before it is \
    split off first: mixed numbers such as 1 1/2 hold a blank themselves, and the tests name them.";

/// The base of a task without a repository.
pub(crate) fn empty_base() -> (WorkspaceBase, Vec<u8>) {
    let manifest = Manifest::default();
    let bytes = manifest.encode();
    (WorkspaceBase { manifest: BlobRef::for_bytes(&bytes), tree: manifest.tree_hash(), git: None }, bytes)
}

/// Returns the events of an unfinished run of `turns` turns of one call each: `RunStarted`, then per
/// turn the content of two appends by the driver.
pub(crate) fn run_events(task: TaskId, run: RunId, worker: IncarnationId, turns: u32) -> Vec<NewEvent> {
    let mut out = vec![RunEvent::from(run_started(task, run, worker)).encode(Turn(0))];
    for n in 1..=turns {
        let turn = Turn(n);
        let mut push = |event: RunEvent| out.push(event.encode(turn));
        if n % 8 == 1 {
            let phase = if n % 16 == 1 { RunPhase::Exploring } else { RunPhase::Editing };
            push(PhaseChanged { phase }.into());
        }
        push(model_requested(turn).into());
        push(model_answered(turn).into());
        push(tool_requested(turn).into());
        push(tool_finished(turn).into());
        if changes_file(turn) {
            push(snapshot_taken(turn).into());
        }
    }
    out
}

/// Returns the events chained, as a store returns them.
pub(crate) fn chain_events(run: RunId, events: Vec<NewEvent>, at: Timestamp) -> Vec<Envelope> {
    let mut head = Head::EMPTY;
    let mut out = Vec::with_capacity(events.len());
    for event in events {
        let mut envelope = Envelope {
            stream: StreamId::Run(run),
            seq: head.seq.next(),
            position: Position(head.seq.0 + 1),
            recorded_at: at.plus_ms(head.seq.0),
            turn: event.turn,
            epoch: Epoch(1),
            kind: event.kind,
            version: event.version,
            payload: event.payload,
            prev_hash: head.hash,
            hash: EventHash::ZERO,
        };
        envelope.hash = envelope.compute_hash();
        head = Head { seq: envelope.seq, hash: envelope.hash };
        out.push(envelope);
    }
    out
}

/// Returns one event as the appends of other figures use it: a tool's result.
pub(crate) fn tool_result_event(n: u32) -> NewEvent {
    RunEvent::from(tool_finished(Turn(n))).encode(Turn(n))
}

/// The activity of a turn: a third each of reading, editing, and running a command.
enum TurnActivity {
    Edits,
    Reads,
    Tests,
    Commands,
}

const fn turn_activity(turn: Turn) -> TurnActivity {
    match turn.0 % 6 {
        0 | 3 => TurnActivity::Edits,
        1 | 4 => TurnActivity::Reads,
        2 => TurnActivity::Tests,
        _ => TurnActivity::Commands,
    }
}

const fn changes_file(turn: Turn) -> bool {
    matches!(turn_activity(turn), TurnActivity::Edits)
}

fn file_path(turn: Turn) -> WorkspacePath {
    WorkspacePath::new(format!("src/kitchen/part_{:02}.rs", turn.0 % FILES)).expect("a plain relative path")
}

/// Returns the blobs that a run of `turns` turns references.
pub(crate) fn run_blobs(turns: u32) -> Vec<Vec<u8>> {
    let files = (0..=turns).map(Turn).filter(|turn| changes_file(*turn)).map(|turn| format!("file {turn}"));
    let pinned = ["system", "tools", "task"].map(str::to_owned);
    files.chain(pinned).map(String::into_bytes).collect()
}

fn blob_hash(turn: Turn, what: &str) -> BlobHash {
    BlobHash::hash_bytes(format!("{what} {turn}").as_bytes())
}

fn decision_hash(turn: Turn, what: &str) -> DecisionHash {
    DecisionHash::hash_bytes(format!("{what} {turn}").as_bytes())
}

fn model_ref() -> ModelRef {
    ModelRef { provider: "openai".to_owned(), name: "bench".to_owned(), base_url: None }
}

/// Returns the start of a long run whose prompts are stored.
pub(crate) fn long_run_started(held: LeasedRun, prompts: RunPrompts) -> RunStarted {
    // Its commands fail repeatedly, and no approval is requested.
    let settings = RunSettings {
        turns_max: 1_000_000,
        same_error_max: 0,
        failed_edits_max: 0,
        failures_max: 0,
        ask_at_blockers: false,
        ..RunSettings::default()
    };
    let started = run_started(held.task, held.run, IncarnationId(held.run.0));
    RunStarted { prompts, settings, ..started }
}

fn run_started(task: TaskId, run: RunId, worker: IncarnationId) -> RunStarted {
    let blob = |text: &str| BlobRef::for_bytes(text.as_bytes());
    RunStarted {
        task,
        run,
        attempt: 1,
        engine: EngineRef { name: "react".to_owned(), version: 1 },
        models: RunModels::single_model(
            model_ref(),
            ModelTerms { context_tokens: WINDOW_TOKENS, ..ModelTerms::default() },
        ),
        settings: RunSettings::default(),
        prompts: RunPrompts { system: blob("system"), tools: blob("tools"), task: blob("task") },
        base: empty_base().0,
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
        worker,
    }
}

fn model_requested(turn: Turn) -> ModelRequested {
    ModelRequested {
        call: CallId::for_model(turn, 1),
        purpose: CallPurpose::Decide,
        model: model_ref(),
        attempt: 1,
        decision: decision_hash(turn, "ask"),
        request: decision_hash(turn, "request"),
        request_bytes: 9_000 + u64::from(turn.0) * 700,
        nudge: None,
        worst_case_nusd: 61_440_000,
        output_tokens_max: None,
        role: None,
    }
}

pub(crate) fn model_answered(turn: Turn) -> ModelAnswered {
    let args = if changes_file(turn) {
        json!({"path": file_path(turn).to_string(), "edits": [{"search": "    pub unit: Option<String>,\n",
            "replace": "    pub unit: Option<String>,\n    pub about: bool,\n"}]})
    } else {
        json!({"path": file_path(turn).to_string(), "from_line": 1, "to_line": 120})
    };
    let (name, args) = match turn_activity(turn) {
        TurnActivity::Edits => ("edit_file", args),
        TurnActivity::Reads => ("read_file", args),
        TurnActivity::Tests => ("run_tests", json!({})),
        TurnActivity::Commands => ("run_command", json!({"command": SHELL_COMMAND})),
    };
    ModelAnswered {
        call: CallId::for_model(turn, 1),
        parts: vec![
            MessagePart::Text { text: Content::from(MODEL_TEXT) },
            MessagePart::ToolUse(ToolUse {
                call: CallId::for_tool(turn, 0),
                name: name.to_owned(),
                args,
                malformed: None,
            }),
        ],
        stop: StopReason::ToolUse,
        usage: TokenUsage { input_tokens: 1200, output_tokens: 160, ..TokenUsage::default() },
        cost_nusd: 5_400_000,
        first_byte_ms: 640,
        total_ms: 2210,
    }
}

fn tool_requested(turn: Turn) -> ToolRequested {
    let (tool, class) = match turn_activity(turn) {
        TurnActivity::Edits => ("edit_file", RecoveryClass::Workspace),
        TurnActivity::Reads => ("read_file", RecoveryClass::Reads),
        TurnActivity::Tests => ("run_tests", RecoveryClass::Workspace),
        TurnActivity::Commands => ("run_command", RecoveryClass::Workspace),
    };
    ToolRequested {
        call: CallId::for_tool(turn, 0),
        tool: tool.to_owned(),
        class,
        policy: PolicyVerdict::Allow { rule: "default".to_owned() },
        labels: Vec::new(),
        decision: decision_hash(turn, "tools"),
    }
}

/// Returns the result of the only call of a turn.
pub(crate) fn tool_finished(turn: Turn) -> ToolFinished {
    let mut facts = ToolFacts {
        read: vec![FileVersion { path: file_path(turn), hash: blob_hash(turn, "file") }],
        ..ToolFacts::default()
    };
    let mut content = READ_RESULT;
    match turn_activity(turn) {
        TurnActivity::Reads => {}
        TurnActivity::Edits => {
            facts.changed.push(file_path(turn));
            facts.lines = Some(LineCounts { added: 1, removed: 0 });
            content = MODEL_TEXT;
        }
        TurnActivity::Tests | TurnActivity::Commands => {
            facts = ToolFacts { exit: Some(101), may_have_changed_tree: true, ..ToolFacts::default() };
            facts.error_signature = Some("e3b0c44298fc1c14".to_owned());
            content = TEST_OUTPUT;
        }
    }
    ToolFinished {
        call: CallId::for_tool(turn, 0),
        status: ToolStatus::Ok,
        content: Content::from(content),
        full: None,
        facts,
        duration_ms: 1,
    }
}

/// Returns the snapshot after the turn, if it changed a file.
pub(crate) fn turn_snapshot(turn: Turn) -> Option<SnapshotTaken> {
    changes_file(turn).then(|| snapshot_taken(turn))
}

fn snapshot_taken(turn: Turn) -> SnapshotTaken {
    let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 2400, hash: blob_hash(turn, "file") };
    SnapshotTaken {
        changes: vec![PathChange { path: file_path(turn), entry: Some(entry) }],
        git_changes: Vec::new(),
        tree: TreeHash::hash_bytes(format!("tree {turn}").as_bytes()),
        left_out: Vec::new(),
        more: false,
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{event::verify_and_advance, run::RunState};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn synthetic_stream_is_a_valid_run_log() {
        let id = Uuid::from_u128(7);
        let events = run_events(TaskId(id), RunId(id), IncarnationId(id), 100);
        let bytes: usize = events.iter().map(|event| event.payload.as_str().len()).sum();
        assert!((350..750).contains(&(bytes / events.len())), "mean payload {}", bytes / events.len());
        let (mut state, mut head) = (RunState::default(), Head::EMPTY);
        for event in chain_events(RunId(id), events, Timestamp(0)) {
            head = verify_and_advance(head, &event).expect("the chain holds");
            state.apply_envelope(&event).expect("folds");
        }
        assert_eq!((state.turn, state.totals.tool_calls), (Turn(100), 100));
    }
}
