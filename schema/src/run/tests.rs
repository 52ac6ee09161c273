//! The fold of a run: which events may follow, and that the conversation is always accepted by providers.

use proptest::prelude::*;

use super::*;
use crate::{
    content::{BlobRef, Content, WorkspacePath},
    event::{Envelope, Head, TypedEvent as _},
    ids::{
        BlobHash, DecisionHash, Epoch, EventHash, IncarnationId, Position, RunId, Seq, StreamId, TaskId,
        Timestamp, TreeHash, Turn,
    },
    message::{CallId, Message, MessagePart, MessageRole, ModelRef, StopReason, TokenUsage, ToolUse},
    snapshot::{Entry, EntryKind, PathChange, WorkspaceBase},
    tool::{FileVersion, RecoveryClass, TestCounts, ToolFacts},
};

pub(crate) fn run_started() -> RunEvent {
    let blob = BlobRef::for_bytes(b"prompt");
    RunStarted {
        task: TaskId(uuid::Uuid::from_u128(1)),
        run: RunId(uuid::Uuid::from_u128(2)),
        attempt: 1,
        engine: EngineRef { name: "react".into(), version: 1 },
        models: RunModels::single_model(
            ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None },
            ModelTerms::default(),
        ),
        settings: RunSettings::default(),
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
        sandbox: SandboxLayers::default(),
        worker: IncarnationId(uuid::Uuid::from_u128(3)),
    }
    .into()
}

pub(crate) fn model_requested(turn: u32, attempt: u32) -> RunEvent {
    ModelRequested {
        call: CallId::for_model(Turn(turn), attempt),
        purpose: CallPurpose::Decide,
        role: None,
        model: ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None },
        attempt,
        decision: DecisionHash::ZERO,
        request: DecisionHash::ZERO,
        request_bytes: 1,
        nudge: None,
        worst_case_nusd: 0,
        output_tokens_max: None,
    }
    .into()
}

pub(crate) fn model_answered(turn: u32, text: &str, calls: usize) -> RunEvent {
    let mut parts = vec![MessagePart::Text { text: text.into() }];
    for index in 0..calls {
        let call = CallId::for_tool(Turn(turn), index);
        parts.push(MessagePart::ToolUse(ToolUse {
            call,
            name: "read_file".into(),
            args: serde_json::json!({}),
            malformed: None,
        }));
    }
    ModelAnswered {
        call: CallId::for_model(Turn(turn), 1),
        parts,
        stop: StopReason::EndTurn,
        usage: TokenUsage { input_tokens: 10, output_tokens: 1, ..TokenUsage::default() },
        cost_nusd: 7,
        first_byte_ms: 0,
        total_ms: 0,
    }
    .into()
}

pub(crate) fn tool_requested(turn: u32, index: usize) -> RunEvent {
    ToolRequested {
        call: CallId::for_tool(Turn(turn), index),
        tool: "read_file".into(),
        class: RecoveryClass::Reads,
        policy: PolicyVerdict::Allow { rule: "builtin".into() },
        labels: vec![],
        decision: DecisionHash::ZERO,
    }
    .into()
}

pub(crate) fn tool_finished(turn: u32, index: usize, facts: ToolFacts) -> RunEvent {
    ToolFinished {
        call: CallId::for_tool(Turn(turn), index),
        status: ToolStatus::Ok,
        content: format!("result {index}").into(),
        full: None,
        facts,
        duration_ms: 1,
    }
    .into()
}

pub(crate) fn user_message(text: &str) -> RunEvent {
    Told { text: text.into(), by: "a person".into() }.into()
}

pub(super) fn apply_event(state: &mut RunState, turn: u32, event: RunEvent) -> Result<(), CorruptLog> {
    let meta = EventMeta { seq: state.seq.next(), hash: EventHash::ZERO, turn: Turn(turn), epoch: Epoch(1) };
    state.apply(meta, event)
}

pub(super) fn fold_events(events: &[(u32, RunEvent)]) -> RunState {
    let mut state = RunState::default();
    for (turn, event) in events {
        apply_event(&mut state, *turn, event.clone()).expect("legal");
    }
    state
}

/// Checks the providers' requirements: roles alternate starting with the user, and each call has exactly one
/// result in the following message, in order.
fn assert_sendable(conversation: &Conversation) {
    let messages: Vec<&Message> = conversation.iter().map(|said| &said.message).collect();
    for (at, message) in messages.iter().enumerate() {
        let side = if at % 2 == 0 { MessageRole::User } else { MessageRole::Assistant };
        assert_eq!(message.role, side, "message {at}");
        let calls: Vec<&CallId> = tool_uses(&message.parts).map(|tool| &tool.call).collect();
        if calls.is_empty() {
            continue;
        }
        let next = messages.get(at + 1).expect("a message with results follows");
        let results: Vec<&CallId> = next
            .parts
            .iter()
            .filter_map(|part| match part {
                MessagePart::ToolResult { call, .. } => Some(call),
                MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::ToolUse(_) => None,
            })
            .collect();
        assert_eq!(calls, results);
    }
    assert_eq!(messages.last().map(|message| message.role), Some(MessageRole::User));
}

#[test]
fn illegal_event_is_rejected_and_changes_nothing() {
    type Case = (&'static str, Vec<(u32, RunEvent)>, RunEvent);
    let cases: [Case; 8] = [
        ("asked before started", vec![], model_requested(1, 1)),
        ("started twice", vec![(0, run_started())], run_started()),
        ("answered unasked", vec![(0, run_started())], model_answered(1, "x", 0)),
        ("a call nobody wants", vec![(0, run_started())], tool_requested(1, 0)),
        (
            "calls out of order",
            vec![(0, run_started()), (1, model_requested(1, 1)), (1, model_answered(1, "", 2))],
            tool_requested(1, 1),
        ),
        (
            "a result without intent",
            vec![(0, run_started()), (1, model_requested(1, 1))],
            tool_finished(1, 0, ToolFacts::default()),
        ),
        ("a turn skipped", vec![(0, run_started())], model_requested(2, 1)),
        (
            "after the end",
            vec![
                (0, run_started()),
                (
                    0,
                    RunEnded {
                        result: RunOutcome::Cancelled,
                        summary: None,
                        tree: None,
                        unverified: None,
                        decision: None,
                    }
                    .into(),
                ),
            ],
            user_message("late"),
        ),
    ];
    for (name, before, event) in cases {
        let mut state = fold_events(&before);
        let turn = if name == "a turn skipped" { 2 } else { state.turn.0 };
        let (seq, stage) = (state.seq, state.stage.clone());
        assert!(matches!(apply_event(&mut state, turn, event), Err(CorruptLog::Illegal { .. })), "{name}");
        assert_eq!((state.seq, state.stage), (seq, stage), "{name}");
    }
    let mut state = fold_events(&[(0, run_started())]);
    let meta = EventMeta { seq: Seq(7), hash: EventHash::ZERO, turn: Turn(0), epoch: Epoch(1) };
    assert!(matches!(state.apply(meta, user_message("x")), Err(CorruptLog::Gap { .. })));
}

#[test]
fn message_between_intent_and_result_comes_after_the_results() {
    let state = fold_events(&[
        (0, run_started()),
        (1, model_requested(1, 1)),
        (1, user_message("while the model thinks")),
        (1, model_answered(1, "I read.", 2)),
        (1, tool_requested(1, 0)),
        (1, tool_requested(1, 1)),
        (1, user_message("while the tools run")),
        (1, tool_finished(1, 1, ToolFacts::default())),
        (1, tool_finished(1, 0, ToolFacts::default())),
    ]);
    assert_eq!(state.stage, RunStage::Deciding);
    let conversation = state.transcript.conversation(None);
    assert_sendable(&conversation);
    let last: Vec<String> = conversation
        .get(conversation.len() - 1)
        .expect("a message")
        .message
        .parts
        .iter()
        .map(|part| match part {
            MessagePart::ToolResult { call, .. } => call.to_string(),
            MessagePart::Text { text: Content::Text(text) } => text.clone(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(last, ["t1-0", "t1-1", "while the model thinks", "while the tools run"]);
}

#[test]
fn tool_facts_update_the_state() {
    let path = WorkspacePath::new("a.py").expect("legal");
    let seen = FileVersion { path: path.clone(), hash: crate::ids::BlobHash::hash_bytes(b"1") };
    let facts = ToolFacts {
        read: vec![seen.clone()],
        tests: Some(TestCounts { failed: 1, ..TestCounts::default() }),
        error_signature: Some("e".into()),
        ..ToolFacts::default()
    };
    let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 1, hash: seen.hash };
    let state = fold_events(&[
        (0, run_started()),
        (1, model_requested(1, 1)),
        (1, model_answered(1, "", 1)),
        (1, tool_requested(1, 0)),
        (1, tool_finished(1, 0, facts)),
        (
            1,
            SnapshotTaken {
                changes: vec![PathChange { path: path.clone(), entry: Some(entry) }],
                git_changes: vec![],
                tree: TreeHash::hash_bytes(b"t"),
                left_out: vec![],
                more: false,
            }
            .into(),
        ),
    ]);
    assert_eq!(state.known_hashes.get(&path), Some(&seen.hash));
    assert_eq!(state.overlay.get(&path), Some(&Some(entry)));
    assert_eq!(state.tree, Some(TreeHash::hash_bytes(b"t")));
    assert!(state.fix_is_next);
    assert_eq!(
        state.unresolved_failures.iter().map(|trouble| trouble.signature.as_str()).collect::<Vec<_>>(),
        ["e"]
    );
    assert_eq!((state.totals.cost_nusd, state.totals.tool_calls), (7, 1));
}

#[test]
fn snapshot_parts_count_once_the_last_arrives_in_the_same_epoch() {
    let part = |name: &str, more| {
        let change = PathChange { path: WorkspacePath::new(name).expect("legal"), entry: None };
        let tree = TreeHash::hash_bytes(b"whole");
        SnapshotTaken { changes: vec![change], git_changes: vec![], tree, left_out: vec![], more }
    };
    let before = fold_events(&[(0, run_started())]);
    let apply = |state: &mut RunState, epoch, part| {
        let meta =
            EventMeta { seq: state.seq.next(), hash: EventHash::ZERO, turn: Turn(0), epoch: Epoch(epoch) };
        state.apply(meta, RunEvent::from(part)).expect("follows");
    };
    let names = |state: &RunState| state.overlay.keys().map(ToString::to_string).collect::<Vec<_>>();

    let mut state = before.clone();
    apply(&mut state, 1, part("a", true));
    apply(&mut state, 1, part("b", true));
    assert_eq!((names(&state), state.tree), (vec![], before.tree), "half a snapshot is none");
    let mut rescued = state.clone();
    apply(&mut state, 1, part("c", false));
    assert_eq!(names(&state), ["a", "b", "c"]);
    assert_eq!(state.tree, Some(TreeHash::hash_bytes(b"whole")));
    apply(&mut state, 1, part("d", false));
    assert_eq!(names(&state), ["a", "b", "c", "d"], "each part counts once");

    apply(&mut rescued, 2, part("x", false));
    assert_eq!(names(&rescued), ["x"], "what a dead worker began is not gone on with");
}

#[test]
fn fork_continues_only_from_its_parents_hash() {
    let mut parent =
        fold_events(&[(0, run_started()), (1, model_requested(1, 1)), (1, model_answered(1, "done", 0))]);
    parent.hash = EventHash::hash_bytes(b"head");
    let forked = |seq, hash| {
        RunEvent::from(Forked {
            run: RunId(uuid::Uuid::from_u128(9)),
            task: TaskId(uuid::Uuid::from_u128(8)),
            parent: RunId(uuid::Uuid::from_u128(2)),
            seq,
            hash,
            turn: Turn(1),
            why: ForkReason::Fork,
            engine: None,
            models: None,
            hint: Some("try it otherwise".into()),
        })
    };
    let meta =
        EventMeta { seq: Seq(1), hash: EventHash::hash_bytes(b"child"), turn: Turn(1), epoch: Epoch(0) };
    assert!(parent.clone().apply(meta, forked(Seq(2), parent.hash)).is_err());
    assert!(parent.clone().apply(meta, forked(Seq(3), EventHash::ZERO)).is_err());
    let mut child = parent.clone();
    child.apply(meta, forked(Seq(3), parent.hash)).expect("follows");
    assert_eq!(child.seq, Seq(1));
    assert_eq!(child.pins.as_ref().map(|pins| pins.run.0.as_u128()), Some(9));
    assert!(child.transcript.has_notes());
    apply_event(&mut child, 2, model_requested(2, 1)).expect("goes on");
    assert_sendable(&child.transcript.conversation(None));
}

proptest! {
    /// Whatever messages people send and however calls end, each request is accepted by providers.
    #[test]
    fn every_request_is_sendable(
        turns in prop::collection::vec((0usize..4, any::<[bool; 3]>(), any::<bool>(), any::<bool>()), 1..12)
    ) {
        let mut state = fold_events(&[(0, run_started())]);
        for (at, (calls, tell, reversed, empty)) in turns.into_iter().enumerate() {
            let turn = at as u32 + 1;
            assert_sendable(&state.transcript.conversation(Some("nudge")));
            if tell[0] { apply_event(&mut state, turn - 1, user_message("a")).expect("inbox"); }
            apply_event(&mut state, turn, model_requested(turn, 1)).expect("asked");
            if tell[1] { apply_event(&mut state, turn, user_message("b")).expect("inbox"); }
            apply_event(&mut state, turn, model_answered(turn, if empty { "" } else { "words" }, calls)).expect("answered");
            for index in 0..calls { apply_event(&mut state, turn, tool_requested(turn, index)).expect("intent"); }
            if tell[2] { apply_event(&mut state, turn, user_message("c")).expect("inbox"); }
            let order: Vec<usize> = if reversed { (0..calls).rev().collect() } else { (0..calls).collect() };
            for index in order { apply_event(&mut state, turn, tool_finished(turn, index, ToolFacts::default())).expect("result"); }
            if calls == 0 && !tell[1] && !tell[2] {
                // The model spoke last: without a message from a person there is nothing to request.
                apply_event(&mut state, turn, user_message("go on")).expect("inbox");
            }
            prop_assert_eq!(&state.stage, &RunStage::Deciding);
        }
        assert_sendable(&state.transcript.conversation(None));
    }
}

pub(crate) fn to_log(events: Vec<(u32, RunEvent)>) -> Vec<Envelope> {
    let mut head = Head::EMPTY;
    let mut log = Vec::new();
    for (turn, event) in events {
        let event = event.encode(Turn(turn));
        let mut envelope = Envelope {
            stream: StreamId::Run(RunId(uuid::Uuid::from_u128(2))),
            seq: head.seq.next(),
            position: Position(head.seq.0),
            recorded_at: Timestamp(0),
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
        log.push(envelope);
    }
    log
}

#[test]
fn model_is_told_which_files_a_person_changed() {
    let change = |path: &str, there: bool| PathChange {
        path: WorkspacePath::new(path).unwrap(),
        entry: there.then_some(Entry { kind: EntryKind::Dir, mode: 0o700, size: 0, hash: BlobHash([0; 32]) }),
    };
    let taken = |changes: Vec<PathChange>| {
        RunEvent::from(SnapshotTaken {
            changes,
            git_changes: vec![],
            tree: TreeHash([4; 32]),
            left_out: vec![],
            more: false,
        })
    };
    let edited = || RunEvent::from(WorkspaceEdited { by: "me".into() });
    let mut state =
        fold_events(&[(0, run_started()), (1, model_requested(1, 1)), (1, model_answered(1, "done", 0))]);
    apply_event(&mut state, 1, taken(vec![change("a/silent", true)])).unwrap();
    assert!(!state.transcript.has_notes(), "a snapshot alone is the run's own");
    apply_event(&mut state, 1, edited()).unwrap();
    apply_event(&mut state, 1, taken(vec![change("a", true), change("b", false)])).unwrap();
    apply_event(&mut state, 1, taken((0..50).map(|n| change(&format!("d{n}"), true)).collect())).unwrap();
    assert!(state.transcript.has_notes(), "it calls for an answer: the run does not end as it stood");
    let words = |state: &RunState| {
        let said = state.transcript.conversation(None);
        let parts = said.iter().last().unwrap().message.parts.iter().map(|part| match part {
            MessagePart::Text { text: Content::Text(text) } => text.clone(),
            other => panic!("{other:?}"),
        });
        parts.collect::<Vec<_>>()
    };
    let told = words(&state);
    assert_eq!(told.len(), 2);
    assert!(told[0].ends_with("Changed: a, b (removed)"), "{}", told[0]);
    assert!(told[1].ends_with("d39, and 10 more"), "{}", told[1]);
    // The run's later changes are its own again.
    apply_event(&mut state, 1, super::Told { text: "go on".into(), by: "me".into() }.into()).unwrap();
    apply_event(&mut state, 1, taken(vec![change("c", true)])).unwrap();
    assert_eq!(words(&state).len(), 3);
    assert_eq!(state.overlay.len(), 54);
    // The workspace cannot change the workspace between an intent and its result.
    apply_event(&mut state, 2, model_requested(2, 1)).unwrap();
    assert!(apply_event(&mut state, 2, edited()).is_err());
}
