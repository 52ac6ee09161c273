//! Resuming from the end of a turn, and what the new run's token can read.

use docket_schema::{
    api::{ProblemCode, ResumeResponse, RunView, TaskView},
    run::{FailureKind, Forked, RunOutcome},
    task::TaskState,
};
use serde_json::{Value, json};

use super::event_fixtures::{model_answered, model_called, phase_changed, run_ended, run_started};
use super::support::{TestServer, lease_request, token_for};
use crate::http::TokenRole;

#[tokio::test]
async fn run_is_resumed_from_the_end_of_a_turn() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let (task, parent) = (lease.task, lease.run);
    let resume = format!("/v1/runs/{parent}/resume");
    let problem = house.post_as_admin(&resume, &json!({})).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::WrongState, "{}", problem.detail);

    // 1 started · 2 asked · 3 answered · 4 phase · 5 asked · 6 answered · 7 ended
    let events = vec![
        run_started(task, parent),
        model_called(1),
        model_answered(1),
        phase_changed(1),
        model_called(2),
        model_answered(2),
    ];
    house.append_ok(&lease, 0, events).await;
    house.append_ok(&lease, 6, vec![run_ended(RunOutcome::Succeeded, 2)]).await;
    let problem = house.post_as_admin(&resume, &json!({ "turn": 3 })).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::NotFound, Some("turn")));
    assert_eq!(problem.detail, "turn 3 does not exist: the run has turns 0 to 2");

    let answer: ResumeResponse =
        house.post(&resume, token_for(TokenRole::Submit), &json!({ "turn": 1 })).await.parse_success();
    assert_eq!((answer.task, answer.parent.run, answer.parent.seq.0, answer.turn), (task, parent, 4, 1));
    let view: RunView = house.get(&format!("/v1/runs/{}", answer.run)).await.parse_success();
    assert_eq!(view.parent, Some(answer.parent));
    let child = house.lease_with(&lease_request(0)).await.remove(0);
    assert_eq!((child.run, child.forked, child.head.seq.0), (answer.run, true, 1));

    let read = |run, query: &str| {
        let path = format!("/v1/runs/{run}/events{query}");
        let (house, token) = (&house, child.token.clone());
        async move { house.send("GET", &path, &token, Vec::new(), None).await }
    };
    let kinds = |page: &Value| -> Vec<String> {
        let events = page["events"].as_array().expect("events");
        events.iter().map(|event| event["kind"].as_str().expect("kind").to_owned()).collect()
    };
    let own: Value = read(child.run, "?lineage=true").await.parse_success();
    assert_eq!(kinds(&own), ["RunStarted", "ModelRequested", "ModelAnswered", "PhaseChanged", "Forked"]);
    assert_eq!(own["events"][4]["prev_hash"], own["events"][3]["hash"], "the chain goes on");
    let forked: Forked = serde_json::from_value(own["events"][4]["payload"].clone()).expect("forked");
    assert_eq!((forked.run, forked.parent, forked.turn.0), (child.run, parent, 1));

    // It can read the shared part of its parent and nothing more.
    let shared: Value = read(parent, "").await.parse_success();
    assert_eq!((kinds(&shared).len(), shared["more"].as_bool()), (4, Some(false)));
    let none: Value = read(parent, "?after=4").await.parse_success();
    assert_eq!((kinds(&none).len(), none["more"].as_bool()), (0, Some(false)));
    let shared: Value = read(parent, "?lineage=true").await.parse_success();
    assert_eq!(kinds(&shared).len(), 4);
    // The parent's token cannot read the child, or anything else: the parent has ended.
    let path = format!("/v1/runs/{}/events", child.run);
    assert_eq!(house.send("GET", &path, &lease.token, Vec::new(), None).await.status, 409);
}

#[tokio::test]
async fn resume_replaces_a_running_run_and_reuses_the_parents_turns() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let events =
        vec![run_started(lease.task, lease.run), model_called(1), model_answered(1), model_called(2)];
    house.append_ok(&lease, 0, events).await;
    let first: ResumeResponse =
        house.post_as_admin(&format!("/v1/runs/{}/resume", lease.run), &json!({})).await.parse_success();
    assert_eq!((first.parent.seq.0, first.turn), (3, 1), "turn 2 has not ended");
    let problem = house.send_append(&lease, 4, vec![model_answered(2)]).await.parse_problem();
    assert!(matches!(problem.code, ProblemCode::Ended | ProblemCode::WrongSeq), "{problem:?}");
    let view: RunView = house.get(&format!("/v1/runs/{}", lease.run)).await.parse_success();
    assert_eq!(view.status, "superseded");

    let second: ResumeResponse = house
        .post_as_admin(&format!("/v1/runs/{}/resume", first.run), &json!({ "turn": 0 }))
        .await
        .parse_success();
    assert_eq!((second.parent.run, second.parent.seq.0, second.turn), (lease.run, 1, 0));
}

/// Otherwise a single provider error would drop a person's message and all earlier work.
#[tokio::test]
async fn failed_rework_is_retried_from_the_same_turn_with_the_same_comment() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let (task, root) = (lease.task, lease.run);
    let events =
        vec![run_started(task, root), model_called(1), model_answered(1), model_called(2), model_answered(2)];
    house.append_ok(&lease, 0, events).await;
    house.append_ok(&lease, 5, vec![run_ended(RunOutcome::Succeeded, 2)]).await;
    let comment = json!({ "comment": "the flag is named otherwise" });
    let rejected: ResumeResponse =
        house.post_as_admin(&format!("/v1/runs/{root}/reject"), &comment).await.parse_success();
    let opening = |run| {
        let (house, path) = (&house, format!("/v1/runs/{run}/events"));
        async move {
            let page: Value = house.get(&path).await.parse_success();
            let forked: Forked =
                serde_json::from_value(page["events"][0]["payload"].clone()).expect("forked");
            (forked, page["events"][0]["prev_hash"].clone())
        }
    };
    let (first, follows) = opening(rejected.run).await;
    let mut before = rejected.run;
    for tried in 1..3_u32 {
        // The scheduler ends the wait between attempts.
        let child = house.lease_with(&lease_request(20_000)).await.remove(0);
        assert_eq!((child.run, child.forked), (before, true));
        let failed = RunOutcome::Failed { why: FailureKind::Model, message: "overloaded".to_owned() };
        house.append_ok(&child, 1, vec![run_ended(failed, 2)]).await;
        let view: TaskView = house.get(&format!("/v1/tasks/{task}")).await.parse_success();
        let next = view.task.run.expect("the next try is there");
        assert!(matches!(view.task.state, TaskState::Retryable | TaskState::Available), "{:?}", view.task);
        assert_eq!(view.task.failures, tried);
        assert_eq!((view.task.runs, view.runs.len()), (tried + 2, tried as usize + 2));
        let (again, prev) = opening(next).await;
        assert_eq!(again, Forked { run: next, ..first.clone() }, "it starts where the failed run started");
        assert_eq!(prev, follows);
        assert!(again.hint.is_some());
        before = next;
    }
}
