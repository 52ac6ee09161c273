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
    system::Role,
    wire::{ProblemCode, Whoami},
};
use serde::Deserialize;

use super::{
    api::Api,
    auth::{Access, Caller},
    call::{Call, json},
    errors::Refusal,
    guard,
    route::{Route, Verb},
};
use crate::{
    clock,
    dashboard::{self, Asset},
};

type Answered = Result<Response<Body>, Refusal>;

macro_rules! by {
    ($handler:path) => {
        |api, call| Box::pin($handler(api, call))
    };
}

/// What the dashboard adds to the table of routes.
#[rustfmt::skip]
pub(super) static UI_ROUTES: &[Route] = &[
    Route::new((Verb::Get, "/"), Access::Page, "Leads to the dashboard", by!(home)),
    Route::new((Verb::Get, "/ui"), Access::Page, "Leads to the dashboard", by!(home)),
    Route::new((Verb::Get, "/ui/"), Access::Page, "The dashboard", by!(shell)),
    Route::new((Verb::Get, "/ui/assets/{*name}"), Access::Page, "A file of the dashboard", by!(asset)),
    Route::new((Verb::Get, "/ui/{*page}"), Access::Page, "The dashboard at one of its pages", by!(shell)),
    Route::new((Verb::Get, "/ui/login"), Access::Page, "The page that asks for a token", by!(shell)),
    Route::new((Verb::Post, "/ui/login"), Access::Open, "Takes a token and gives a browser a session", by!(login)).small(),
    Route::new((Verb::Post, "/ui/logout"), Access::Open, "Ends a browser's session", by!(logout)).small(),
];

/// `POST /ui/login`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoginRequest {
    token: String,
}

async fn home(_: Arc<Api>, _: Call) -> Answered {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/ui/"));
    Ok(response)
}

async fn shell(_: Arc<Api>, call: Call) -> Answered {
    file(&call.headers, dashboard::shell())
}

async fn asset(_: Arc<Api>, call: Call) -> Answered {
    file(&call.headers, dashboard::asset(&call.param))
}

/// A file, or that the browser has it.
fn file(headers: &HeaderMap, asset: Option<&'static Asset>) -> Answered {
    let Some(asset) = asset else {
        return Err(Refusal::new(ProblemCode::NotFound, "the dashboard has no such file"));
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

async fn login(api: Arc<Api>, call: Call) -> Answered {
    guard::from_the_dashboard(&call.headers)?;
    let LoginRequest { token } = call.json()?;
    let token = token.trim();
    let (name, role, hash) = guard::sign_in(&api, call.peer, token).await?;
    match role {
        Role::Admin | Role::Submit | Role::Read => {}
        Role::Worker => {
            let detail = "a worker's token sees no tasks; take one of role read, submit or admin \
                          (`docket token create --role read`)";
            return Err(Refusal::new(ProblemCode::Forbidden, detail).field("token"));
        }
    }
    let session = api.sessions.begin(&hash, clock::fresh_secret(), api.clock.now());
    let no_cookie = || Refusal::new(ProblemCode::Internal, "a session fits no cookie; a fault of docket");
    let cookie = dashboard::given(&call.headers, &session).ok_or_else(no_cookie)?;
    let mut response = json(&Whoami { name, role })?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

async fn logout(api: Arc<Api>, call: Call) -> Answered {
    guard::from_the_dashboard(&call.headers)?;
    if let Some(session) = guard::session_of(&api, &call.headers) {
        api.sessions.end(session, api.clock.now());
    }
    let mut response = super::call::empty(StatusCode::NO_CONTENT);
    if let Some(cookie) = dashboard::cleared(&call.headers) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `GET /v1/whoami`: so that a page shows no buttons that would be refused.
pub(super) async fn whoami(_: Arc<Api>, call: Call) -> Answered {
    match call.caller {
        Caller::Api { name, role, .. } => json(&Whoami { name, role }),
        Caller::Anyone | Caller::Run { .. } => Err(guard::no_token_of_ours()),
    }
}
