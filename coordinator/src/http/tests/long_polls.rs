//! Long polls are woken by events here and at another coordinator.

use std::sync::Arc;

use docket_schema::{
    api::{HeartbeatResponse, LeaseLostReason, LeaseResponse, ProblemCode},
    ids::Timestamp,
    run::RunOutcome,
};
use serde_json::{Value, json};

use super::event_fixtures::{phase_changed, run_ended, run_started, task_spec};
use super::support::{TestServer, heartbeat, lease_request, serve, token_for};
use crate::{clock::Clock, http::TokenRole, store::TermRequest};

/// Longer than any test may take, so that a missed wake-up fails the test.
const LONG_WAIT_MS: u64 = 60_000;

#[tokio::test]
async fn submit_wakes_a_waiting_worker() {
    let house = TestServer::start().await;
    let request = lease_request(LONG_WAIT_MS);
    let (leases, task) = tokio::join!(house.lease_with(&request), house.submit_spec(task_spec("a task")));
    assert_eq!(leases[0].task, task);
    let again = house.lease_with(&request).await;
    assert_eq!(again, leases, "the same number is answered the same");
}

#[tokio::test]
async fn submit_at_another_coordinator_reaches_a_waiting_worker() {
    let house = TestServer::start().await;
    let other = serve(Arc::clone(&house.store), 30_000).await;
    let body = json!({ "tasks": [task_spec("a task")] });
    let submit = house
        .client
        .post(format!("{}/v1/tasks", other.url()))
        .bearer_auth(token_for(TokenRole::Admin))
        .json(&body);
    let request = lease_request(LONG_WAIT_MS);
    let (leases, submitted) = tokio::join!(house.lease_with(&request), submit.send());
    assert_eq!(submitted.expect("answer").status(), 200);
    assert_eq!(leases.len(), 1);
    other.shutdown().await;
}

#[tokio::test]
async fn empty_queue_replies_after_the_wait_and_bad_requests_at_once() {
    let house = TestServer::start().await;
    assert!(house.lease_with(&lease_request(20)).await.is_empty());
    for (field, value) in
        [("max", json!(0)), ("max", json!(5000)), ("engines", json!([])), ("name", json!("x".repeat(999)))]
    {
        let mut body = serde_json::to_value(lease_request(LONG_WAIT_MS)).expect("json");
        body[field] = value;
        let problem = house.post_as_admin("/v1/lease", &body).await.parse_problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some(field)));
    }
}

#[tokio::test]
async fn cancel_wakes_the_heartbeat_of_the_tasks_worker() {
    let house = TestServer::start().await;
    house.submit_spec(task_spec("a task")).await;
    let request = lease_request(0);
    let lease = house.lease_with(&request).await.remove(0);
    let beat: HeartbeatResponse = house
        .post("/v1/heartbeat", token_for(TokenRole::Worker), &heartbeat(&request, &lease, 0))
        .await
        .parse_success();
    assert_eq!((beat.renewed, beat.lost.len()), (vec![lease.task], 0));
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let waiting = heartbeat(&request, &lease, LONG_WAIT_MS);
    let (cancel, no_reason) = (format!("/v1/tasks/{}/cancel", lease.task), json!({}));
    let (beat, record) = tokio::join!(
        house.post("/v1/heartbeat", token_for(TokenRole::Worker), &waiting),
        house.post(&cancel, token_for(TokenRole::Submit), &no_reason),
    );
    assert_eq!(record.parse_success::<Value>()["state"], json!("cancelled"));
    let beat: HeartbeatResponse = beat.parse_success();
    assert_eq!(beat.lost.len(), 1);
    assert_eq!((beat.lost[0].task, beat.lost[0].why), (lease.task, LeaseLostReason::Cancelled));
}

#[tokio::test]
async fn expired_lease_goes_to_a_waiting_worker() {
    let house = TestServer::with_lease_ms(2000).await;
    let lost = house.submit_and_lease().await;
    house.append_ok(&lost, 0, vec![run_started(lost.task, lost.run)]).await;
    let next = house.lease_with(&lease_request(LONG_WAIT_MS)).await.remove(0);
    assert_eq!((next.task, next.run, next.epoch.0, next.head.seq.0), (lost.task, lost.run, 2, 1));
    let problem = house.send_append(&lost, 1, vec![phase_changed(0)]).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::Fenced);
    let request = lease_request(0);
    let beat: HeartbeatResponse = house
        .post("/v1/heartbeat", token_for(TokenRole::Worker), &heartbeat(&request, &lost, 0))
        .await
        .parse_success();
    assert_eq!(beat.lost.len(), 1);
    assert_eq!(beat.lost[0].why, LeaseLostReason::Fenced);
}

#[tokio::test]
async fn restarted_coordinator_keeps_leases_for_one_lease_time() {
    let house = TestServer::with_lease_ms(600_000).await;
    let lease = house.submit_and_lease().await;
    let view: Value = house.get(&format!("/v1/tasks/{}", lease.task)).await.parse_success();
    let before: Timestamp = view["lease_expires_at"].as_str().expect("deadline").parse().expect("time");
    // As if the store had not been checked for an hour.
    let now = Clock::new().now();
    let (an_hour_ago, later) = (Timestamp(now.0 - 3_600_000_000), now.plus_ms(3_600_000));
    let gone = TermRequest {
        name: "maintenance",
        holder: "gone".to_owned(),
        until: an_hour_ago,
        now: later,
        max_term_ms: 0,
        deadline_trust: None,
    };
    house.store.acquire_term(gone).await.expect("takes");
    let other = serve(Arc::clone(&house.store), 1_200_000).await;
    // After a new leader starts, workers get time before the first expired lease is collected.
    let after = loop {
        let view: Value = house.get(&format!("/v1/tasks/{}", lease.task)).await.parse_success();
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
async fn scheduled_task_is_leased_only_once_due() {
    let house = TestServer::start().await;
    let run_at = Clock::new().now().plus_ms(1500);
    let mut later = task_spec("later");
    later.run_at = Some(run_at);
    let task = house.submit_spec(later).await;
    assert!(house.lease_with(&lease_request(0)).await.is_empty());
    assert_eq!(house.task_state(task).await, "scheduled");
    let lease = house.lease_with(&lease_request(LONG_WAIT_MS)).await.remove(0);
    assert_eq!(lease.task, task);
    assert!(Clock::new().now() >= run_at);
}

#[tokio::test]
async fn shutdown_ends_long_polls() {
    let house = TestServer::start().await;
    let other = serve(Arc::clone(&house.store), 30_000).await;
    let post = house
        .client
        .post(format!("{}/v1/lease", other.url()))
        .bearer_auth(token_for(TokenRole::Worker))
        .json(&lease_request(LONG_WAIT_MS));
    let waiting = tokio::spawn(post.send());
    // The worker's row appears once its request is being processed.
    loop {
        let status: Value = house.get("/v1/status").await.parse_success();
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
async fn worker_cannot_append_to_a_cancelled_task() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    let cancel = format!("/v1/tasks/{}/cancel", lease.task);
    let record: Value = house
        .post(&cancel, token_for(TokenRole::Submit), &json!({ "reason": "no need" }))
        .await
        .parse_success();
    assert_eq!(record["state"], json!("cancelled"));
    let problem =
        house.send_append(&lease, 1, vec![run_ended(RunOutcome::Succeeded, 1)]).await.parse_problem();
    assert!(matches!(problem.code, ProblemCode::Ended | ProblemCode::WrongSeq), "{problem:?}");
    let again: Value = house.post(&cancel, token_for(TokenRole::Submit), &json!({})).await.parse_success();
    assert_eq!(again["state"], json!("cancelled"), "cancelling twice changes nothing");
}
