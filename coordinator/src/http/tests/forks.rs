//! Forks over the API: access, created tasks, repeated requests, and edits.

use docket_schema::{
    api::{
        EventPage, ForkRequest, ForkResponse, ForkSibling, Lease, LineageView, ProblemCode, ResumeResponse,
        TaskView, WorkspaceEdit,
    },
    content::{BlobRef, WorkspacePath},
    event::Envelope,
    history::FoldedRun,
    ids::{BlobHash, RunId, TaskId, TreeHash},
    message::TokenPrices,
    run::{Forked, ModelTerms, RunModels, RunOutcome, SnapshotTaken},
    snapshot::{Entry, EntryKind, PathChange},
};
use serde_json::json;

use super::event_fixtures::{model_answered, model_called, phase_changed, run_ended, run_started};
use super::support::{TestServer, lease_request, token_for};
use crate::{clock, http::TokenRole};

/// A run that ended after two turns: 1 started · 2 asked · 3 answered · 4 phase · 5 asked · 6 answered · 7 ended.
async fn lease_with_two_turns(house: &TestServer) -> Lease {
    let lease = house.submit_and_lease().await;
    let events = vec![
        run_started(lease.task, lease.run),
        model_called(1),
        model_answered(1),
        phase_changed(1),
        model_called(2),
        model_answered(2),
    ];
    house.append_ok(&lease, 0, events).await;
    house.append_ok(&lease, 6, vec![run_ended(RunOutcome::Succeeded, 2)]).await;
    lease
}

fn new_siblings(count: usize) -> Vec<ForkSibling> {
    (0..count).map(|_| ForkSibling { task: TaskId(clock::new_id()), run: RunId(clock::new_id()) }).collect()
}

fn fork_request(turn: Option<u32>, siblings: Vec<ForkSibling>) -> ForkRequest {
    ForkRequest { turn, siblings, engine: None, models: None, script: None, hint: None, edit: None }
}

async fn read_history(house: &TestServer, run: RunId) -> Vec<Envelope> {
    house.get(&format!("/v1/runs/{run}/events?lineage=true")).await.parse_success::<EventPage>().events
}

#[tokio::test]
async fn fork_creates_tasks_once_and_does_not_touch_its_run() {
    let house = TestServer::start().await;
    let parent = lease_with_two_turns(&house).await;
    let path = format!("/v1/runs/{}/fork", parent.run);
    let terms = ModelTerms {
        prices: TokenPrices { input_nusd: 7, ..TokenPrices::default() },
        ..ModelTerms::default()
    };
    let models = RunModels::single_model("anthropic:other".parse().expect("a model"), terms);
    let asked_for = ForkRequest {
        models: Some(models.clone()),
        hint: Some("x".repeat(20_000)),
        ..fork_request(Some(1), new_siblings(2))
    };
    let denied = house.post(&path, token_for(TokenRole::Read), &asked_for).await;
    assert_eq!(denied.status, 403);
    let made: ForkResponse =
        house.post(&path, token_for(TokenRole::Submit), &asked_for).await.parse_success();
    assert_eq!((made.parent.run, made.parent.seq.0, made.turn), (parent.run, 4, 1));
    assert_eq!(made.siblings, asked_for.siblings);
    let again: ForkResponse =
        house.post(&path, token_for(TokenRole::Submit), &asked_for).await.parse_success();
    assert_eq!(again, made, "a repeated request is answered as the first");
    // A different fork with the same IDs would be lost if it got the response of the first.
    for (other, field) in [
        (ForkRequest { turn: Some(0), ..asked_for.clone() }, "turn"),
        (ForkRequest { hint: Some("other words".to_owned()), ..asked_for.clone() }, "hint"),
        (ForkRequest { hint: None, ..asked_for.clone() }, "hint"),
        (ForkRequest { models: None, ..asked_for.clone() }, "models"),
        (ForkRequest { script: Some(BlobRef::for_bytes(b"another")), ..asked_for.clone() }, "script"),
    ] {
        let problem = house.post(&path, token_for(TokenRole::Submit), &other).await.parse_problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::IdTaken, Some("siblings")));
        assert!(problem.detail.contains(&format!("`{field}`")), "{}", problem.detail);
    }

    for (nth, sibling) in made.siblings.iter().enumerate() {
        let view: TaskView = house.get(&format!("/v1/tasks/{}", sibling.task)).await.parse_success();
        assert_eq!(view.task.spec.title, format!("a task (fork {} of 2 at turn 1)", nth + 1));
        assert_eq!((view.task.spec.model, view.runs.len()), (models.main.clone(), 1));
        assert_eq!(view.task.forked_from.map(|from| (from.run, from.turn.0)), Some((parent.run, 1)));
        let events = read_history(&house, sibling.run).await;
        let FoldedRun { .. } = FoldedRun::from_events(events.clone()).expect("folds");
        let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["RunStarted", "ModelRequested", "ModelAnswered", "PhaseChanged", "Forked"]);
        assert_eq!(events[4].prev_hash, events[3].hash, "the chain goes on");
        let forked: Forked = serde_json::from_str(events[4].payload.as_str()).expect("forked");
        assert_eq!(forked.models.as_ref(), Some(&models));
        assert!(forked.hint.and_then(|hint| hint.blob_ref()).is_some(), "long words are a blob");
    }
    assert_eq!(house.task_state(parent.task).await, "completed");
    let lease = house.lease_with(&lease_request(0)).await.remove(0);
    assert!(lease.forked && made.siblings.iter().any(|sibling| sibling.run == lease.run));

    // A fork of a fork before its own start is a child of the root, and keeps the fork's model.
    let path = format!("/v1/runs/{}/fork", made.siblings[0].run);
    let early: ForkResponse =
        house.post_as_admin(&path, &fork_request(Some(0), new_siblings(1))).await.parse_success();
    assert_eq!((early.parent.run, early.parent.seq.0), (parent.run, 1));
    let tree: LineageView =
        house.get(&format!("/v1/runs/{}/lineage", early.siblings[0].run)).await.parse_success();
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

    // Resuming the fork at an early turn keeps its model too, because it is still the same task.
    let path = format!("/v1/runs/{}/resume", made.siblings[1].run);
    let resumed: ResumeResponse = house.post_as_admin(&path, &json!({ "turn": 0 })).await.parse_success();
    let events = read_history(&house, resumed.run).await;
    let forked: Forked = serde_json::from_str(events[1].payload.as_str()).expect("forked");
    assert_eq!((forked.task, forked.models), (made.siblings[1].task, Some(models)));
    let refused = house
        .post_as_admin(&format!("/v1/tasks/{}/retry", early.siblings[0].task), &json!({}))
        .await
        .parse_problem();
    assert_eq!(refused.code, ProblemCode::WrongState);
    assert!(refused.detail.contains("docket resume"), "{}", refused.detail);
}

#[tokio::test]
async fn running_run_is_forked_at_its_last_ended_turn() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    house
        .append_ok(
            &lease,
            0,
            vec![run_started(lease.task, lease.run), model_called(1), model_answered(1), model_called(2)],
        )
        .await;
    let path = format!("/v1/runs/{}/fork", lease.run);
    let problem = house.post_as_admin(&path, &fork_request(Some(2), new_siblings(1))).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::WrongState, Some("turn")));
    let made: ForkResponse =
        house.post_as_admin(&path, &fork_request(None, new_siblings(1))).await.parse_success();
    assert_eq!((made.parent.seq.0, made.turn), (3, 1));
    house.append_ok(&lease, 4, vec![model_answered(2)]).await;
    assert_eq!(house.task_state(lease.task).await, "running");
}

#[tokio::test]
async fn invalid_fork_requests_are_rejected_with_reasons() {
    let house = TestServer::start().await;
    let parent = lease_with_two_turns(&house).await;
    let path = format!("/v1/runs/{}/fork", parent.run);
    let twice = vec![new_siblings(1)[0]; 2];
    let taken = vec![ForkSibling { task: parent.task, run: parent.run }];
    let new_task_old_run = vec![ForkSibling { run: parent.run, ..new_siblings(1)[0] }];
    for (asked, code, field) in [
        (fork_request(None, Vec::new()), ProblemCode::InvalidRequest, Some("siblings")),
        (fork_request(None, new_siblings(101)), ProblemCode::InvalidRequest, Some("siblings")),
        (fork_request(None, twice), ProblemCode::InvalidRequest, Some("siblings")),
        (fork_request(None, taken), ProblemCode::IdTaken, Some("siblings")),
        (fork_request(None, new_task_old_run), ProblemCode::IdTaken, Some("siblings")),
        (fork_request(Some(9), new_siblings(1)), ProblemCode::NotFound, Some("turn")),
        (
            ForkRequest { hint: Some(" ".to_owned()), ..fork_request(None, new_siblings(1)) },
            ProblemCode::InvalidRequest,
            Some("hint"),
        ),
        (
            ForkRequest {
                script: Some(BlobRef::for_bytes(b"nowhere")),
                ..fork_request(None, new_siblings(1))
            },
            ProblemCode::BlobMissing,
            None,
        ),
    ] {
        let problem = house.post_as_admin(&path, &asked).await.parse_problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{}", problem.detail);
    }
}

#[tokio::test]
async fn fork_records_a_persons_edits_before_its_first_turn() {
    let house = TestServer::start().await;
    let parent = lease_with_two_turns(&house).await;
    let content = b"mended";
    let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 6, hash: BlobHash::hash_bytes(content) };
    let changes = vec![PathChange { path: WorkspacePath::new("a.txt").expect("a path"), entry: Some(entry) }];
    let tree = TreeHash([8; 32]);
    let taken = SnapshotTaken { changes, git_changes: Vec::new(), tree, left_out: Vec::new(), more: false };
    let edit = |before| {
        Some(WorkspaceEdit {
            before: TreeHash([before; 32]),
            snapshots: vec![taken.clone()],
            names: vec![entry.hash],
        })
    };
    let fork = format!("/v1/runs/{}/fork", parent.run);
    let with = |turn, edit| ForkRequest { edit, ..fork_request(turn, new_siblings(1)) };
    for (asked, code, field) in [
        (with(None, edit(1)), ProblemCode::InvalidRequest, Some("turn")),
        (with(Some(1), edit(2)), ProblemCode::InvalidRequest, Some("edit.before")),
        (with(Some(1), edit(1)), ProblemCode::BlobMissing, None),
    ] {
        let problem = house.post_as_admin(&fork, &asked).await.parse_problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{}", problem.detail);
    }
    let put = format!("/v1/blobs/{}", BlobHash::hash_bytes(content));
    assert_eq!(
        house.send("PUT", &put, token_for(TokenRole::Submit), content.to_vec(), None).await.status,
        204
    );
    let edited = with(Some(1), edit(1));
    let made: ForkResponse = house.post_as_admin(&fork, &edited).await.parse_success();
    let again: ForkResponse = house.post_as_admin(&fork, &edited).await.parse_success();
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
        let problem = house.post_as_admin(&fork, &other).await.parse_problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::IdTaken, Some("siblings")));
        assert!(problem.detail.contains("`edit`"), "{}", problem.detail);
    }
    let resume = format!("/v1/runs/{}/resume", parent.run);
    let resumed: ResumeResponse =
        house.post_as_admin(&resume, &json!({ "turn": 1, "edit": edit(1) })).await.parse_success();
    for run in [made.siblings[0].run, resumed.run] {
        let history = FoldedRun::from_events(read_history(&house, run).await).expect("folds");
        let kinds: Vec<&str> = history.events()[4..].iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(kinds, ["Forked", "WorkspaceEdited", "SnapshotTaken"]);
        assert_eq!(history.state().tree, Some(tree));
        assert!(history.state().transcript.has_notes(), "the model is told");
    }
}
