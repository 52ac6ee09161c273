//! The pace at which a run asks models, where all workers together have a limit for their provider.
//!
//! The coordinator's answer to an append names the providers with limits; before a call to one of them the run asks for a
//! permit, and waits for the moment that it is told. Nothing of it is recorded, and no engine knows: a turn takes longer,
//! that is all. While the coordinator is away nobody asks: a call without a permit may be the one that breaks the limit, and
//! its answer could not be recorded; after the usual patience the run is given back, and goes on elsewhere with that call.

use std::time::{Duration, Instant};

use docket_schema::{message::Usage, run::RunEvent, wire::PermitRequest};
use tokio::sync::watch;

use crate::run::{
    errors::driver_error::DriverError,
    log::{
        journal::{Journal, of_client},
        outgoing::Outgoing,
    },
    time_limits::RECORD_AT_MOST,
};
use crate::{
    client::patiently_without_room,
    engine::ModelCall,
    model::{Provider, Rendered},
    progress::ProgressNote,
};

/// Bytes that an answer is taken to have before it is there: some sentences and a call. What it had is put right by the
/// next permit.
const ANSWER_BYTES: u64 = 2048;

/// What was taken for the last call, and what it had.
#[derive(Debug, Default)]
pub(in crate::run) struct Pace {
    /// Whose model, and for how many tokens it was taken.
    taken: Option<(String, u64)>,
    /// Tokens that calls had beyond that, of the same provider.
    correction: i64,
}

impl Pace {
    /// Takes in what the last call had.
    pub(in crate::run) fn answered(&mut self, results: &Outgoing) {
        let usage = results.events().iter().find_map(|(_, event)| {
            if let RunEvent::ModelAnswered(answered) = event { Some(answered.usage) } else { None }
        });
        if let (Some((_, taken)), Some(usage)) = (&self.taken, usage) {
            let had = i64::try_from(tokens(usage)).unwrap_or(i64::MAX);
            let taken = i64::try_from(*taken).unwrap_or(i64::MAX);
            self.correction = self.correction.saturating_add(had.saturating_sub(taken));
        }
        // What failed keeps what was taken for it: the provider may have counted it.
    }

    /// Waits until the call may be made. `false` = the supervisor drains: the call stays open, for whoever goes on.
    pub(in crate::run) async fn may_ask(
        &mut self,
        journal: &Journal,
        drain: &watch::Receiver<bool>,
        call: &ModelCall,
        rendered: &Rendered,
        progress: &ProgressNote,
    ) -> Result<bool, DriverError> {
        let provider = Provider::of(&call.model).map_or("", Provider::key_name);
        if !journal.limited.iter().any(|limited| limited == provider) {
            return Ok(true);
        }
        let tokens = tokens(Usage::estimated(rendered.body.len() as u64, ANSWER_BYTES));
        if self.taken.as_ref().is_some_and(|(before, _)| before != provider) {
            self.correction = 0;
        }
        let correction = self.correction;
        let request = PermitRequest { provider: provider.to_owned(), tokens, correction, call: None };
        loop {
            if *drain.borrow() {
                return Ok(false);
            }
            progress.at_most(RECORD_AT_MOST);
            let deadline = Instant::now() + journal.patience;
            let (client, run) = (&journal.client, journal.run);
            let asked = patiently_without_room(deadline, || client.permit(run, &request)).await;
            let permit = asked.map_err(of_client)?;
            let wait = Duration::from_millis(permit.wait_ms);
            progress.at_most(wait);
            wait_unless_drained(drain, wait).await;
            if permit.granted && !*drain.borrow() {
                *self = Self { taken: Some((request.provider, tokens)), correction: 0 };
                return Ok(true);
            }
        }
    }
}

/// Lets so much time pass, unless the supervisor drains.
pub(in crate::run) async fn wait_unless_drained(drain: &watch::Receiver<bool>, wait: Duration) {
    let mut drain = drain.clone();
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        _ = drain.wait_for(|drains| *drains) => {}
    }
}

const fn tokens(usage: Usage) -> u64 {
    usage.asked_tokens().saturating_add(usage.output_tokens)
}
