//! Memory over HTTP: runs reach only their own scopes, a call takes effect once, limits are
//! enforced.

use docket_schema::{
    api::{Lease, MemoryList, ProblemCode, RunMemoryResponse},
    ids::RunId,
    snapshot::GitBase,
    system::{MEMORY_KEYS_MAX, MEMORY_VALUE_BYTES_MAX, TokenRole},
    task::TaskSpec,
};
use serde_json::{Value, json};

use super::{
    event_fixtures::{MANIFEST, task_spec},
    support::{TestReply, TestServer, heartbeat, lease_request, serve_with, token_for},
};

/// A task on a repository, in a queue.
fn spec_for(source: &str, queue: &str) -> TaskSpec {
    let mut spec = task_spec("remembers");
    let blob = docket_schema::content::BlobRef::for_bytes(MANIFEST);
    spec.base.git = Some(GitBase {
        commit: "1".repeat(40),
        branch: None,
        pack: vec![blob],
        pack_index: blob,
        index: blob,
        source: source.to_owned(),
        recent: None,
        submodules: Vec::new(),
    });
    spec.queue = queue.parse().expect("a queue");
    spec
}

async fn lease_spec(house: &TestServer, spec: TaskSpec) -> Lease {
    house.submit_spec(spec).await;
    house.lease_with(&lease_request(0)).await.remove(0)
}

async fn call_memory(house: &TestServer, lease: &Lease, call: &str, scope: &str, act: Value) -> TestReply {
    let body = json!({ "call": call, "scope": scope, "act": act });
    house.post(&format!("/v1/runs/{}/memory", lease.run), &lease.token, &body).await
}

fn save_act(key: &str, value: &str) -> Value {
    json!({ "save": { "key": key, "value": value } })
}

fn recall_act(key: Option<&str>) -> Value {
    json!({ "recall": { "key": key } })
}

async fn recall_value(house: &TestServer, lease: &Lease, scope: &str, key: &str) -> Option<String> {
    match call_memory(house, lease, "r", scope, recall_act(Some(key))).await.parse_success() {
        RunMemoryResponse::Recalled { value } => Some(value),
        RunMemoryResponse::Absent => None,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn saved_memory_is_visible_to_its_repository_or_queue_only() {
    let house = TestServer::start().await;
    let one = lease_spec(&house, spec_for("/shop", "a")).await;
    let same = lease_spec(&house, spec_for("/shop", "b")).await;
    let other = lease_spec(&house, spec_for("/other", "a")).await;
    let none = house.submit_and_lease().await;
    let saved: RunMemoryResponse =
        call_memory(&house, &one, "t1-0", "repository", save_act("how/test", "make test\nin sub"))
            .await
            .parse_success();
    assert_eq!(saved, RunMemoryResponse::Saved { keys: 1 });
    call_memory(&house, &one, "t1-1", "queue", save_act("how/test", "of the queue"))
        .await
        .parse_success::<RunMemoryResponse>();
    assert_eq!(
        recall_value(&house, &same, "repository", "how/test").await.as_deref(),
        Some("make test\nin sub")
    );
    assert_eq!(recall_value(&house, &same, "queue", "how/test").await, None);
    assert_eq!(recall_value(&house, &other, "repository", "how/test").await, None);
    assert_eq!(recall_value(&house, &other, "queue", "how/test").await.as_deref(), Some("of the queue"));
    let keys: RunMemoryResponse =
        call_memory(&house, &same, "r", "repository", recall_act(None)).await.parse_success();
    let RunMemoryResponse::Keys { keys } = keys else { panic!("{keys:?}") };
    assert_eq!((keys.len(), keys[0].key.as_str(), keys[0].begins.as_str()), (1, "how/test", "make test…"));
    let problem = call_memory(&house, &none, "t1-0", "repository", save_act("k", "v")).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some("scope")));

    // Under another run's name, with another role, or after its end, nothing is accessible.
    let path = format!("/v1/runs/{}/memory", one.run);
    let body = json!({ "call": "x", "scope": "queue", "act": recall_act(None) });
    assert_eq!(house.post(&path, &same.token, &body).await.status, 403);
    assert_eq!(house.post(&path, token_for(TokenRole::Admin), &body).await.status, 403);
    let unknown = format!("/v1/runs/{}/memory", RunId(crate::clock::new_id()));
    assert_eq!(house.post(&unknown, &one.token, &body).await.status, 403);
    for path in ["/v1/memory", "/v1/memory?queue=a"] {
        assert_eq!(house.send("GET", path, &one.token, Vec::new(), None).await.status, 403, "{path}");
    }
    house.post_as_admin(&format!("/v1/tasks/{}/cancel", one.task), &json!({})).await.parse_success::<Value>();
    assert_eq!(
        call_memory(&house, &one, "t2-0", "queue", save_act("k", "v")).await.parse_problem().code,
        ProblemCode::Ended
    );
}

#[tokio::test]
async fn repeated_memory_call_is_idempotent() {
    let house = TestServer::start().await;
    let one = lease_spec(&house, spec_for("/shop", "a")).await;
    let two = lease_spec(&house, spec_for("/shop", "a")).await;
    let good = async |lease: &Lease, call: &str, act: Value| -> RunMemoryResponse {
        call_memory(&house, lease, call, "repository", act).await.parse_success()
    };
    good(&one, "t1-0", save_act("k", "first")).await;
    good(&two, "t1-0", save_act("k", "second")).await;
    // As after a recovery: a later write by another run is kept.
    assert_eq!(good(&one, "t1-0", save_act("k", "first")).await, RunMemoryResponse::Saved { keys: 1 });
    assert_eq!(recall_value(&house, &one, "repository", "k").await.as_deref(), Some("second"));
    let delete = json!({ "delete": { "key": "k" } });
    assert_eq!(good(&one, "t2-0", delete.clone()).await, RunMemoryResponse::Deleted);
    good(&two, "t2-0", save_act("k", "third")).await;
    assert_eq!(good(&one, "t2-0", delete.clone()).await, RunMemoryResponse::Deleted);
    assert_eq!(recall_value(&house, &one, "repository", "k").await.as_deref(), Some("third"));
    assert_eq!(good(&one, "t3-0", delete.clone()).await, RunMemoryResponse::Deleted);
    assert_eq!(good(&one, "t4-0", delete).await, RunMemoryResponse::Absent);
}

#[tokio::test]
async fn memory_limits_are_enforced_and_secrets_redacted() {
    let house = TestServer::start().await;
    let request = lease_request(0);
    house.submit_spec(spec_for("/shop", "a")).await;
    let lease = house.lease_with(&request).await.remove(0);
    let refused =
        async |call: &str, act: Value| call_memory(&house, &lease, call, "queue", act).await.parse_problem();
    for key in ["", " a", "a\nb", &"x".repeat(129)] {
        let problem = refused("t1-0", save_act(key, "v")).await;
        assert_eq!(problem.code, ProblemCode::InvalidRequest, "{key:?}");
        assert!(problem.detail.contains("128 characters"), "{}", problem.detail);
    }
    let problem = refused("t1-0", save_act("k", &"x".repeat(MEMORY_VALUE_BYTES_MAX + 1))).await;
    assert!(problem.code == ProblemCode::TooLarge && problem.detail.contains("16385"), "{}", problem.detail);
    for call in ["", &"c".repeat(65)] {
        assert_eq!(refused(call, save_act("k", "v")).await.field.as_deref(), Some("call"));
    }
    let key = concat!("AKIA", "IOSFODNN7", "EXAMPLE");
    let text = format!("the key is {key}");
    call_memory(&house, &lease, "t1-0", "queue", save_act("k", &text))
        .await
        .parse_success::<RunMemoryResponse>();
    let kept = recall_value(&house, &lease, "queue", "k").await.expect("is kept");
    assert!(!kept.contains(key) && kept.contains("REDACTED"), "{kept}");
    assert_eq!(refused("t1-1", save_act(key, "v")).await.code, ProblemCode::InvalidRequest);
    for n in 1..MEMORY_KEYS_MAX {
        let act = save_act(&format!("k{n}"), "v");
        call_memory(&house, &lease, &format!("u{n}"), "queue", act)
            .await
            .parse_success::<RunMemoryResponse>();
        // So many requests may take longer than a lease.
        if n % 100 == 0 {
            let beat = heartbeat(&request, &lease, 0);
            house.post("/v1/heartbeat", token_for(TokenRole::Worker), &beat).await.parse_success::<Value>();
        }
    }
    let problem = refused("t9-0", save_act("one more", "v")).await;
    assert!(
        problem.code == ProblemCode::TooLarge && problem.detail.contains("1000 keys"),
        "{}",
        problem.detail
    );
    // Existing keys can still be replaced.
    call_memory(&house, &lease, "t9-1", "queue", save_act("k7", "new"))
        .await
        .parse_success::<RunMemoryResponse>();
    assert_eq!(recall_value(&house, &lease, "queue", "k7").await.as_deref(), Some("new"));
}

#[tokio::test]
async fn people_list_and_delete_memory_and_deletion_is_audited() {
    let house = TestServer::start().await;
    let lease = lease_spec(&house, spec_for("/shop", "a")).await;
    call_memory(&house, &lease, "t1-0", "repository", save_act("k", "long text"))
        .await
        .parse_success::<RunMemoryResponse>();
    call_memory(&house, &lease, "t1-1", "queue", save_act("q", "text"))
        .await
        .parse_success::<RunMemoryResponse>();
    let all: MemoryList = house.get("/v1/memory").await.parse_success();
    assert_eq!((all.memories.len(), all.memories[0].value.clone()), (2, None));
    let one: MemoryList = house.get("/v1/memory?repository=%2Fshop&key=k").await.parse_success();
    assert_eq!((one.memories.len(), one.memories[0].value.as_deref()), (1, Some("long text")));
    for (path, code) in [
        ("/v1/memory?repository=a&queue=b", ProblemCode::InvalidRequest),
        ("/v1/memory?key=k", ProblemCode::InvalidRequest),
        ("/v1/memory?queue=a/b", ProblemCode::InvalidRequest),
        ("/v1/memory?queue=a&key=k", ProblemCode::NotFound),
        ("/v1/memory?what=1", ProblemCode::InvalidRequest),
    ] {
        assert_eq!(house.get(path).await.parse_problem().code, code, "{path}");
    }
    let body = json!({ "scope": { "repository": "/shop" }, "key": "k" });
    assert_eq!(house.post("/v1/memory/delete", token_for(TokenRole::Submit), &body).await.status, 403);
    house.post_as_admin("/v1/memory/delete", &body).await.parse_success::<MemoryList>();
    assert_eq!(
        house.post_as_admin("/v1/memory/delete", &body).await.parse_problem().code,
        ProblemCode::NotFound
    );
    let audit: Value = house.get("/v1/events?stream=system/audit").await.parse_success();
    assert!(audit.to_string().contains("forget_memory"), "{audit}");
    assert_eq!(recall_value(&house, &lease, "repository", "k").await, None);
    // Another coordinator of the store has the same notes.
    let beside = serve_with(std::sync::Arc::clone(&house.store), |_| {}).await;
    let url = format!("{}/v1/memory?queue=a&key=q", beside.url());
    let answer = house.client.get(url).bearer_auth(token_for(TokenRole::Read)).send().await.expect("answers");
    let list: MemoryList = answer.json().await.expect("a list");
    assert_eq!(list.memories[0].value.as_deref(), Some("text"));
}
