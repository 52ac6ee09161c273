//! Malformed bodies, queries and paths get a problem, never an internal error or a panic.

use docket_schema::api::ProblemCode;
use proptest::{
    prelude::{Strategy as _, any},
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};

use super::event_fixtures::{run_started, task_spec};
use super::support::{TestReply, TestServer, append_request, heartbeat, lease_request, token_for};
use crate::http::{
    TokenRole,
    middleware::{auth::RouteAccess, route::BodyShape},
    router::ROUTES,
};

const JSON: Option<(&str, &str)> = Some(("content-type", "application/json"));

/// Random bodies per route, a few seconds in total.
const CASES: usize = 40;

fn assert_rejected(answer: TestReply, what: &str) {
    assert!((400..500).contains(&answer.status), "{what}: {answer:?}");
    answer.parse_problem();
}

#[tokio::test]
async fn every_route_with_a_body_rejects_random_bytes() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let mut runner = TestRunner::new(Config::default());
    for route in ROUTES {
        if matches!(route.request, BodyShape::None) {
            continue;
        }
        let path = route.path.replace("{id}", &lease.run.to_string()).replace("{hash}", &"0".repeat(64));
        let by = if route.access == RouteAccess::Appends(&[]) {
            lease.token.as_str()
        } else {
            token_for(TokenRole::Admin)
        };
        for _ in 0..CASES {
            let bytes =
                proptest::collection::vec(any::<u8>(), 1..200).new_tree(&mut runner).expect("tree").current();
            let answer = house.send(route.method.as_str(), &path, by, bytes.clone(), JSON).await;
            assert_rejected(answer, &format!("{path} {bytes:?}"));
        }
    }
}

#[tokio::test]
async fn mutated_and_truncated_bodies_never_cause_internal_errors() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let worker = lease_request(0);
    let run = format!("/v1/runs/{}", lease.run);
    let append = append_request(lease.epoch, 0, vec![run_started(lease.task, lease.run)]);
    let json = |value: Value| serde_json::to_vec(&value).expect("json");
    let bodies: Vec<(String, &str, Vec<u8>)> = vec![
        ("/v1/tasks".to_owned(), token_for(TokenRole::Admin), json(json!({ "tasks": [task_spec("a")] }))),
        (format!("{run}/append"), &lease.token, json(serde_json::to_value(append).expect("json"))),
        (format!("{run}/tell"), token_for(TokenRole::Admin), json(json!({ "text": "words" }))),
        (
            format!("{run}/policy"),
            token_for(TokenRole::Admin),
            json(json!({ "policy": { "network": { "hosts": ["crates.io"] } } })),
        ),
        (
            "/v1/lease".to_owned(),
            token_for(TokenRole::Admin),
            json(serde_json::to_value(&worker).expect("json")),
        ),
        (
            "/v1/heartbeat".to_owned(),
            token_for(TokenRole::Admin),
            json(serde_json::to_value(heartbeat(&worker, &lease, 0)).expect("json")),
        ),
    ];
    let mut runner = TestRunner::new(Config::default());
    for (path, by, body) in bodies {
        for _ in 0..CASES {
            let strategy = (0..body.len(), any::<u8>(), any::<bool>());
            let (at, byte, cut) = strategy.new_tree(&mut runner).expect("tree").current();
            let mut bytes = body.clone();
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] = byte;
            }
            let answer = house.send("POST", &path, by, bytes.clone(), JSON).await;
            assert!(answer.status < 500, "{path} {}: {answer:?}", String::from_utf8_lossy(&bytes));
            if answer.status >= 400 {
                answer.parse_problem();
            }
        }
    }
}

#[tokio::test]
async fn invalid_bodies_name_the_field() {
    let house = TestServer::start().await;
    let good = serde_json::to_value(task_spec("a")).expect("json");
    let with = |field: &str, value: Value| {
        let mut spec = good.clone();
        spec[field] = value;
        json!({ "tasks": [spec] })
    };
    let table = [
        ("/v1/tasks", json!({}), "tasks"),
        ("/v1/tasks", json!({ "tasks": 1 }), "tasks"),
        ("/v1/tasks", json!({ "tasks": [], "colour": 1 }), "colour"),
        ("/v1/tasks", with("title", json!(7)), "tasks[0].title"),
        ("/v1/tasks", with("priority", json!(7000)), "tasks[0].priority"),
        ("/v1/tasks", with("queue", json!("a b")), "tasks[0].queue"),
        ("/v1/tasks", with("model", json!({ "provider": "x" })), "tasks[0].model"),
        ("/v1/lease", json!([]), "body"),
        ("/v1/tasks", json!([[]]), "body"),
        ("/v1/heartbeat", json!({ "incarnation": "x", "held": [] }), "incarnation"),
        ("/v1/blobs/missing", json!({ "hashes": ["abc"] }), "hashes[0]"),
    ];
    for (path, body, field) in table {
        let problem = house.post_as_admin(path, &body).await.parse_problem();
        assert_eq!(problem.code, ProblemCode::InvalidRequest);
        if body != json!([]) {
            assert_eq!(problem.field.as_deref(), Some(field), "{path} {body}: {}", problem.detail);
        }
    }
    let answer = house
        .send(
            "POST",
            "/v1/tasks",
            token_for(TokenRole::Admin),
            b"a=b".to_vec(),
            Some(("content-type", "text/plain")),
        )
        .await;
    assert_eq!(answer.parse_problem().code, ProblemCode::UnsupportedMedia);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = format!(r#"{{"tasks":{deep}}}"#);
    assert_rejected(
        house.send("POST", "/v1/tasks", token_for(TokenRole::Admin), deep.into_bytes(), JSON).await,
        "deep",
    );
}

#[tokio::test]
async fn invalid_queries_paths_methods_and_sizes_are_explained() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let run = lease.run;
    for (path, code, field) in [
        ("/v1/tasks?limit=0".to_owned(), ProblemCode::InvalidRequest, Some("limit")),
        ("/v1/tasks?limit=x".to_owned(), ProblemCode::InvalidRequest, Some("limit")),
        ("/v1/tasks?colour=1".to_owned(), ProblemCode::InvalidRequest, Some("colour")),
        ("/v1/tasks?state=asleep".to_owned(), ProblemCode::InvalidRequest, Some("state")),
        ("/v1/tasks/42".to_owned(), ProblemCode::InvalidRequest, Some("path")),
        ("/v1/tasks/%ff".to_owned(), ProblemCode::InvalidRequest, Some("path")),
        (format!("/v1/tasks/{run}"), ProblemCode::NotFound, None),
        (format!("/v1/runs/{run}/events?limit=2000"), ProblemCode::InvalidRequest, Some("limit")),
        (format!("/v1/runs/{run}/events?after=-1"), ProblemCode::InvalidRequest, Some("after")),
        (format!("/v1/runs/{run}/events?after=1&lineage=true"), ProblemCode::InvalidRequest, Some("after")),
        (format!("/v1/runs/{run}/events?stream=run/{run}"), ProblemCode::InvalidRequest, Some("stream")),
        ("/v1/events".to_owned(), ProblemCode::InvalidRequest, Some("stream")),
        ("/v1/events?stream=moon/1".to_owned(), ProblemCode::InvalidRequest, Some("stream")),
        ("/v1/feed?after=x".to_owned(), ProblemCode::InvalidRequest, Some("after")),
        ("/v1/resolve/xyz".to_owned(), ProblemCode::InvalidRequest, Some("path")),
        ("/v1/blobs/abc".to_owned(), ProblemCode::InvalidRequest, Some("path")),
        (format!("/v1/blobs/{}", "0".repeat(64)), ProblemCode::NotFound, None),
        ("/v2/tasks".to_owned(), ProblemCode::NotFound, None),
        ("/v1/lease".to_owned(), ProblemCode::MethodNotAllowed, Some("method")),
    ] {
        let problem = house.get(&path).await.parse_problem();
        assert_eq!((problem.code, problem.field.as_deref()), (code, field), "{path}: {}", problem.detail);
    }
    let large = vec![b' '; 2 * 1024 * 1024];
    let problem =
        house.send("POST", "/v1/lease", token_for(TokenRole::Admin), large, JSON).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::TooLarge, Some("body")));
}

#[tokio::test]
async fn problem_details_are_bounded() {
    let house = TestServer::start().await;
    let long = "x".repeat(500_000);
    let name = |field: &str| serde_json::to_vec(&json!({ field: 1 })).expect("json");
    for (path, body) in [
        ("/v1/tasks", name(&long)),
        ("/v1/tokens", serde_json::to_vec(&json!({ "name": long, "role": "read" })).expect("json")),
        ("/v1/lease", name(&"\u{10ffff}".repeat(100_000))),
    ] {
        let answer = house.send("POST", path, token_for(TokenRole::Admin), body, JSON).await;
        assert!(answer.body.len() < 4096, "{path}: {} bytes", answer.body.len());
        let problem = answer.parse_problem();
        assert!(problem.detail.starts_with("invalid body"), "{}", problem.detail);
        assert!(problem.field.is_some_and(|field| field.chars().count() <= 201));
    }
}
