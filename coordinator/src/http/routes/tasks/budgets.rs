//! Routes of batch budgets: set a budget; check whether it allows a run's next call.

use std::sync::{Arc, atomic::Ordering};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{BudgetUpdateMode, BudgetView, PAGE_EVENTS_MAX, PermitResponse, ProblemCode, SetBudgetRequest},
    event::TypedEvent as _,
    ids::{BatchId, Epoch, RunId, Seq, StreamId, SystemTopic},
    system::{BudgetSet, BudgetSpent, MaxCallCost, SystemEvent},
};

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};
use crate::{
    store::{AppendCondition, BudgetReservation, LogAppend},
    system::{AppendRetries, system_append},
};

/// The stream of budget events.
const BUDGETS_STREAM: StreamId = StreamId::System(SystemTopic::Budgets);

/// Error message if too many concurrent appends come first.
const CONTENDED_MESSAGE: &str = "too many concurrent budget changes; try again";

/// Wait time if running calls may use up the budget: they end at any time, and their end sends no
/// wake-up.
const RESERVED_WAIT_MS: u64 = 500;

/// Maximum rounds of counting per response; beyond that the response covers what was counted so
/// far.
const COUNT_ROUNDS_MAX: u32 = 2000;

fn budget_append(api: &ApiState, condition: AppendCondition, event: SystemEvent) -> LogAppend {
    system_append(SystemTopic::Budgets, condition, &[event], &[], api.clock.now())
}

/// Counts the usage recorded by a batch's runs.
pub(in crate::http) async fn count_batch_usage(api: &ApiState, batch: BatchId) -> Result<(), ApiError> {
    for _ in 0..COUNT_ROUNDS_MAX {
        if !api.store.count_batch_usage(batch).await? {
            break;
        }
    }
    Ok(())
}

pub(in crate::http) async fn set_budget(
    api: Arc<ApiState>,
    call: ApiRequest,
) -> Result<Response<Body>, ApiError> {
    let batch: BatchId = call.id()?;
    let SetBudgetRequest { budget, how } = call.json()?;
    if !budget.is_valid() {
        let detail = "`tokens` and `cost_nusd` must be at least 1; omit a limit that is not wanted";
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("budget"));
    }
    let mut set =
        BudgetSet { batch, budget, by: call.caller.log_name(), of_file: how == BudgetUpdateMode::OfFile };
    match how {
        BudgetUpdateMode::All => {
            api.store.append(budget_append(&api, AppendCondition::AtHead, set.into())).await?;
        }
        BudgetUpdateMode::Named | BudgetUpdateMode::OfFile => {
            set_budget_conditionally(&api, how, &mut set).await?
        }
    }
    if !budget.is_none() {
        // Runs learn of it with their next append.
        api.has_budgets.store(true, Ordering::Relaxed);
    }
    // Usage from before the budget was set counts as well.
    count_batch_usage(&api, batch).await?;
    api.wakeups.notify_due_sooner();
    api.wakeups.notify_task_available();
    let (budget, used) = api.store.batch_budget(batch).await?;
    json_response(&BudgetView { batch, budget, used })
}

/// Sets the budget based on the current one: reads first, and appends only if nothing was written
/// in between.
async fn set_budget_conditionally(
    api: &ApiState,
    how: BudgetUpdateMode,
    set: &mut BudgetSet,
) -> Result<(), ApiError> {
    let named = set.budget;
    let mut retries = AppendRetries::new(CONTENDED_MESSAGE);
    loop {
        let head = match how {
            BudgetUpdateMode::All | BudgetUpdateMode::Named => {
                let head = api.store.stream_head(BUDGETS_STREAM).await?.map_or(Seq(0), |head| head.seq);
                let (known, _) = api.store.batch_budget(set.batch).await?;
                set.budget = named.or(known.budget);
                head
            }
            BudgetUpdateMode::OfFile => {
                let (last, head) = last_budget_set(api, set.batch).await?;
                // Setting the same budget again would wake waiting runs without a change.
                if last.is_some_and(|last| !last.of_file || last.budget == named) {
                    return Ok(());
                }
                head
            }
        };
        let append = budget_append(api, AppendCondition::ExpectedSeq(head), set.clone().into());
        if retries.append(&*api.store, append).await? {
            return Ok(());
        }
    }
}

/// Returns the budget last set for a batch, and the end of the stream. Reads every budget ever set,
/// which is one per import that names a budget.
async fn last_budget_set(api: &ApiState, batch: BatchId) -> Result<(Option<BudgetSet>, Seq), ApiError> {
    let (mut last, mut head) = (None, Seq(0));
    loop {
        let page = api.store.read_events(BUDGETS_STREAM, head, PAGE_EVENTS_MAX).await?;
        let Some(end) = page.last() else { return Ok((last, head)) };
        head = end.seq;
        for event in &page {
            if let Ok(SystemEvent::BudgetSet(set)) =
                SystemEvent::decode(&event.kind, event.version, event.payload.as_str())
                && set.batch == batch
            {
                last = Some(set);
            }
        }
    }
}

/// Message for a run whose model has no price although its batch has a cost budget.
const UNPRICED_MESSAGE: &str = "the batch has a cost budget, but the price of this run's model was unknown when the run started: set its \
                        price in the worker's docket.toml and retry the task, or give the batch a token budget only";

/// Decides whether the batch budget allows a run's call.
pub(in crate::http) async fn request_budget_permit(
    api: &ApiState,
    caller: (RunId, Epoch),
    call: MaxCallCost,
) -> Result<PermitResponse, ApiError> {
    let mut retries = AppendRetries::new(CONTENDED_MESSAGE);
    loop {
        // Read first: if the budget changes meanwhile, it must not be reported as used up.
        let head = api.store.stream_head(BUDGETS_STREAM).await?.map_or(Seq(0), |head| head.seq);
        let (batch, budget, message) = match api.store.reserve_budget(caller, call).await? {
            BudgetReservation::Granted => return Ok(PermitResponse::GRANTED),
            BudgetReservation::CallInProgress => {
                return Ok(PermitResponse {
                    granted: false,
                    wait_ms: RESERVED_WAIT_MS,
                    over: None,
                    alone: false,
                });
            }
            BudgetReservation::Unpriced => {
                return Ok(PermitResponse {
                    alone: true,
                    ..limit_reached_response(UNPRICED_MESSAGE.to_owned())
                });
            }
            BudgetReservation::Exceeded { message, is_recorded: true, .. } => {
                return Ok(limit_reached_response(message));
            }
            BudgetReservation::Exceeded { batch, budget, message, is_recorded: false } => {
                (batch, budget, message)
            }
        };
        let spent = BudgetSpent { batch, budget, message: message.clone() };
        let append = budget_append(api, AppendCondition::ExpectedSeq(head), spent.into());
        if retries.append(&*api.store, append).await? {
            return Ok(limit_reached_response(message));
        }
    }
}

const fn limit_reached_response(message: String) -> PermitResponse {
    PermitResponse { granted: false, wait_ms: 0, over: Some(message), alone: false }
}
