//! Long polls: who waits is woken, by what happens here and by what another coordinator does.

use std::sync::Arc;

use docket_schema::{
    ids::Timestamp,
    run::RunOutcome,
    wire::{HeartbeatResponse, LeaseResponse, LostWhy, ProblemCode},
};
use serde_json::{Value, json};

use super::events::{ended, phase, spec, started};
use super::support::{House, heartbeat, lease_request, serve, token};
use crate::{clock::Clock, http::Role, store::Term};

/// Longer than any test may take: who is not woken fails by its own time limit, not by luck.
const LONG_MS: u64 = 60_000;

#[tokio::test]
async fn a_submit_wakes_a_waiting_worker() {
    let house = House::open().await;
    let request = lease_request(LONG_MS);
    let (leases, task) = tokio::join!(house.lease(&request), house.submit(spec("a task")));
    assert_eq!(leases[0].task, task);
    let again = house.lease(&request).await;
    assert_eq!(again, leases, "the same number is answered the same");
}

#[tokio::test]
async fn a_submit_to_another_coordinator_reaches_a_waiting_worker() {
    let house = House::open().await;
    let other = serve(Arc::clone(&house.store), 30_000).await;
    let body = json!({ "tasks": [spec("a task")] });
    let submit =
        house.client.post(format!("{}/v1/tasks", other.url())).bearer_auth(token(Role::Admin)).json(&body);
    let request = lease_request(LONG_MS);
    let (leases, submitted) = tokio::join!(house.lease(&request), submit.send());
    assert_eq!(submitted.expect("answer").status(), 200);
    assert_eq!(leases.len(), 1);
    other.shutdown().await;
}

#[tokio::test]
async fn an_empty_queue_answers_after_the_wait_and_bad_requests_at_once() {
    let house = House::open().await;
    assert!(house.lease(&lease_request(20)).await.is_empty());
    for (field, value) in
        [("max", json!(0)), ("max", json!(5000)), ("engines", json!([])), ("name", json!("x".repeat(999)))]
    {
        let mut body = serde_json::to_value(lease_request(LONG_MS)).expect("json");
        body[field] = value;
        let problem = house.admin("/v1/lease", &body).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some(field)));
    }
}

#[tokio::test]
async fn a_cancel_wakes_the_heartbeat_of_the_worker_that_has_the_task() {
    let house = House::open().await;
    house.submit(spec("a task")).await;
    let request = lease_request(0);
    let lease = house.lease(&request).await.remove(0);
    let beat: HeartbeatResponse =
        house.post("/v1/heartbeat", token(Role::Worker), &heartbeat(&request, &lease, 0)).await.good();
    assert_eq!((beat.renewed, beat.lost.len()), (vec![lease.task], 0));
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let waiting = heartbeat(&request, &lease, LONG_MS);
    let (cancel, no_reason) = (format!("/v1/tasks/{}/cancel", lease.task), json!({}));
    let (beat, record) = tokio::join!(
        house.post("/v1/heartbeat", token(Role::Worker), &waiting),
        house.post(&cancel, token(Role::Submit), &no_reason),
    );
    assert_eq!(record.good::<Value>()["state"], json!("cancelled"));
    let beat: HeartbeatResponse = beat.good();
    assert_eq!(beat.lost.len(), 1);
    assert_eq!((beat.lost[0].task, beat.lost[0].why), (lease.task, LostWhy::Cancelled));
}

#[tokio::test]
async fn a_lease_that_nobody_renews_expires_and_goes_to_who_waits() {
    let house = House::with_lease_ms(2000).await;
    let lost = house.leased().await;
    house.appended(&lost, 0, vec![started(lost.task, lost.run)]).await;
    let next = house.lease(&lease_request(LONG_MS)).await.remove(0);
    assert_eq!((next.task, next.run, next.epoch.0, next.head.seq.0), (lost.task, lost.run, 2, 1));
    let problem = house.append(&lost, 1, vec![phase(0)]).await.problem();
    assert_eq!(problem.code, ProblemCode::Fenced);
    let request = lease_request(0);
    let beat: HeartbeatResponse =
        house.post("/v1/heartbeat", token(Role::Worker), &heartbeat(&request, &lost, 0)).await.good();
    assert_eq!(beat.lost.len(), 1);
    assert_eq!(beat.lost[0].why, LostWhy::Fenced);
}

#[tokio::test]
async fn a_coordinator_that_comes_back_trusts_leases_for_one_lease_time() {
    let house = House::with_lease_ms(600_000).await;
    let lease = house.leased().await;
    let view: Value = house.get(&format!("/v1/tasks/{}", lease.task)).await.good();
    let before: Timestamp = view["lease_expires_at"].as_str().expect("deadline").parse().expect("time");
    // As if nobody had looked after the store for an hour.
    let now = Clock::new().now();
    let (an_hour_ago, later) = (Timestamp(now.0 - 3_600_000_000), now.plus_ms(3_600_000));
    let gone = Term {
        name: "maintenance",
        holder: "gone".to_owned(),
        until: an_hour_ago,
        now: later,
        longest_ms: 0,
        trust: None,
    };
    house.store.take_term(gone).await.expect("takes");
    let other = serve(Arc::clone(&house.store), 1_200_000).await;
    // Its term gives everybody the time before it looks for the first expired one.
    let after = loop {
        let view: Value = house.get(&format!("/v1/tasks/{}", lease.task)).await.good();
        let at: Timestamp = view["lease_expires_at"].as_str().expect("deadline").parse().expect("time");
        if at != before {
            break at;
        }
        tokio::task::yield_now().await;
    };
    assert!(after.ms_since(before) > 300_000, "{before} {after}");
    other.shutdown().await;
}

#[tokio::test]
async fn a_scheduled_task_is_leased_when_its_time_has_come_and_not_before() {
    let house = House::open().await;
    let run_at = Clock::new().now().plus_ms(1500);
    let mut later = spec("later");
    later.run_at = Some(run_at);
    let task = house.submit(later).await;
    assert!(house.lease(&lease_request(0)).await.is_empty());
    assert_eq!(house.task_state(task).await, "scheduled");
    let lease = house.lease(&lease_request(LONG_MS)).await.remove(0);
    assert_eq!(lease.task, task);
    assert!(Clock::new().now() >= run_at);
}

#[tokio::test]
async fn a_shutdown_answers_those_who_wait() {
    let house = House::open().await;
    let other = serve(Arc::clone(&house.store), 30_000).await;
    let post = house
        .client
        .post(format!("{}/v1/lease", other.url()))
        .bearer_auth(token(Role::Worker))
        .json(&lease_request(LONG_MS));
    let waiting = tokio::spawn(post.send());
    // The worker's row appears once its request is being answered.
    loop {
        let status: Value = house.get("/v1/status").await.good();
        if !status["workers"].as_array().expect("workers").is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    other.shutdown().await;
    let answer = waiting.await.expect("task").expect("answer");
    assert_eq!(answer.json::<LeaseResponse>().await.expect("leases").leases, []);
}

#[tokio::test]
async fn a_cancelled_task_is_over_for_its_worker() {
    let house = House::open().await;
    let lease = house.leased().await;
    house.appended(&lease, 0, vec![started(lease.task, lease.run)]).await;
    let cancel = format!("/v1/tasks/{}/cancel", lease.task);
    let record: Value =
        house.post(&cancel, token(Role::Submit), &json!({ "reason": "no need" })).await.good();
    assert_eq!(record["state"], json!("cancelled"));
    let problem = house.append(&lease, 1, vec![ended(RunOutcome::Succeeded, 1)]).await.problem();
    assert!(matches!(problem.code, ProblemCode::Ended | ProblemCode::WrongSeq), "{problem:?}");
    let again: Value = house.post(&cancel, token(Role::Submit), &json!({})).await.good();
    assert_eq!(again["state"], json!("cancelled"), "cancelling twice changes nothing");
}
