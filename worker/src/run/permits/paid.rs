//! Whether the budget of a task's batch pays for the next call of a model.
//!
//! Asked before the call is announced, once the answer before it is in the log: the coordinator counts by the log, and
//! sets aside what the call may use at most. Where it does not pay, the run's log says so, and its engine lets the run
//! rest: it goes on with this very call once the budget was raised. A run whose model has no price, so that no budget of
//! money can pay for it, fails instead. Where no batch has a budget nothing is asked.

use std::time::{Duration, Instant};

use docket_schema::{
    ids::{Epoch, RunId},
    run::{Limit, LimitReached, RunEvent, RunState},
    system::CallCost,
    wire::PermitRequest,
};

use crate::run::{
    errors::driver_error::DriverError,
    log::{
        journal::{Journal, JournalError, fold, of_client},
        outgoing::Outgoing,
    },
};
use crate::{
    client::{Client, patiently_without_room},
    engine::{ModelCall, most},
    model::Provider,
};

/// Whoever asks for a run.
#[derive(Debug)]
pub(in crate::run) struct Purse {
    client: Client,
    run: RunId,
    epoch: Epoch,
    patience: Duration,
}

/// Whether a call is paid for.
#[derive(Debug)]
pub(in crate::run) enum Paid {
    Yes,
    /// It may be once a call of another run has ended: to be asked again then.
    Later(Duration),
    /// It is not: what is reached by that, and why.
    No(Limit, String),
}

impl Purse {
    /// Of a run some of whose calls may have to be paid for.
    pub(in crate::run) fn of(journal: &Journal) -> Option<Self> {
        let Journal { client, run, epoch, patience, .. } = journal;
        journal.budgets.then(|| Self {
            client: client.clone(),
            run: *run,
            epoch: *epoch,
            patience: *patience,
        })
    }

    /// Asks for a call.
    pub(in crate::run) async fn pays(&self, state: &RunState, call: &ModelCall) -> Result<Paid, DriverError> {
        let Some(pins) = state.pins.as_deref() else { return Ok(Paid::Yes) };
        let cost: CallCost = most(state, pins, call);
        let provider = Provider::of(&call.model).map_or("", Provider::key_name).to_owned();
        let request = PermitRequest { provider, tokens: 0, correction: 0, call: Some(cost) };
        let deadline = Instant::now() + self.patience;
        let asked = patiently_without_room(deadline, || self.client.permit(self.run, &request)).await;
        let permit = asked.map_err(of_client)?;
        Ok(match permit.over {
            // What no raise helps ends this run, and no other of its batch.
            Some(message) if permit.alone => Paid::No(Limit::Money, message),
            Some(message) => Paid::No(Limit::Batch, message),
            None if permit.granted => Paid::Yes,
            None => Paid::Later(Duration::from_millis(permit.wait_ms)),
        })
    }

    /// What the log is to say where a call is not paid for, and the state after it.
    pub(in crate::run) fn over(
        &self,
        state: &RunState,
        which: Limit,
        message: String,
    ) -> Result<(Outgoing, RunState), JournalError> {
        let mut said = Outgoing::default();
        said.push(state.turn, LimitReached { which, message: Some(message) });
        let mut after = state.clone();
        fold(&mut after, self.epoch, said.events())?;
        Ok((said, after))
    }
}

/// Whether what a call had is about to be recorded: until it is, nobody knows what is left.
pub(in crate::run) fn are_counted(results: &Outgoing) -> bool {
    let is_answer = |event: &RunEvent| matches!(event, RunEvent::ModelAnswered(_) | RunEvent::ModelFailed(_));
    !results.events().iter().any(|(_, event)| is_answer(event))
}
