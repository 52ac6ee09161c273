//! Routes of what batches may use: set it; and whether a budget pays for a run's next call.

use std::sync::{Arc, atomic::Ordering};

use axum::{body::Body, http::Response};
use docket_schema::{
    event::TypedEvent as _,
    ids::{BatchId, Epoch, RunId, Seq, StreamId, SystemTopic},
    system::{BudgetSet, BudgetSpent, CallCost, SystemEvent},
    wire::{BudgetView, PAGE_EVENTS_MAX, PermitResponse, ProblemCode, SetBudget, SetBudgetRequest},
};

use super::{
    api::Api,
    call::{Call, json},
    errors::Refusal,
};
use crate::{
    store::{Append, Condition, Reserved},
    system::{AppendRetries, system_append},
};

/// The stream.
const STREAM: StreamId = StreamId::System(SystemTopic::Budgets);

/// The error where other appends come first too often.
const CONTENDED: &str = "many set budgets at once; try again";

/// Wait of whoever finds that calls under way may use what is left: one ends any moment, and nobody is woken by it.
const CROWDED_MS: u64 = 500;

/// Rounds of counting for one answer: beyond it, it is of what was counted so far.
const ROUNDS_MAX: u32 = 2000;

fn append(api: &Api, condition: Condition, event: SystemEvent) -> Append {
    system_append(SystemTopic::Budgets, condition, &[event], &[], api.clock.now())
}

/// Counts what a batch's runs have recorded.
pub(super) async fn count(api: &Api, batch: BatchId) -> Result<(), Refusal> {
    for _ in 0..ROUNDS_MAX {
        if !api.store.count_batch(batch).await? {
            break;
        }
    }
    Ok(())
}

pub(super) async fn set(api: Arc<Api>, call: Call) -> Result<Response<Body>, Refusal> {
    let batch: BatchId = call.id()?;
    let SetBudgetRequest { budget, how } = call.json()?;
    if !budget.is_good() {
        let detail = "`tokens` and `cost_nusd` are amounts of at least 1; leave out what has no budget";
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("budget"));
    }
    let mut set = BudgetSet { batch, budget, by: call.caller.name(), of_file: how == SetBudget::OfFile };
    match how {
        SetBudget::All => {
            api.store.append(append(&api, Condition::AtHead, set.into())).await?;
        }
        SetBudget::Named | SetBudget::OfFile => decided(&api, how, &mut set).await?,
    }
    if !budget.is_none() {
        // Runs learn of it by their next append.
        api.budgets.store(true, Ordering::Relaxed);
    }
    // What was used before there was a budget is used.
    count(&api, batch).await?;
    api.wakes.due();
    api.wakes.work();
    let (budget, used) = api.store.budget(batch).await?;
    json(&BudgetView { batch, budget, used })
}

/// Sets it by what is set already. Read first, and appended only where nothing came between.
async fn decided(api: &Api, how: SetBudget, set: &mut BudgetSet) -> Result<(), Refusal> {
    let named = set.budget;
    let mut retries = AppendRetries::new(CONTENDED);
    loop {
        let head = match how {
            SetBudget::All | SetBudget::Named => {
                let head = api.store.head(STREAM).await?.map_or(Seq(0), |head| head.seq);
                let (known, _) = api.store.budget(set.batch).await?;
                set.budget = named.or(known.budget);
                head
            }
            SetBudget::OfFile => {
                let (last, head) = last_set(api, set.batch).await?;
                // The same again would wake what rests for it, and change nothing.
                if last.is_some_and(|last| !last.of_file || last.budget == named) {
                    return Ok(());
                }
                head
            }
        };
        let append = append(api, Condition::Expected(head), set.clone().into());
        if retries.append(&*api.store, append).await? {
            return Ok(());
        }
    }
}

/// What was set for a batch last, and where the stream ends. Costs what was ever set: once an import of a file that
/// names a budget.
async fn last_set(api: &Api, batch: BatchId) -> Result<(Option<BudgetSet>, Seq), Refusal> {
    let (mut last, mut head) = (None, Seq(0));
    loop {
        let page = api.store.read(STREAM, head, PAGE_EVENTS_MAX).await?;
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
const UNPRICED: &str = "its batch has a budget of money, and nobody knew the price of this run's model when it began: set its \
                        price in the worker's docket.toml and retry the task, or give the batch a budget of tokens alone";

/// Whether its batch pays for a run's call.
pub(super) async fn ask(
    api: &Api,
    caller: (RunId, Epoch),
    call: CallCost,
) -> Result<PermitResponse, Refusal> {
    let mut retries = AppendRetries::new(CONTENDED);
    loop {
        // Read first: where the budget is set anew meanwhile, it is not said to be used up.
        let head = api.store.head(STREAM).await?.map_or(Seq(0), |head| head.seq);
        let (batch, budget, message) = match api.store.reserve(caller, call).await? {
            Reserved::Granted => return Ok(PermitResponse::GRANTED),
            Reserved::Crowded => {
                return Ok(PermitResponse { granted: false, wait_ms: CROWDED_MS, over: None, alone: false });
            }
            Reserved::Unpriced => {
                return Ok(PermitResponse { alone: true, ..over(UNPRICED.to_owned()) });
            }
            Reserved::Over { message, known: true, .. } => return Ok(over(message)),
            Reserved::Over { batch, budget, message, known: false } => (batch, budget, message),
        };
        let spent = BudgetSpent { batch, budget, message: message.clone() };
        let append = append(api, Condition::Expected(head), spent.into());
        if retries.append(&*api.store, append).await? {
            return Ok(over(message));
        }
    }
}

const fn over(message: String) -> PermitResponse {
    PermitResponse { granted: false, wait_ms: 0, over: Some(message), alone: false }
}
