//! What a run that continues another one inherits, and what it does not.

use super::{
    tests::{apply_event, fold_events, model_answered, model_requested, run_started},
    *,
};
use crate::{
    content::{BlobRef, Content, WorkspacePath},
    ids::{BlobHash, DecisionHash, Epoch, EventHash, RunId, Seq, TaskId, TreeHash, Turn},
    message::{MessagePart, ModelRef},
    snapshot::{Entry, EntryKind, PathChange},
    tool::{ExceededResource, ToolSet},
};

fn fork(state: &mut RunState, engine: Option<&str>, hint: Option<&str>) {
    let forked = Forked {
        run: RunId(uuid::Uuid::from_u128(9)),
        task: TaskId(uuid::Uuid::from_u128(8)),
        parent: RunId(uuid::Uuid::from_u128(2)),
        seq: state.seq,
        hash: state.hash,
        turn: state.turn,
        why: ForkReason::Fork,
        engine: engine.map(|name| EngineRef { name: name.to_owned(), version: 1 }),
        models: None,
        hint: hint.map(Content::from),
    };
    let meta = EventMeta { seq: Seq(1), hash: EventHash::ZERO, turn: state.turn, epoch: Epoch(0) };
    state.apply(meta, forked.into()).expect("follows");
}

fn roles_pinned() -> RunEvent {
    let blob = BlobRef::for_bytes(b"prompt");
    let role = |name: &str| RoleSpec {
        name: name.to_owned(),
        model: ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None },
        system: blob,
        tools: blob,
        may: vec![],
        answer: None,
        temperature_milli: None,
        effort: None,
        context_tokens_max: 0,
        writes: WriteScope::Any,
    };
    let roles = vec![role("planner"), role("reviewer")];
    RolesPinned { roles, models: vec![], tool_set: Some(ToolSet::Wide) }.into()
}

fn role_began(role: &str) -> RunEvent {
    let opening = vec!["Do your part.".into()];
    RoleBegan { role: role.to_owned(), about: String::new(), opening, decision: DecisionHash::ZERO }.into()
}

fn concluded_event(facts: Vec<EngineFact>) -> RunEvent {
    Concluded { facts, decision: DecisionHash::ZERO }.into()
}

fn apply_person_edit(state: &mut RunState) {
    let entry = Entry { kind: EntryKind::Dir, mode: 0o700, size: 0, hash: BlobHash([0; 32]) };
    apply_event(state, 1, WorkspaceEdited { by: "me".into() }.into()).expect("follows");
    let taken = SnapshotTaken {
        changes: vec![PathChange { path: WorkspacePath::new("a").unwrap(), entry: Some(entry) }],
        git_changes: vec![],
        tree: TreeHash([4; 32]),
        left_out: vec![],
        more: false,
    };
    apply_event(state, 1, taken.into()).expect("follows");
}

/// Counts how often the next request contains these words.
fn count_mentions(state: &RunState, words: &str) -> usize {
    let said = state.transcript.conversation(None);
    let parts = said.iter().flat_map(|said| said.message.parts.clone());
    parts
        .filter(
            |part| matches!(part, MessagePart::Text { text: Content::Text(text) } if text.contains(words)),
        )
        .count()
}

#[test]
fn roles_are_due_after_switching_engines_until_pinned() {
    let mut state =
        fold_events(&[(0, run_started()), (1, model_requested(1, 1)), (1, model_answered(1, "hm", 0))]);
    fork(&mut state, None, None);
    assert!(!state.roles_due, "the engine is the same");
    for _ in 0..2 {
        fork(&mut state, Some("team"), None);
        let set = |state: &RunState| state.pins.as_ref().unwrap().settings.tool_set;
        assert_eq!((state.roles_due, set(&state)), (true, ToolSet::Core));
        apply_event(&mut state, 1, roles_pinned()).unwrap();
        assert_eq!((state.roles_due, set(&state)), (false, ToolSet::Wide));
        apply_event(&mut state, 1, role_began("planner")).unwrap();
        assert!(!state.roles_due);
    }
}

#[test]
fn forked_run_has_its_own_limits() {
    let mut state = fold_events(&[(0, run_started()), (0, roles_pinned()), (0, role_began("planner"))]);
    let invalid = || EngineFact::Invalid { what: "plan".into(), problem: "no".into() };
    let failed =
        EngineFact::QualityGate { gate: "g".into(), verdict: GateVerdict::Failed, reason: "no".into() };
    let correcting = || EngineFact::Correcting { reason: "no".into() };
    apply_event(
        &mut state,
        0,
        concluded_event(vec![EngineFact::Planned { steps: vec![] }, correcting(), failed, invalid()]),
    )
    .unwrap();
    for turn in 1..=2 {
        apply_event(&mut state, turn, model_requested(turn, 1)).unwrap();
        apply_event(&mut state, turn, model_answered(turn, "words", 0)).unwrap();
    }
    state.exceeded.push((Turn(1), ExceededResource::Memory));
    let counts = |state: &RunState| {
        let work = &state.engine_state;
        let gate = work.quality_gates["g"].counted_failures();
        (
            [work.counted_corrections(), work.counted_plans(), work.counted_invalid_answers(), gate],
            [
                work.counted_role_starts("planner"),
                state.counted_idle_answers(),
                state.counted_empty_answers(),
            ],
            state.exceeded.len(),
        )
    };
    assert_eq!(counts(&state), ([1, 1, 1, 1], [1, 2, 0], 1));
    fork(&mut state, None, None);
    assert_eq!(counts(&state), ([0; 4], [0; 3], 0));
    assert_eq!(
        (state.engine_state.corrections, state.engine_state.plans, state.idle_answers),
        (1, 1, 2),
        "it is still known"
    );
    apply_event(&mut state, 2, concluded_event(vec![invalid(), correcting()])).unwrap();
    apply_event(&mut state, 3, model_requested(3, 1)).unwrap();
    apply_event(&mut state, 3, model_answered(3, "words", 0)).unwrap();
    assert_eq!(counts(&state), ([1, 0, 1, 0], [0, 1, 0], 0));
    // The end of a sequence also ends what was forgiven of it.
    apply_event(&mut state, 4, model_requested(4, 1)).unwrap();
    apply_event(&mut state, 4, model_answered(4, " ", 0)).unwrap();
    apply_event(&mut state, 4, concluded_event(vec![EngineFact::Planned { steps: vec![] }, invalid()]))
        .unwrap();
    assert_eq!(
        (
            state.counted_empty_answers(),
            state.counted_idle_answers(),
            state.engine_state.counted_invalid_answers()
        ),
        (1, 0, 1)
    );
    apply_event(&mut state, 5, model_requested(5, 1)).unwrap();
    apply_event(&mut state, 5, model_answered(5, "words", 0)).unwrap();
    assert_eq!(state.counted_idle_answers(), 1);
}

#[test]
fn messages_and_edits_by_a_person_reach_the_next_role() {
    const EDIT: &str = "A person changed the workspace";
    // When the role changes.
    let mut state = fold_events(&[(0, run_started()), (0, roles_pinned()), (0, role_began("planner"))]);
    apply_person_edit(&mut state);
    apply_event(&mut state, 1, role_began("reviewer")).unwrap();
    assert_eq!((count_mentions(&state, EDIT), state.engine_state.unread_messages.len()), (1, 1));
    // When the engine changes, to one with roles and to one without.
    for (from_roles, to_roles) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut state = fold_events(&[(0, run_started())]);
        if from_roles {
            apply_event(&mut state, 0, roles_pinned()).unwrap();
            apply_event(&mut state, 0, role_began("planner")).unwrap();
        }
        apply_event(&mut state, 1, Told { text: "take the other way".into(), by: "me".into() }.into())
            .unwrap();
        apply_person_edit(&mut state);
        fork(&mut state, Some("other"), Some("and hurry"));
        if to_roles {
            apply_event(&mut state, 1, roles_pinned()).unwrap();
            apply_event(&mut state, 1, role_began("planner")).unwrap();
        }
        let said = ["take the other way", EDIT, "and hurry"].map(|words| count_mentions(&state, words));
        assert_eq!((said, state.engine_state.unread_messages.len()), ([1; 3], 3), "{from_roles} {to_roles}");
        apply_event(&mut state, 1, model_requested(1, 1)).unwrap();
        assert!(state.engine_state.unread_messages.is_empty());
    }
}
