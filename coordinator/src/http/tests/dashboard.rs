//! The dashboard's files, their headers, and browser sessions in place of a token.

use std::sync::Arc;

use docket_schema::{
    api::{ProblemCode, ProblemDetails, TokenView, WhoamiResponse},
    ids::Timestamp,
};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::json;

use super::support::{TestServer, lease_request, serve, token_for};
use crate::{
    clock,
    http::{RateLimits, TokenRole},
};

const PAGES: [&str; 5] =
    ["/ui/", "/ui/backlog", "/ui/run/00000000-0000-0000-0000-000000000001", "/ui/login", "/ui/no/such"];

fn build_request(house: &TestServer, method: &str, path: &str, headers: &[(&str, &str)]) -> RequestBuilder {
    let method: Method = method.parse().expect("a method");
    let mut request = house.client.request(method, format!("{}{path}", house.server.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
}

async fn send_request(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

async fn post_login(house: &TestServer, token: &str) -> Response {
    let body = json!({ "token": token }).to_string();
    let headers = [("content-type", "application/json"), ("x-docket-ui", "1")];
    send_request(build_request(house, "POST", "/ui/login", &headers).body(body)).await
}

/// Returns the cookie as a browser sends it back.
async fn login_cookie(house: &TestServer, token: &str) -> String {
    let answer = post_login(house, token).await;
    assert_eq!(answer.status(), 200);
    let set = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
    for part in ["; Path=/", "; HttpOnly", "; SameSite=Strict"] {
        assert!(set.contains(part), "{set}");
    }
    assert!(!set.contains(token), "the browser does not keep the token: {set}");
    set.split(';').next().expect("the pair").to_owned()
}

/// Returns the value of a cookie.
fn session_value(cookie: &str) -> &str {
    cookie.split_once('=').expect("a pair").1
}

async fn list_tasks_with_cookie(house: &TestServer, cookie: &str) -> (u16, Option<ProblemCode>) {
    let answer = send_request(build_request(house, "GET", "/v1/tasks", &[("cookie", cookie)])).await;
    if answer.status() == 200 {
        return (200, None);
    }
    let (status, code) = problem_code(answer).await;
    (status, Some(code))
}

async fn problem_code(answer: Response) -> (u16, ProblemCode) {
    let status = answer.status().as_u16();
    let problem: ProblemDetails = answer.json().await.expect("a problem");
    (status, problem.code)
}

#[tokio::test]
async fn every_ui_response_has_the_content_security_policy() {
    let house = TestServer::start().await;
    let mut asks: Vec<(&str, String)> = PAGES.iter().map(|page| ("GET", (*page).to_owned())).collect();
    for path in [
        "/",
        "/ui",
        "/ui/assets/app.js",
        "/ui/assets/nothing.js",
        "/ui/assets/../Cargo.toml",
        "/ui/assets/%2e%2e/mod.rs",
    ] {
        asks.push(("GET", path.to_owned()));
    }
    for path in ["/ui/", "/ui/login", "/ui/logout", "/ui/assets/app.js"] {
        asks.push(("POST", path.to_owned()));
        asks.push(("DELETE", path.to_owned()));
    }
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
    let client = client.build().expect("client");
    for (method, path) in asks {
        let url = format!("{}{path}", house.server.url());
        let answer = client.request(method.parse().expect("method"), url).send().await.expect("answer");
        let headers = answer.headers();
        let policy = headers["content-security-policy"].to_str().expect("text");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(part), "{method} {path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{method} {path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{method} {path}");
        assert!(headers.contains_key("cache-control"), "{method} {path}");
    }
}

#[tokio::test]
async fn assets_are_served_with_etags_and_not_modified() {
    let house = TestServer::start().await;
    let home = send_request(build_request(&house, "GET", "/", &[])).await;
    assert_eq!((home.status().as_u16(), home.url().path()), (200, "/ui/"));
    for page in PAGES {
        let answer = send_request(build_request(&house, "GET", page, &[])).await;
        assert_eq!(answer.status(), 200, "{page}");
        assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8", "{page}");
        assert!(answer.text().await.expect("text").starts_with("<!doctype html>"), "{page}");
    }
    for (name, kind) in [
        ("app.js", "text/javascript; charset=utf-8"),
        ("base.css", "text/css; charset=utf-8"),
        ("pages/run.js", "text/javascript; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ] {
        let path = format!("/ui/assets/{name}");
        let first = send_request(build_request(&house, "GET", &path, &[])).await;
        assert_eq!(
            (first.status().as_u16(), first.headers()["content-type"].to_str().expect("text")),
            (200, kind),
            "{name}"
        );
        assert_eq!(first.headers()["cache-control"], "no-cache");
        let etag = first.headers()["etag"].to_str().expect("text").to_owned();
        assert!(!first.bytes().await.expect("bytes").is_empty());
        for (sent, status) in
            [(etag.clone(), 304), (format!("\"x\", {etag}"), 304), ("\"x\"".to_owned(), 200)]
        {
            let again = send_request(build_request(&house, "GET", &path, &[("if-none-match", &sent)])).await;
            assert_eq!(again.status(), status, "{name} {sent}");
            assert_eq!(again.bytes().await.expect("bytes").is_empty(), status == 304, "{name}");
        }
    }
    for path in ["/ui/assets/nothing.js", "/ui/assets/index", "/ui/assets/..%2fmod.rs"] {
        assert_eq!(
            problem_code(send_request(build_request(&house, "GET", path, &[])).await).await,
            (404, ProblemCode::NotFound),
            "{path}"
        );
    }
}

#[tokio::test]
async fn browser_session_has_the_role_of_its_token() {
    let house = TestServer::start().await;
    for role in [TokenRole::Admin, TokenRole::Submit, TokenRole::Read] {
        let cookie = login_cookie(&house, token_for(role)).await;
        let who = send_request(build_request(&house, "GET", "/v1/whoami", &[("cookie", &cookie)])).await;
        let who: WhoamiResponse = who.json().await.expect("who");
        assert_eq!(who.role, role);
        let tasks = send_request(build_request(&house, "GET", "/v1/tasks", &[("cookie", &cookie)])).await;
        assert_eq!(tasks.status(), 200, "{role:?}");
        // The role is that of the token, however it is presented.
        let paused = json!({ "paused": true }).to_string();
        let headers =
            [("cookie", cookie.as_str()), ("x-docket-ui", "1"), ("content-type", "application/json")];
        let set =
            send_request(build_request(&house, "POST", "/v1/queues/default", &headers).body(paused)).await;
        assert_eq!(set.status(), if role == TokenRole::Admin { 200 } else { 403 }, "{role:?}");
    }
    let out = send_request(build_request(&house, "POST", "/ui/logout", &[("x-docket-ui", "1")])).await;
    assert_eq!(out.status(), 204);
    assert!(out.headers()["set-cookie"].to_str().expect("text").contains("Max-Age=0"));
}

#[tokio::test]
async fn sign_in_requires_a_token_that_may_read() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    for (wrong, expected) in [
        ("nobody's", (401, ProblemCode::Unauthorized)),
        ("", (401, ProblemCode::Unauthorized)),
        (&"x".repeat(9000), (401, ProblemCode::Unauthorized)),
        (lease.token.as_str(), (401, ProblemCode::Unauthorized)),
        (token_for(TokenRole::Worker), (403, ProblemCode::Forbidden)),
    ] {
        let answer = post_login(&house, wrong).await;
        assert!(!answer.headers().contains_key("set-cookie"), "{wrong:.20}");
        assert_eq!(problem_code(answer).await, expected, "{wrong:.20}");
    }
    let body = json!({ "token": token_for(TokenRole::Admin) }).to_string();
    for headers in [
        &[("content-type", "application/json")][..],
        &[("content-type", "text/plain"), ("x-docket-ui", "1")],
        &[("content-type", "application/json"), ("x-docket-ui", "0")],
    ] {
        let answer =
            send_request(build_request(&house, "POST", "/ui/login", headers).body(body.clone())).await;
        assert!(
            answer.status().is_client_error() && !answer.headers().contains_key("set-cookie"),
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn wrong_sign_in_tokens_are_rate_limited() {
    let house = TestServer::start_with(|config| {
        config.rate_limits = RateLimits { auth_failures_per_minute: 3, ..RateLimits::default() }
    })
    .await;
    let mut codes = Vec::new();
    for n in 0..5 {
        codes.push(problem_code(post_login(&house, &format!("guess-{n}")).await).await.0);
    }
    assert_eq!(codes, [401, 401, 401, 429, 429]);
    login_cookie(&house, token_for(TokenRole::Admin)).await;
}

/// Who calls, with which headers, and the expected result.
type ForgedRequest<'a> = (&'static str, &'a [(&'a str, &'a str)], u16);

/// A request with a cookie as another site's page could cause it, and as the dashboard sends it.
#[tokio::test]
async fn forged_cross_site_requests_change_nothing() {
    let house = TestServer::start().await;
    let cookie = login_cookie(&house, token_for(TokenRole::Admin)).await;
    let own = house.server.url();
    let json_type = ("content-type", "application/json");
    let table: &[ForgedRequest<'_>] = &[
        (
            "the dashboard",
            &[json_type, ("x-docket-ui", "1"), ("origin", &own), ("sec-fetch-site", "same-origin")],
            200,
        ),
        ("without the header", &[json_type], 403),
        ("another value", &[json_type, ("x-docket-ui", "yes")], 403),
        ("twice", &[json_type, ("x-docket-ui", "1"), ("x-docket-ui", "1")], 403),
        ("a form", &[("content-type", "application/x-www-form-urlencoded"), ("x-docket-ui", "1")], 415),
        ("another origin", &[json_type, ("x-docket-ui", "1"), ("origin", "https://evil.example")], 403),
        ("no origin's", &[json_type, ("x-docket-ui", "1"), ("origin", "null")], 403),
        ("another port", &[json_type, ("x-docket-ui", "1"), ("origin", "http://127.0.0.1:1")], 403),
        ("another site", &[json_type, ("x-docket-ui", "1"), ("sec-fetch-site", "cross-site")], 403),
        ("a sibling", &[json_type, ("x-docket-ui", "1"), ("sec-fetch-site", "same-site")], 403),
    ];
    for (who, headers, status) in table {
        let mut headers = headers.to_vec();
        headers.push(("cookie", &cookie));
        let body = json!({ "paused": false }).to_string();
        let answer =
            send_request(build_request(&house, "POST", "/v1/queues/default", &headers).body(body)).await;
        assert_eq!(answer.status(), *status, "{who}");
    }
    for (header, value, status) in [
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("origin", "https://evil.example", 403),
    ] {
        let answer =
            send_request(build_request(&house, "GET", "/v1/tasks", &[("cookie", &cookie), (header, value)]))
                .await;
        assert_eq!(answer.status(), status, "reading, {header}: {value}");
    }
    // A token in addition to a cookie decides who calls, valid or not.
    let both = [("cookie", cookie.as_str()), ("authorization", "Bearer nobody's")];
    assert_eq!(send_request(build_request(&house, "GET", "/v1/tasks", &both)).await.status(), 401);
    // Routes of runs do not accept browser sessions.
    let lease = house.submit_and_lease().await;
    let path = format!("/v1/runs/{}/append", lease.run);
    let headers = [json_type, ("x-docket-ui", "1"), ("cookie", &cookie)];
    assert_eq!(send_request(build_request(&house, "POST", &path, &headers).body("{}")).await.status(), 401);
}

#[tokio::test]
async fn links_from_other_sites_open_the_dashboard_only() {
    let house = TestServer::start().await;
    let link =
        [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    for (path, status) in [
        ("/ui/", 200),
        ("/ui/run/x", 200),
        ("/", 200),
        ("/v1/tasks", 403),
        ("/healthz", 403),
        ("/openapi.json", 403),
    ] {
        assert_eq!(send_request(build_request(&house, "GET", path, &link)).await.status(), status, "{path}");
    }
    for more in [
        [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")],
        [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
    ] {
        let headers = [&[("sec-fetch-site", "cross-site")][..], &more].concat();
        assert_eq!(
            send_request(build_request(&house, "GET", "/ui/assets/app.js", &headers)).await.status(),
            403,
            "{more:?}"
        );
    }
    let host = [("host", "evil.example")];
    assert_eq!(send_request(build_request(&house, "GET", "/ui/", &host)).await.status(), 403);
}

#[tokio::test]
async fn revoking_a_token_ends_its_browser_sessions_at_once() {
    let house = TestServer::start().await;
    let made = house.create_token("person", TokenRole::Read, None).await;
    let cookie = login_cookie(&house, &made.secret).await;
    let tasks = || build_request(&house, "GET", "/v1/tasks", &[("cookie", &cookie)]);
    assert_eq!(send_request(tasks()).await.status(), 200);
    house.post_as_admin("/v1/tokens/person/revoke", &json!({})).await.parse_success::<TokenView>();
    assert_eq!(problem_code(send_request(tasks()).await).await, (401, ProblemCode::Unauthorized));
    // On public routes an old cookie does not count as an invalid token.
    for path in ["/ui/", "/ui/assets/app.js", "/healthz"] {
        assert_eq!(
            send_request(build_request(&house, "GET", path, &[("cookie", &cookie)])).await.status(),
            200,
            "{path}"
        );
    }
    assert_cookie_is_renewed(&house, &cookie).await;
}

#[tokio::test]
async fn sessions_and_tokens_are_not_interchangeable() {
    let house = TestServer::start().await;
    let cookie = login_cookie(&house, token_for(TokenRole::Admin)).await;
    let name = cookie.split('=').next().expect("a pair").to_owned();
    let worn = session_value(&cookie).to_owned();
    assert!(worn.starts_with("dks_"), "{worn}");
    let bearer = house.send("GET", "/v1/tasks", &worn, Vec::new(), None).await;
    assert_eq!(bearer.parse_problem().code, ProblemCode::Unauthorized, "not in an Authorization");
    let again = problem_code(post_login(&house, &worn).await).await;
    assert_eq!(again, (401, ProblemCode::Unauthorized), "and no way to another session");
    for other in [token_for(TokenRole::Admin), "dks_", &worn[..worn.len() - 1], &format!("{worn}A"), "x"] {
        let found = list_tasks_with_cookie(&house, &format!("{name}={other}")).await;
        assert_eq!(found, (401, Some(ProblemCode::Unauthorized)), "{other:.8}");
    }
    let other_port = cookie.replacen("docket_session", "docket_session_1", 1);
    assert_eq!(list_tasks_with_cookie(&house, &other_port).await, (401, Some(ProblemCode::Unauthorized)));
    assert_eq!(list_tasks_with_cookie(&house, &cookie).await, (200, None));
}

#[tokio::test]
async fn session_cannot_create_tokens_that_outlive_it() {
    let house = TestServer::start().await;
    let cookie = login_cookie(&house, token_for(TokenRole::Admin)).await;
    let headers = [("cookie", cookie.as_str()), ("x-docket-ui", "1"), ("content-type", "application/json")];
    let make = json!({ "name": "mine", "role": "admin" }).to_string();
    let made = send_request(build_request(&house, "POST", "/v1/tokens", &headers).body(make)).await;
    assert_eq!(problem_code(made).await, (403, ProblemCode::Forbidden), "no tokens of its own");
    let lease = serde_json::to_string(&lease_request(0)).expect("json");
    let leased = send_request(build_request(&house, "POST", "/v1/lease", &headers).body(lease)).await;
    assert_eq!(problem_code(leased).await, (401, ProblemCode::Unauthorized), "nor those of runs");
    // Revoking tokens is allowed.
    house.create_token("leaver", TokenRole::Read, None).await;
    let revoked =
        send_request(build_request(&house, "POST", "/v1/tokens/leaver/revoke", &headers).body("{}")).await;
    assert_eq!(revoked.status(), 200);
}

#[tokio::test]
async fn session_ends_at_expiry_sign_out_or_token_expiry() {
    let house = TestServer::start().await;
    let (one, two) = (
        login_cookie(&house, token_for(TokenRole::Read)).await,
        login_cookie(&house, token_for(TokenRole::Read)).await,
    );
    assert_ne!(one, two);
    let out = build_request(&house, "POST", "/ui/logout", &[("x-docket-ui", "1"), ("cookie", &one)]);
    assert_eq!(send_request(out).await.status(), 204);
    assert_eq!(
        list_tasks_with_cookie(&house, &one).await,
        (401, Some(ProblemCode::Unauthorized)),
        "a copy of it as well"
    );
    assert_eq!(list_tasks_with_cookie(&house, &two).await, (200, None), "another of the same token goes on");

    let api = house.server.handle().api();
    let hash = *blake3::hash(token_for(TokenRole::Read).as_bytes()).as_bytes();
    let name = two.split('=').next().expect("a pair");
    let hours_ago = |hours: i64| Timestamp(api.clock.now().0 - hours * 3_600_000_000);
    for (hours, status) in [(11, 200), (13, 401)] {
        let older = api.sessions.issue_session(&hash, clock::fresh_secret(), hours_ago(hours));
        assert_eq!(
            list_tasks_with_cookie(&house, &format!("{name}={older}")).await.0,
            status,
            "after {hours} hours"
        );
    }
    // A session whose token is not one of this store's.
    let stranger = api.sessions.issue_session(&[9; 32], clock::fresh_secret(), api.clock.now());
    assert_eq!(list_tasks_with_cookie(&house, &format!("{name}={stranger}")).await.0, 401);

    let made = house.create_token("person", TokenRole::Read, Some(2000)).await;
    let short = login_cookie(&house, &made.secret).await;
    let ended = async { while list_tasks_with_cookie(&house, &short).await.0 == 200 {} };
    super::support::within_time("the end of the session's token", ended).await;
}

/// No coordinator stores sessions, and each accepts those of the others.
#[tokio::test]
async fn sessions_and_revocations_hold_across_coordinators() {
    let house = TestServer::start().await;
    let other = serve(Arc::clone(&house.store), 30_000).await;
    // The token was created here just now, so the other coordinator looks it up in the log.
    let made = house.create_token("person", TokenRole::Read, None).await;
    let worn = session_value(&login_cookie(&house, &made.secret).await).to_owned();
    let at_other = async || {
        let name = format!("docket_session_{}", other.local_addr().port());
        let request = house.client.get(other.url() + "/v1/tasks").header("cookie", format!("{name}={worn}"));
        request.send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(at_other().await, 200);
    house.post_as_admin("/v1/tokens/person/revoke", &json!({})).await.parse_success::<TokenView>();
    super::support::within_time("its end there", async { while at_other().await == 200 {} }).await;
    assert_eq!(at_other().await, 401);
}

#[tokio::test]
async fn tls_session_cookie_overrides_other_cookies() {
    let house = TestServer::start().await;
    let origin = house.server.url().replacen("http://", "https://", 1);
    let body = json!({ "token": token_for(TokenRole::Read) }).to_string();
    let headers = [("content-type", "application/json"), ("x-docket-ui", "1"), ("origin", origin.as_str())];
    let answer = send_request(build_request(&house, "POST", "/ui/login", &headers).body(body)).await;
    let set = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
    assert!(set.starts_with("__Host-docket_session_") && set.contains("; Secure"), "{set}");
    let pair = set.split(';').next().expect("the pair").to_owned();
    assert_eq!(list_tasks_with_cookie(&house, &pair).await, (200, None));
    let planted = pair.trim_start_matches("__Host-").to_owned();
    let forged = pair.replacen("dks_", "dks_A", 1);
    assert_eq!(list_tasks_with_cookie(&house, &format!("{planted}; {forged}")).await.0, 401);
    assert_eq!(
        list_tasks_with_cookie(&house, &format!("{}; {pair}", planted.replacen("dks_", "dks_A", 1))).await.0,
        200
    );
}

/// Signing in while sending an old cookie.
async fn assert_cookie_is_renewed(house: &TestServer, old: &str) {
    let body = json!({ "token": token_for(TokenRole::Read) }).to_string();
    let headers = [("content-type", "application/json"), ("x-docket-ui", "1"), ("cookie", old)];
    let answer = send_request(build_request(house, "POST", "/ui/login", &headers).body(body)).await;
    assert_eq!(answer.status(), 200);
}
