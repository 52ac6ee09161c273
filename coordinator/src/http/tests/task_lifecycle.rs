//! The life cycle of a task over HTTP.

use docket_schema::{
    api::{ProblemCode, ReleaseReason, ReleaseRequest, ReleaseResponse, TaskView},
    event::TypedEvent as _,
    ids::{DecisionHash, Turn},
    run::{BlockedReason, FailureKind, RunBlocked, RunEvent, RunOutcome, RunPaused},
};
use serde_json::{Value, json};

use super::event_fixtures::{model_called, phase_changed, run_ended, run_started, task_spec};
use super::support::{TestServer, lease_request, token_for};
use crate::http::TokenRole;

#[tokio::test]
async fn task_is_submitted_leased_and_completed() {
    let house = TestServer::start().await;
    let task = house.submit_spec(task_spec("a task")).await;
    assert_eq!(house.task_state(task).await, "available");
    let lease = house.lease_with(&lease_request(0)).await.remove(0);
    assert_eq!((lease.task, lease.attempt, lease.epoch.0, lease.head.seq.0), (task, 1, 1, 0));
    assert_eq!(house.task_state(task).await, "running");
    let head = house.append_ok(&lease, 0, vec![run_started(task, lease.run), phase_changed(0)]).await;
    assert_eq!(head, 2);
    let head = house.append_ok(&lease, head, vec![run_ended(RunOutcome::Succeeded, 1)]).await;
    assert_eq!(head, 3);
    let view: TaskView = house.get(&format!("/v1/tasks/{task}")).await.parse_success();
    assert_eq!(view.task.state.as_str(), "completed");
    assert_eq!(view.runs.len(), 1);
    assert_eq!(view.runs[0].status, "succeeded");
    let page: Value = house.get(&format!("/v1/runs/{}/events", lease.run)).await.parse_success();
    let kinds: Vec<_> =
        page["events"].as_array().expect("events").iter().map(|e| e["kind"].clone()).collect();
    assert_eq!(kinds, ["RunStarted", "PhaseChanged", "RunEnded"]);
    assert_eq!(page["more"], json!(false));
    let feed: Value = house.get("/v1/feed?limit=2").await.parse_success();
    assert_eq!(
        (feed["events"][0]["kind"].as_str(), feed["more"].as_bool()),
        (Some("TaskSubmitted"), Some(true))
    );
    let stream: Value = house.get(&format!("/v1/events?stream=task/{task}")).await.parse_success();
    assert_eq!(stream["events"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn paused_task_continues_its_run_when_unpaused() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let (pause, unpause) =
        (format!("/v1/tasks/{}/pause", lease.task), format!("/v1/tasks/{}/unpause", lease.task));
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let record: Value = house.post(&pause, token_for(TokenRole::Submit), &json!({})).await.parse_success();
    assert_eq!(record["state"], "running", "its run is asked first");
    let paused = RunEvent::from(RunPaused { decision: DecisionHash::ZERO }).encode(Turn(1));
    let late = house.send_append(&lease, 1, vec![paused.clone()]).await.parse_problem();
    let missing: Vec<_> = late.missing.iter().map(|event| event.kind.clone()).collect();
    assert_eq!((late.code, missing), (ProblemCode::WrongSeq, vec!["PauseRequested".to_owned()]));
    house.append_ok(&lease, 2, vec![paused]).await;
    let view: TaskView = house.get(&format!("/v1/tasks/{}", lease.task)).await.parse_success();
    assert_eq!((view.task.state.as_str(), view.runs[0].status.as_str()), ("blocked", "paused"));
    let again: Value = house.post(&pause, token_for(TokenRole::Submit), &json!({})).await.parse_success();
    assert_eq!((&again["blocked_why"], &again["seq"]), (&json!("paused"), &json!(view.task.seq)));
    let record: Value = house.post(&unpause, token_for(TokenRole::Submit), &json!({})).await.parse_success();
    assert_eq!(record["state"], "available");
    let next = house.lease_with(&lease_request(1)).await.remove(0);
    assert_eq!((next.run, next.epoch.0), (lease.run, 2));

    let problem =
        house.post(&pause, token_for(TokenRole::Submit), &json!({ "reason": "x" })).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::InvalidRequest);
    let held = house.submit_spec(task_spec("held")).await;
    let record: Value =
        house.post_as_admin(&format!("/v1/tasks/{held}/pause"), &json!({})).await.parse_success();
    assert_eq!((&record["state"], &record["blocked_why"]), (&json!("blocked"), &json!("paused")));
    assert!(house.lease_with(&lease_request(2)).await.is_empty());
    let record: Value =
        house.post_as_admin(&format!("/v1/tasks/{held}/cancel"), &json!({})).await.parse_success();
    assert_eq!(record["state"], "cancelled");
    let problem = house.post_as_admin(&format!("/v1/tasks/{held}/unpause"), &json!({})).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::WrongState);
}

#[tokio::test]
async fn blocked_run_is_answered_once_and_continues() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let answer = format!("/v1/tasks/{}/answer", lease.task);
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let problem =
        house.post(&answer, token_for(TokenRole::Submit), &json!({ "text": "x" })).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::WrongState);
    assert!(problem.detail.contains("docket tell"), "{}", problem.detail);
    let (question, why) = ("which?".into(), BlockedReason::Escalated);
    let asks =
        RunEvent::from(RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO })
            .encode(Turn(1));
    house.append_ok(&lease, 1, vec![asks]).await;
    let long = json!({ "text": "x".repeat(40_000) });
    let problem = house.post_as_admin(&answer, &long).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some("text")));
    for empty in [json!({}), json!({ "text": " ".repeat(20_000) })] {
        assert_eq!(
            house.post_as_admin(&answer, &empty).await.parse_problem().code,
            ProblemCode::InvalidRequest
        );
    }
    // Longer than the inline limit of an event, so it is a blob in the same transaction.
    let text = "y".repeat(20_000);
    let record: Value =
        house.post(&answer, token_for(TokenRole::Submit), &json!({ "text": text })).await.parse_success();
    assert_eq!((&record["state"], record.get("message")), (&json!("available"), None));
    let hash = docket_schema::content::BlobRef::for_bytes(text.as_bytes()).hash;
    let blob = house.get(&format!("/v1/blobs/{hash}")).await;
    assert_eq!((blob.status, blob.body.len()), (200, text.len()));
    let problem = house.post_as_admin(&answer, &json!({ "text": "again" })).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::WrongState);
    let next = house.lease_with(&lease_request(1)).await.remove(0);
    assert_eq!((next.run, next.epoch.0, next.head.seq.0), (lease.run, 2, 3));
}

#[tokio::test]
async fn repeated_appends_and_run_ends_get_the_first_reply() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let first = vec![run_started(lease.task, lease.run)];
    let one: Value = house.send_append(&lease, 0, first.clone()).await.parse_success();
    let again: Value = house.send_append(&lease, 0, first).await.parse_success();
    assert_eq!(one, again);
    let last = vec![run_ended(RunOutcome::Succeeded, 1)];
    let one: Value = house.send_append(&lease, 1, last.clone()).await.parse_success();
    let again: Value = house.send_append(&lease, 1, last).await.parse_success();
    assert_eq!(one, again);
    let problem = house.send_append(&lease, 2, vec![phase_changed(1)]).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::Ended);
}

#[tokio::test]
async fn stale_epoch_is_rejected_except_for_repeated_appends() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let first = vec![run_started(lease.task, lease.run)];
    house.append_ok(&lease, 0, first.clone()).await;
    let release = ReleaseRequest { epoch: lease.epoch, why: ReleaseReason::Drained };
    let path = format!("/v1/tasks/{}/release", lease.task);
    let state: ReleaseResponse =
        house.post(&path, token_for(TokenRole::Worker), &release).await.parse_success();
    assert_eq!(state.state.as_str(), "available");

    let problem = house.send_append(&lease, 1, vec![phase_changed(0)]).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::LeaseExpired, "nobody has it: {}", problem.detail);

    let next = house.lease_with(&lease_request(0)).await.remove(0);
    assert_eq!((next.run, next.epoch.0, next.head.seq.0), (lease.run, 2, 1));
    let problem = house.send_append(&lease, 1, vec![phase_changed(0)]).await.parse_problem();
    assert_eq!((problem.code, problem.epoch.map(|e| e.0)), (ProblemCode::Fenced, Some(2)));
    assert_eq!(house.append_ok(&lease, 0, first).await, 1);
    assert_eq!(house.append_ok(&next, 1, vec![phase_changed(0)]).await, 2);

    let problem = house.post(&path, token_for(TokenRole::Worker), &release).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::Fenced);
    let problem =
        house.send_append(&lease, 2, vec![run_ended(RunOutcome::Succeeded, 1)]).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::Fenced, "a stale completion");
}

#[tokio::test]
async fn failed_run_is_retried_after_backoff_and_discarded_after_the_last_attempt() {
    let house = TestServer::start().await;
    let mut spec = task_spec("fails");
    spec.attempts_max = 2;
    let task = house.submit_spec(spec).await;
    for attempt in 1..=2 {
        // The second lease waits for the end of the backoff, which the scheduler signals.
        let lease = house.lease_with(&lease_request(20_000)).await.remove(0);
        assert_eq!(lease.attempt, attempt);
        house.append_ok(&lease, 0, vec![run_started(task, lease.run)]).await;
        let failed = RunOutcome::Failed { why: FailureKind::Model, message: "no answer".to_owned() };
        house.append_ok(&lease, 1, vec![run_ended(failed, 1)]).await;
    }
    assert_eq!(house.task_state(task).await, "discarded");
    let record: Value =
        house.post_as_admin(&format!("/v1/tasks/{task}/retry"), &json!({})).await.parse_success();
    assert_eq!((record["state"].as_str(), record["failures"].as_u64()), (Some("available"), Some(0)));
}

#[tokio::test]
async fn crashes_are_counted_separately_until_the_task_is_poisoned() {
    let house = TestServer::start().await;
    let mut spec = task_spec("crashes");
    spec.crashes_max = 2;
    let task = house.submit_spec(spec).await;
    for state in ["available", "discarded"] {
        let lease = house.lease_with(&lease_request(0)).await.remove(0);
        let release =
            ReleaseRequest { epoch: lease.epoch, why: ReleaseReason::Crashed("signal 9".to_owned()) };
        let path = format!("/v1/tasks/{task}/release");
        let answer: ReleaseResponse =
            house.post(&path, token_for(TokenRole::Worker), &release).await.parse_success();
        assert_eq!(answer.state.as_str(), state);
    }
}

#[tokio::test]
async fn submits_are_atomic_and_deduplicated() {
    let house = TestServer::start().await;
    let mut keyed = task_spec("keyed");
    keyed.dedup_key = Some("one".to_owned());
    let first = house.submit_spec(keyed.clone()).await;
    let answer: Value = house.post_as_admin("/v1/tasks", &json!({ "tasks": [keyed] })).await.parse_success();
    assert_eq!(answer["tasks"][0], json!({ "id": first, "duplicate": true }));

    let id = crate::clock::new_id();
    let body = json!({ "tasks": [task_spec("once")], "ids": [id] });
    for _ in 0..2 {
        let answer: Value = house.post_as_admin("/v1/tasks", &body).await.parse_success();
        assert_eq!(answer["tasks"][0]["id"], json!(id));
    }
    let bad = json!({ "tasks": [task_spec("good"), task_spec("two\nlines")] });
    let problem = house.post_as_admin("/v1/tasks", &bad).await.parse_problem();
    assert_eq!(
        (problem.code, problem.field.as_deref()),
        (ProblemCode::InvalidRequest, Some("tasks[1].title"))
    );
    let problem = house.post_as_admin("/v1/tasks", &json!({ "tasks": [] })).await.parse_problem();
    assert_eq!(problem.field.as_deref(), Some("tasks"));
    let problem = house
        .post_as_admin("/v1/tasks", &json!({ "tasks": [task_spec("a")], "ids": [] }))
        .await
        .parse_problem();
    assert_eq!(problem.field.as_deref(), Some("ids"));

    let page: Value = house.get("/v1/tasks?limit=1").await.parse_success();
    assert_eq!(page["tasks"][0]["spec"]["title"], json!("once"));
    let next = page["next"].as_str().expect("another page");
    let page: Value = house.get(&format!("/v1/tasks?limit=5&before={next}")).await.parse_success();
    assert_eq!((page["tasks"].as_array().map(Vec::len), page.get("next")), (Some(1), None));
    let digits: String = first.to_string().chars().rev().take(8).collect::<String>().chars().rev().collect();
    let found: Value = house.get(&format!("/v1/resolve/{digits}")).await.parse_success();
    assert_eq!(found["tasks"], json!([first]));
    let status: Value = house.get("/v1/status").await.parse_success();
    assert!(
        status["tasks"].as_array().expect("counts").contains(&json!({ "state": "available", "count": 2 }))
    );
}

#[tokio::test]
async fn rejected_append_returns_the_message_it_missed() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let tell = format!("/v1/runs/{}/tell", lease.run);
    let told: Value = house
        .post(&tell, token_for(TokenRole::Submit), &json!({ "text": "mind the gap" }))
        .await
        .parse_success();
    assert_eq!(told["head"]["seq"], json!(2));
    let problem = house.send_append(&lease, 1, vec![model_called(1)]).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::WrongSeq);
    assert_eq!(problem.head.map(|head| head.seq.0), Some(2));
    assert_eq!(problem.missing.len(), 1);
    assert_eq!(problem.missing[0].kind, "Told");
    assert!(problem.missing[0].payload.as_str().contains("mind the gap"));
    house.append_ok(&lease, 2, vec![model_called(1)]).await;

    let problem = house.post_as_admin(&tell, &json!({ "text": " " })).await.parse_problem();
    assert_eq!(problem.field.as_deref(), Some("text"));
    let problem = house.post_as_admin(&tell, &json!({ "text": "x".repeat(40_000) })).await.parse_problem();
    assert_eq!(problem.field.as_deref(), Some("text"));
    let long: Value =
        house.post_as_admin(&tell, &json!({ "text": "x".repeat(20_000) })).await.parse_success();
    assert_eq!(long["head"]["seq"], json!(4));
}

#[tokio::test]
async fn only_admins_change_a_policy_and_within_bounds() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let path = format!("/v1/runs/{}/policy", lease.run);
    let rule = json!({ "id": "a", "verdict": "deny", "commands": ["x"], "reason": "sk-ant-api03-0123456789abcdefghijklmnop" });
    let body = |rule: &Value| json!({ "policy": { "rules": [rule] } });
    let problem = house.post(&path, token_for(TokenRole::Submit), &body(&rule)).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::Forbidden);
    let bad = json!({ "id": "a b", "verdict": "deny" });
    assert_eq!(
        house.post_as_admin(&path, &body(&bad)).await.parse_problem().field.as_deref(),
        Some("policy.rules[0].id")
    );
    let bad = json!({ "policy": { "network": { "hosts": ["https://a.org"] } } });
    assert_eq!(
        house.post_as_admin(&path, &bad).await.parse_problem().field.as_deref(),
        Some("policy.network.hosts[0]")
    );
    let changed: Value = house.post_as_admin(&path, &body(&rule)).await.parse_success();
    assert_eq!(changed["head"]["seq"], json!(2));
    let problem = house.send_append(&lease, 1, vec![model_called(1)]).await.parse_problem();
    let payload = problem.missing[0].payload.as_str();
    assert!(problem.missing[0].kind == "PolicyChanged" && payload.contains("\"of_task\":true"), "{payload}");
    assert!(!payload.contains("0123456789abcdef"), "{payload}");

    let mut spec = serde_json::to_value(task_spec("bad")).expect("json");
    spec["policy"] = json!({ "rules": [{ "id": "", "verdict": "deny" }] });
    let problem = house.post_as_admin("/v1/tasks", &json!({ "tasks": [spec] })).await.parse_problem();
    assert_eq!(problem.field.as_deref(), Some("tasks[0].policy.rules[0].id"));
}
