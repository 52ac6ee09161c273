//! Bulk operations: the selected tasks, the result for each, and their logs.

use docket_schema::{
    api::{BulkResponse, ProblemCode},
    ids::TaskId,
};
use serde_json::{Value, json};

use super::{
    event_fixtures::task_spec,
    support::{TestServer, lease_request, token_for},
};
use crate::http::TokenRole;

async fn post_bulk(house: &TestServer, body: Value) -> BulkResponse {
    house.post("/v1/tasks/bulk", token_for(TokenRole::Submit), &body).await.parse_success()
}

/// Returns the last event of a task.
async fn last_event_payload(house: &TestServer, task: TaskId) -> Value {
    let page: Value = house.get(&format!("/v1/events?stream=task/{task}")).await.parse_success();
    page["events"].as_array().expect("events").last().expect("one").clone()
}

#[tokio::test]
async fn bulk_act_applies_per_task_and_one_rejection_does_not_stop_others() {
    let house = TestServer::start().await;
    let mut ids = Vec::new();
    for n in 0..7 {
        ids.push(house.submit_spec(task_spec(&format!("task {n}"))).await);
    }
    let running = house.lease_with(&lease_request(0)).await.remove(0).task;
    assert_eq!(running, ids[0]);

    let meant =
        post_bulk(&house, json!({ "act": "cancel", "filter": { "title": "task *" }, "dry_run": true })).await;
    assert_eq!(meant.tasks.len(), 7);
    assert_eq!(house.task_state(ids[6]).await, "available", "nothing is done");

    let some = json!({ "act": "cancel", "filter": { "title": "task *", "limit": 3 }, "reason": "not now" });
    let first = post_bulk(&house, some.clone()).await;
    assert_eq!(first.tasks.iter().map(|done| done.id).collect::<Vec<_>>(), [ids[6], ids[5], ids[4]]);
    assert!(first.tasks.iter().all(|done| done.refused.is_none()), "{first:?}");
    let event = last_event_payload(&house, ids[5]).await;
    assert_eq!((&event["kind"], &event["payload"]["reason"]), (&json!("TaskCancelled"), &json!("not now")));
    let mut rest = some;
    rest["filter"]["before"] = json!(first.next.expect("there are more"));
    assert_eq!(post_bulk(&house, rest).await.tasks.len(), 3);
    assert_eq!(house.task_state(ids[1]).await, "cancelled");

    let again =
        json!({ "act": "retry", "filter": { "queue": "default" }, "reason": "the key is good again" });
    let done = post_bulk(&house, again).await;
    let refused: Vec<TaskId> =
        done.tasks.iter().filter(|done| done.refused.is_some()).map(|done| done.id).collect();
    assert_eq!(refused, [running], "{done:?}");
    let event = last_event_payload(&house, ids[5]).await;
    assert_eq!(
        (&event["kind"], &event["payload"]["reason"]),
        (&json!("TaskRetried"), &json!("the key is good again"))
    );

    let nobody = TaskId(crate::clock::new_id());
    let named = json!({ "act": { "reprioritize": 7 }, "tasks": [ids[3], nobody] });
    let done = post_bulk(&house, named).await;
    assert_eq!((done.tasks[0].refused.as_ref(), done.tasks[1].state), (None, None));
    assert!(done.tasks[1].refused.as_ref().is_some_and(|why| why.contains("no such task")));
    assert_eq!(house.lease_with(&lease_request(0)).await.remove(0).task, ids[3], "the highest goes first");

    for (act, state) in [("pause", "blocked"), ("unpause", "available")] {
        post_bulk(&house, json!({ "act": act, "tasks": [ids[2]] })).await;
        assert_eq!(house.task_state(ids[2]).await, state);
    }
}

#[tokio::test]
async fn bulk_act_without_tasks_or_filter_is_rejected() {
    let house = TestServer::start().await;
    let id = TaskId(crate::clock::new_id());
    for (body, field) in [
        (json!({ "act": "cancel" }), "filter"),
        (json!({ "act": "cancel", "filter": { "limit": 5 } }), "filter"),
        (json!({ "act": "cancel", "filter": { "queue": "q" }, "tasks": [id] }), "filter"),
        (json!({ "act": "cancel", "filter": { "queue": "q", "limit": 501 } }), "filter.limit"),
        (json!({ "act": "cancel", "tasks": vec![id; 501] }), "tasks"),
        (json!({ "act": { "reprioritize": 1001 }, "tasks": [id] }), "act"),
        (json!({ "act": "cancel", "filter": { "title": "x".repeat(300) } }), "title"),
        (json!({ "act": "cancel", "filter": { "queue": "q" }, "reason": "x".repeat(5000) }), "reason"),
        (json!({ "act": "forget", "tasks": [id] }), "act"),
    ] {
        let problem = house.post("/v1/tasks/bulk", token_for(TokenRole::Submit), &body).await.parse_problem();
        assert_eq!(
            (problem.code, problem.field.as_deref()),
            (ProblemCode::InvalidRequest, Some(field)),
            "{body}"
        );
    }
    let problem = house.get(&format!("/v1/batches/{id}")).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::NotFound);
    let problem = house.get("/v1/tasks?state=running,asleep").await.parse_problem();
    assert_eq!(problem.code, ProblemCode::InvalidRequest);
}
