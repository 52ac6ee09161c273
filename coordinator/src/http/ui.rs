//! Routes of the dashboard: its files, and the sign-in of a browser.
//!
//! The files are open, for they hold no data; what the pages then ask for takes a token as everywhere. They stand in a
//! table of their own: no client needs them described.

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

use super::{
    api_error::ApiError,
    api_state::ApiState,
    auth::{Caller, RouteAccess},
    middleware,
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

/// What the dashboard adds to the table of routes.
#[rustfmt::skip]
pub(super) static UI_ROUTES: &[ApiRoute] = &[
    ApiRoute::new((HttpMethod::Get, "/"), RouteAccess::DashboardPage, "Leads to the dashboard", by!(redirect_to_dashboard)),
    ApiRoute::new((HttpMethod::Get, "/ui"), RouteAccess::DashboardPage, "Leads to the dashboard", by!(redirect_to_dashboard)),
    ApiRoute::new((HttpMethod::Get, "/ui/"), RouteAccess::DashboardPage, "The dashboard", by!(serve_index)),
    ApiRoute::new((HttpMethod::Get, "/ui/assets/{*name}"), RouteAccess::DashboardPage, "A file of the dashboard", by!(serve_asset)),
    ApiRoute::new((HttpMethod::Get, "/ui/{*page}"), RouteAccess::DashboardPage, "The dashboard at one of its pages", by!(serve_index)),
    ApiRoute::new((HttpMethod::Get, "/ui/login"), RouteAccess::DashboardPage, "The page that asks for a token", by!(serve_index)),
    ApiRoute::new((HttpMethod::Post, "/ui/login"), RouteAccess::Public, "Takes a token and gives a browser a session", by!(login)).with_small_body(),
    ApiRoute::new((HttpMethod::Post, "/ui/logout"), RouteAccess::Public, "Ends a browser's session", by!(logout)).with_small_body(),
];

/// `POST /ui/login`.
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

/// A file, or that the browser has it.
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
    // Another build's page must not meet this one's scripts: asked for each time, sent where it changed.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

async fn login(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    middleware::require_dashboard_header(&call.headers)?;
    let LoginRequest { token } = call.json()?;
    let token = token.trim();
    let (name, role, hash) = middleware::sign_in(&api, call.peer, token).await?;
    match role {
        TokenRole::Admin | TokenRole::Submit | TokenRole::Read => {}
        TokenRole::Worker => {
            let detail = "a worker's token sees no tasks; take one of role read, submit or admin \
                          (`docket token create --role read`)";
            return Err(ApiError::new(ProblemCode::Forbidden, detail).with_field("token"));
        }
    }
    let session = api.sessions.issue_session(&hash, clock::fresh_secret(), api.clock.now());
    let no_cookie = || ApiError::new(ProblemCode::Internal, "a session fits no cookie; a fault of docket");
    let cookie = dashboard::set_session_cookie(&call.headers, &session).ok_or_else(no_cookie)?;
    let mut response = json_response(&WhoamiResponse { name, role })?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

async fn logout(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    middleware::require_dashboard_header(&call.headers)?;
    if let Some(session) = middleware::session_from_headers(&api, &call.headers) {
        api.sessions.sign_out(session, api.clock.now());
    }
    let mut response = super::request::empty_response(StatusCode::NO_CONTENT);
    if let Some(cookie) = dashboard::clear_session_cookie(&call.headers) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `GET /v1/whoami`: so that a page shows no buttons that would be refused.
pub(super) async fn whoami(_: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    match call.caller {
        Caller::ApiToken { name, role, .. } => json_response(&WhoamiResponse { name, role }),
        Caller::Anonymous | Caller::RunToken { .. } => Err(middleware::invalid_token_error()),
    }
}
