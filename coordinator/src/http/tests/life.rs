//! The life of a task over HTTP.

use docket_schema::{
    event::TypedEvent as _,
    ids::{DecisionHash, Turn},
    run::{BlockedWhy, FailureKind, RunBlocked, RunEvent, RunOutcome, RunPaused},
    wire::{ProblemCode, ReleaseReason, ReleaseRequest, ReleaseResponse, TaskView},
};
use serde_json::{Value, json};

use super::events::{asked, ended, phase, spec, started};
use super::support::{House, lease_request, token};
use crate::http::Role;

#[tokio::test]
async fn a_task_is_submitted_leased_worked_and_done() {
    let house = House::open().await;
    let task = house.submit(spec("a task")).await;
    assert_eq!(house.task_state(task).await, "available");
    let lease = house.lease(&lease_request(0)).await.remove(0);
    assert_eq!((lease.task, lease.attempt, lease.epoch.0, lease.head.seq.0), (task, 1, 1, 0));
    assert_eq!(house.task_state(task).await, "running");
    let head = house.appended(&lease, 0, vec![started(task, lease.run), phase(0)]).await;
    assert_eq!(head, 2);
    let head = house.appended(&lease, head, vec![ended(RunOutcome::Succeeded, 1)]).await;
    assert_eq!(head, 3);
    let view: TaskView = house.get(&format!("/v1/tasks/{task}")).await.good();
    assert_eq!(view.task.state.as_str(), "completed");
    assert_eq!(view.runs.len(), 1);
    assert_eq!(view.runs[0].status, "succeeded");
    let page: Value = house.get(&format!("/v1/runs/{}/events", lease.run)).await.good();
    let kinds: Vec<_> =
        page["events"].as_array().expect("events").iter().map(|e| e["kind"].clone()).collect();
    assert_eq!(kinds, ["RunStarted", "PhaseChanged", "RunEnded"]);
    assert_eq!(page["more"], json!(false));
    let feed: Value = house.get("/v1/feed?limit=2").await.good();
    assert_eq!(
        (feed["events"][0]["kind"].as_str(), feed["more"].as_bool()),
        (Some("TaskSubmitted"), Some(true))
    );
    let stream: Value = house.get(&format!("/v1/events?stream=task/{task}")).await.good();
    assert_eq!(stream["events"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_paused_task_rests_and_goes_on_with_its_run() {
    let house = House::open().await;
    let lease = house.leased().await;
    let (pause, unpause) =
        (format!("/v1/tasks/{}/pause", lease.task), format!("/v1/tasks/{}/unpause", lease.task));
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let record: Value = house.post(&pause, token(Role::Submit), &json!({})).await.good();
    assert_eq!(record["state"], "running", "its run is asked first");
    let paused = RunEvent::from(RunPaused { decision: DecisionHash::ZERO }).encode(Turn(1));
    let late = house.append(&lease, 1, vec![paused.clone()]).await.problem();
    let missing: Vec<_> = late.missing.iter().map(|event| event.kind.clone()).collect();
    assert_eq!((late.code, missing), (ProblemCode::WrongSeq, vec!["PauseRequested".to_owned()]));
    house.appended(&lease, 2, vec![paused]).await;
    let view: TaskView = house.get(&format!("/v1/tasks/{}", lease.task)).await.good();
    assert_eq!((view.task.state.as_str(), view.runs[0].status.as_str()), ("blocked", "paused"));
    let again: Value = house.post(&pause, token(Role::Submit), &json!({})).await.good();
    assert_eq!((&again["blocked_why"], &again["seq"]), (&json!("paused"), &json!(view.task.seq)));
    let record: Value = house.post(&unpause, token(Role::Submit), &json!({})).await.good();
    assert_eq!(record["state"], "available");
    let next = house.lease(&lease_request(1)).await.remove(0);
    assert_eq!((next.run, next.epoch.0), (lease.run, 2));

    let problem = house.post(&pause, token(Role::Submit), &json!({ "reason": "x" })).await.problem();
    assert_eq!(problem.code, ProblemCode::InvalidRequest);
    let held = house.submit(spec("held")).await;
    let record: Value = house.admin(&format!("/v1/tasks/{held}/pause"), &json!({})).await.good();
    assert_eq!((&record["state"], &record["blocked_why"]), (&json!("blocked"), &json!("paused")));
    assert!(house.lease(&lease_request(2)).await.is_empty());
    let record: Value = house.admin(&format!("/v1/tasks/{held}/cancel"), &json!({})).await.good();
    assert_eq!(record["state"], "cancelled");
    let problem = house.admin(&format!("/v1/tasks/{held}/unpause"), &json!({})).await.problem();
    assert_eq!(problem.code, ProblemCode::WrongState);
}

#[tokio::test]
async fn a_run_that_asks_is_answered_once_and_goes_on() {
    let house = House::open().await;
    let lease = house.leased().await;
    let answer = format!("/v1/tasks/{}/answer", lease.task);
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let problem = house.post(&answer, token(Role::Submit), &json!({ "text": "x" })).await.problem();
    assert_eq!(problem.code, ProblemCode::WrongState);
    assert!(problem.detail.contains("docket tell"), "{}", problem.detail);
    let (question, why) = ("which?".into(), BlockedWhy::Escalated);
    let asks =
        RunEvent::from(RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO })
            .encode(Turn(1));
    house.appended(&lease, 1, vec![asks]).await;
    let long = json!({ "text": "x".repeat(40_000) });
    let problem = house.admin(&answer, &long).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some("text")));
    for empty in [json!({}), json!({ "text": " ".repeat(20_000) })] {
        assert_eq!(house.admin(&answer, &empty).await.problem().code, ProblemCode::InvalidRequest);
    }
    // Longer than what stands in an event: a blob of the same transaction.
    let text = "y".repeat(20_000);
    let record: Value = house.post(&answer, token(Role::Submit), &json!({ "text": text })).await.good();
    assert_eq!((&record["state"], record.get("message")), (&json!("available"), None));
    let hash = docket_schema::content::BlobRef::of(text.as_bytes()).hash;
    let blob = house.get(&format!("/v1/blobs/{hash}")).await;
    assert_eq!((blob.status, blob.body.len()), (200, text.len()));
    let problem = house.admin(&answer, &json!({ "text": "again" })).await.problem();
    assert_eq!(problem.code, ProblemCode::WrongState);
    let next = house.lease(&lease_request(1)).await.remove(0);
    assert_eq!((next.run, next.epoch.0, next.head.seq.0), (lease.run, 2, 3));
}

#[tokio::test]
async fn an_append_and_a_settlement_sent_again_are_answered_as_before() {
    let house = House::open().await;
    let lease = house.leased().await;
    let first = vec![started(lease.task, lease.run)];
    let one: Value = house.append(&lease, 0, first.clone()).await.good();
    let again: Value = house.append(&lease, 0, first).await.good();
    assert_eq!(one, again);
    let last = vec![ended(RunOutcome::Succeeded, 1)];
    let one: Value = house.append(&lease, 1, last.clone()).await.good();
    let again: Value = house.append(&lease, 1, last).await.good();
    assert_eq!(one, again);
    let problem = house.append(&lease, 2, vec![phase(1)]).await.problem();
    assert_eq!(problem.code, ProblemCode::Ended);
}

#[tokio::test]
async fn a_stale_epoch_is_refused_but_may_repeat_what_it_wrote() {
    let house = House::open().await;
    let lease = house.leased().await;
    let first = vec![started(lease.task, lease.run)];
    house.appended(&lease, 0, first.clone()).await;
    let release = ReleaseRequest { epoch: lease.epoch, why: ReleaseReason::Drained };
    let path = format!("/v1/tasks/{}/release", lease.task);
    let state: ReleaseResponse = house.post(&path, token(Role::Worker), &release).await.good();
    assert_eq!(state.state.as_str(), "available");

    let problem = house.append(&lease, 1, vec![phase(0)]).await.problem();
    assert_eq!(problem.code, ProblemCode::LeaseExpired, "nobody has it: {}", problem.detail);

    let next = house.lease(&lease_request(0)).await.remove(0);
    assert_eq!((next.run, next.epoch.0, next.head.seq.0), (lease.run, 2, 1));
    let problem = house.append(&lease, 1, vec![phase(0)]).await.problem();
    assert_eq!((problem.code, problem.epoch.map(|e| e.0)), (ProblemCode::Fenced, Some(2)));
    assert_eq!(house.appended(&lease, 0, first).await, 1);
    assert_eq!(house.appended(&next, 1, vec![phase(0)]).await, 2);

    let problem = house.post(&path, token(Role::Worker), &release).await.problem();
    assert_eq!(problem.code, ProblemCode::Fenced);
    let problem = house.append(&lease, 2, vec![ended(RunOutcome::Succeeded, 1)]).await.problem();
    assert_eq!(problem.code, ProblemCode::Fenced, "a stale completion");
}

#[tokio::test]
async fn a_failed_run_is_tried_again_after_its_backoff_and_the_last_one_is_discarded() {
    let house = House::open().await;
    let mut spec = spec("fails");
    spec.attempts_max = 2;
    let task = house.submit(spec).await;
    for attempt in 1..=2 {
        // The second lease waits for the backoff's end: the scheduler's wake-up brings it.
        let lease = house.lease(&lease_request(20_000)).await.remove(0);
        assert_eq!(lease.attempt, attempt);
        house.appended(&lease, 0, vec![started(task, lease.run)]).await;
        let failed = RunOutcome::Failed { why: FailureKind::Model, message: "no answer".to_owned() };
        house.appended(&lease, 1, vec![ended(failed, 1)]).await;
    }
    assert_eq!(house.task_state(task).await, "discarded");
    let record: Value = house.admin(&format!("/v1/tasks/{task}/retry"), &json!({})).await.good();
    assert_eq!((record["state"].as_str(), record["failures"].as_u64()), (Some("available"), Some(0)));
}

#[tokio::test]
async fn crashes_count_apart_until_the_task_is_poison() {
    let house = House::open().await;
    let mut spec = spec("crashes");
    spec.crashes_max = 2;
    let task = house.submit(spec).await;
    for state in ["available", "discarded"] {
        let lease = house.lease(&lease_request(0)).await.remove(0);
        let release =
            ReleaseRequest { epoch: lease.epoch, why: ReleaseReason::Crashed("signal 9".to_owned()) };
        let path = format!("/v1/tasks/{task}/release");
        let answer: ReleaseResponse = house.post(&path, token(Role::Worker), &release).await.good();
        assert_eq!(answer.state.as_str(), state);
    }
}

#[tokio::test]
async fn submits_are_all_or_none_and_know_their_duplicates() {
    let house = House::open().await;
    let mut keyed = spec("keyed");
    keyed.dedup_key = Some("one".to_owned());
    let first = house.submit(keyed.clone()).await;
    let answer: Value = house.admin("/v1/tasks", &json!({ "tasks": [keyed] })).await.good();
    assert_eq!(answer["tasks"][0], json!({ "id": first, "duplicate": true }));

    let id = crate::clock::new_id();
    let body = json!({ "tasks": [spec("once")], "ids": [id] });
    for _ in 0..2 {
        let answer: Value = house.admin("/v1/tasks", &body).await.good();
        assert_eq!(answer["tasks"][0]["id"], json!(id));
    }
    let bad = json!({ "tasks": [spec("good"), spec("two\nlines")] });
    let problem = house.admin("/v1/tasks", &bad).await.problem();
    assert_eq!(
        (problem.code, problem.field.as_deref()),
        (ProblemCode::InvalidRequest, Some("tasks[1].title"))
    );
    let problem = house.admin("/v1/tasks", &json!({ "tasks": [] })).await.problem();
    assert_eq!(problem.field.as_deref(), Some("tasks"));
    let problem = house.admin("/v1/tasks", &json!({ "tasks": [spec("a")], "ids": [] })).await.problem();
    assert_eq!(problem.field.as_deref(), Some("ids"));

    let page: Value = house.get("/v1/tasks?limit=1").await.good();
    assert_eq!(page["tasks"][0]["spec"]["title"], json!("once"));
    let next = page["next"].as_str().expect("another page");
    let page: Value = house.get(&format!("/v1/tasks?limit=5&before={next}")).await.good();
    assert_eq!((page["tasks"].as_array().map(Vec::len), page.get("next")), (Some(1), None));
    let digits: String = first.to_string().chars().rev().take(8).collect::<String>().chars().rev().collect();
    let found: Value = house.get(&format!("/v1/resolve/{digits}")).await.good();
    assert_eq!(found["tasks"], json!([first]));
    let status: Value = house.get("/v1/status").await.good();
    assert!(
        status["tasks"].as_array().expect("counts").contains(&json!({ "state": "available", "count": 2 }))
    );
}

#[tokio::test]
async fn a_tell_in_the_middle_comes_back_with_the_refused_append() {
    let house = House::open().await;
    let lease = house.leased().await;
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let tell = format!("/v1/runs/{}/tell", lease.run);
    let told: Value = house.post(&tell, token(Role::Submit), &json!({ "text": "mind the gap" })).await.good();
    assert_eq!(told["head"]["seq"], json!(2));
    let problem = house.append(&lease, 1, vec![asked(1)]).await.problem();
    assert_eq!(problem.code, ProblemCode::WrongSeq);
    assert_eq!(problem.head.map(|head| head.seq.0), Some(2));
    assert_eq!(problem.missing.len(), 1);
    assert_eq!(problem.missing[0].kind, "Told");
    assert!(problem.missing[0].payload.as_str().contains("mind the gap"));
    house.appended(&lease, 2, vec![asked(1)]).await;

    let problem = house.admin(&tell, &json!({ "text": " " })).await.problem();
    assert_eq!(problem.field.as_deref(), Some("text"));
    let problem = house.admin(&tell, &json!({ "text": "x".repeat(40_000) })).await.problem();
    assert_eq!(problem.field.as_deref(), Some("text"));
    let long: Value = house.admin(&tell, &json!({ "text": "x".repeat(20_000) })).await.good();
    assert_eq!(long["head"]["seq"], json!(4));
}

#[tokio::test]
async fn a_policy_is_changed_by_admins_and_within_its_bounds() {
    let house = House::open().await;
    let lease = house.leased().await;
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let path = format!("/v1/runs/{}/policy", lease.run);
    let rule = json!({ "id": "a", "verdict": "deny", "commands": ["x"], "reason": "sk-ant-api03-0123456789abcdefghijklmnop" });
    let body = |rule: &Value| json!({ "policy": { "rules": [rule] } });
    let problem = house.post(&path, token(Role::Submit), &body(&rule)).await.problem();
    assert_eq!(problem.code, ProblemCode::Forbidden);
    let bad = json!({ "id": "a b", "verdict": "deny" });
    assert_eq!(house.admin(&path, &body(&bad)).await.problem().field.as_deref(), Some("policy.rules[0].id"));
    let bad = json!({ "policy": { "network": { "hosts": ["https://a.org"] } } });
    assert_eq!(house.admin(&path, &bad).await.problem().field.as_deref(), Some("policy.network.hosts[0]"));
    let changed: Value = house.admin(&path, &body(&rule)).await.good();
    assert_eq!(changed["head"]["seq"], json!(2));
    let problem = house.append(&lease, 1, vec![asked(1)]).await.problem();
    let payload = problem.missing[0].payload.as_str();
    assert!(problem.missing[0].kind == "PolicyChanged" && payload.contains("\"of_task\":true"), "{payload}");
    assert!(!payload.contains("0123456789abcdef"), "{payload}");

    let mut spec = serde_json::to_value(spec("bad")).expect("json");
    spec["policy"] = json!({ "rules": [{ "id": "", "verdict": "deny" }] });
    let problem = house.admin("/v1/tasks", &json!({ "tasks": [spec] })).await.problem();
    assert_eq!(problem.field.as_deref(), Some("tasks[0].policy.rules[0].id"));
}
