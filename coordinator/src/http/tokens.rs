//! Routes of API tokens: make, list, revoke. For admins.
//!
//! What is made or revoked is an event of `system/tokens`, appended at the head that was read: of two that
//! do so at once one is refused, reads on and decides anew. This coordinator knows of it when it answers.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use docket_schema::{
    event::{Head, TypedEvent as _},
    ids::{BlobHash, Seq, Timestamp, Turn},
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
    errors::{Refusal, error_chain},
    table::{STREAM, TokensUnread},
};
use crate::{
    clock,
    store::{Append, AppendError, Condition},
};

/// What every API token begins with: by it secrets are known where they do not belong.
pub(super) const PREFIX: &str = "dkt_";
/// How often an append that another was faster with is decided anew.
const TRIES: u32 = 8;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn list(api: Arc<Api>, _: Call) -> Answered {
    api.tokens.catch_up(&*api.store).await?;
    let now = api.clock.now();
    let tokens = api.tokens.stored().all().map(|record| TokenView::of(record, now)).collect();
    json(&TokenList { tokens })
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
    let secret = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(clock::fresh_secret()));
    let hash = BlobHash::of(secret.as_bytes());
    let may = |tokens: &Tokens| may_create(&api, tokens, &name);
    api.tokens.catch_up(&*api.store).await?;
    may(&api.tokens.stored())?;
    audit::record(&api, &call, AdminAct::CreateToken { name: name.clone(), role }).await?;
    let made = TokenCreated { name: name.clone(), role, hash, expires_at, by: call.caller.name() };
    append(&api, made.into(), may).await?;
    json(&CreatedToken { token: view(&api, &name)?, secret })
}

fn may_create(api: &Api, tokens: &Tokens, name: &TokenName) -> Result<bool, Refusal> {
    let now = api.clock.now();
    if api.tokens.is_fixed(name.as_str()) || tokens.get(name).is_some_and(|record| record.is_good(now)) {
        let detail = format!("there is a token `{name}`; revoke it first, or choose another name");
        return Err(Refusal::new(ProblemCode::WrongState, detail).field("name"));
    }
    if tokens.all().filter(|record| record.is_good(now)).count() >= TOKENS_MAX {
        let detail = format!("at most {TOKENS_MAX} tokens are good at once; revoke some");
        return Err(Refusal::new(ProblemCode::TooLarge, detail));
    }
    Ok(true)
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
    api.tokens.catch_up(&*api.store).await?;
    if may(&api.tokens.stored())? {
        audit::record(&api, &call, AdminAct::RevokeToken { name: name.clone() }).await?;
        append(&api, TokenRevoked { name: name.clone(), by: call.caller.name() }.into(), may).await?;
        // Whoever waits under it is told now, not when the wait ends.
        api.wakes.work();
        api.wakes.leases();
    }
    json(&view(&api, &name)?)
}

/// Appends while `may` says that there is something to do, and folds what was appended.
async fn append(
    api: &Api,
    event: SystemEvent,
    may: impl Fn(&Tokens) -> Result<bool, Refusal>,
) -> Result<(), Refusal> {
    for _ in 0..TRIES {
        let tokens = api.tokens.stored();
        if !may(&tokens)? {
            return Ok(());
        }
        let appended = at(api, tokens.head(), &event).await;
        api.tokens.catch_up(&*api.store).await?;
        match appended {
            Ok(_) => return Ok(()),
            Err(AppendError::WrongSeq { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refusal::new(ProblemCode::Unavailable, "many tokens are made or revoked at once; try again"))
}

async fn at(api: &Api, head: Seq, event: &SystemEvent) -> Result<Head, AppendError> {
    let append = Append {
        stream: STREAM,
        condition: Condition::Expected(head),
        events: vec![event.encode(Turn(0))],
        blobs: Vec::new(),
        names: Vec::new(),
        now: api.clock.now(),
    };
    api.store.append(append).await.map(|done| done.head)
}

fn view(api: &Api, name: &TokenName) -> Result<TokenView, Refusal> {
    let tokens = api.tokens.stored();
    let view = tokens.get(name).map(|record| TokenView::of(record, api.clock.now()));
    view.ok_or_else(|| absent(name))
}

fn absent(name: &TokenName) -> Refusal {
    let detail = format!("there is no token `{name}`; `docket token list` shows them");
    Refusal::new(ProblemCode::NotFound, detail)
}

impl From<TokensUnread> for Refusal {
    fn from(error: TokensUnread) -> Self {
        match error {
            TokensUnread::Store(error) => error.into(),
            TokensUnread::Log(_) => {
                tracing::error!("{}", error_chain(&error));
                Self::new(ProblemCode::Corrupt, error.to_string())
            }
        }
    }
}
