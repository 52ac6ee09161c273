//! The dashboard's door: its files and what they bear, and a browser's session in the place of a token.

use std::sync::Arc;

use docket_schema::{
    ids::Timestamp,
    wire::{Problem, ProblemCode, TokenView, Whoami},
};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::json;

use super::support::{House, lease_request, serve, token};
use crate::{
    clock,
    http::{Rates, Role},
};

const PAGES: [&str; 5] =
    ["/ui/", "/ui/backlog", "/ui/run/00000000-0000-0000-0000-000000000001", "/ui/login", "/ui/no/such"];

fn asked(house: &House, method: &str, path: &str, headers: &[(&str, &str)]) -> RequestBuilder {
    let method: Method = method.parse().expect("a method");
    let mut request = house.client.request(method, format!("{}{path}", house.running.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
}

async fn send(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

async fn login(house: &House, token: &str) -> Response {
    let body = json!({ "token": token }).to_string();
    let headers = [("content-type", "application/json"), ("x-docket-ui", "1")];
    send(asked(house, "POST", "/ui/login", &headers).body(body)).await
}

/// The cookie as a browser sends it back.
async fn cookie(house: &House, token: &str) -> String {
    let answer = login(house, token).await;
    assert_eq!(answer.status(), 200);
    let set = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
    for part in ["; Path=/", "; HttpOnly", "; SameSite=Strict"] {
        assert!(set.contains(part), "{set}");
    }
    assert!(!set.contains(token), "the browser does not keep the token: {set}");
    set.split(';').next().expect("the pair").to_owned()
}

/// What a cookie's pair holds.
fn session(cookie: &str) -> &str {
    cookie.split_once('=').expect("a pair").1
}

async fn tasks(house: &House, cookie: &str) -> (u16, Option<ProblemCode>) {
    let answer = send(asked(house, "GET", "/v1/tasks", &[("cookie", cookie)])).await;
    if answer.status() == 200 {
        return (200, None);
    }
    let (status, code) = code(answer).await;
    (status, Some(code))
}

async fn code(answer: Response) -> (u16, ProblemCode) {
    let status = answer.status().as_u16();
    let problem: Problem = answer.json().await.expect("a problem");
    (status, problem.code)
}

#[tokio::test]
async fn every_answer_under_ui_bears_the_policy() {
    let house = House::open().await;
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
        let url = format!("{}{path}", house.running.url());
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
async fn files_come_with_their_hash_and_not_twice() {
    let house = House::open().await;
    let home = send(asked(&house, "GET", "/", &[])).await;
    assert_eq!((home.status().as_u16(), home.url().path()), (200, "/ui/"));
    for page in PAGES {
        let answer = send(asked(&house, "GET", page, &[])).await;
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
        let first = send(asked(&house, "GET", &path, &[])).await;
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
            let again = send(asked(&house, "GET", &path, &[("if-none-match", &sent)])).await;
            assert_eq!(again.status(), status, "{name} {sent}");
            assert_eq!(again.bytes().await.expect("bytes").is_empty(), status == 304, "{name}");
        }
    }
    for path in ["/ui/assets/nothing.js", "/ui/assets/index", "/ui/assets/..%2fmod.rs"] {
        assert_eq!(
            code(send(asked(&house, "GET", path, &[])).await).await,
            (404, ProblemCode::NotFound),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_browser_signs_in_once_and_is_who_its_token_is() {
    let house = House::open().await;
    for role in [Role::Admin, Role::Submit, Role::Read] {
        let cookie = cookie(&house, token(role)).await;
        let who = send(asked(&house, "GET", "/v1/whoami", &[("cookie", &cookie)])).await;
        let who: Whoami = who.json().await.expect("who");
        assert_eq!(who.role, role);
        let tasks = send(asked(&house, "GET", "/v1/tasks", &[("cookie", &cookie)])).await;
        assert_eq!(tasks.status(), 200, "{role:?}");
        // The role is the token's, whatever brings it.
        let paused = json!({ "paused": true }).to_string();
        let headers =
            [("cookie", cookie.as_str()), ("x-docket-ui", "1"), ("content-type", "application/json")];
        let set = send(asked(&house, "POST", "/v1/queues/default", &headers).body(paused)).await;
        assert_eq!(set.status(), if role == Role::Admin { 200 } else { 403 }, "{role:?}");
    }
    let out = send(asked(&house, "POST", "/ui/logout", &[("x-docket-ui", "1")])).await;
    assert_eq!(out.status(), 204);
    assert!(out.headers()["set-cookie"].to_str().expect("text").contains("Max-Age=0"));
}

#[tokio::test]
async fn nobody_signs_in_with_what_is_no_readers_token() {
    let house = House::open().await;
    let lease = house.leased().await;
    for (wrong, expected) in [
        ("nobody's", (401, ProblemCode::Unauthorized)),
        ("", (401, ProblemCode::Unauthorized)),
        (&"x".repeat(9000), (401, ProblemCode::Unauthorized)),
        (lease.token.as_str(), (401, ProblemCode::Unauthorized)),
        (token(Role::Worker), (403, ProblemCode::Forbidden)),
    ] {
        let answer = login(&house, wrong).await;
        assert!(!answer.headers().contains_key("set-cookie"), "{wrong:.20}");
        assert_eq!(code(answer).await, expected, "{wrong:.20}");
    }
    let body = json!({ "token": token(Role::Admin) }).to_string();
    for headers in [
        &[("content-type", "application/json")][..],
        &[("content-type", "text/plain"), ("x-docket-ui", "1")],
        &[("content-type", "application/json"), ("x-docket-ui", "0")],
    ] {
        let answer = send(asked(&house, "POST", "/ui/login", headers).body(body.clone())).await;
        assert!(
            answer.status().is_client_error() && !answer.headers().contains_key("set-cookie"),
            "{headers:?}"
        );
    }
}

#[tokio::test]
async fn guesses_are_paced_as_other_wrong_tokens_are() {
    let house =
        House::with(|config| config.rates = Rates { auth_failures_per_minute: 3, ..Rates::default() }).await;
    let mut codes = Vec::new();
    for n in 0..5 {
        codes.push(code(login(&house, &format!("guess-{n}")).await).await.0);
    }
    assert_eq!(codes, [401, 401, 401, 429, 429]);
    cookie(&house, token(Role::Admin)).await;
}

/// Who asks, with what headers, and what comes of it.
type Asked<'a> = (&'static str, &'a [(&'a str, &'a str)], u16);

/// A request with a cookie, as another site's page could cause it, and the dashboard's own.
#[tokio::test]
async fn a_cookie_changes_nothing_at_another_pages_wish() {
    let house = House::open().await;
    let cookie = cookie(&house, token(Role::Admin)).await;
    let own = house.running.url();
    let json_type = ("content-type", "application/json");
    let table: &[Asked<'_>] = &[
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
        let answer = send(asked(&house, "POST", "/v1/queues/default", &headers).body(body)).await;
        assert_eq!(answer.status(), *status, "{who}");
    }
    for (header, value, status) in [
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("origin", "https://evil.example", 403),
    ] {
        let answer = send(asked(&house, "GET", "/v1/tasks", &[("cookie", &cookie), (header, value)])).await;
        assert_eq!(answer.status(), status, "reading, {header}: {value}");
    }
    // A token beside it is who calls, good or bad.
    let both = [("cookie", cookie.as_str()), ("authorization", "Bearer nobody's")];
    assert_eq!(send(asked(&house, "GET", "/v1/tasks", &both)).await.status(), 401);
    // Runs' own routes know no browsers.
    let lease = house.leased().await;
    let path = format!("/v1/runs/{}/append", lease.run);
    let headers = [json_type, ("x-docket-ui", "1"), ("cookie", &cookie)];
    assert_eq!(send(asked(&house, "POST", &path, &headers).body("{}")).await.status(), 401);
}

#[tokio::test]
async fn a_link_elsewhere_leads_to_the_dashboard_and_to_nothing_else() {
    let house = House::open().await;
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
        assert_eq!(send(asked(&house, "GET", path, &link)).await.status(), status, "{path}");
    }
    for more in [
        [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")],
        [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
    ] {
        let headers = [&[("sec-fetch-site", "cross-site")][..], &more].concat();
        assert_eq!(send(asked(&house, "GET", "/ui/assets/app.js", &headers)).await.status(), 403, "{more:?}");
    }
    let host = [("host", "evil.example")];
    assert_eq!(send(asked(&house, "GET", "/ui/", &host)).await.status(), 403);
}

#[tokio::test]
async fn a_revoked_token_ends_the_browsers_stay_at_once_and_the_page_still_comes() {
    let house = House::open().await;
    let made = house.made("person", Role::Read, None).await;
    let cookie = cookie(&house, &made.secret).await;
    let tasks = || asked(&house, "GET", "/v1/tasks", &[("cookie", &cookie)]);
    assert_eq!(send(tasks()).await.status(), 200);
    house.admin("/v1/tokens/person/revoke", &json!({})).await.good::<TokenView>();
    assert_eq!(code(send(tasks()).await).await, (401, ProblemCode::Unauthorized));
    // An old cookie is no wrong token where nobody need say who they are.
    for path in ["/ui/", "/ui/assets/app.js", "/healthz"] {
        assert_eq!(send(asked(&house, "GET", path, &[("cookie", &cookie)])).await.status(), 200, "{path}");
    }
    cookie_again(&house, &cookie).await;
}

#[tokio::test]
async fn a_session_is_no_token_and_a_token_no_session() {
    let house = House::open().await;
    let cookie = cookie(&house, token(Role::Admin)).await;
    let name = cookie.split('=').next().expect("a pair").to_owned();
    let worn = session(&cookie).to_owned();
    assert!(worn.starts_with("dks_"), "{worn}");
    let bearer = house.send("GET", "/v1/tasks", &worn, Vec::new(), None).await;
    assert_eq!(bearer.problem().code, ProblemCode::Unauthorized, "not in an Authorization");
    let again = code(login(&house, &worn).await).await;
    assert_eq!(again, (401, ProblemCode::Unauthorized), "and no way to another session");
    for other in [token(Role::Admin), "dks_", &worn[..worn.len() - 1], &format!("{worn}A"), "x"] {
        let found = tasks(&house, &format!("{name}={other}")).await;
        assert_eq!(found, (401, Some(ProblemCode::Unauthorized)), "{other:.8}");
    }
    let other_port = cookie.replacen("docket_session", "docket_session_1", 1);
    assert_eq!(tasks(&house, &other_port).await, (401, Some(ProblemCode::Unauthorized)));
    assert_eq!(tasks(&house, &cookie).await, (200, None));
}

#[tokio::test]
async fn a_session_leaves_nothing_behind_that_outlives_it() {
    let house = House::open().await;
    let cookie = cookie(&house, token(Role::Admin)).await;
    let headers = [("cookie", cookie.as_str()), ("x-docket-ui", "1"), ("content-type", "application/json")];
    let make = json!({ "name": "mine", "role": "admin" }).to_string();
    let made = send(asked(&house, "POST", "/v1/tokens", &headers).body(make)).await;
    assert_eq!(code(made).await, (403, ProblemCode::Forbidden), "no tokens of its own");
    let lease = serde_json::to_string(&lease_request(0)).expect("json");
    let leased = send(asked(&house, "POST", "/v1/lease", &headers).body(lease)).await;
    assert_eq!(code(leased).await, (401, ProblemCode::Unauthorized), "nor those of runs");
    // What ends a token is no such thing.
    house.made("leaver", Role::Read, None).await;
    let revoked = send(asked(&house, "POST", "/v1/tokens/leaver/revoke", &headers).body("{}")).await;
    assert_eq!(revoked.status(), 200);
}

#[tokio::test]
async fn a_session_ends_in_time_at_sign_out_and_with_its_token() {
    let house = House::open().await;
    let (one, two) = (cookie(&house, token(Role::Read)).await, cookie(&house, token(Role::Read)).await);
    assert_ne!(one, two);
    let out = asked(&house, "POST", "/ui/logout", &[("x-docket-ui", "1"), ("cookie", &one)]);
    assert_eq!(send(out).await.status(), 204);
    assert_eq!(tasks(&house, &one).await, (401, Some(ProblemCode::Unauthorized)), "a copy of it as well");
    assert_eq!(tasks(&house, &two).await, (200, None), "another of the same token goes on");

    let api = house.running.handle().api();
    let hash = *blake3::hash(token(Role::Read).as_bytes()).as_bytes();
    let name = two.split('=').next().expect("a pair");
    let hours_ago = |hours: i64| Timestamp(api.clock.now().0 - hours * 3_600_000_000);
    for (hours, status) in [(11, 200), (13, 401)] {
        let older = api.sessions.begin(&hash, clock::fresh_secret(), hours_ago(hours));
        assert_eq!(tasks(&house, &format!("{name}={older}")).await.0, status, "after {hours} hours");
    }
    // One whose token is none of this store's.
    let stranger = api.sessions.begin(&[9; 32], clock::fresh_secret(), api.clock.now());
    assert_eq!(tasks(&house, &format!("{name}={stranger}")).await.0, 401);

    let made = house.made("person", Role::Read, Some(2000)).await;
    let short = cookie(&house, &made.secret).await;
    let ended = async { while tasks(&house, &short).await.0 == 200 {} };
    super::support::in_time("the end of the session's token", ended).await;
}

/// No coordinator keeps sessions, and each takes those of the others.
#[tokio::test]
async fn a_session_is_good_at_every_coordinator_of_the_store_and_its_revocation_too() {
    let house = House::open().await;
    let other = serve(Arc::clone(&house.store), 30_000).await;
    // Made here just now: the other one looks for its token in the log.
    let made = house.made("person", Role::Read, None).await;
    let worn = session(&cookie(&house, &made.secret).await).to_owned();
    let at_other = async || {
        let name = format!("docket_session_{}", other.local_addr().port());
        let request = house.client.get(other.url() + "/v1/tasks").header("cookie", format!("{name}={worn}"));
        request.send().await.expect("an answer").status().as_u16()
    };
    assert_eq!(at_other().await, 200);
    house.admin("/v1/tokens/person/revoke", &json!({})).await.good::<TokenView>();
    super::support::in_time("its end there", async { while at_other().await == 200 {} }).await;
    assert_eq!(at_other().await, 401);
}

#[tokio::test]
async fn over_tls_the_cookie_is_the_hosts_own_and_no_other_counts_beside_it() {
    let house = House::open().await;
    let origin = house.running.url().replacen("http://", "https://", 1);
    let body = json!({ "token": token(Role::Read) }).to_string();
    let headers = [("content-type", "application/json"), ("x-docket-ui", "1"), ("origin", origin.as_str())];
    let answer = send(asked(&house, "POST", "/ui/login", &headers).body(body)).await;
    let set = answer.headers()["set-cookie"].to_str().expect("text").to_owned();
    assert!(set.starts_with("__Host-docket_session_") && set.contains("; Secure"), "{set}");
    let pair = set.split(';').next().expect("the pair").to_owned();
    assert_eq!(tasks(&house, &pair).await, (200, None));
    let planted = pair.trim_start_matches("__Host-").to_owned();
    let forged = pair.replacen("dks_", "dks_A", 1);
    assert_eq!(tasks(&house, &format!("{planted}; {forged}")).await.0, 401);
    assert_eq!(tasks(&house, &format!("{}; {pair}", planted.replacen("dks_", "dks_A", 1))).await.0, 200);
}

/// Signing in with an old cookie in hand.
async fn cookie_again(house: &House, old: &str) {
    let body = json!({ "token": token(Role::Read) }).to_string();
    let headers = [("content-type", "application/json"), ("x-docket-ui", "1"), ("cookie", old)];
    let answer = send(asked(house, "POST", "/ui/login", &headers).body(body)).await;
    assert_eq!(answer.status(), 200);
}
