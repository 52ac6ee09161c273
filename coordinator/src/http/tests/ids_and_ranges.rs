//! Values chosen by clients: IDs that exist already, and numbers out of range. Neither may be
//! dropped silently or stored.

use docket_schema::{
    api::{ProblemCode, ProblemDetails, SubmitResponse},
    ids::TaskId,
    task::{Backoff, TaskSpec},
};
use serde_json::{Value, json};

use super::{
    event_fixtures::task_spec,
    support::{TestServer, token_for},
};
use crate::{clock, http::TokenRole};

async fn submit_rejected(house: &TestServer, body: &Value) -> ProblemDetails {
    house.post("/v1/tasks", token_for(TokenRole::Submit), body).await.parse_problem()
}

#[tokio::test]
async fn submitting_another_task_under_a_known_id_is_rejected() {
    let house = TestServer::start().await;
    let (id, fresh) = (TaskId(clock::new_id()), TaskId(clock::new_id()));
    let first = json!({ "tasks": [task_spec("first")], "ids": [id] });
    for _ in 0..2 {
        let answer: SubmitResponse = house.post_as_admin("/v1/tasks", &first).await.parse_success();
        assert_eq!((answer.tasks.len(), answer.tasks[0].id, answer.tasks[0].duplicate), (1, id, false));
    }
    let problem = submit_rejected(
        &house,
        &json!({ "tasks": [task_spec("new"), task_spec("second")], "ids": [fresh, id] }),
    )
    .await;
    assert_eq!((problem.code, problem.status), (ProblemCode::IdTaken, 409));
    assert_eq!(problem.field.as_deref(), Some("ids[1]"));
    for word in [id.to_string().as_str(), "`first`", "`second`", "`title`"] {
        assert!(problem.detail.contains(word), "{}", problem.detail);
    }
    assert_eq!(
        house.get(&format!("/v1/tasks/{fresh}")).await.status,
        404,
        "nothing of the request is stored"
    );

    // Even with equal content, it is unknown whether one or two tasks are wanted.
    let problem =
        submit_rejected(&house, &json!({ "tasks": [task_spec("a"), task_spec("a")], "ids": [fresh, fresh] }))
            .await;
    assert_eq!((problem.code, problem.status), (ProblemCode::InvalidRequest, 400));
    assert_eq!(problem.field.as_deref(), Some("ids[1]"));
    assert_eq!(house.get(&format!("/v1/tasks/{fresh}")).await.status, 404);
}

#[tokio::test]
async fn out_of_range_numbers_are_rejected_on_every_route() {
    let house = TestServer::start().await;
    let with = |change: &dyn Fn(&mut TaskSpec)| {
        let mut task = task_spec("bounded");
        change(&mut task);
        task
    };
    let task = house.submit_spec(task_spec("stored")).await;
    for (bad, field, range) in [
        (with(&|task| task.priority = i16::MIN), "priority", "within -1000 and 1000"),
        (with(&|task| task.priority = 1001), "priority", "within -1000 and 1000"),
        (with(&|task| task.attempts_max = 101), "attempts_max", "within 1 and 100"),
        (with(&|task| task.backoff.max_ms = u64::MAX), "backoff.max_ms", "30 days"),
        (
            with(&|task| task.backoff = Backoff { base_ms: 2, max_ms: 1 }),
            "backoff.base_ms",
            "`backoff.max_ms`",
        ),
        (with(&|task| task.settings.turns_max = Some(0)), "settings.turns_max", "within 1 and 1000"),
        (with(&|task| task.settings.time_max_ms = Some(u64::MAX)), "settings.time_max_ms", "366 days"),
    ] {
        let problem = submit_rejected(&house, &json!({ "tasks": [task_spec("good"), bad] })).await;
        assert_eq!((problem.code, problem.status), (ProblemCode::InvalidRequest, 400));
        assert_eq!(problem.field, Some(format!("tasks[1].{field}")));
        assert!(problem.detail.contains(range), "{}", problem.detail);
        let schedule = json!({ "schedule": { "cron": "0 3 * * *", "spec": bad } });
        let problem = house
            .post("/v1/schedules/nightly", token_for(TokenRole::Submit), &schedule)
            .await
            .parse_problem();
        assert_eq!(problem.field, Some(format!("schedule.spec.{field}")), "{}", problem.detail);
    }
    let mut beyond = serde_json::to_value(task_spec("beyond")).expect("JSON");
    beyond["priority"] = json!(99_999);
    let problem = submit_rejected(&house, &json!({ "tasks": [beyond] })).await;
    assert_eq!(problem.field.as_deref(), Some("tasks[0].priority"), "{}", problem.detail);
    assert!(problem.detail.contains("within -1000 and 1000"), "{}", problem.detail);
    for priority in [i16::MIN, -1001, 1001, i16::MAX] {
        let body = json!({ "act": { "reprioritize": priority }, "tasks": [task] });
        let problem = house.post("/v1/tasks/bulk", token_for(TokenRole::Submit), &body).await.parse_problem();
        assert_eq!((problem.status, problem.field.as_deref()), (400, Some("act")), "{}", problem.detail);
        assert!(problem.detail.contains("within -1000 and 1000"), "{}", problem.detail);
    }
}
