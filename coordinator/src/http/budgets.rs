//! Routes of what batches may use: set it; and whether a budget pays for a run's next call.

use std::sync::{Arc, atomic::Ordering};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{BudgetUpdateMode, BudgetView, PAGE_EVENTS_MAX, PermitResponse, ProblemCode, SetBudgetRequest},
    event::TypedEvent as _,
    ids::{BatchId, Epoch, RunId, Seq, StreamId, SystemTopic},
    system::{BudgetSet, BudgetSpent, MaxCallCost, SystemEvent},
};

use super::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, json_response},
};
use crate::{
    store::{AppendCondition, BudgetReservation, LogAppend},
    system::{AppendRetries, system_append},
};

/// The stream.
const BUDGETS_STREAM: StreamId = StreamId::System(SystemTopic::Budgets);

/// The error where other appends come first too often.
const CONTENDED_MESSAGE: &str = "many set budgets at once; try again";

/// Wait of whoever finds that calls under way may use what is left: one ends any moment, and nobody is woken by it.
const RESERVED_WAIT_MS: u64 = 500;

/// Rounds of counting for one answer: beyond it, it is of what was counted so far.
const COUNT_ROUNDS_MAX: u32 = 2000;

fn budget_append(api: &ApiState, condition: AppendCondition, event: SystemEvent) -> LogAppend {
    system_append(SystemTopic::Budgets, condition, &[event], &[], api.clock.now())
}

/// Counts what a batch's runs have recorded.
pub(super) async fn count_batch_usage(api: &ApiState, batch: BatchId) -> Result<(), ApiError> {
    for _ in 0..COUNT_ROUNDS_MAX {
        if !api.store.count_batch_usage(batch).await? {
            break;
        }
    }
    Ok(())
}

pub(super) async fn set_budget(api: Arc<ApiState>, call: ApiRequest) -> Result<Response<Body>, ApiError> {
    let batch: BatchId = call.id()?;
    let SetBudgetRequest { budget, how } = call.json()?;
    if !budget.is_valid() {
        let detail = "`tokens` and `cost_nusd` are amounts of at least 1; leave out what has no budget";
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
        // Runs learn of it by their next append.
        api.has_budgets.store(true, Ordering::Relaxed);
    }
    // What was used before there was a budget is used.
    count_batch_usage(&api, batch).await?;
    api.wakeups.notify_due_sooner();
    api.wakeups.notify_task_available();
    let (budget, used) = api.store.batch_budget(batch).await?;
    json_response(&BudgetView { batch, budget, used })
}

/// Sets it by what is set already. Read first, and appended only where nothing came between.
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
                // The same again would wake what rests for it, and change nothing.
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

/// What was set for a batch last, and where the stream ends. Costs what was ever set: once an import of a file that
/// names a budget.
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

/// What a run is told whose model has no price, though its batch has a budget of money.
const UNPRICED_MESSAGE: &str = "its batch has a budget of money, and nobody knew the price of this run's model when it began: set its \
                        price in the worker's docket.toml and retry the task, or give the batch a budget of tokens alone";

/// Whether its batch pays for a run's call.
pub(super) async fn request_budget_permit(
    api: &ApiState,
    caller: (RunId, Epoch),
    call: MaxCallCost,
) -> Result<PermitResponse, ApiError> {
    let mut retries = AppendRetries::new(CONTENDED_MESSAGE);
    loop {
        // Read first: where the budget is set anew meanwhile, it is not said to be used up.
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
