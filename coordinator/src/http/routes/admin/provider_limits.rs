//! Routes of provider rate limits: set, list, remove; and permits for a run's calls.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{LimitList, LimitView, PermitRequest, ProblemCode, RemoveLimitRequest, SetLimitRequest},
    ids::RunId,
    system::{AdminAct, LIMITS_MAX, LimitRemoved, LimitSet, LimitsFold, is_provider_name},
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        auth::Caller,
        request::{ApiRequest, json_response},
    },
    routes::{audit, tasks::budgets},
};

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn list_limits(api: Arc<ApiState>, _: ApiRequest) -> HandlerResult {
    api.provider_limits.fold.catch_up(&*api.store).await?;
    json_response(&api.provider_limits.fold.with_fold(limit_list))
}

pub(in crate::http) async fn set_limit(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let SetLimitRequest { limits } = call.json()?;
    let provider = parse_provider(&call)?;
    if !limits.is_valid() {
        let detail =
            "specify `requests`, `tokens` or `concurrent`: counts of at least 1, per 1 to 86400000 ms";
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("limits"));
    }
    let set = LimitSet { provider: provider.clone(), limits, by: call.caller.log_name() };
    audit::record_admin_act(&api, &call, AdminAct::SetLimit { provider: provider.clone() }).await?;
    let decide = |known: &LimitsFold| {
        if known.get(&provider).is_some_and(|(before, _)| before.limits == limits) {
            return Ok(None);
        }
        if known.get(&provider).is_none() && known.all().count() >= LIMITS_MAX {
            let detail = format!("{LIMITS_MAX} providers already have limits; remove some");
            return Err(ApiError::new(ProblemCode::TooLarge, detail));
        }
        Ok(Some(set.clone().into()))
    };
    api.provider_limits.fold.change(&*api.store, api.clock.now(), decide).await?;
    json_response(&api.provider_limits.fold.with_fold(limit_list))
}

pub(in crate::http) async fn remove_limit(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let RemoveLimitRequest {} = call.json()?;
    let provider = parse_provider(&call)?;
    let absent = || {
        let detail = format!("there is no limit for `{provider}`; see `docket limit list`");
        ApiError::new(ProblemCode::NotFound, detail).with_field("path")
    };
    api.provider_limits.fold.catch_up(&*api.store).await?;
    if api.provider_limits.fold.with_fold(|known| known.get(&provider).is_none()) {
        return Err(absent());
    }
    audit::record_admin_act(&api, &call, AdminAct::SetLimit { provider: provider.clone() }).await?;
    let decide = |known: &LimitsFold| {
        let removed = LimitRemoved { provider: provider.clone(), by: call.caller.log_name() };
        Ok::<_, ApiError>(known.get(&provider).map(|_| removed.into()))
    };
    api.provider_limits.fold.change(&*api.store, api.clock.now(), decide).await?;
    json_response(&api.provider_limits.fold.with_fold(limit_list))
}

pub(in crate::http) async fn request_permit(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    ApiState::require_run_token(&call.caller, run)?;
    api.check_epoch_in_force(&call.caller).await?;
    let request: PermitRequest = call.json()?;
    let Caller::RunToken { run, epoch } = call.caller else {
        return Err(ApiError::new(ProblemCode::Forbidden, "only the run's own token may do this"));
    };
    if let Some(cost) = request.call {
        return json_response(&budgets::request_budget_permit(&api, (run, epoch), cost).await?);
    }
    json_response(
        &api.provider_limits.request_permit(&*api.store, (run, epoch), &request, api.clock.now()).await?,
    )
}

fn parse_provider(call: &ApiRequest) -> Result<String, ApiError> {
    if is_provider_name(&call.path_param) {
        return Ok(call.path_param.clone());
    }
    let detail = format!("`{}` is not a valid provider name, such as openai or anthropic", call.path_param);
    Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("path"))
}

fn limit_list(known: &LimitsFold) -> LimitList {
    let view = |(LimitSet { provider, limits, by }, set_at): &_| LimitView {
        provider: provider.clone(),
        limits: *limits,
        by: by.clone(),
        set_at: *set_at,
    };
    LimitList { limits: known.all().map(view).collect() }
}
