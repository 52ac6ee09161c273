//! The pace at which a run asks models, where all workers together have a limit for their provider.
//!
//! The coordinator's answer to an append names the providers with limits; before a call to one of them the run asks for a
//! permit, and waits for the moment that it is told. Nothing of it is recorded, and no engine knows: a turn takes longer,
//! that is all. While the coordinator is away nobody asks: a call without a permit may be the one that breaks the limit, and
//! its answer could not be recorded; after the usual patience the run is given back, and goes on elsewhere with that call.

use std::time::{Duration, Instant};

use docket_schema::{api::PermitRequest, message::TokenUsage, run::RunEvent};
use tokio::sync::watch;

use crate::run::{
    errors::executor_error::RunExecutorError,
    log::{
        journal::{Journal, from_client_error},
        pending_append::PendingAppend,
    },
    time_limits::RECORD_TIME_MAX,
};
use crate::{
    client::retry_until_with_room,
    engine::ModelCall,
    model::{ModelProvider, RenderedRequest},
    progress::ProgressNote,
};

/// Bytes that an answer is taken to have before it is there: some sentences and a call. What it had is put right by the
/// next permit.
const ESTIMATED_ANSWER_BYTES: u64 = 2048;

/// What was taken for the last call, and what it had.
#[derive(Debug, Default)]
pub(in crate::run) struct ProviderPermit {
    /// Whose model, and for how many tokens it was taken.
    reserved: Option<(String, u64)>,
    /// Tokens that calls had beyond that, of the same provider.
    correction: i64,
}

impl ProviderPermit {
    /// Takes in what the last call had.
    pub(in crate::run) fn record_usage(&mut self, results: &PendingAppend) {
        let usage = results.events().iter().find_map(|(_, event)| {
            if let RunEvent::ModelAnswered(answered) = event { Some(answered.usage) } else { None }
        });
        if let (Some((_, taken)), Some(usage)) = (&self.reserved, usage) {
            let had = i64::try_from(total_tokens(usage)).unwrap_or(i64::MAX);
            let taken = i64::try_from(*taken).unwrap_or(i64::MAX);
            self.correction = self.correction.saturating_add(had.saturating_sub(taken));
        }
        // What failed keeps what was taken for it: the provider may have counted it.
    }

    /// Waits until the call may be made. `false` = the supervisor drains: the call stays open, for whoever goes on.
    pub(in crate::run) async fn wait_for_permit(
        &mut self,
        journal: &Journal,
        drain: &watch::Receiver<bool>,
        call: &ModelCall,
        rendered: &RenderedRequest,
        progress: &ProgressNote,
    ) -> Result<bool, RunExecutorError> {
        let provider = ModelProvider::for_model(&call.model).map_or("", ModelProvider::key_name);
        if !journal.limited_providers.iter().any(|limited| limited == provider) {
            return Ok(true);
        }
        let tokens = total_tokens(TokenUsage::estimate(rendered.body.len() as u64, ESTIMATED_ANSWER_BYTES));
        if self.reserved.as_ref().is_some_and(|(before, _)| before != provider) {
            self.correction = 0;
        }
        let correction = self.correction;
        let request = PermitRequest { provider: provider.to_owned(), tokens, correction, call: None };
        loop {
            if *drain.borrow() {
                return Ok(false);
            }
            progress.set_step_limit(RECORD_TIME_MAX);
            let deadline = Instant::now() + journal.patience;
            let (client, run) = (&journal.client, journal.run);
            let asked = retry_until_with_room(deadline, || client.request_permit(run, &request)).await;
            let permit = asked.map_err(from_client_error)?;
            let wait = Duration::from_millis(permit.wait_ms);
            progress.set_step_limit(wait);
            wait_unless_drained(drain, wait).await;
            if permit.granted && !*drain.borrow() {
                *self = Self { reserved: Some((request.provider, tokens)), correction: 0 };
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

const fn total_tokens(usage: TokenUsage) -> u64 {
    usage.request_tokens().saturating_add(usage.output_tokens)
}
