//! Forks over the API: who may, what is made, what a repeated request answers, and edits on the way.

use docket_schema::{
    content::{BlobRef, WorkPath},
    event::Envelope,
    history::FoldedRun,
    ids::{BlobHash, RunId, TaskId, TreeHash},
    message::Prices,
    run::{Forked, ModelTerms, Models, RunOutcome, SnapshotTaken},
    snapshot::{Entry, EntryKind, PathChange},
    wire::{
        Edit, EventPage, ForkRequest, ForkResponse, Lease, LineageView, ProblemCode, ResumeResponse, Sibling,
        TaskView,
    },
};
use serde_json::json;

use super::events::{answered, asked, ended, phase, started};
use super::support::{House, lease_request, token};
use crate::{clock, http::Role};

/// A run that ended after two turns: 1 started · 2 asked · 3 answered · 4 phase · 5 asked · 6 answered · 7 ended.
async fn two_turns(house: &House) -> Lease {
    let lease = house.leased().await;
    let events = vec![started(lease.task, lease.run), asked(1), answered(1), phase(1), asked(2), answered(2)];
    house.appended(&lease, 0, events).await;
    house.appended(&lease, 6, vec![ended(RunOutcome::Succeeded, 2)]).await;
    lease
}

fn siblings(count: usize) -> Vec<Sibling> {
    (0..count).map(|_| Sibling { task: TaskId(clock::new_id()), run: RunId(clock::new_id()) }).collect()
}

fn request(turn: Option<u32>, siblings: Vec<Sibling>) -> ForkRequest {
    ForkRequest { turn, siblings, engine: None, models: None, script: None, hint: None, edit: None }
}

async fn history(house: &House, run: RunId) -> Vec<Envelope> {
    house.get(&format!("/v1/runs/{run}/events?lineage=true")).await.good::<EventPage>().events
}

#[tokio::test]
async fn a_fork_makes_tasks_once_and_leaves_the_run_alone() {
    let house = House::open().await;
    let parent = two_turns(&house).await;
    let path = format!("/v1/runs/{}/fork", parent.run);
    let terms = ModelTerms { prices: Prices { input_nusd: 7, ..Prices::default() }, ..ModelTerms::default() };
    let models = Models::only("anthropic:other".parse().expect("a model"), terms);
    let asked_for = ForkRequest {
        models: Some(models.clone()),
        hint: Some("x".repeat(20_000)),
        ..request(Some(1), siblings(2))
    };
    let denied = house.post(&path, token(Role::Read), &asked_for).await;
    assert_eq!(denied.status, 403);
    let made: ForkResponse = house.post(&path, token(Role::Submit), &asked_for).await.good();
    assert_eq!((made.parent.run, made.parent.seq.0, made.turn), (parent.run, 4, 1));
    assert_eq!(made.siblings, asked_for.siblings);
    let again: ForkResponse = house.post(&path, token(Role::Submit), &asked_for).await.good();
    assert_eq!(again, made, "a repeated request is answered as the first");
    // Another fork under the same ids would be lost if it were answered so.
    for (other, field) in [
        (ForkRequest { turn: Some(0), ..asked_for.clone() }, "turn"),
        (ForkRequest { hint: Some("other words".to_owned()), ..asked_for.clone() }, "hint"),
        (ForkRequest { hint: None, ..asked_for.clone() }, "hint"),
        (ForkRequest { models: None, ..asked_for.clone() }, "models"),
        (ForkRequest { script: Some(BlobRef::of(b"another")), ..asked_for.clone() }, "script"),
    ] {
        let problem = house.post(&path, token(Role::Submit), &other).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::IdTaken, Some("siblings")));
        assert!(problem.detail.contains(&format!("`{field}`")), "{}", problem.detail);
    }

    for (nth, sibling) in made.siblings.iter().enumerate() {
        let view: TaskView = house.get(&format!("/v1/tasks/{}", sibling.task)).await.good();
        assert_eq!(view.task.spec.title, format!("a task (fork {} of 2 at turn 1)", nth + 1));
        assert_eq!((view.task.spec.model, view.runs.len()), (models.main.clone(), 1));
        assert_eq!(view.task.forked_from.map(|from| (from.run, from.turn.0)), Some((parent.run, 1)));
        let events = history(&house, sibling.run).await;
        let FoldedRun { .. } = FoldedRun::read(events.clone()).expect("folds");
        let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["RunStarted", "ModelRequested", "ModelAnswered", "PhaseChanged", "Forked"]);
        assert_eq!(events[4].prev_hash, events[3].hash, "the chain goes on");
        let forked: Forked = serde_json::from_str(events[4].payload.as_str()).expect("forked");
        assert_eq!(forked.models.as_ref(), Some(&models));
        assert!(forked.hint.and_then(|hint| hint.blob()).is_some(), "long words are a blob");
    }
    assert_eq!(house.task_state(parent.task).await, "completed");
    let lease = house.lease(&lease_request(0)).await.remove(0);
    assert!(lease.forked && made.siblings.iter().any(|sibling| sibling.run == lease.run));

    // A fork of a fork, before its own beginning, is the root's child; and it keeps the fork's model.
    let path = format!("/v1/runs/{}/fork", made.siblings[0].run);
    let early: ForkResponse = house.admin(&path, &request(Some(0), siblings(1))).await.good();
    assert_eq!((early.parent.run, early.parent.seq.0), (parent.run, 1));
    let tree: LineageView = house.get(&format!("/v1/runs/{}/lineage", early.siblings[0].run)).await.good();
    let found: Vec<_> = tree.runs.iter().map(|one| (one.run.id, one.fork_turn)).collect();
    let expected = [
        (parent.run, None),
        (made.siblings[0].run, Some(1)),
        (made.siblings[1].run, Some(1)),
        (early.siblings[0].run, Some(0)),
    ];
    assert_eq!((found.as_slice(), tree.more), (expected.as_slice(), false));
    assert_eq!(tree.runs[3].model, Some(models.main.clone()));
    assert_eq!(house.get(&format!("/v1/runs/{}/lineage", clock::new_id())).await.status, 404);

    // Resuming the fork at an early turn keeps its model too: it is still the same task.
    let path = format!("/v1/runs/{}/resume", made.siblings[1].run);
    let resumed: ResumeResponse = house.admin(&path, &json!({ "turn": 0 })).await.good();
    let events = history(&house, resumed.run).await;
    let forked: Forked = serde_json::from_str(events[1].payload.as_str()).expect("forked");
    assert_eq!((forked.task, forked.models), (made.siblings[1].task, Some(models)));
    let refused =
        house.admin(&format!("/v1/tasks/{}/retry", early.siblings[0].task), &json!({})).await.problem();
    assert_eq!(refused.code, ProblemCode::WrongState);
    assert!(refused.detail.contains("docket resume"), "{}", refused.detail);
}

#[tokio::test]
async fn a_run_that_still_runs_is_forked_up_to_its_last_ended_turn() {
    let house = House::open().await;
    let lease = house.leased().await;
    house.appended(&lease, 0, vec![started(lease.task, lease.run), asked(1), answered(1), asked(2)]).await;
    let path = format!("/v1/runs/{}/fork", lease.run);
    let problem = house.admin(&path, &request(Some(2), siblings(1))).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::WrongState, Some("turn")));
    let made: ForkResponse = house.admin(&path, &request(None, siblings(1))).await.good();
    assert_eq!((made.parent.seq.0, made.turn), (3, 1));
    house.appended(&lease, 4, vec![answered(2)]).await;
    assert_eq!(house.task_state(lease.task).await, "running");
}

#[tokio::test]
async fn what_a_fork_cannot_be_is_said() {
    let house = House::open().await;
    let parent = two_turns(&house).await;
    let path = format!("/v1/runs/{}/fork", parent.run);
    let twice = vec![siblings(1)[0]; 2];
    let taken = vec![Sibling { task: parent.task, run: parent.run }];
    let new_task_old_run = vec![Sibling { run: parent.run, ..siblings(1)[0] }];
    for (asked, code, field) in [
        (request(None, Vec::new()), ProblemCode::InvalidRequest, Some("siblings")),
        (request(None, siblings(101)), ProblemCode::InvalidRequest, Some("siblings")),
        (request(None, twice), ProblemCode::InvalidRequest, Some("siblings")),
        (request(None, taken), ProblemCode::IdTaken, Some("siblings")),
        (request(None, new_task_old_run), ProblemCode::IdTaken, Some("siblings")),
        (request(Some(9), siblings(1)), ProblemCode::NotFound, Some("turn")),
        (
            ForkRequest { hint: Some(" ".to_owned()), ..request(None, siblings(1)) },
            ProblemCode::InvalidRequest,
            Some("hint"),
        ),
        (
            ForkRequest { script: Some(BlobRef::of(b"nowhere")), ..request(None, siblings(1)) },
            ProblemCode::BlobMissing,
            None,
        ),
    ] {
        let problem = house.admin(&path, &asked).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{}", problem.detail);
    }
}

#[tokio::test]
async fn what_a_person_changed_stands_between_the_fork_and_its_work() {
    let house = House::open().await;
    let parent = two_turns(&house).await;
    let content = b"mended";
    let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 6, hash: BlobHash::of(content) };
    let changes = vec![PathChange { path: WorkPath::new("a.txt").expect("a path"), entry: Some(entry) }];
    let tree = TreeHash([8; 32]);
    let taken = SnapshotTaken { changes, git_changes: Vec::new(), tree, left_out: Vec::new(), more: false };
    let edit = |before| {
        Some(Edit { before: TreeHash([before; 32]), snapshots: vec![taken.clone()], names: vec![entry.hash] })
    };
    let fork = format!("/v1/runs/{}/fork", parent.run);
    let with = |turn, edit| ForkRequest { edit, ..request(turn, siblings(1)) };
    for (asked, code, field) in [
        (with(None, edit(1)), ProblemCode::InvalidRequest, Some("turn")),
        (with(Some(1), edit(2)), ProblemCode::InvalidRequest, Some("edit.before")),
        (with(Some(1), edit(1)), ProblemCode::BlobMissing, None),
    ] {
        let problem = house.admin(&fork, &asked).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{}", problem.detail);
    }
    let put = format!("/v1/blobs/{}", BlobHash::of(content));
    assert_eq!(house.send("PUT", &put, token(Role::Submit), content.to_vec(), None).await.status, 204);
    let edited = with(Some(1), edit(1));
    let made: ForkResponse = house.admin(&fork, &edited).await.good();
    let again: ForkResponse = house.admin(&fork, &edited).await.good();
    assert_eq!(again, made, "a repeated request is answered as the first");
    let mut another = edited.clone();
    if let Some(edit) = &mut another.edit {
        edit.snapshots[0].tree = TreeHash([9; 32]);
    }
    let mut longer = edited.clone();
    if let Some(edit) = &mut longer.edit {
        edit.snapshots.push(taken.clone());
    }
    let without = ForkRequest { edit: None, ..edited };
    for other in [another, longer, without] {
        let problem = house.admin(&fork, &other).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::IdTaken, Some("siblings")));
        assert!(problem.detail.contains("`edit`"), "{}", problem.detail);
    }
    let resume = format!("/v1/runs/{}/resume", parent.run);
    let resumed: ResumeResponse = house.admin(&resume, &json!({ "turn": 1, "edit": edit(1) })).await.good();
    for run in [made.siblings[0].run, resumed.run] {
        let history = FoldedRun::read(history(&house, run).await).expect("folds");
        let kinds: Vec<&str> = history.events()[4..].iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["Forked", "WorkspaceEdited", "SnapshotTaken"]);
        assert_eq!(history.state().tree, Some(tree));
        assert!(history.state().transcript.has_notes(), "the model is told");
    }
}
