//! What every request passes before its route: bounds of its head, host and origin, pace, token, role. And
//! what every answer bears.
//!
//! Invariants: no answer ever allows another origin anything; a token is neither logged nor told; a token
//! that is good is never kept out by others that are not.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header, request::Parts},
};
use docket_schema::{api::ProblemCode, system::TokenRole};

use super::{
    api_error::ApiError,
    api_state::ApiState,
    auth::{Caller, RouteAccess},
    rate_limit::RateLimitKey,
    sessions::BrowserSession,
};
use crate::{dashboard, system::API_TOKEN_PREFIX};

/// Longest path and query, in bytes: an id and a dozen parameters fit many times.
const URI_BYTES_MAX: usize = 8 * 1024;
/// Most parameters of a query.
const PARAMETERS_MAX: usize = 32;
/// Longest `Authorization`, in bytes. Longer is no token of ours, and not hashed.
const TOKEN_BYTES_MAX: usize = 512;

/// The two ends of a connection: stands in each request's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionAddrs {
    /// The other side's address.
    pub(crate) peer: IpAddr,
    /// The address it reached.
    pub(crate) local: IpAddr,
}

/// Whether a connection ever brought a good token: stands in each request's extensions, and is told to
/// whoever gives out seats.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuthenticatedOnce(pub(crate) Arc<AtomicBool>);

/// Where a request comes from.
pub(super) fn peer_address(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<ConnectionAddrs>().map(|ends| ends.peer)
}

/// Refuses a head that is too long, and another host or origin.
pub(super) fn check_request_head(
    api: &ApiState,
    parts: &Parts,
    access: Option<RouteAccess>,
) -> Result<(), ApiError> {
    let path_and_query = parts.uri.path_and_query().map_or("", |both| both.as_str());
    if path_and_query.len() > URI_BYTES_MAX {
        let detail = format!("path and query may have at most {URI_BYTES_MAX} bytes");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("path"));
    }
    let query = parts.uri.query().unwrap_or_default();
    if query.bytes().filter(|b| *b == b'&').count() >= PARAMETERS_MAX {
        let detail = format!("a query may have at most {PARAMETERS_MAX} parameters");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("query"));
    }
    check_host(api, parts, access == Some(RouteAccess::DashboardPage))
}

/// How a request says who calls.
#[derive(Clone, Copy)]
enum Credential<'a> {
    /// By its `Authorization`.
    Token(&'a str),
    /// By a browser's cookie.
    Cookie(&'a str),
}

/// Who calls, paced: a good token has a bucket of its own; everything else of an address shares the address's,
/// so that strangers at an address keep no good token out.
async fn authenticate_rate_limited(
    api: &ApiState,
    peer: Option<IpAddr>,
    said: Result<Option<Credential<'_>>, ApiError>,
) -> Result<Caller, ApiError> {
    let refusal = match said {
        Ok(None) => return check_peer_rate(api, peer).map(|()| Caller::Anonymous),
        Ok(Some(said)) => match find_caller(api, said).await {
            Some(caller) => {
                if let Some(paced) = RateLimitKey::for_caller(&caller) {
                    api.rate_limiter.check_request(paced)?;
                }
                return Ok(caller);
            }
            None => match said {
                Credential::Token(_) => invalid_token_error(),
                Credential::Cookie(_) => ended_session_error(),
            },
        },
        Err(refusal) => refusal,
    };
    check_peer_rate(api, peer)?;
    Err(record_auth_failure(api, peer, refusal))
}

fn check_peer_rate(api: &ApiState, peer: Option<IpAddr>) -> Result<(), ApiError> {
    peer.map_or(Ok(()), |peer| api.rate_limiter.check_request(RateLimitKey::for_peer(peer)))
}

/// The refusal of a token that says nothing here.
pub(super) fn invalid_token_error() -> ApiError {
    ApiError::new(
        ProblemCode::Unauthorized,
        "this token is not one of this coordinator's, or is no more; take the one of its DOCKET_HOME, or have one \
         made by `docket token create`",
    )
}

fn ended_session_error() -> ApiError {
    ApiError::new(ProblemCode::Unauthorized, "this browser's session has ended; sign in again")
}

/// Name, role and BLAKE3 of an API token that somebody signs in with. Wrong ones are paced as they are anywhere.
pub(super) async fn sign_in(
    api: &ApiState,
    peer: Option<IpAddr>,
    token: &str,
) -> Result<(String, TokenRole, [u8; 32]), ApiError> {
    let short = token.len() <= TOKEN_BYTES_MAX;
    match if short { find_caller(api, Credential::Token(token)).await } else { None } {
        Some(Caller::ApiToken { name, role, hash, .. }) => Ok((name, role, hash)),
        Some(Caller::Anonymous | Caller::RunToken { .. }) | None => {
            Err(record_auth_failure(api, peer, invalid_token_error().with_field("token")))
        }
    }
}

/// Refuses what a form of another page could send: it can set no such header.
pub(super) fn require_dashboard_header(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut said = headers.get_all(dashboard::DASHBOARD_HEADER).iter();
    if said.next().is_some_and(|value| value == "1") && said.next().is_none() {
        return Ok(());
    }
    let detail = "a request that changes something and says by a cookie who it is must bear `x-docket-ui: 1`";
    Err(ApiError::new(ProblemCode::Forbidden, detail).with_field(dashboard::DASHBOARD_HEADER))
}

/// The session that a request's cookie names, if it is one of ours, of whatever time.
pub(super) fn session_from_headers(api: &ApiState, headers: &HeaderMap) -> Option<BrowserSession> {
    api.sessions.verify_session(dashboard::session_from_cookies(headers)?)
}

/// What a request bears: its `Authorization`, or a browser's cookie where the route takes one.
fn read_credential(
    access: RouteAccess,
    parts: &Parts,
) -> Result<Result<Option<Credential<'_>>, ApiError>, ApiError> {
    let token = bearer_token(&parts.headers);
    if !matches!(token, Ok(None)) || !access.accepts_cookies() {
        return Ok(token.map(|token| token.map(Credential::Token)));
    }
    let Some(cookie) = dashboard::session_from_cookies(&parts.headers) else { return Ok(Ok(None)) };
    if parts.method != Method::GET && parts.method != Method::HEAD {
        require_dashboard_header(&parts.headers)?;
    }
    Ok(Ok(Some(Credential::Cookie(cookie))))
}

/// Who that is. A token that another coordinator made just now is in the log before it is in this one's table.
async fn find_caller(api: &ApiState, said: Credential<'_>) -> Option<Caller> {
    match said {
        Credential::Token(token) => {
            let caller = api.authenticate_token(token);
            if caller.is_some() || !token.starts_with(API_TOKEN_PREFIX) {
                return caller;
            }
            // A store that cannot be read now says so to whoever follows it.
            api.tokens.refresh(&*api.store).await.ok()?;
            api.authenticate_token(token)
        }
        Credential::Cookie(cookie) => {
            let session = api.sessions.verify_session(cookie)?;
            let caller = api.authenticate_session(&session);
            if caller.is_some() || !api.sessions.is_active(&session, api.clock.now()) {
                return caller;
            }
            api.tokens.refresh(&*api.store).await.ok()?;
            api.authenticate_session(&session)
        }
    }
}

/// The pace of a request that no route takes.
pub(super) async fn check_unrouted_rate(api: &ApiState, parts: &Parts) -> Result<(), ApiError> {
    let said = bearer_token(&parts.headers).map(|token| token.map(Credential::Token));
    authenticate_rate_limited(api, peer_address(parts), said).await.map(drop)
}

/// Refuses a host that a name of a stranger's may have led here, and pages of other origins: what a person
/// looks at in a browser must not reach the coordinator behind their back.
fn check_host(api: &ApiState, parts: &Parts, is_page: bool) -> Result<(), ApiError> {
    let wrong = |detail: &str, field: &str| ApiError::new(ProblemCode::Forbidden, detail).with_field(field);
    let site = HeaderName::from_static("sec-fetch-site");
    for (name, field) in
        [(header::HOST, "host"), (header::ORIGIN, "origin"), (site.clone(), "sec-fetch-site")]
    {
        // Which of two counts is what somebody else may read otherwise.
        if parts.headers.get_all(name).iter().count() > 1 {
            return Err(wrong("send this header once", field));
        }
    }
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let near =
        parts.extensions.get::<ConnectionAddrs>().is_none_or(|ends| ends.local.to_canonical().is_loopback());
    let good = |host: &str| is_own_host(host, near, &api.settings.allowed_hosts);
    let target = parts.uri.authority().is_none_or(|target| good(target.as_str()));
    let Some(host) = host.filter(|host| target && good(host)) else {
        let detail = if near {
            "call this coordinator as 127.0.0.1 or localhost, or name the host in `server.hosts`"
        } else {
            "call this coordinator by its address, or name the host in `server.hosts`"
        };
        return Err(wrong(detail, "host"));
    };
    if let Some(origin) = parts.headers.get(header::ORIGIN) {
        let of = origin.as_bytes();
        let of = of.strip_prefix(b"http://").or_else(|| of.strip_prefix(b"https://"));
        if !of.is_some_and(|of| of.eq_ignore_ascii_case(host.as_bytes())) {
            return Err(wrong("pages of other origins may not call this coordinator", "origin"));
        }
    }
    // A link to the dashboard may stand anywhere: what it leads to is the same for all, and no script reads it.
    let by_link = is_page
        && parts.method == Method::GET
        && parts.headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate")
        && parts.headers.get("sec-fetch-dest").is_some_and(|dest| dest == "document");
    let other = parts.headers.get(site).is_some_and(|site| site != "same-origin" && site != "none");
    if other && !by_link {
        return Err(wrong("pages of other sites may not call this coordinator", "sec-fetch-site"));
    }
    Ok(())
}

/// Whether `authority` can only mean this coordinator. An address cannot be made to lead elsewhere, as a name
/// can; behind a translation of addresses it need not be one of this machine's.
fn is_own_host(authority: &str, near: bool, names: &[String]) -> bool {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => (host, Some(rest.strip_prefix(':').unwrap_or("none"))),
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let is_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if port.is_some_and(|port| !is_port(port)) {
        return false;
    }
    if names.iter().any(|name| name.eq_ignore_ascii_case(host)) || host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    host.parse::<IpAddr>().is_ok_and(|ip| !near || ip.to_canonical().is_loopback())
}

/// Who calls, and whether they may.
pub(super) async fn authorize(
    api: &ApiState,
    access: RouteAccess,
    parts: &Parts,
) -> Result<Caller, ApiError> {
    let peer = peer_address(parts);
    if access == RouteAccess::DashboardPage {
        return check_peer_rate(api, peer).map(|()| Caller::Anonymous);
    }
    let said = match read_credential(access, parts) {
        Ok(said) => said,
        Err(forged) => {
            check_peer_rate(api, peer)?;
            api.auth_failures.record_failure(peer, forged.code(), api.clock.now());
            return Err(forged);
        }
    };
    let caller = authenticate_rate_limited(api, peer, said).await?;
    if caller != Caller::Anonymous
        && let Some(proven) = parts.extensions.get::<AuthenticatedOnce>()
    {
        proven.0.store(true, Ordering::Relaxed);
    }
    if access.admits(&caller) {
        return Ok(caller);
    }
    let refusal = match caller {
        Caller::Anonymous => ApiError::new(
            ProblemCode::Unauthorized,
            "send a token: `authorization: Bearer TOKEN` (the CLI takes it from DOCKET_TOKEN)",
        ),
        Caller::ApiToken { .. } | Caller::RunToken { .. } => ApiError::new(
            ProblemCode::Forbidden,
            format!(
                "this route is not for {}; it takes {}",
                describe_caller(&caller),
                access.describe_callers()
            ),
        ),
    };
    api.auth_failures.record_failure(peer, refusal.code(), api.clock.now());
    Err(refusal)
}

fn describe_caller(caller: &Caller) -> &'static str {
    match caller {
        Caller::Anonymous => "callers without a token",
        Caller::ApiToken { role, .. } => match role {
            TokenRole::Admin => "tokens of role admin",
            TokenRole::Submit => "tokens of role submit",
            TokenRole::Worker => "tokens of role worker",
            TokenRole::Read => "tokens of role read",
        },
        Caller::RunToken { .. } => "run tokens",
    }
}

/// A wrong token: counted, and from some number on not even answered as such.
fn record_auth_failure(api: &ApiState, peer: Option<IpAddr>, refusal: ApiError) -> ApiError {
    api.auth_failures.record_failure(peer, refusal.code(), api.clock.now());
    match peer.map(|peer| api.rate_limiter.check_auth_failure(peer)) {
        Some(Err(too_many)) => too_many,
        Some(Ok(())) | None => refusal,
    }
}

fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), more) = (values.next(), values.next()) else { return Ok(None) };
    let token = value.to_str().ok().filter(|text| text.len() <= TOKEN_BYTES_MAX).and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    match token.filter(|_| more.is_none()) {
        Some(token) => Ok(Some(token)),
        None => {
            Err(ApiError::new(ProblemCode::Unauthorized, "send one token, as `authorization: Bearer TOKEN`")
                .with_field("authorization"))
        }
    }
}

/// The answer as it goes out. Whatever its bytes are, no browser is to make a page of them or keep them.
pub(super) fn add_response_headers(mut response: Response<Body>, is_page: bool) -> Response<Body> {
    let headers = response.headers_mut();
    if is_page {
        dashboard::add_security_headers(headers);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hosts_of_this_coordinator_are_accepted() {
        let names = ["docket.example".to_owned()];
        for good in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:7070",
            "127.9.9.9",
            "[::1]",
            "[::1]:80",
            "Docket.Example:1",
        ] {
            assert!(is_own_host(good, true, &names), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "10.0.0.1",
            "[::2]:1",
            "127.0.0.1:x",
            "127.0.0.1:",
            "127.0.0.1:65536",
            "localhost:+80",
            "localhost:80@evil",
            "[::1]evil",
            "x.docket.example",
        ] {
            assert!(!is_own_host(bad, true, &names), "{bad}");
        }
        for good in ["10.0.0.1:7117", "[2001:db8::1]:7117", "docket.example", "127.0.0.1"] {
            assert!(is_own_host(good, false, &names), "{good}");
        }
        for bad in ["coordinator.internal", "10.0.0.1.evil.example", "10.0.0.1:x", ""] {
            assert!(!is_own_host(bad, false, &names), "{bad}");
        }
    }
}
