//! Routes of limits on model providers: set, list, remove; and a run's permit to ask.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    ids::RunId,
    system::{AdminAct, LIMITS_MAX, LimitRemoved, LimitSet, Limits, is_provider},
    wire::{LimitList, LimitView, PermitRequest, ProblemCode, RemoveLimitRequest, SetLimitRequest},
};

use super::{
    api::Api,
    audit,
    auth::Caller,
    budgets,
    call::{Call, json},
    errors::Refusal,
};

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn list(api: Arc<Api>, _: Call) -> Answered {
    api.model_limits.fold.catch_up(&*api.store).await?;
    json(&api.model_limits.fold.with(views))
}

pub(super) async fn set(api: Arc<Api>, call: Call) -> Answered {
    let SetLimitRequest { limits } = call.json()?;
    let provider = provider(&call)?;
    if !limits.is_good() {
        let detail = "give `requests`, `tokens` or `concurrent`: counts of at least 1, in 1 to 86400000 ms";
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("limits"));
    }
    let set = LimitSet { provider: provider.clone(), limits, by: call.caller.name() };
    audit::record(&api, &call, AdminAct::SetLimit { provider: provider.clone() }).await?;
    let decide = |known: &Limits| {
        if known.get(&provider).is_some_and(|(before, _)| before.limits == limits) {
            return Ok(None);
        }
        if known.get(&provider).is_none() && known.all().count() >= LIMITS_MAX {
            let detail = format!("{LIMITS_MAX} providers have limits; remove some");
            return Err(Refusal::new(ProblemCode::TooLarge, detail));
        }
        Ok(Some(set.clone().into()))
    };
    api.model_limits.fold.change(&*api.store, api.clock.now(), decide).await?;
    json(&api.model_limits.fold.with(views))
}

pub(super) async fn remove(api: Arc<Api>, call: Call) -> Answered {
    let RemoveLimitRequest {} = call.json()?;
    let provider = provider(&call)?;
    let absent = || {
        let detail = format!("there is no limit for `{provider}`; `docket limit list` shows them");
        Refusal::new(ProblemCode::NotFound, detail).field("path")
    };
    api.model_limits.fold.catch_up(&*api.store).await?;
    if api.model_limits.fold.with(|known| known.get(&provider).is_none()) {
        return Err(absent());
    }
    audit::record(&api, &call, AdminAct::SetLimit { provider: provider.clone() }).await?;
    let decide = |known: &Limits| {
        let removed = LimitRemoved { provider: provider.clone(), by: call.caller.name() };
        Ok::<_, Refusal>(known.get(&provider).map(|_| removed.into()))
    };
    api.model_limits.fold.change(&*api.store, api.clock.now(), decide).await?;
    json(&api.model_limits.fold.with(views))
}

pub(super) async fn permit(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    Api::must_be_of(&call.caller, run)?;
    api.must_be_in_force(&call.caller).await?;
    let request: PermitRequest = call.json()?;
    let Caller::Run { run, epoch } = call.caller else {
        return Err(Refusal::new(ProblemCode::Forbidden, "only the run's own token may do this"));
    };
    if let Some(cost) = request.call {
        return json(&budgets::ask(&api, (run, epoch), cost).await?);
    }
    json(&api.model_limits.permit(&*api.store, (run, epoch), &request, api.clock.now()).await?)
}

fn provider(call: &Call) -> Result<String, Refusal> {
    if is_provider(&call.param) {
        return Ok(call.param.clone());
    }
    let detail = format!("`{}` is no provider's name, as openai or anthropic", call.param);
    Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("path"))
}

fn views(known: &Limits) -> LimitList {
    let view = |(LimitSet { provider, limits, by }, set_at): &_| LimitView {
        provider: provider.clone(),
        limits: *limits,
        by: by.clone(),
        set_at: *set_at,
    };
    LimitList { limits: known.all().map(view).collect() }
}
