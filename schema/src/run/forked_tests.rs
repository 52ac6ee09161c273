//! What a run that goes on from another takes with it, and what it does not.

use super::{
    tests::{answered, asked, folded, push, started},
    *,
};
use crate::{
    content::{BlobRef, Content, WorkPath},
    ids::{BlobHash, DecisionHash, Epoch, EventHash, RunId, Seq, TaskId, TreeHash, Turn},
    message::{ModelRef, Part},
    snapshot::{Entry, EntryKind, PathChange},
    tool::{Exceeded, ToolSet},
};

fn fork(state: &mut RunState, engine: Option<&str>, hint: Option<&str>) {
    let forked = Forked {
        run: RunId(uuid::Uuid::from_u128(9)),
        task: TaskId(uuid::Uuid::from_u128(8)),
        parent: RunId(uuid::Uuid::from_u128(2)),
        seq: state.seq,
        hash: state.hash,
        turn: state.turn,
        why: ForkWhy::Fork,
        engine: engine.map(|name| EngineRef { name: name.to_owned(), version: 1 }),
        models: None,
        hint: hint.map(Content::from),
    };
    let meta = EventMeta { seq: Seq(1), hash: EventHash::ZERO, turn: state.turn, epoch: Epoch(0) };
    state.apply(meta, forked.into()).expect("follows");
}

fn pinned() -> RunEvent {
    let blob = BlobRef::of(b"prompt");
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

fn begins(role: &str) -> RunEvent {
    let opening = vec!["Do your part.".into()];
    RoleBegan { role: role.to_owned(), about: String::new(), opening, decision: DecisionHash::ZERO }.into()
}

fn concluded(facts: Vec<Fact>) -> RunEvent {
    Concluded { facts, decision: DecisionHash::ZERO }.into()
}

fn edited(state: &mut RunState) {
    let entry = Entry { kind: EntryKind::Dir, mode: 0o700, size: 0, hash: BlobHash([0; 32]) };
    push(state, 1, WorkspaceEdited { by: "me".into() }.into()).expect("follows");
    let taken = SnapshotTaken {
        changes: vec![PathChange { path: WorkPath::new("a").unwrap(), entry: Some(entry) }],
        git_changes: vec![],
        tree: TreeHash([4; 32]),
        left_out: vec![],
        more: false,
    };
    push(state, 1, taken.into()).expect("follows");
}

/// How often the next request says these words.
fn says(state: &RunState, words: &str) -> usize {
    let said = state.transcript.conversation(None);
    let parts = said.iter().flat_map(|said| said.message.parts.clone());
    parts
        .filter(|part| matches!(part, Part::Text { text: Content::Text(text) } if text.contains(words)))
        .count()
}

#[test]
fn roles_are_due_from_the_fork_to_another_engine_until_they_are_pinned() {
    let mut state = folded(&[(0, started()), (1, asked(1, 1)), (1, answered(1, "hm", 0))]);
    fork(&mut state, None, None);
    assert!(!state.roles_due, "the engine is the same");
    for _ in 0..2 {
        fork(&mut state, Some("team"), None);
        let set = |state: &RunState| state.pins.as_ref().unwrap().settings.tool_set;
        assert_eq!((state.roles_due, set(&state)), (true, ToolSet::Core));
        push(&mut state, 1, pinned()).unwrap();
        assert_eq!((state.roles_due, set(&state)), (false, ToolSet::Wide));
        push(&mut state, 1, begins("planner")).unwrap();
        assert!(!state.roles_due);
    }
}

#[test]
fn a_run_that_goes_on_has_limits_of_its_own() {
    let mut state = folded(&[(0, started()), (0, pinned()), (0, begins("planner"))]);
    let invalid = || Fact::Invalid { what: "plan".into(), problem: "no".into() };
    let failed = Fact::QualityGate { gate: "g".into(), verdict: GateVerdict::Failed, reason: "no".into() };
    let correcting = || Fact::Correcting { reason: "no".into() };
    push(&mut state, 0, concluded(vec![Fact::Planned { steps: vec![] }, correcting(), failed, invalid()]))
        .unwrap();
    for turn in 1..=2 {
        push(&mut state, turn, asked(turn, 1)).unwrap();
        push(&mut state, turn, answered(turn, "words", 0)).unwrap();
    }
    state.exceeded.push((Turn(1), Exceeded::Memory));
    let counts = |state: &RunState| {
        let work = &state.work;
        let gate = work.quality["g"].failed_counted();
        (
            [work.corrections_counted(), work.plans_counted(), work.invalid_counted(), gate],
            [work.begun_counted("planner"), state.idle_counted(), state.empty_counted()],
            state.exceeded.len(),
        )
    };
    assert_eq!(counts(&state), ([1, 1, 1, 1], [1, 2, 0], 1));
    fork(&mut state, None, None);
    assert_eq!(counts(&state), ([0; 4], [0; 3], 0));
    assert_eq!(
        (state.work.corrections, state.work.plans, state.idle_answers),
        (1, 1, 2),
        "it is still known"
    );
    push(&mut state, 2, concluded(vec![invalid(), correcting()])).unwrap();
    push(&mut state, 3, asked(3, 1)).unwrap();
    push(&mut state, 3, answered(3, "words", 0)).unwrap();
    assert_eq!(counts(&state), ([1, 0, 1, 0], [0, 1, 0], 0));
    // What ends a row ends what was forgiven of it.
    push(&mut state, 4, asked(4, 1)).unwrap();
    push(&mut state, 4, answered(4, " ", 0)).unwrap();
    push(&mut state, 4, concluded(vec![Fact::Planned { steps: vec![] }, invalid()])).unwrap();
    assert_eq!((state.empty_counted(), state.idle_counted(), state.work.invalid_counted()), (1, 0, 1));
    push(&mut state, 5, asked(5, 1)).unwrap();
    push(&mut state, 5, answered(5, "words", 0)).unwrap();
    assert_eq!(state.idle_counted(), 1);
}

#[test]
fn what_a_person_says_or_changes_is_heard_by_whoever_speaks_next() {
    const EDIT: &str = "A person changed the workspace";
    // At a change of role.
    let mut state = folded(&[(0, started()), (0, pinned()), (0, begins("planner"))]);
    edited(&mut state);
    push(&mut state, 1, begins("reviewer")).unwrap();
    assert_eq!((says(&state, EDIT), state.work.heard.len()), (1, 1));
    // At a change of the engine, to one with roles and to one without.
    for (from_roles, to_roles) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut state = folded(&[(0, started())]);
        if from_roles {
            push(&mut state, 0, pinned()).unwrap();
            push(&mut state, 0, begins("planner")).unwrap();
        }
        push(&mut state, 1, Told { text: "take the other way".into(), by: "me".into() }.into()).unwrap();
        edited(&mut state);
        fork(&mut state, Some("other"), Some("and hurry"));
        if to_roles {
            push(&mut state, 1, pinned()).unwrap();
            push(&mut state, 1, begins("planner")).unwrap();
        }
        let said = ["take the other way", EDIT, "and hurry"].map(|words| says(&state, words));
        assert_eq!((said, state.work.heard.len()), ([1; 3], 3), "{from_roles} {to_roles}");
        push(&mut state, 1, asked(1, 1)).unwrap();
        assert!(state.work.heard.is_empty());
    }
}
