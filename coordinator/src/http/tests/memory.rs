//! Memory over HTTP: a run reaches its own scopes and no other, a call changes something once, limits are told.

use docket_schema::{
    ids::RunId,
    snapshot::GitBase,
    system::{MEMORY_KEYS_MAX, MEMORY_VALUE_BYTES_MAX, Role},
    task::TaskSpec,
    wire::{Lease, MemoryList, ProblemCode, RunMemoryResponse},
};
use serde_json::{Value, json};

use super::{
    events::{MANIFEST, spec},
    support::{Answer, House, heartbeat, lease_request, serve_with, token},
};

/// A task on a repository, in a queue.
fn on(source: &str, queue: &str) -> TaskSpec {
    let mut spec = spec("remembers");
    let blob = docket_schema::content::BlobRef::of(MANIFEST);
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

async fn lease_of(house: &House, spec: TaskSpec) -> Lease {
    house.submit(spec).await;
    house.lease(&lease_request(0)).await.remove(0)
}

async fn ask(house: &House, lease: &Lease, call: &str, scope: &str, act: Value) -> Answer {
    let body = json!({ "call": call, "scope": scope, "act": act });
    house.post(&format!("/v1/runs/{}/memory", lease.run), &lease.token, &body).await
}

fn save(key: &str, value: &str) -> Value {
    json!({ "save": { "key": key, "value": value } })
}

fn recall(key: Option<&str>) -> Value {
    json!({ "recall": { "key": key } })
}

async fn value(house: &House, lease: &Lease, scope: &str, key: &str) -> Option<String> {
    match ask(house, lease, "r", scope, recall(Some(key))).await.good() {
        RunMemoryResponse::Recalled { value } => Some(value),
        RunMemoryResponse::Absent => None,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_run_saves_is_recalled_by_runs_of_its_repository_or_queue_alone() {
    let house = House::open().await;
    let one = lease_of(&house, on("/shop", "a")).await;
    let same = lease_of(&house, on("/shop", "b")).await;
    let other = lease_of(&house, on("/other", "a")).await;
    let none = house.leased().await;
    let saved: RunMemoryResponse =
        ask(&house, &one, "t1-0", "repository", save("how/test", "make test\nin sub")).await.good();
    assert_eq!(saved, RunMemoryResponse::Saved { keys: 1 });
    ask(&house, &one, "t1-1", "queue", save("how/test", "of the queue")).await.good::<RunMemoryResponse>();
    assert_eq!(value(&house, &same, "repository", "how/test").await.as_deref(), Some("make test\nin sub"));
    assert_eq!(value(&house, &same, "queue", "how/test").await, None);
    assert_eq!(value(&house, &other, "repository", "how/test").await, None);
    assert_eq!(value(&house, &other, "queue", "how/test").await.as_deref(), Some("of the queue"));
    let keys: RunMemoryResponse = ask(&house, &same, "r", "repository", recall(None)).await.good();
    let RunMemoryResponse::Keys { keys } = keys else { panic!("{keys:?}") };
    assert_eq!((keys.len(), keys[0].key.as_str(), keys[0].begins.as_str()), (1, "how/test", "make test…"));
    let problem = ask(&house, &none, "t1-0", "repository", save("k", "v")).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some("scope")));

    // Under another run's name, another role, or after its end: nothing.
    let path = format!("/v1/runs/{}/memory", one.run);
    let body = json!({ "call": "x", "scope": "queue", "act": recall(None) });
    assert_eq!(house.post(&path, &same.token, &body).await.status, 403);
    assert_eq!(house.post(&path, token(Role::Admin), &body).await.status, 403);
    let unknown = format!("/v1/runs/{}/memory", RunId(crate::clock::new_id()));
    assert_eq!(house.post(&unknown, &one.token, &body).await.status, 403);
    for path in ["/v1/memory", "/v1/memory?queue=a"] {
        assert_eq!(house.send("GET", path, &one.token, Vec::new(), None).await.status, 403, "{path}");
    }
    house.admin(&format!("/v1/tasks/{}/cancel", one.task), &json!({})).await.good::<Value>();
    assert_eq!(ask(&house, &one, "t2-0", "queue", save("k", "v")).await.problem().code, ProblemCode::Ended);
}

#[tokio::test]
async fn a_call_that_is_sent_again_changes_nothing_twice() {
    let house = House::open().await;
    let one = lease_of(&house, on("/shop", "a")).await;
    let two = lease_of(&house, on("/shop", "a")).await;
    let good = async |lease: &Lease, call: &str, act: Value| -> RunMemoryResponse {
        ask(&house, lease, call, "repository", act).await.good()
    };
    good(&one, "t1-0", save("k", "first")).await;
    good(&two, "t1-0", save("k", "second")).await;
    // As a recovery would: another's later word stands.
    assert_eq!(good(&one, "t1-0", save("k", "first")).await, RunMemoryResponse::Saved { keys: 1 });
    assert_eq!(value(&house, &one, "repository", "k").await.as_deref(), Some("second"));
    let delete = json!({ "delete": { "key": "k" } });
    assert_eq!(good(&one, "t2-0", delete.clone()).await, RunMemoryResponse::Deleted);
    good(&two, "t2-0", save("k", "third")).await;
    assert_eq!(good(&one, "t2-0", delete.clone()).await, RunMemoryResponse::Deleted);
    assert_eq!(value(&house, &one, "repository", "k").await.as_deref(), Some("third"));
    assert_eq!(good(&one, "t3-0", delete.clone()).await, RunMemoryResponse::Deleted);
    assert_eq!(good(&one, "t4-0", delete).await, RunMemoryResponse::Absent);
}

#[tokio::test]
async fn limits_are_told_and_kept_and_secrets_are_struck_out() {
    let house = House::open().await;
    let request = lease_request(0);
    house.submit(on("/shop", "a")).await;
    let lease = house.lease(&request).await.remove(0);
    let refused = async |call: &str, act: Value| ask(&house, &lease, call, "queue", act).await.problem();
    for key in ["", " a", "a\nb", &"x".repeat(129)] {
        let problem = refused("t1-0", save(key, "v")).await;
        assert_eq!(problem.code, ProblemCode::InvalidRequest, "{key:?}");
        assert!(problem.detail.contains("128 characters"), "{}", problem.detail);
    }
    let problem = refused("t1-0", save("k", &"x".repeat(MEMORY_VALUE_BYTES_MAX + 1))).await;
    assert!(problem.code == ProblemCode::TooLarge && problem.detail.contains("16385"), "{}", problem.detail);
    for call in ["", &"c".repeat(65)] {
        assert_eq!(refused(call, save("k", "v")).await.field.as_deref(), Some("call"));
    }
    let key = concat!("AKIA", "IOSFODNN7", "EXAMPLE");
    let text = format!("the key is {key}");
    ask(&house, &lease, "t1-0", "queue", save("k", &text)).await.good::<RunMemoryResponse>();
    let kept = value(&house, &lease, "queue", "k").await.expect("is kept");
    assert!(!kept.contains(key) && kept.contains("REDACTED"), "{kept}");
    assert_eq!(refused("t1-1", save(key, "v")).await.code, ProblemCode::InvalidRequest);
    for n in 1..MEMORY_KEYS_MAX {
        let act = save(&format!("k{n}"), "v");
        ask(&house, &lease, &format!("u{n}"), "queue", act).await.good::<RunMemoryResponse>();
        // So many requests may take longer than a lease lasts.
        if n % 100 == 0 {
            let beat = heartbeat(&request, &lease, 0);
            house.post("/v1/heartbeat", token(Role::Worker), &beat).await.good::<Value>();
        }
    }
    let problem = refused("t9-0", save("one more", "v")).await;
    assert!(
        problem.code == ProblemCode::TooLarge && problem.detail.contains("1000 keys"),
        "{}",
        problem.detail
    );
    // What is there may still be replaced.
    ask(&house, &lease, "t9-1", "queue", save("k7", "new")).await.good::<RunMemoryResponse>();
    assert_eq!(value(&house, &lease, "queue", "k7").await.as_deref(), Some("new"));
}

#[tokio::test]
async fn people_list_show_and_delete_and_it_stands_in_the_audit() {
    let house = House::open().await;
    let lease = lease_of(&house, on("/shop", "a")).await;
    ask(&house, &lease, "t1-0", "repository", save("k", "long text")).await.good::<RunMemoryResponse>();
    ask(&house, &lease, "t1-1", "queue", save("q", "text")).await.good::<RunMemoryResponse>();
    let all: MemoryList = house.get("/v1/memory").await.good();
    assert_eq!((all.memories.len(), all.memories[0].value.clone()), (2, None));
    let one: MemoryList = house.get("/v1/memory?repository=%2Fshop&key=k").await.good();
    assert_eq!((one.memories.len(), one.memories[0].value.as_deref()), (1, Some("long text")));
    for (path, code) in [
        ("/v1/memory?repository=a&queue=b", ProblemCode::InvalidRequest),
        ("/v1/memory?key=k", ProblemCode::InvalidRequest),
        ("/v1/memory?queue=a/b", ProblemCode::InvalidRequest),
        ("/v1/memory?queue=a&key=k", ProblemCode::NotFound),
        ("/v1/memory?what=1", ProblemCode::InvalidRequest),
    ] {
        assert_eq!(house.get(path).await.problem().code, code, "{path}");
    }
    let body = json!({ "scope": { "repository": "/shop" }, "key": "k" });
    assert_eq!(house.post("/v1/memory/delete", token(Role::Submit), &body).await.status, 403);
    house.admin("/v1/memory/delete", &body).await.good::<MemoryList>();
    assert_eq!(house.admin("/v1/memory/delete", &body).await.problem().code, ProblemCode::NotFound);
    let audit: Value = house.get("/v1/events?stream=system/audit").await.good();
    assert!(audit.to_string().contains("forget_memory"), "{audit}");
    assert_eq!(value(&house, &lease, "repository", "k").await, None);
    // Another coordinator of the store knows the same.
    let beside = serve_with(std::sync::Arc::clone(&house.store), |_| {}).await;
    let url = format!("{}/v1/memory?queue=a&key=q", beside.url());
    let answer = house.client.get(url).bearer_auth(token(Role::Read)).send().await.expect("answers");
    let list: MemoryList = answer.json().await.expect("a list");
    assert_eq!(list.memories[0].value.as_deref(), Some("text"));
}
