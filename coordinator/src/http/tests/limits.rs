//! Limits on model providers over HTTP: who is told of them, and who gets a permit.

use docket_schema::{
    system::Role,
    wire::{AppendResponse, LimitList, PermitResponse, ProblemCode, TaskPage, TaskView, WhyKind, WhyView},
};
use serde_json::json;

use super::{
    events::{answered, asked, phase, started},
    support::{House, token},
};

#[tokio::test]
async fn a_run_is_told_of_limits_and_asks_for_its_moment() {
    let house = House::open().await;
    let lease = house.leased().await;
    let append = async |at: u64, events| -> AppendResponse { house.append(&lease, at, events).await.good() };
    let ask = json!({ "provider": "openai", "tokens": 10 });
    let path = format!("/v1/runs/{}/permit", lease.run);
    let permit = async || house.post(&path, &lease.token, &ask).await;
    assert!(append(0, vec![started(lease.task, lease.run)]).await.limited.is_empty());
    assert_eq!(permit().await.good::<PermitResponse>(), PermitResponse::GRANTED);

    for (provider, body, field) in [
        ("openai", json!({ "limits": {} }), "limits"),
        ("openai", json!({ "limits": { "requests": { "count": 0, "per_ms": 1000 } } }), "limits"),
        ("Open%20AI", json!({ "limits": { "requests": { "count": 1, "per_ms": 1000 } } }), "path"),
    ] {
        let problem = house.admin(&format!("/v1/limits/{provider}"), &body).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some(field)));
    }
    let set = json!({ "limits": { "requests": { "count": 1, "per_ms": 8_000 } } });
    let list: LimitList = house.admin("/v1/limits/openai", &set).await.good();
    assert_eq!((list.limits.len(), list.limits[0].by.as_str()), (1, "Admin"));
    assert_eq!(append(1, vec![phase(1)]).await.limited, ["openai"]);
    let [first, second, third] =
        [permit().await, permit().await, permit().await].map(|a| a.good::<PermitResponse>());
    assert_eq!(first, PermitResponse::GRANTED);
    assert!(second.granted && second.wait_ms > 6_000, "{second:?}");
    assert!(!third.granted && third.wait_ms > 0, "{third:?}");
    // Nobody else's, and nobody's whose epoch is past.
    assert_eq!(house.post(&path, token(Role::Admin), &ask).await.status, 403);
    let other = format!("/v1/runs/{}/permit", docket_schema::ids::RunId(crate::clock::new_id()));
    assert_eq!(house.post(&other, &lease.token, &ask).await.status, 403);
    house.admin(&format!("/v1/tasks/{}/cancel", lease.task), &json!({})).await.good::<serde_json::Value>();
    assert_eq!(permit().await.problem().code, ProblemCode::Ended);
    house.admin("/v1/limits/openai/remove", &json!({})).await.good::<LimitList>();
    assert_eq!(
        house.admin("/v1/limits/openai/remove", &json!({})).await.problem().code,
        ProblemCode::NotFound
    );
}

#[tokio::test]
async fn a_run_that_waits_for_a_limit_is_told_as_one_that_waits() {
    let house = House::open().await;
    let (lease, other) = (house.leased().await, house.leased().await);
    let set = json!({ "limits": { "requests": { "count": 1, "per_ms": 3_600_000 } } });
    house.admin("/v1/limits/openai", &set).await.good::<LimitList>();
    let permit = async |lease: &docket_schema::wire::Lease| {
        let ask = json!({ "provider": "openai", "tokens": 10 });
        let answer = house.post(&format!("/v1/runs/{}/permit", lease.run), &lease.token, &ask).await;
        answer.good::<PermitResponse>()
    };
    let why = async |lease: &docket_schema::wire::Lease| -> WhyView {
        house.get(&format!("/v1/tasks/{}/why", lease.task)).await.good()
    };
    let waits = async || house.get("/v1/tasks").await.good::<TaskPage>().waits;
    let shown = async |lease: &docket_schema::wire::Lease| {
        house.get(&format!("/v1/tasks/{}", lease.task)).await.good::<TaskView>().waits
    };
    assert!(permit(&lease).await.granted);
    assert_eq!((why(&lease).await.kind, waits().await), (WhyKind::Runs, Vec::new()));
    for _ in 0..2 {
        assert!(!permit(&lease).await.granted);
        let said = why(&lease).await;
        assert_eq!(said.kind, WhyKind::ProviderLimit, "{said:?}");
        for part in ["worker worker has had it", "the limit of openai, 1/h requests", "in 1 h"] {
            assert!(said.text.contains(part), "{part}: {}", said.text);
        }
    }
    assert_eq!(why(&other).await.kind, WhyKind::Runs, "the other one asked for nothing");
    let listed = waits().await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((listed[0].task, shown(&lease).await.as_ref()), (lease.task, Some(&listed[0])));
    assert_eq!(shown(&other).await, None);
    // What ends the waiting ends the word of it: the limit goes, or the lease.
    assert!(!permit(&other).await.granted);
    house.admin("/v1/limits/openai/remove", &json!({})).await.good::<LimitList>();
    assert!(permit(&lease).await.granted);
    assert_eq!((why(&lease).await.kind, waits().await.len()), (WhyKind::Runs, 1));
    house.admin(&format!("/v1/tasks/{}/cancel", other.task), &json!({})).await.good::<serde_json::Value>();
    assert_eq!(waits().await, Vec::new());
}

#[tokio::test]
async fn an_answer_that_is_recorded_lets_another_run_ask() {
    let house = House::open().await;
    let (one, two) = (house.leased().await, house.leased().await);
    let set = json!({ "limits": { "concurrent": 1 } });
    house.admin("/v1/limits/openai", &set).await.good::<LimitList>();
    let granted = async |lease: &docket_schema::wire::Lease| {
        let ask = json!({ "provider": "openai", "tokens": 10 });
        let answer = house.post(&format!("/v1/runs/{}/permit", lease.run), &lease.token, &ask).await;
        answer.good::<PermitResponse>().granted
    };
    house.appended(&one, 0, vec![started(one.task, one.run), asked(1)]).await;
    assert!(granted(&one).await && !granted(&two).await);
    house.appended(&one, 2, vec![answered(1)]).await;
    assert!(granted(&two).await && !granted(&one).await);
}
