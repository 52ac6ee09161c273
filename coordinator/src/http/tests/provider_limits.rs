//! Provider limits over HTTP: listing, and permits.

use docket_schema::{
    api::{AppendResponse, LimitList, PermitResponse, ProblemCode, TaskPage, TaskView, WhyKind, WhyView},
    system::TokenRole,
};
use serde_json::json;

use super::{
    event_fixtures::{model_answered, model_called, phase_changed, run_started},
    support::{TestServer, token_for},
};

#[tokio::test]
async fn run_learns_of_limits_and_requests_a_permit() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let append = async |at: u64, events| -> AppendResponse {
        house.send_append(&lease, at, events).await.parse_success()
    };
    let ask = json!({ "provider": "openai", "tokens": 10 });
    let path = format!("/v1/runs/{}/permit", lease.run);
    let permit = async || house.post(&path, &lease.token, &ask).await;
    assert!(append(0, vec![run_started(lease.task, lease.run)]).await.limited.is_empty());
    assert_eq!(permit().await.parse_success::<PermitResponse>(), PermitResponse::GRANTED);

    for (provider, body, field) in [
        ("openai", json!({ "limits": {} }), "limits"),
        ("openai", json!({ "limits": { "requests": { "count": 0, "per_ms": 1000 } } }), "limits"),
        ("Open%20AI", json!({ "limits": { "requests": { "count": 1, "per_ms": 1000 } } }), "path"),
    ] {
        let problem = house.post_as_admin(&format!("/v1/limits/{provider}"), &body).await.parse_problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some(field)));
    }
    let set = json!({ "limits": { "requests": { "count": 1, "per_ms": 8_000 } } });
    let list: LimitList = house.post_as_admin("/v1/limits/openai", &set).await.parse_success();
    assert_eq!((list.limits.len(), list.limits[0].by.as_str()), (1, "Admin"));
    assert_eq!(append(1, vec![phase_changed(1)]).await.limited, ["openai"]);
    let [first, second, third] =
        [permit().await, permit().await, permit().await].map(|a| a.parse_success::<PermitResponse>());
    assert_eq!(first, PermitResponse::GRANTED);
    assert!(second.granted && second.wait_ms > 6_000, "{second:?}");
    assert!(!third.granted && third.wait_ms > 0, "{third:?}");
    // Neither another run nor a past epoch gets a permit.
    assert_eq!(house.post(&path, token_for(TokenRole::Admin), &ask).await.status, 403);
    let other = format!("/v1/runs/{}/permit", docket_schema::ids::RunId(crate::clock::new_id()));
    assert_eq!(house.post(&other, &lease.token, &ask).await.status, 403);
    house
        .post_as_admin(&format!("/v1/tasks/{}/cancel", lease.task), &json!({}))
        .await
        .parse_success::<serde_json::Value>();
    assert_eq!(permit().await.parse_problem().code, ProblemCode::Ended);
    house.post_as_admin("/v1/limits/openai/remove", &json!({})).await.parse_success::<LimitList>();
    assert_eq!(
        house.post_as_admin("/v1/limits/openai/remove", &json!({})).await.parse_problem().code,
        ProblemCode::NotFound
    );
}

#[tokio::test]
async fn run_waiting_for_a_limit_is_reported_as_waiting() {
    let house = TestServer::start().await;
    let (lease, other) = (house.submit_and_lease().await, house.submit_and_lease().await);
    let set = json!({ "limits": { "requests": { "count": 1, "per_ms": 3_600_000 } } });
    house.post_as_admin("/v1/limits/openai", &set).await.parse_success::<LimitList>();
    let permit = async |lease: &docket_schema::api::Lease| {
        let ask = json!({ "provider": "openai", "tokens": 10 });
        let answer = house.post(&format!("/v1/runs/{}/permit", lease.run), &lease.token, &ask).await;
        answer.parse_success::<PermitResponse>()
    };
    let why = async |lease: &docket_schema::api::Lease| -> WhyView {
        house.get(&format!("/v1/tasks/{}/why", lease.task)).await.parse_success()
    };
    let waits = async || house.get("/v1/tasks").await.parse_success::<TaskPage>().waits;
    let shown = async |lease: &docket_schema::api::Lease| {
        house.get(&format!("/v1/tasks/{}", lease.task)).await.parse_success::<TaskView>().waits
    };
    assert!(permit(&lease).await.granted);
    assert_eq!((why(&lease).await.kind, waits().await), (WhyKind::Runs, Vec::new()));
    for _ in 0..2 {
        assert!(!permit(&lease).await.granted);
        let said = why(&lease).await;
        assert_eq!(said.kind, WhyKind::ProviderLimit, "{said:?}");
        for part in ["on worker worker", "the rate limit of openai, 1/h requests", "in 1 h"] {
            assert!(said.text.contains(part), "{part}: {}", said.text);
        }
    }
    assert_eq!(why(&other).await.kind, WhyKind::Runs, "the other one asked for nothing");
    let listed = waits().await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((listed[0].task, shown(&lease).await.as_ref()), (lease.task, Some(&listed[0])));
    assert_eq!(shown(&other).await, None);
    // When the limit is removed or the lease ends, the wait is no longer reported.
    assert!(!permit(&other).await.granted);
    house.post_as_admin("/v1/limits/openai/remove", &json!({})).await.parse_success::<LimitList>();
    assert!(permit(&lease).await.granted);
    assert_eq!((why(&lease).await.kind, waits().await.len()), (WhyKind::Runs, 1));
    house
        .post_as_admin(&format!("/v1/tasks/{}/cancel", other.task), &json!({}))
        .await
        .parse_success::<serde_json::Value>();
    assert_eq!(waits().await, Vec::new());
}

#[tokio::test]
async fn recorded_model_reply_frees_the_permit_for_another_run() {
    let house = TestServer::start().await;
    let (one, two) = (house.submit_and_lease().await, house.submit_and_lease().await);
    let set = json!({ "limits": { "concurrent": 1 } });
    house.post_as_admin("/v1/limits/openai", &set).await.parse_success::<LimitList>();
    let granted = async |lease: &docket_schema::api::Lease| {
        let ask = json!({ "provider": "openai", "tokens": 10 });
        let answer = house.post(&format!("/v1/runs/{}/permit", lease.run), &lease.token, &ask).await;
        answer.parse_success::<PermitResponse>().granted
    };
    house.append_ok(&one, 0, vec![run_started(one.task, one.run), model_called(1)]).await;
    assert!(granted(&one).await && !granted(&two).await);
    house.append_ok(&one, 2, vec![model_answered(1)]).await;
    assert!(granted(&two).await && !granted(&one).await);
}
