//! Routes of the dashboard: its files, and the sign-in of a browser.
//!
//! The files are public, because they contain no data; the API calls of the pages require
//! authentication as usual. The routes are in a separate table, because clients do not need them
//! documented.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use docket_schema::{
    api::{ProblemCode, WhoamiResponse},
    system::TokenRole,
};
use serde::Deserialize;

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    auth::{Caller, RouteAccess},
    credentials,
    request::{ApiRequest, json_response},
    route::{ApiRoute, HttpMethod},
};
use crate::{
    clock,
    dashboard::{self, DashboardAsset},
};

type HandlerResult = Result<Response<Body>, ApiError>;

macro_rules! by {
    ($handler:path) => {
        |api, call| Box::pin($handler(api, call))
    };
}

/// The dashboard's routes.
#[rustfmt::skip]
pub(in crate::http) static UI_ROUTES: &[ApiRoute] = &[
    ApiRoute::new((HttpMethod::Get, "/"), RouteAccess::DashboardPage, "Redirects to the dashboard", by!(redirect_to_dashboard)),
    ApiRoute::new((HttpMethod::Get, "/ui"), RouteAccess::DashboardPage, "Redirects to the dashboard", by!(redirect_to_dashboard)),
    ApiRoute::new((HttpMethod::Get, "/ui/"), RouteAccess::DashboardPage, "Returns the dashboard", by!(serve_index)),
    ApiRoute::new((HttpMethod::Get, "/ui/assets/{*name}"), RouteAccess::DashboardPage, "Returns a dashboard file", by!(serve_asset)),
    ApiRoute::new((HttpMethod::Get, "/ui/{*page}"), RouteAccess::DashboardPage, "Returns the dashboard for one of its pages", by!(serve_index)),
    ApiRoute::new((HttpMethod::Get, "/ui/login"), RouteAccess::DashboardPage, "Returns the sign-in page", by!(serve_index)),
    ApiRoute::new((HttpMethod::Post, "/ui/login"), RouteAccess::Public, "Signs in with a token and sets a session cookie", by!(login)).with_small_body(),
    ApiRoute::new((HttpMethod::Post, "/ui/logout"), RouteAccess::Public, "Signs out", by!(logout)).with_small_body(),
];

/// Body of `POST /ui/login`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    token: String,
}

async fn redirect_to_dashboard(_: Arc<ApiState>, _: ApiRequest) -> HandlerResult {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/ui/"));
    Ok(response)
}

async fn serve_index(_: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    asset_response(&call.headers, dashboard::index_page())
}

async fn serve_asset(_: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    asset_response(&call.headers, dashboard::find_asset(&call.path_param))
}

/// Returns a file, or that the browser already has it.
fn asset_response(headers: &HeaderMap, asset: Option<&'static DashboardAsset>) -> HandlerResult {
    let Some(asset) = asset else {
        return Err(ApiError::new(ProblemCode::NotFound, "the dashboard has no such file"));
    };
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let etag = asset.etag.to_str().unwrap_or_default();
    let has = known.flat_map(|line| line.split(',')).any(|of| of.trim().trim_start_matches("W/") == etag);
    let mut response = Response::new(if has { Body::empty() } else { Body::from(asset.bytes) });
    if has {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, asset.content_type.clone());
    headers.insert(header::ETAG, asset.etag.clone());
    // Pages and scripts of different builds must not mix: the browser revalidates each time.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

async fn login(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    credentials::require_dashboard_header(&call.headers)?;
    let LoginRequest { token } = call.json()?;
    let token = token.trim();
    let (name, role, hash) = credentials::sign_in(&api, call.peer, token).await?;
    match role {
        TokenRole::Admin | TokenRole::Submit | TokenRole::Read => {}
        TokenRole::Worker => {
            let detail = "a worker token cannot read tasks; use one with role read, submit or admin \
                          (`docket token create --role read`)";
            return Err(ApiError::new(ProblemCode::Forbidden, detail).with_field("token"));
        }
    }
    let session = api.sessions.issue_session(&hash, clock::fresh_secret(), api.clock.now());
    let no_cookie = || {
        ApiError::new(ProblemCode::Internal, "the session does not fit in a cookie; this is a bug in docket")
    };
    let cookie = dashboard::set_session_cookie(&call.headers, &session).ok_or_else(no_cookie)?;
    let mut response = json_response(&WhoamiResponse { name, role })?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

async fn logout(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    credentials::require_dashboard_header(&call.headers)?;
    if let Some(session) = credentials::session_from_headers(&api, &call.headers) {
        api.sessions.sign_out(session, api.clock.now());
    }
    let mut response = crate::http::middleware::request::empty_response(StatusCode::NO_CONTENT);
    if let Some(cookie) = dashboard::clear_session_cookie(&call.headers) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `GET /v1/whoami`: lets the page hide actions that would be refused.
pub(in crate::http) async fn whoami(_: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    match call.caller {
        Caller::ApiToken { name, role, .. } => json_response(&WhoamiResponse { name, role }),
        Caller::Anonymous | Caller::RunToken { .. } => Err(credentials::invalid_token_error()),
    }
}
