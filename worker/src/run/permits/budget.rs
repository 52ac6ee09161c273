//! Checks whether the batch budget covers the run's next model call.
//!
//! The check runs before the call is announced and after the previous reply is in the log, because the coordinator
//! counts by the log; it reserves the most the call may use. If the budget does not cover the call, the run's log
//! records that and its engine lets the run rest; once the budget is raised, the run continues with this very call. A
//! run whose model has no price can never be covered by a money budget, so it fails instead. Without batch budgets
//! there is no request.

use std::time::{Duration, Instant};

use docket_schema::{
    api::PermitRequest,
    ids::{Epoch, RunId},
    run::{LimitKind, LimitReached, RunEvent, RunState},
    system::MaxCallCost,
};

use crate::run::{
    errors::executor_error::RunExecutorError,
    log::{
        journal::{Journal, JournalError, fold_unrecorded, from_client_error},
        pending_append::PendingAppend,
    },
};
use crate::{
    client::{CoordinatorClient, retry_until_with_room},
    engine::{ModelCall, max_call_cost},
    model::ModelProvider,
};

/// Asks the coordinator whether the batch budget covers the run's next model call.
#[derive(Debug)]
pub(in crate::run) struct BudgetClient {
    client: CoordinatorClient,
    run: RunId,
    epoch: Epoch,
    patience: Duration,
}

/// Whether a call is covered.
#[derive(Debug)]
pub(in crate::run) enum BudgetPermit {
    Granted,
    /// Possibly, once a call of another run has ended: ask again after this delay.
    RetryAfter(Duration),
    /// Not covered: the limit reached, and why.
    Denied(LimitKind, String),
}

impl BudgetClient {
    /// Creates a client if some of the run's calls may need a permit.
    pub(in crate::run) fn for_journal(journal: &Journal) -> Option<Self> {
        let Journal { client, run, epoch, patience, .. } = journal;
        journal.has_batch_budgets.then(|| Self {
            client: client.clone(),
            run: *run,
            epoch: *epoch,
            patience: *patience,
        })
    }

    /// Requests a permit for a call.
    pub(in crate::run) async fn request_permit(
        &self,
        state: &RunState,
        call: &ModelCall,
    ) -> Result<BudgetPermit, RunExecutorError> {
        let Some(pins) = state.pins.as_deref() else { return Ok(BudgetPermit::Granted) };
        let cost: MaxCallCost = max_call_cost(state, pins, call);
        let provider = ModelProvider::for_model(&call.model).map_or("", ModelProvider::key_name).to_owned();
        let request = PermitRequest { provider, tokens: 0, correction: 0, call: Some(cost) };
        let deadline = Instant::now() + self.patience;
        let asked = retry_until_with_room(deadline, || self.client.request_permit(self.run, &request)).await;
        let permit = asked.map_err(from_client_error)?;
        Ok(match permit.over {
            // If raising the budget cannot help, only this run ends, and no other of its batch.
            Some(message) if permit.alone => BudgetPermit::Denied(LimitKind::Money, message),
            Some(message) => BudgetPermit::Denied(LimitKind::Batch, message),
            None if permit.granted => BudgetPermit::Granted,
            None => BudgetPermit::RetryAfter(Duration::from_millis(permit.wait_ms)),
        })
    }

    /// Returns the events that record a denied call, and the state after them.
    pub(in crate::run) fn record_limit_reached(
        &self,
        state: &RunState,
        which: LimitKind,
        message: String,
    ) -> Result<(PendingAppend, RunState), JournalError> {
        let mut said = PendingAppend::default();
        said.push(state.turn, LimitReached { which, message: Some(message) });
        let mut after = state.clone();
        fold_unrecorded(&mut after, self.epoch, said.events())?;
        Ok((said, after))
    }
}

/// Whether the usage of a call is about to be recorded: until then, the remaining budget is unknown.
pub(in crate::run) fn is_usage_recorded(results: &PendingAppend) -> bool {
    let is_answer = |event: &RunEvent| matches!(event, RunEvent::ModelAnswered(_) | RunEvent::ModelFailed(_));
    !results.events().iter().any(|(_, event)| is_answer(event))
}
