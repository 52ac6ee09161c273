//! Routes of API tokens: make, list, revoke. For admins.
//!
//! What is made or revoked is an event of `system/tokens`. This coordinator knows of it when it answers.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use docket_schema::{
    ids::{BlobHash, Timestamp},
    system::{AdminAct, SystemEvent, TOKENS_MAX, TokenCreated, TokenName, TokenRevoked, Tokens},
    wire::{
        CreateTokenRequest, CreatedToken, ProblemCode, RevokeTokenRequest, TOKEN_LIFE_MS_MAX, TokenList,
        TokenView,
    },
};

use super::{
    api::Api,
    audit,
    auth::Caller,
    call::{Call, json},
    errors::Refusal,
};
use crate::{clock, system::API_TOKEN_PREFIX};

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn list(api: Arc<Api>, _: Call) -> Answered {
    api.tokens.fold.catch_up(&*api.store).await?;
    let now = api.clock.now();
    let views = |tokens: &Tokens| tokens.all().map(|record| TokenView::of(record, now)).collect();
    json(&TokenList { tokens: api.tokens.fold.with(views) })
}

pub(super) async fn create(api: Arc<Api>, call: Call) -> Answered {
    if let Caller::Api { session: Some(_), .. } = call.caller {
        // What a browser was tricked into, or a copy of its cookie, ends within the day.
        let detail = "a browser's session makes no tokens; `docket token create` does";
        return Err(Refusal::new(ProblemCode::Forbidden, detail));
    }
    let CreateTokenRequest { name, role, expires_in_ms } = call.json()?;
    if !name.is_new() {
        let detail = "a token's name begins with a letter or digit";
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("name"));
    }
    if expires_in_ms.is_some_and(|ms| ms == 0 || ms > TOKEN_LIFE_MS_MAX) {
        let detail = format!("`expires_in_ms` must be within 1 and {TOKEN_LIFE_MS_MAX}");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("expires_in_ms"));
    }
    let now = api.clock.now();
    let expires_at =
        expires_in_ms.map(|ms| Timestamp(now.0.saturating_add_unsigned(ms.saturating_mul(1000))));
    let secret = format!("{API_TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(clock::fresh_secret()));
    let hash = BlobHash::of(secret.as_bytes());
    api.tokens.fold.catch_up(&*api.store).await?;
    api.tokens.fold.with(|tokens| check_new_token(&api, tokens, &name))?;
    audit::record(&api, &call, AdminAct::CreateToken { name: name.clone(), role }).await?;
    let made = TokenCreated { name: name.clone(), role, hash, expires_at, by: call.caller.name() };
    let decide =
        |tokens: &Tokens| check_new_token(&api, tokens, &name).map(|()| [SystemEvent::from(made.clone())]);
    api.tokens.fold.change(&*api.store, api.clock.now(), decide).await?;
    json(&CreatedToken { token: view(&api, &name)?, secret })
}

fn check_new_token(api: &Api, tokens: &Tokens, name: &TokenName) -> Result<(), Refusal> {
    let now = api.clock.now();
    if api.tokens.is_fixed(name.as_str()) || tokens.get(name).is_some_and(|record| record.is_good(now)) {
        let detail = format!("there is a token `{name}`; revoke it first, or choose another name");
        return Err(Refusal::new(ProblemCode::WrongState, detail).field("name"));
    }
    if tokens.all().filter(|record| record.is_good(now)).count() >= TOKENS_MAX {
        let detail = format!("at most {TOKENS_MAX} tokens are good at once; revoke some");
        return Err(Refusal::new(ProblemCode::TooLarge, detail));
    }
    Ok(())
}

pub(super) async fn revoke(api: Arc<Api>, call: Call) -> Answered {
    let name: TokenName = call.id()?;
    let RevokeTokenRequest {} = call.json()?;
    let may = |tokens: &Tokens| match tokens.get(&name) {
        // Revoked twice is revoked.
        Some(record) => Ok(record.revoked.is_none()),
        None if api.tokens.is_fixed(name.as_str()) => {
            let detail = format!(
                "`{name}` is the token of the coordinator's home: end the coordinator, remove the home's file \
                 `token`, start it again"
            );
            Err(Refusal::new(ProblemCode::WrongState, detail).field("path"))
        }
        None => Err(absent(&name).field("path")),
    };
    api.tokens.fold.catch_up(&*api.store).await?;
    if api.tokens.fold.with(may)? {
        audit::record(&api, &call, AdminAct::RevokeToken { name: name.clone() }).await?;
        let revoked = || SystemEvent::from(TokenRevoked { name: name.clone(), by: call.caller.name() });
        let decide = |tokens: &Tokens| may(tokens).map(|may| may.then(revoked));
        api.tokens.fold.change(&*api.store, api.clock.now(), decide).await?;
        // Whoever waits under it is told now, not when the wait ends.
        api.wakes.work();
        api.wakes.leases();
    }
    json(&view(&api, &name)?)
}

fn view(api: &Api, name: &TokenName) -> Result<TokenView, Refusal> {
    let now = api.clock.now();
    let view = api.tokens.fold.with(|tokens| tokens.get(name).map(|record| TokenView::of(record, now)));
    view.ok_or_else(|| absent(name))
}

fn absent(name: &TokenName) -> Refusal {
    let detail = format!("there is no token `{name}`; `docket token list` shows them");
    Refusal::new(ProblemCode::NotFound, detail)
}
