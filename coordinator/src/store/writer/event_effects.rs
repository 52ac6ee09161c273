//! Effects of a single event on the projections, used for writes as well as for rebuilds.

use docket_schema::{
    event::{Envelope, NewEvent, TypedEvent as _},
    ids::{BatchId, Timestamp},
    queue::{QueueEvent, QueueSettings},
    run::{ChildAnswered, Forked, RunEnded, RunEvent},
    system::{BatchSpending, BudgetSet, BudgetSpent, SystemEvent},
};

use crate::store::{StoreError, api::corrupt_error, db::row::BudgetRow};

/// Returns the event without its position in the log.
pub(crate) fn into_new_event(event: Envelope) -> NewEvent {
    NewEvent { kind: event.kind, version: event.version, turn: event.turn, payload: event.payload }
}

/// Change of a run's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunChange {
    pub(crate) to: &'static str,
    /// Applies only if the row's stage is this one.
    pub(crate) from: Option<&'static str>,
    pub(crate) ended_at: Option<Timestamp>,
}

/// Decodes the fork that a stream begins with: its first event follows the parent's hash, not none.
pub(crate) fn decode_fork(event: &NewEvent) -> Option<Forked> {
    if event.kind == "Forked" { serde_json::from_str(event.payload.as_str()).ok() } else { None }
}

/// Decodes the settings from an event of a queue's stream.
pub(crate) fn decode_queue_settings(event: &NewEvent) -> Option<QueueSettings> {
    match QueueEvent::decode(&event.kind, event.version, event.payload.as_str()).ok()? {
        QueueEvent::QueueSet(set) => Some(set.settings),
    }
}

/// Returns the change that an event makes to its run's row. The kind alone decides, except for the outcome at
/// the end.
pub(crate) fn run_change(event: &NewEvent, at: Timestamp) -> Option<RunChange> {
    let change = |to, from| Some(RunChange { to, from, ended_at: None });
    match event.kind.as_str() {
        "RunEnded" => {
            let ended: RunEnded = serde_json::from_str(event.payload.as_str()).ok()?;
            Some(RunChange { to: ended.result.as_str(), from: None, ended_at: Some(at) })
        }
        "RunBlocked" => change("blocked", None),
        "RunPaused" => change("paused", None),
        "BlockerAnswered" => change("living", Some("blocked")),
        "ChildAnswered" => {
            // The run stays blocked while other children are active.
            let answer: ChildAnswered = serde_json::from_str(event.payload.as_str()).ok()?;
            if answer.more { None } else { change("living", Some("blocked")) }
        }
        "Unpaused" => change("living", Some("paused")),
        _ => None,
    }
}

/// Returns the batch's row according to an event of `system/budgets`.
pub(crate) fn decode_budget_change(event: &NewEvent) -> Option<(BatchId, BudgetRow)> {
    if !matches!(event.kind.as_str(), "BudgetSet" | "BudgetSpent") {
        return None;
    }
    match SystemEvent::decode(&event.kind, event.version, event.payload.as_str()).ok()? {
        SystemEvent::BudgetSet(BudgetSet { batch, budget, .. }) => Some((batch, (budget, None))),
        SystemEvent::BudgetSpent(BudgetSpent { batch, budget, message }) => {
            Some((batch, (budget, Some(message))))
        }
        _ => None,
    }
}

/// Returns the tokens and cost that a run's event used.
pub(crate) fn event_spending(event: &Envelope) -> Result<BatchSpending, StoreError> {
    if event.kind != "ModelAnswered" {
        return Ok(BatchSpending::default());
    }
    match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
        Ok(RunEvent::ModelAnswered(answered)) => {
            Ok(BatchSpending::from_usage(answered.usage, answered.cost_nusd))
        }
        Ok(_) => Ok(BatchSpending::default()),
        Err(error) => Err(corrupt_error(format!("an answer of a model cannot be read: {error}"))),
    }
}
