//! Rate limits of model providers: the fold of `system/limits`, and permits for calls.

use docket_schema::{
    api::{PERMIT_WAIT_MS_MAX, PermitRequest, PermitResponse},
    ids::{Epoch, RunId, Timestamp},
    system::{LimitsFold, PermitCost},
};

use super::{
    CachedFold, TailedFold,
    permit_waiters::{PermitWait, PermitWaiters},
};
use crate::store::{PermitOutcome, Store, StoreError};

/// Wait at the concurrency limit, in milliseconds: a call ends soon, and no one is woken by that.
const CONCURRENCY_WAIT_MS: u64 = 250;

/// Shortest wait before a request is repeated, in milliseconds.
const WAIT_MS_MIN: u64 = 50;

impl CachedFold for LimitsFold {
    const UNREADABLE: &'static str =
        "the log's limits cannot be read; run `docket verify` for details, or use a newer docket";
    const CONTENDED: &'static str = "too many concurrent changes of limits; try again";
}

/// The limits, and the runs that wait for them.
#[derive(Debug, Default)]
pub struct ProviderLimitTable {
    /// The configured limits.
    pub fold: TailedFold<LimitsFold>,
    waiters: PermitWaiters,
}

impl ProviderLimitTable {
    /// Returns the waiting runs.
    pub(crate) const fn waiters(&self) -> &PermitWaiters {
        &self.waiters
    }

    /// Returns the providers with limits, by name.
    pub fn providers(&self) -> Vec<String> {
        self.fold.with_fold(|limits| limits.all().map(|(set, _)| set.provider.clone()).collect())
    }

    /// Whether any provider has a concurrency limit.
    pub fn has_concurrency_limits(&self) -> bool {
        self.fold.with_fold(|limits| limits.all().any(|(set, _)| set.limits.concurrent.is_some()))
    }

    /// Requests a permit for a call. A granted time belongs to the caller alone.
    pub async fn request_permit(
        &self,
        store: &dyn Store,
        caller: (RunId, Epoch),
        request: &PermitRequest,
        now: Timestamp,
    ) -> Result<PermitResponse, StoreError> {
        let limits = self.fold.with_fold(|limits| limits.get(&request.provider).map(|(set, _)| set.limits));
        let Some(limits) = limits else {
            self.waiters.remove(caller.0);
            return Ok(PermitResponse::GRANTED);
        };
        let cost: PermitCost = limits.permit_cost(request.tokens, request.correction);
        let until = now.plus_ms(PERMIT_WAIT_MS_MAX);
        let wait = |at: Timestamp, from: Timestamp| {
            // Rounded up: never early.
            u64::try_from(at.0.saturating_sub(from.0)).unwrap_or(0).div_ceil(1000).min(PERMIT_WAIT_MS_MAX)
        };
        let permitted = store.request_permit(request.provider.clone(), caller, cost, now, until).await?;
        let (granted, wait_ms, not_before) = match permitted {
            PermitOutcome::GrantedAt(at) => (true, wait(at, now), Some(at)),
            PermitOutcome::NotBefore(at) => (false, wait(at, until).max(WAIT_MS_MIN), Some(at)),
            PermitOutcome::AtConcurrencyLimit => (false, CONCURRENCY_WAIT_MS, None),
        };
        let (run, epoch) = caller;
        if wait_ms == 0 {
            self.waiters.remove(run);
        } else {
            let (provider, asks_again_at) = (request.provider.clone(), now.plus_ms(wait_ms));
            let wait = PermitWait { epoch, provider, limits, since: now, until: not_before, asks_again_at };
            self.waiters.insert(run, wait);
        }
        Ok(PermitResponse { granted, wait_ms, over: None, alone: false })
    }
}
