//! Every route with every kind of invalid token.

use docket_schema::{
    api::{
        AppendManyRequest, AppendManyResponse, AppendResult, Lease, ProblemCode, ProblemDetails,
        StreamAppend, TokenList, TokenState, TokenView,
    },
    ids::{Epoch, RunId},
};
use serde_json::{Value, json};

use super::event_fixtures::{run_started, task_spec};
use super::support::{TestServer, append_request, lease_request, token_for, within_time};
use crate::http::{
    RunTokens, TokenRole,
    middleware::{auth::RouteAccess, route::ApiRoute},
    router::ROUTES,
};

/// Expected access per route, written independently; admin may call everything that any role may.
const ALLOWED: &[(&str, &str)] = &[
    ("GET /v1/tasks", "submit read"),
    ("POST /v1/tasks/bulk", "submit"),
    ("GET /v1/batches", "read submit"),
    ("GET /v1/batches/{id}", "read submit"),
    ("POST /v1/batches/{id}/budget", "submit"),
    ("POST /v1/tasks", "submit"),
    ("GET /v1/tasks/{id}", "submit read"),
    ("POST /v1/tasks/{id}/cancel", "submit"),
    ("POST /v1/tasks/{id}/retry", "submit"),
    ("POST /v1/tasks/{id}/answer", "submit"),
    ("POST /v1/tasks/{id}/pause", "submit"),
    ("POST /v1/tasks/{id}/unpause", "submit"),
    ("POST /v1/tasks/{id}/delivery", "submit"),
    ("GET /v1/tasks/{id}/why", "submit read"),
    ("GET /v1/queues", "submit read"),
    ("POST /v1/queues/{name}", ""),
    ("GET /v1/queues/{name}/load", "submit read"),
    ("GET /metrics", "submit worker read"),
    ("GET /v1/inbox", "submit read"),
    ("POST /v1/inbox/{row}/drop", ""),
    ("POST /v1/inbox/{row}/retry", ""),
    ("GET /v1/notifications", "submit read"),
    ("POST /v1/notifications/test", ""),
    ("POST /v1/notifications/{id}/retry", ""),
    ("POST /v1/notifications/{id}/drop", ""),
    ("GET /v1/limits", "submit read"),
    ("POST /v1/limits/{provider}", ""),
    ("POST /v1/limits/{provider}/remove", ""),
    ("POST /v1/runs/{id}/permit", "run only"),
    ("POST /v1/runs/{id}/memory", "run only"),
    ("GET /v1/memory", "submit read"),
    ("POST /v1/memory/delete", ""),
    ("POST /v1/runs/{id}/delegate", "run only"),
    ("GET /v1/runs/{id}/children", "submit read run"),
    ("GET /v1/schedules", "submit read"),
    ("GET /v1/schedules/{name}", "submit read"),
    ("POST /v1/schedules/{name}", "submit"),
    ("POST /v1/schedules/{name}/pause", "submit"),
    ("POST /v1/schedules/{name}/unpause", "submit"),
    ("POST /v1/schedules/{name}/remove", "submit"),
    ("POST /v1/schedules/{name}/run", "submit"),
    ("POST /v1/workers/{id}/drain", ""),
    ("POST /v1/tasks/{id}/release", "worker"),
    ("POST /v1/lease", "worker"),
    ("POST /v1/heartbeat", "worker"),
    ("GET /v1/runs/{id}", "submit read run"),
    ("GET /v1/runs/{id}/events", "submit read run"),
    ("GET /v1/runs/{id}/follow", "submit read"),
    ("POST /v1/runs/{id}/tell", "submit"),
    ("POST /v1/runs/{id}/policy", ""),
    ("POST /v1/runs/{id}/resume", "submit"),
    ("POST /v1/runs/{id}/accept", "submit"),
    ("POST /v1/runs/{id}/reject", "submit"),
    ("POST /v1/runs/{id}/fork", "submit"),
    ("GET /v1/runs/{id}/lineage", "submit read"),
    ("GET /v1/runs/{id}/timeline", "submit read"),
    ("GET /v1/runs/{id}/turn", "submit read"),
    ("GET /v1/runs/{id}/output", "submit read"),
    ("GET /v1/runs/{id}/files", ""),
    ("GET /v1/runs/{id}/diff", ""),
    ("GET /v1/runs/{id}/export", "submit read"),
    ("POST /v1/runs/{id}/append", "run only"),
    ("POST /v1/append", "worker run"),
    ("GET /v1/blobs/{hash}", "run"),
    ("HEAD /v1/blobs/{hash}", "submit worker run"),
    ("PUT /v1/blobs/{hash}", "submit worker run"),
    ("GET /v1/blobs/check", "submit read"),
    ("POST /v1/blobs/missing", "submit worker run"),
    ("GET /v1/events", "submit read"),
    ("GET /v1/feed", "submit read"),
    ("GET /v1/streams", "submit read"),
    ("GET /v1/resolve/{prefix}", "submit read"),
    ("GET /v1/cost", "submit read"),
    ("GET /v1/cost/days", "submit read"),
    ("GET /v1/overview", "submit read"),
    ("GET /v1/metrics", "submit read"),
    ("GET /v1/status", "submit worker read"),
    ("POST /v1/import", ""),
    ("POST /v1/gc", ""),
    ("POST /v1/archive", ""),
    ("GET /v1/archive/tasks", "submit read"),
    ("GET /v1/archived", "submit read"),
    ("GET /v1/archived/{id}", "submit read"),
    ("GET /v1/archived/{id}/file", ""),
    ("POST /v1/archived/{id}/restore", ""),
    ("GET /v1/whoami", "submit worker read"),
    ("GET /v1/tokens", ""),
    ("POST /v1/tokens", ""),
    ("POST /v1/tokens/{name}/revoke", ""),
];

/// Makes following a run a bad request, because a valid one would not end.
const BAD_LAST_EVENT_ID: Option<(&str, &str)> = Some(("last-event-id", "x"));

fn request_path(route: &ApiRoute, run: RunId) -> String {
    let zeros = "0".repeat(64);
    route
        .path
        .replace("{id}", &run.to_string())
        .replace("{hash}", &zeros)
        .replace("{prefix}", "abc")
        .replace("{name}", "nobody")
        .replace("{row}", "nothing")
        .replace("{provider}", "nobody")
}

/// The credential of a request.
enum TestCredential<'a> {
    /// None.
    Nothing,
    /// `Authorization` headers as they are.
    Headers(Vec<String>),
    /// A valid token in the query.
    InTheQuery(&'a str),
}

async fn request_status(house: &TestServer, route: &ApiRoute, path: &str, says: &TestCredential<'_>) -> u16 {
    let url = format!("{}{path}", house.server.url());
    let url = if let TestCredential::InTheQuery(token) = says { format!("{url}?token={token}") } else { url };
    let (name, value) = BAD_LAST_EVENT_ID.expect("a header");
    let mut request =
        house.client.request(route.method.as_str().parse().expect("method"), url).header(name, value);
    if let TestCredential::Headers(headers) = says {
        for header in headers {
            request = request.header("authorization", header);
        }
    }
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    if status >= 400 && route.method.as_str() != "HEAD" {
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{path}");
        let problem: ProblemDetails = answer.json().await.expect("a problem");
        let (_, code_status, _) = problem.code.code_status_title();
        assert_eq!(code_status, status, "{path}");
    }
    status
}

/// Tokens that are never valid, as they would be sent.
async fn useless_tokens(house: &TestServer, lease: &Lease) -> Vec<(&'static str, Vec<String>)> {
    let revoked = house.create_token("was-good", TokenRole::Admin, None).await.secret;
    house.post_as_admin("/v1/tokens/was-good/revoke", &json!({})).await.parse_success::<TokenView>();
    let expired = house.create_token("was-short", TokenRole::Admin, Some(1)).await.secret;
    let strangers = RunTokens::new(&[9; 32]).issue_token(lease.run, lease.epoch);
    let cut = &lease.token[..lease.token.len() - 1];
    let later = lease.token.replace("_1_", "_2_");
    assert_ne!(later, lease.token);
    let bearer = |token: &str| vec![format!("Bearer {token}")];
    let admin = token_for(TokenRole::Admin);
    // The millisecond is over once the log's clock has passed it.
    let expiry = async {
        while house.get("/v1/tokens").await.parse_success::<TokenList>().tokens[1].state == TokenState::Good {
        }
    };
    within_time("an expiry", expiry).await;
    vec![
        ("garbage", bearer("nobody's")),
        ("empty", bearer("")),
        ("no scheme", vec![admin.to_owned()]),
        ("another scheme", vec![format!("Basic {admin}")]),
        ("scheme run together", vec![format!("Bearer{admin}")]),
        ("nothing at all", vec![String::new()]),
        ("very long", bearer(&"x".repeat(8000))),
        ("a good one made longer", bearer(&format!("{admin}{}", "x".repeat(1000)))),
        ("of another case", bearer(&admin.to_uppercase())),
        ("revoked", bearer(&revoked)),
        ("expired", bearer(&expired)),
        ("no run's", bearer("dkr_")),
        ("of another installation", bearer(&strangers)),
        ("cut", bearer(cut)),
        ("of an epoch that it does not prove", bearer(&later)),
        ("twice", vec![format!("Bearer {admin}"), format!("Bearer {admin}")]),
        ("good and bad", vec![format!("Bearer {admin}"), "Bearer nobody's".to_owned()]),
        ("bad and good", vec!["Bearer nobody's".to_owned(), format!("Bearer {admin}")]),
        ("two in one", vec![format!("Bearer {admin}, Bearer {admin}")]),
    ]
}

#[tokio::test]
async fn every_route_rejects_every_wrong_kind_of_token() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    house.submit_spec(task_spec("another")).await;
    let other = house.lease_with(&lease_request(0)).await.remove(0);
    let wrong = useless_tokens(&house, &lease).await;
    for route in ROUTES {
        let name = format!("{} {}", route.method.as_str(), route.path);
        if route.access == RouteAccess::Public {
            assert_eq!(
                request_status(&house, route, route.path, &TestCredential::Nothing).await,
                200,
                "{name}"
            );
            continue;
        }
        let allowed = allowed_callers(&name);
        let path = request_path(route, lease.run);
        for (kind, headers) in &wrong {
            let says = TestCredential::Headers(headers.clone());
            assert_eq!(request_status(&house, route, &path, &says).await, 401, "{name} with a token: {kind}");
        }
        assert_eq!(
            request_status(&house, route, &path, &TestCredential::Nothing).await,
            401,
            "{name} without a token"
        );
        let says = TestCredential::InTheQuery(token_for(TokenRole::Admin));
        assert_eq!(
            request_status(&house, route, &path, &says).await,
            401,
            "{name}: a query is no place for one"
        );
        for role in TokenRole::ALL {
            let may = match role {
                TokenRole::Admin => !allowed.contains("only"),
                TokenRole::Submit | TokenRole::Worker | TokenRole::Read => {
                    allowed.split(' ').any(|w| w == role.as_str())
                }
            };
            // The authentication scheme is case-insensitive (RFC 9110, 11.1).
            for scheme in ["Bearer", "bearer"] {
                let says = TestCredential::Headers(vec![format!("{scheme} {}", token_for(role))]);
                let status = request_status(&house, route, &path, &says).await;
                assert_eq!(status != 403 && status != 401, may, "{name} as {}: {status}", role.as_str());
            }
        }
        let may = allowed.contains("run");
        let says = TestCredential::Headers(vec![format!("Bearer {}", lease.token)]);
        let status = request_status(&house, route, &path, &says).await;
        assert_eq!(status != 403 && status != 401, may, "{name} as run: {status}");
        if route.path.starts_with("/v1/runs/") {
            let says = TestCredential::Headers(vec![format!("Bearer {}", other.token)]);
            assert_eq!(request_status(&house, route, &path, &says).await, 403, "{name} as another run");
        }
    }
    assert_eq!(ALLOWED.len(), ROUTES.iter().filter(|route| route.access != RouteAccess::Public).count());
}

fn allowed_callers(name: &str) -> &'static str {
    ALLOWED.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("{name} is new")).1
}

/// Every route that a run may call, with its token after the lease has ended.
async fn assert_epoch_ended(house: &TestServer, lease: &Lease, code: ProblemCode) {
    let mut asked = 0;
    for route in ROUTES {
        let name = format!("{} {}", route.method.as_str(), route.path);
        if route.access == RouteAccess::Public || !allowed_callers(&name).contains("run") {
            continue;
        }
        asked += 1;
        let path = request_path(route, lease.run);
        if route.path.ends_with("/append") {
            let append = append_request(lease.epoch, 0, vec![run_started(lease.task, lease.run)]);
            if route.path == "/v1/append" {
                let (run, token) = (lease.run, lease.token.clone());
                let request = AppendManyRequest { appends: vec![StreamAppend { run, token, append }] };
                let answer: AppendManyResponse =
                    house.post(&path, &lease.token, &request).await.parse_success();
                let [AppendResult::Refused(problem)] = answer.results.as_slice() else {
                    panic!("{answer:?}")
                };
                assert_eq!(problem.code, code, "{name}");
            } else {
                let problem = house.post(&path, &lease.token, &append).await.parse_problem();
                assert_eq!(problem.code, code, "{name}");
            }
            continue;
        }
        let answer = house.send(route.method.as_str(), &path, &lease.token, Vec::new(), None).await;
        assert_eq!(answer.status, 409, "{name} of a lease that is no more");
        if route.method.as_str() != "HEAD" {
            assert_eq!(answer.parse_problem().code, code, "{name}");
        }
    }
    assert!(asked >= 7, "{asked} routes");
}

#[tokio::test]
async fn run_token_cannot_read_after_its_epoch_ends() {
    let house = TestServer::start().await;
    let first = house.submit_and_lease().await;
    let path = format!("/v1/runs/{}", first.run);
    assert_eq!(house.send("GET", &path, &first.token, Vec::new(), None).await.status, 200);
    let drained = json!({ "epoch": first.epoch, "why": "drained" });
    house
        .post(&format!("/v1/tasks/{}/release", first.task), token_for(TokenRole::Worker), &drained)
        .await
        .parse_success::<Value>();
    assert_epoch_ended(&house, &first, ProblemCode::LeaseExpired).await;
    let second = house.lease_with(&lease_request(0)).await.remove(0);
    assert_eq!((second.run, second.epoch), (first.run, Epoch(first.epoch.0 + 1)));
    assert_epoch_ended(&house, &first, ProblemCode::Fenced).await;
    assert_eq!(house.send("GET", &path, &second.token, Vec::new(), None).await.status, 200);
    house
        .post_as_admin(&format!("/v1/tasks/{}/cancel", first.task), &json!({}))
        .await
        .parse_success::<Value>();
    assert_epoch_ended(&house, &second, ProblemCode::Ended).await;
}

#[tokio::test]
async fn run_token_is_valid_for_its_epoch_only() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let event = run_started(lease.task, lease.run);
    let request = append_request(Epoch(lease.epoch.0 + 1), 0, vec![event]);
    let problem =
        house.post(&format!("/v1/runs/{}/append", lease.run), &lease.token, &request).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::Forbidden, Some("epoch")));
}
