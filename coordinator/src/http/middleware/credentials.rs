//! Checks before every route (size of the head, host and origin, rate limit, token, role) and
//! headers of every response.
//!
//! Invariants: no response grants another origin anything; a token is never logged or echoed;
//! invalid tokens never keep out a valid one.

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

/// Maximum length of path and query in bytes, many times what an ID and a dozen parameters need.
const URI_BYTES_MAX: usize = 8 * 1024;
/// Maximum number of query parameters.
const PARAMETERS_MAX: usize = 32;
/// Maximum length of `Authorization` in bytes. Longer values cannot be tokens of ours and are not
/// hashed.
const TOKEN_BYTES_MAX: usize = 512;

/// Both addresses of a connection; part of each request's extensions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionAddrs {
    /// The client's address.
    pub(crate) peer: IpAddr,
    /// The local address that the client reached.
    pub(crate) local: IpAddr,
}

/// Whether a connection ever presented a valid token. Part of each request's extensions, and used
/// by the connection limiter.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuthenticatedOnce(pub(crate) Arc<AtomicBool>);

/// Returns the client's address.
pub(in crate::http) fn peer_address(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<ConnectionAddrs>().map(|ends| ends.peer)
}

/// Refuses a head that is too long, and foreign hosts or origins.
pub(in crate::http) fn check_request_head(
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

/// The credential of a request.
#[derive(Clone, Copy)]
enum Credential<'a> {
    /// From the `Authorization` header.
    Token(&'a str),
    /// From a browser's cookie.
    Cookie(&'a str),
}

/// Authenticates the caller within the rate limits. A valid token has its own bucket; all other
/// requests from an address share the bucket of the address, so that strangers at the address
/// cannot keep out a valid token.
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

/// Returns the error for an invalid token.
pub(in crate::http) fn invalid_token_error() -> ApiError {
    ApiError::new(
        ProblemCode::Unauthorized,
        "invalid or revoked token; use the token in the coordinator's DOCKET_HOME, or create one with \
         `docket token create`",
    )
}

fn ended_session_error() -> ApiError {
    ApiError::new(ProblemCode::Unauthorized, "this browser's session has ended; sign in again")
}

/// Returns name, role and BLAKE3 hash of the API token used to sign in. Invalid ones are rate
/// limited as elsewhere.
pub(in crate::http) async fn sign_in(
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

/// Refuses requests that a form on another page could send: a form cannot set this header.
pub(in crate::http) fn require_dashboard_header(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut said = headers.get_all(dashboard::DASHBOARD_HEADER).iter();
    if said.next().is_some_and(|value| value == "1") && said.next().is_none() {
        return Ok(());
    }
    let detail = "a modifying request authenticated by a cookie must have the header `x-docket-ui: 1`";
    Err(ApiError::new(ProblemCode::Forbidden, detail).with_field(dashboard::DASHBOARD_HEADER))
}

/// Returns the session in a request's cookie if it is authentic, whether or not it has expired.
pub(in crate::http) fn session_from_headers(api: &ApiState, headers: &HeaderMap) -> Option<BrowserSession> {
    api.sessions.verify_session(dashboard::session_from_cookies(headers)?)
}

/// Reads the credential: `Authorization`, or a browser's cookie if the route accepts one.
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

/// Finds the caller. A token just created by another coordinator is in the log before it is in this
/// one's registry.
async fn find_caller(api: &ApiState, said: Credential<'_>) -> Option<Caller> {
    match said {
        Credential::Token(token) => {
            let caller = api.authenticate_token(token);
            if caller.is_some() || !token.starts_with(API_TOKEN_PREFIX) {
                return caller;
            }
            // If the store cannot be read, the caller learns that from the route's own request to the store.
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

/// Applies the rate limit to a request without a matching route.
pub(in crate::http) async fn check_unrouted_rate(api: &ApiState, parts: &Parts) -> Result<(), ApiError> {
    let said = bearer_token(&parts.headers).map(|token| token.map(Credential::Token));
    authenticate_rate_limited(api, peer_address(parts), said).await.map(drop)
}

/// Refuses foreign host names and pages of other origins, so that a page a person visits cannot
/// call the coordinator behind their back.
fn check_host(api: &ApiState, parts: &Parts, is_page: bool) -> Result<(), ApiError> {
    let wrong = |detail: &str, field: &str| ApiError::new(ProblemCode::Forbidden, detail).with_field(field);
    let site = HeaderName::from_static("sec-fetch-site");
    for (name, field) in
        [(header::HOST, "host"), (header::ORIGIN, "origin"), (site.clone(), "sec-fetch-site")]
    {
        // With duplicate headers, different readers may use different ones.
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
            "call this coordinator as 127.0.0.1 or localhost, or add the host to `server.hosts`"
        } else {
            "call this coordinator by its address, or add the host to `server.hosts`"
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
    // Any site may link to the dashboard: the page is the same for everyone, and scripts of other sites
    // cannot read it.
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

/// Whether `authority` can only mean this coordinator. An IP address cannot be redirected like a
/// name; behind NAT it may differ from this machine's addresses.
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

/// Authenticates the caller and checks access to the route.
pub(in crate::http) async fn authorize(
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
                "{} may not call this route; it requires {}",
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
            TokenRole::Admin => "tokens with role admin",
            TokenRole::Submit => "tokens with role submit",
            TokenRole::Worker => "tokens with role worker",
            TokenRole::Read => "tokens with role read",
        },
        Caller::RunToken { .. } => "run tokens",
    }
}

/// Counts an invalid token. Above a limit, the response no longer says that the token is invalid.
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

/// Adds the headers of every response. They keep browsers from rendering or caching its bytes.
pub(in crate::http) fn add_response_headers(mut response: Response<Body>, is_page: bool) -> Response<Body> {
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
