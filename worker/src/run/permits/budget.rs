//! Whether the budget of a task's batch pays for the next call of a model.
//!
//! Asked before the call is announced, once the answer before it is in the log: the coordinator counts by the log, and
//! sets aside what the call may use at most. Where it does not pay, the run's log says so, and its engine lets the run
//! rest: it goes on with this very call once the budget was raised. A run whose model has no price, so that no budget of
//! money can pay for it, fails instead. Where no batch has a budget nothing is asked.

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

/// Whoever asks for a run.
#[derive(Debug)]
pub(in crate::run) struct BudgetClient {
    client: CoordinatorClient,
    run: RunId,
    epoch: Epoch,
    patience: Duration,
}

/// Whether a call is paid for.
#[derive(Debug)]
pub(in crate::run) enum BudgetPermit {
    Granted,
    /// It may be once a call of another run has ended: to be asked again then.
    RetryAfter(Duration),
    /// It is not: what is reached by that, and why.
    Denied(LimitKind, String),
}

impl BudgetClient {
    /// Of a run some of whose calls may have to be paid for.
    pub(in crate::run) fn for_journal(journal: &Journal) -> Option<Self> {
        let Journal { client, run, epoch, patience, .. } = journal;
        journal.has_batch_budgets.then(|| Self {
            client: client.clone(),
            run: *run,
            epoch: *epoch,
            patience: *patience,
        })
    }

    /// Asks for a call.
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
            // What no raise helps ends this run, and no other of its batch.
            Some(message) if permit.alone => BudgetPermit::Denied(LimitKind::Money, message),
            Some(message) => BudgetPermit::Denied(LimitKind::Batch, message),
            None if permit.granted => BudgetPermit::Granted,
            None => BudgetPermit::RetryAfter(Duration::from_millis(permit.wait_ms)),
        })
    }

    /// What the log is to say where a call is not paid for, and the state after it.
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

/// Whether what a call had is about to be recorded: until it is, nobody knows what is left.
pub(in crate::run) fn is_usage_recorded(results: &PendingAppend) -> bool {
    let is_answer = |event: &RunEvent| matches!(event, RunEvent::ModelAnswered(_) | RunEvent::ModelFailed(_));
    !results.events().iter().any(|(_, event)| is_answer(event))
}
