//! Every route against every wrong kind of token, and against other hosts and origins.

use docket_schema::{
    ids::{Epoch, RunId},
    wire::ProblemCode,
};

use super::events::{spec, started};
use super::support::{House, append_request, lease_request, token};
use crate::http::{
    Role, RunTokens,
    auth::Access,
    router::{ROUTES, Route},
};

/// Who may call what, said a second time and differently: admin may call all that any role may.
const ALLOWED: &[(&str, &str)] = &[
    ("GET /v1/tasks", "submit read"),
    ("POST /v1/tasks", "submit"),
    ("GET /v1/tasks/{id}", "submit read"),
    ("POST /v1/tasks/{id}/cancel", "submit"),
    ("POST /v1/tasks/{id}/retry", "submit"),
    ("POST /v1/tasks/{id}/answer", "submit"),
    ("POST /v1/tasks/{id}/pause", "submit"),
    ("POST /v1/tasks/{id}/unpause", "submit"),
    ("POST /v1/tasks/{id}/release", "worker"),
    ("POST /v1/lease", "worker"),
    ("POST /v1/heartbeat", "worker"),
    ("GET /v1/runs/{id}", "submit read run"),
    ("GET /v1/runs/{id}/events", "submit read run"),
    ("GET /v1/runs/{id}/follow", "submit read"),
    ("POST /v1/runs/{id}/tell", "submit"),
    ("POST /v1/runs/{id}/policy", ""),
    ("POST /v1/runs/{id}/resume", "submit"),
    ("POST /v1/runs/{id}/fork", "submit"),
    ("GET /v1/runs/{id}/lineage", "submit read"),
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
    ("GET /v1/status", "submit worker read"),
    ("POST /v1/import", ""),
    ("POST /v1/gc", ""),
];

/// Makes following a run a bad request: a good one would not end.
const HASTY: Option<(&str, &str)> = Some(("last-event-id", "x"));

fn path_of(route: &Route, run: RunId) -> String {
    let zeros = "0".repeat(64);
    route.path.replace("{id}", &run.to_string()).replace("{hash}", &zeros).replace("{prefix}", "abc")
}

#[tokio::test]
async fn every_route_refuses_every_wrong_kind_of_token() {
    let house = House::open().await;
    let lease = house.leased().await;
    house.submit(spec("another")).await;
    let other = house.lease(&lease_request(0)).await.remove(0);
    for route in ROUTES {
        let name = format!("{} {}", route.verb.as_str(), route.path);
        if route.access == Access::Open {
            let answer = house.send(route.verb.as_str(), route.path, "", Vec::new(), HASTY).await;
            assert_eq!(answer.status, 200, "{name}");
            continue;
        }
        let (_, allowed) =
            ALLOWED.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("{name} is new"));
        let path = path_of(route, lease.run);
        let head = route.verb.as_str() == "HEAD";
        let strangers = RunTokens::new(&[9; 32]).make(lease.run, lease.epoch);
        let wrong = ["", "nobody's", "dkr_", &strangers, &lease.token[..lease.token.len() - 1]];
        for token in wrong {
            let answer = house.send(route.verb.as_str(), &path, token, Vec::new(), HASTY).await;
            assert_eq!(answer.status, 401, "{name} with `{token}`");
            if !head {
                assert_eq!(answer.problem().code, ProblemCode::Unauthorized);
            }
        }
        for role in Role::ALL {
            let word = format!("{role:?}").to_ascii_lowercase();
            let may = match role {
                Role::Admin => !allowed.contains("only"),
                Role::Submit | Role::Worker | Role::Read => allowed.split(' ').any(|w| w == word),
            };
            let answer = house.send(route.verb.as_str(), &path, token(role), Vec::new(), HASTY).await;
            assert_eq!(
                answer.status != 403 && answer.status != 401,
                may,
                "{name} as {word}: {}",
                answer.status
            );
        }
        let may = allowed.contains("run");
        let answer = house.send(route.verb.as_str(), &path, &lease.token, Vec::new(), HASTY).await;
        assert_eq!(answer.status != 403 && answer.status != 401, may, "{name} as run: {}", answer.status);
        if route.path.starts_with("/v1/runs/") {
            let answer = house.send(route.verb.as_str(), &path, &other.token, Vec::new(), HASTY).await;
            assert_eq!(answer.status, 403, "{name} as another run");
        }
    }
    assert_eq!(ALLOWED.len(), ROUTES.iter().filter(|route| route.access != Access::Open).count());
}

#[tokio::test]
async fn a_run_token_is_good_for_its_epoch_only() {
    let house = House::open().await;
    let lease = house.leased().await;
    let event = started(lease.task, lease.run);
    let request = append_request(Epoch(lease.epoch.0 + 1), 0, vec![event]);
    let problem =
        house.post(&format!("/v1/runs/{}/append", lease.run), &lease.token, &request).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::Forbidden, Some("epoch")));
}

#[tokio::test]
async fn other_hosts_and_origins_are_refused_on_loopback() {
    let house = House::open().await;
    for (header, value) in [
        ("host", "evil.example"),
        ("host", "127.0.0.1.evil.example:80"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
    ] {
        for path in ["/healthz", "/v1/tasks", "/no/such/route"] {
            let answer = house.send("GET", path, token(Role::Admin), Vec::new(), Some((header, value))).await;
            let problem = answer.problem();
            assert_eq!(
                (problem.code, problem.field.as_deref()),
                (ProblemCode::Forbidden, Some(header)),
                "{value}"
            );
        }
    }
    let own = house
        .send("GET", "/v1/tasks", token(Role::Admin), Vec::new(), Some(("origin", "http://localhost:1")))
        .await;
    assert_eq!(own.status, 200);
}
