//! Creating, listing and revoking tokens: through the log, at every coordinator, with an audit
//! record.

use std::sync::Arc;

use docket_schema::{
    api::{ProblemCode, TokenList, TokenState, TokenView},
    event::{NewEvent, Payload, TypedEvent as _},
    ids::{BlobHash, Seq, StreamId, SystemTopic, Timestamp, Turn},
    system::{AdminAct, AdminActed, CallsRefused, SystemEvent, TokenCreated},
};
use serde_json::{Value, json};

use super::{
    event_fixtures::task_spec,
    support::{TestServer, lease_request, serve, token_for, within_time},
};
use crate::{
    http::TokenRole,
    store::{AppendCondition, LogAppend, Store, StreamFold, walk_stream},
};

async fn read_system_events(store: &dyn Store, topic: SystemTopic) -> Vec<SystemEvent> {
    let events = store.read_events(StreamId::System(topic), Seq(0), 1000).await.expect("reads");
    let decode = |event: &docket_schema::event::Envelope| {
        SystemEvent::decode(&event.kind, event.version, event.payload.as_str()).expect("decodes")
    };
    events.iter().map(decode).collect()
}

#[tokio::test]
async fn token_is_shown_once_and_works_until_revoked() {
    let house = TestServer::start().await;
    let made = house.create_token("ci", TokenRole::Submit, None).await;
    assert!(made.secret.starts_with("dkt_") && made.secret.len() >= 47, "256 bits");
    let task: Value = house
        .post("/v1/tasks", &made.secret, &json!({ "tasks": [task_spec("by ci")] }))
        .await
        .parse_success();
    let task = task["tasks"][0]["id"].as_str().expect("an id").to_owned();
    let of = StreamId::Task(task.parse().expect("an id"));
    let first = house.store.read_events(of, Seq(0), 1).await.expect("reads").remove(0);
    assert!(first.payload.as_str().contains(r#""by":"ci""#), "{}", first.payload.as_str());
    assert_eq!(house.post("/v1/gc", &made.secret, &json!({})).await.status, 403, "its role holds");
    let list = house.get("/v1/tokens").await;
    let text = String::from_utf8_lossy(&list.body).into_owned();
    assert!(!text.contains(&made.secret) && !text.contains("hash"), "{text}");
    let list: TokenList = list.parse_success();
    assert_eq!(list.tokens, std::slice::from_ref(&made.token));
    assert_eq!((made.token.state, made.token.created_by.as_str()), (TokenState::Good, "Admin"));

    let again = json!({ "name": "ci", "role": "read" });
    assert_eq!(house.post_as_admin("/v1/tokens", &again).await.parse_problem().code, ProblemCode::WrongState);
    let homes = json!({ "name": "Worker", "role": "admin" });
    assert_eq!(house.post_as_admin("/v1/tokens", &homes).await.parse_problem().code, ProblemCode::WrongState);
    assert_eq!(
        house.post_as_admin("/v1/tokens/Worker/revoke", &json!({})).await.parse_problem().code,
        ProblemCode::WrongState
    );
    for name in [".", "..", "-x", "_x"] {
        let problem =
            house.post_as_admin("/v1/tokens", &json!({ "name": name, "role": "read" })).await.parse_problem();
        assert_eq!(problem.field.as_deref(), Some("name"), "{name}");
    }
    assert_eq!(
        house.post_as_admin("/v1/tokens/none/revoke", &json!({})).await.parse_problem().code,
        ProblemCode::NotFound
    );
    for _ in 0..2 {
        let view: TokenView = house.post_as_admin("/v1/tokens/ci/revoke", &json!({})).await.parse_success();
        assert_eq!((view.state, view.revoked_by.as_deref()), (TokenState::Revoked, Some("Admin")));
    }
    let problem = house.post("/v1/tasks", &made.secret, &json!({ "tasks": [] })).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::Unauthorized);
    let next = house.create_token("ci", TokenRole::Read, None).await;
    assert_ne!(next.secret, made.secret, "the name is free, the token another");

    let log = read_system_events(&*house.store, SystemTopic::Tokens).await;
    let [SystemEvent::TokenCreated(TokenCreated { hash, .. }), SystemEvent::TokenRevoked(_), _] = &log[..]
    else {
        panic!("{log:?}")
    };
    assert_eq!(*hash, BlobHash::hash_bytes(made.secret.as_bytes()));
    let acts = read_system_events(&*house.store, SystemTopic::Audit).await;
    let acts: Vec<AdminAct> = acts
        .into_iter()
        .map(|event| match event {
            SystemEvent::AdminActed(AdminActed { by, from, act }) => {
                assert_eq!((by.as_str(), from.as_deref()), ("Admin", Some("127.0.0.1")));
                act
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let ci = || "ci".parse().expect("a name");
    let expected = [
        AdminAct::CreateToken { name: ci(), role: TokenRole::Submit },
        AdminAct::RevokeToken { name: ci() },
        AdminAct::CreateToken { name: ci(), role: TokenRole::Read },
    ];
    assert_eq!(acts, expected, "refused calls are no acts");
    let stream = StreamId::System(SystemTopic::Tokens);
    let head = house.store.stream_head(stream.clone()).await.expect("reads");
    let walked = walk_stream(&*house.store, &stream, head).await.expect("walks");
    assert!(
        walked.fault.is_none()
            && matches!(walked.fold, StreamFold::Tokens(tokens) if tokens.all().count() == 1),
        "verify folds them"
    );
}

#[tokio::test]
async fn long_polls_under_a_revoked_token_are_rejected() {
    let house = TestServer::start().await;
    let made = house.create_token("builder", TokenRole::Worker, None).await;
    let request = lease_request(60_000);
    let waiting = house.post("/v1/lease", &made.secret, &request);
    let revoke = async {
        house.post_as_admin("/v1/tokens/builder/revoke", &json!({})).await.parse_success::<TokenView>();
        // A token with the same name is a different token.
        house.create_token("builder", TokenRole::Worker, None).await;
        house.submit_spec(task_spec("work")).await
    };
    let (answer, task) = Box::pin(within_time("an answer", async { tokio::join!(waiting, revoke) })).await;
    assert_eq!(answer.parse_problem().code, ProblemCode::Unauthorized);
    assert_eq!(house.task_state(task).await, "available");

    let reader = house.create_token("eve", TokenRole::Read, None).await;
    let lease = house.lease_with(&lease_request(0)).await.remove(0);
    let url = format!("{}/v1/runs/{}/follow", house.server.url(), lease.run);
    let follow = house.client.get(url).bearer_auth(&reader.secret).send().await.expect("answer");
    assert_eq!(follow.status(), 200);
    house.post_as_admin("/v1/tokens/eve/revoke", &json!({})).await.parse_success::<TokenView>();
    let rest = within_time("the end", follow.bytes()).await.expect("it ends by itself");
    assert!(!rest.windows(5).any(|word| word == b"event"), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn created_tokens_reach_every_coordinator_of_the_store() {
    let house = TestServer::start().await;
    let other = serve(Arc::clone(&house.store), 30_000).await;
    let made = house.create_token("ci", TokenRole::Read, None).await;
    let at_other = async || {
        let url = other.url() + "/v1/status";
        house.client.get(url).bearer_auth(&made.secret).send().await.expect("answer").status().as_u16()
    };
    assert_eq!(at_other().await, 200, "before it looks by itself");
    house.post_as_admin("/v1/tokens/ci/revoke", &json!({})).await.parse_success::<TokenView>();
    within_time("its end", async { while at_other().await == 200 {} }).await;
    assert_eq!(at_other().await, 401);
    let third = serve(Arc::clone(&house.store), 30_000).await;
    let url = third.url() + "/v1/tokens";
    let list: TokenList = house
        .client
        .get(url)
        .bearer_auth(token_for(TokenRole::Admin))
        .send()
        .await
        .expect("answer")
        .json()
        .await
        .expect("list");
    assert_eq!(list.tokens[0].state, TokenState::Revoked);
}

#[tokio::test]
async fn unreadable_token_log_invalidates_all_its_tokens() {
    let house = TestServer::start().await;
    let made = house.create_token("ci", TokenRole::Read, None).await;
    let status = async || house.send("GET", "/v1/status", &made.secret, Vec::new(), None).await.status;
    assert_eq!(status().await, 200);
    // A newer docket may have a form of revocation that this one does not know.
    let event = NewEvent {
        kind: "TokensAllRevoked".to_owned(),
        version: 1,
        turn: Turn(0),
        payload: Payload::parse("{}".to_owned()).expect("json"),
    };
    let append = LogAppend {
        stream: StreamId::System(SystemTopic::Tokens),
        condition: AppendCondition::AtHead,
        events: vec![event],
        blobs: Vec::new(),
        required_blobs: Vec::new(),
        now: Timestamp(0),
    };
    house.store.append(append).await.expect("appends");
    within_time("its end", async { while status().await == 200 {} }).await;
    assert_eq!(status().await, 401);
    assert_eq!(house.get("/v1/status").await.status, 200, "the home's own token is not of the log");
    assert_eq!(house.get("/v1/tokens").await.parse_problem().code, ProblemCode::Corrupt);
}

#[tokio::test]
async fn concurrent_creates_of_one_token_succeed_once() {
    let house = TestServer::start().await;
    let request = json!({ "name": "ci", "role": "read" });
    let answers =
        futures_util::future::join_all((0..16).map(|_| house.post_as_admin("/v1/tokens", &request))).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 409].contains(status)), "{statuses:?}");
}

#[tokio::test]
async fn rejected_calls_are_logged_without_their_credentials() {
    let house = TestServer::start().await;
    for n in 0..3 {
        assert_eq!(
            house.send("GET", "/v1/tasks", &format!("dkt_guess{n}"), Vec::new(), None).await.status,
            401
        );
    }
    assert_eq!(house.send("POST", "/v1/gc", token_for(TokenRole::Read), Vec::new(), None).await.status, 403);
    let TestServer { server: running, store, .. } = house;
    // Counts that were not written yet are written at shutdown.
    running.shutdown().await;
    let log = read_system_events(&*store, SystemTopic::Audit).await;
    let told: Vec<(ProblemCode, u64)> = log
        .iter()
        .map(|event| match event {
            SystemEvent::CallsRefused(CallsRefused { from, code, count, .. }) => {
                assert_eq!(from, "127.0.0.1");
                (*code, *count)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told, [(ProblemCode::Unauthorized, 3), (ProblemCode::Forbidden, 1)]);
}

#[tokio::test]
async fn imports_and_gc_are_audited_before_they_run() {
    let house = TestServer::start().await;
    house.post_as_admin("/v1/gc", &json!({ "delete": true })).await.parse_success::<Value>();
    let log = read_system_events(&*house.store, SystemTopic::Audit).await;
    assert!(
        matches!(
            &log[..],
            [SystemEvent::AdminActed(AdminActed { act: AdminAct::CollectGarbage { delete: true }, .. })]
        ),
        "{log:?}"
    );
}

#[tokio::test]
async fn invalid_acts_are_not_audited() {
    let house = TestServer::start().await;
    let run = docket_schema::ids::RunId(crate::clock::new_id());
    let body = json!({ "policy": { "network": { "hosts": ["crates.io"] } } });
    let answer = house.post_as_admin(&format!("/v1/runs/{run}/policy"), &body).await;
    assert_eq!(answer.parse_problem().code, ProblemCode::NotFound);
    assert!(read_system_events(&*house.store, SystemTopic::Audit).await.is_empty());
    let lease = house.submit_and_lease().await;
    house.append_ok(&lease, 0, vec![super::event_fixtures::run_started(lease.task, lease.run)]).await;
    assert_eq!(house.post_as_admin(&format!("/v1/runs/{}/policy", lease.run), &body).await.status, 200);
    assert_eq!(read_system_events(&*house.store, SystemTopic::Audit).await.len(), 1);
}
