//! What a client chooses itself: ids that are used already, and numbers beyond their range. Nothing of it may be lost
//! in silence, or stored.

use docket_schema::{
    ids::TaskId,
    task::{Backoff, TaskSpec},
    wire::{Problem, ProblemCode, SubmitResponse},
};
use serde_json::{Value, json};

use super::{
    events::spec,
    support::{House, token},
};
use crate::{clock, http::Role};

async fn submit(house: &House, body: &Value) -> Problem {
    house.post("/v1/tasks", token(Role::Submit), body).await.problem()
}

#[tokio::test]
async fn another_task_under_a_known_id_is_refused_and_named() {
    let house = House::open().await;
    let (id, fresh) = (TaskId(clock::new_id()), TaskId(clock::new_id()));
    let first = json!({ "tasks": [spec("first")], "ids": [id] });
    for _ in 0..2 {
        let answer: SubmitResponse = house.admin("/v1/tasks", &first).await.good();
        assert_eq!((answer.tasks.len(), answer.tasks[0].id, answer.tasks[0].duplicate), (1, id, false));
    }
    let problem =
        submit(&house, &json!({ "tasks": [spec("new"), spec("second")], "ids": [fresh, id] })).await;
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

    // Even with equal content: whether one or two tasks are wanted cannot be known.
    let problem = submit(&house, &json!({ "tasks": [spec("a"), spec("a")], "ids": [fresh, fresh] })).await;
    assert_eq!((problem.code, problem.status), (ProblemCode::InvalidRequest, 400));
    assert_eq!(problem.field.as_deref(), Some("ids[1]"));
    assert_eq!(house.get(&format!("/v1/tasks/{fresh}")).await.status, 404);
}

#[tokio::test]
async fn numbers_out_of_their_range_are_refused_at_every_entrance() {
    let house = House::open().await;
    let with = |change: &dyn Fn(&mut TaskSpec)| {
        let mut task = spec("bounded");
        change(&mut task);
        task
    };
    let task = house.submit(spec("stored")).await;
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
        let problem = submit(&house, &json!({ "tasks": [spec("good"), bad] })).await;
        assert_eq!((problem.code, problem.status), (ProblemCode::InvalidRequest, 400));
        assert_eq!(problem.field, Some(format!("tasks[1].{field}")));
        assert!(problem.detail.contains(range), "{}", problem.detail);
        let schedule = json!({ "schedule": { "cron": "0 3 * * *", "spec": bad } });
        let problem = house.post("/v1/schedules/nightly", token(Role::Submit), &schedule).await.problem();
        assert_eq!(problem.field, Some(format!("schedule.spec.{field}")), "{}", problem.detail);
    }
    let mut beyond = serde_json::to_value(spec("beyond")).expect("JSON");
    beyond["priority"] = json!(99_999);
    let problem = submit(&house, &json!({ "tasks": [beyond] })).await;
    assert_eq!(problem.field.as_deref(), Some("tasks[0].priority"), "{}", problem.detail);
    assert!(problem.detail.contains("within -1000 and 1000"), "{}", problem.detail);
    for priority in [i16::MIN, -1001, 1001, i16::MAX] {
        let body = json!({ "act": { "reprioritize": priority }, "tasks": [task] });
        let problem = house.post("/v1/tasks/bulk", token(Role::Submit), &body).await.problem();
        assert_eq!((problem.status, problem.field.as_deref()), (400, Some("act")), "{}", problem.detail);
        assert!(problem.detail.contains("within -1000 and 1000"), "{}", problem.detail);
    }
}
