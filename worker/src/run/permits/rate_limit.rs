//! Provider rate-limit permits, where all workers share a limit.
//!
//! The coordinator's reply to an append names the providers with limits. Before a call to one of them the run
//! requests a permit and waits until the time it is given. Nothing is recorded, and no engine notices: the turn just
//! takes longer. While the coordinator is unavailable no call is made: it might exceed the limit, and its reply could
//! not be recorded. After the usual patience the run is released, and another worker continues with that call.

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

/// Assumed size of a reply before it arrives, in bytes: a few sentences and a call. The next permit corrects the
/// difference.
const ESTIMATED_ANSWER_BYTES: u64 = 2048;

/// The permit of the last call, and its actual usage.
#[derive(Debug, Default)]
pub(in crate::run) struct ProviderPermit {
    /// Provider and number of tokens reserved.
    reserved: Option<(String, u64)>,
    /// Tokens that calls of the same provider used beyond the reservation.
    correction: i64,
}

impl ProviderPermit {
    /// Accounts for the usage of the last call.
    pub(in crate::run) fn record_usage(&mut self, results: &PendingAppend) {
        let usage = results.events().iter().find_map(|(_, event)| {
            if let RunEvent::ModelAnswered(answered) = event { Some(answered.usage) } else { None }
        });
        if let (Some((_, taken)), Some(usage)) = (&self.reserved, usage) {
            let had = i64::try_from(total_tokens(usage)).unwrap_or(i64::MAX);
            let taken = i64::try_from(*taken).unwrap_or(i64::MAX);
            self.correction = self.correction.saturating_add(had.saturating_sub(taken));
        }
        // A failed call keeps its reservation: the provider may have counted it.
    }

    /// Waits until the call may be made. Returns `false` if the supervisor drains: the call stays open for the next
    /// worker.
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

/// Sleeps for `wait`, unless the supervisor drains.
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
