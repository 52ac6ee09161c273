//! Routes of API tokens: create, list, revoke. For admins.
//!
//! Creating or revoking a token is an event in `system/tokens`. This coordinator has applied it
//! when it responds.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use docket_schema::{
    api::{
        CreateTokenRequest, CreatedToken, ProblemCode, RevokeTokenRequest, TOKEN_LIFETIME_MS_MAX, TokenList,
        TokenView,
    },
    ids::{BlobHash, Timestamp},
    system::{AdminAct, SystemEvent, TOKENS_MAX, TokenCreated, TokenName, TokenRevoked, TokensFold},
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        auth::Caller,
        request::{ApiRequest, json_response},
    },
    routes::audit,
};
use crate::{clock, system::API_TOKEN_PREFIX};

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn list_tokens(api: Arc<ApiState>, _: ApiRequest) -> HandlerResult {
    api.tokens.fold.catch_up(&*api.store).await?;
    let now = api.clock.now();
    let views =
        |tokens: &TokensFold| tokens.all().map(|record| TokenView::from_record(record, now)).collect();
    json_response(&TokenList { tokens: api.tokens.fold.with_fold(views) })
}

pub(in crate::http) async fn create_token(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    if let Caller::ApiToken { session: Some(_), .. } = call.caller {
        // Sessions expire within the day; a token created through a tricked browser or a stolen cookie must
        // not outlive that.
        let detail = "a browser session cannot create tokens; use `docket token create`";
        return Err(ApiError::new(ProblemCode::Forbidden, detail));
    }
    let CreateTokenRequest { name, role, expires_in_ms } = call.json()?;
    if !name.is_valid_for_creation() {
        let detail = "a token's name must start with a letter or digit";
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("name"));
    }
    if expires_in_ms.is_some_and(|ms| ms == 0 || ms > TOKEN_LIFETIME_MS_MAX) {
        let detail = format!("`expires_in_ms` must be within 1 and {TOKEN_LIFETIME_MS_MAX}");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("expires_in_ms"));
    }
    let now = api.clock.now();
    let expires_at =
        expires_in_ms.map(|ms| Timestamp(now.0.saturating_add_unsigned(ms.saturating_mul(1000))));
    let secret = format!("{API_TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(clock::fresh_secret()));
    let hash = BlobHash::hash_bytes(secret.as_bytes());
    api.tokens.fold.catch_up(&*api.store).await?;
    api.tokens.fold.with_fold(|tokens| check_new_token(&api, tokens, &name))?;
    audit::record_admin_act(&api, &call, AdminAct::CreateToken { name: name.clone(), role }).await?;
    let made = TokenCreated { name: name.clone(), role, hash, expires_at, by: call.caller.log_name() };
    let decide = |tokens: &TokensFold| {
        check_new_token(&api, tokens, &name).map(|()| [SystemEvent::from(made.clone())])
    };
    api.tokens.fold.change(&*api.store, api.clock.now(), decide).await?;
    json_response(&CreatedToken { token: find_token_view(&api, &name)?, secret })
}

fn check_new_token(api: &ApiState, tokens: &TokensFold, name: &TokenName) -> Result<(), ApiError> {
    let now = api.clock.now();
    if api.tokens.is_configured(name.as_str())
        || tokens.get(name).is_some_and(|record| record.is_valid_at(now))
    {
        let detail = format!("token `{name}` already exists; revoke it first, or choose another name");
        return Err(ApiError::new(ProblemCode::WrongState, detail).with_field("name"));
    }
    if tokens.all().filter(|record| record.is_valid_at(now)).count() >= TOKENS_MAX {
        let detail = format!("at most {TOKENS_MAX} tokens may be valid at once; revoke some");
        return Err(ApiError::new(ProblemCode::TooLarge, detail));
    }
    Ok(())
}

pub(in crate::http) async fn revoke_token(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let name: TokenName = call.id()?;
    let RevokeTokenRequest {} = call.json()?;
    let may = |tokens: &TokensFold| match tokens.get(&name) {
        // Revoking twice has no further effect.
        Some(record) => Ok(record.revoked.is_none()),
        None if api.tokens.is_configured(name.as_str()) => {
            let detail = format!(
                "`{name}` is the token of the coordinator's home: stop the coordinator, remove the file `token` in \
                 the home, and start it again"
            );
            Err(ApiError::new(ProblemCode::WrongState, detail).with_field("path"))
        }
        None => Err(token_not_found(&name).with_field("path")),
    };
    api.tokens.fold.catch_up(&*api.store).await?;
    if api.tokens.fold.with_fold(may)? {
        audit::record_admin_act(&api, &call, AdminAct::RevokeToken { name: name.clone() }).await?;
        let revoked = || SystemEvent::from(TokenRevoked { name: name.clone(), by: call.caller.log_name() });
        let decide = |tokens: &TokensFold| may(tokens).map(|may| may.then(revoked));
        api.tokens.fold.change(&*api.store, api.clock.now(), decide).await?;
        // Requests that wait under this token are ended now.
        api.wakeups.notify_task_available();
        api.wakeups.notify_lease_lost();
    }
    json_response(&find_token_view(&api, &name)?)
}

fn find_token_view(api: &ApiState, name: &TokenName) -> Result<TokenView, ApiError> {
    let now = api.clock.now();
    let view = api
        .tokens
        .fold
        .with_fold(|tokens| tokens.get(name).map(|record| TokenView::from_record(record, now)));
    view.ok_or_else(|| token_not_found(name))
}

fn token_not_found(name: &TokenName) -> ApiError {
    let detail = format!("there is no token `{name}`; see `docket token list`");
    ApiError::new(ProblemCode::NotFound, detail)
}
