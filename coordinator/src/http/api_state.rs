//! What every route shares: the application's state, and what HTTP alone needs beside it.

use std::{ops::Deref, sync::Arc, time::Duration};

use docket_schema::{
    api::ProblemCode,
    ids::{Epoch, RunId},
};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::{
    api_error::ApiError,
    auth::{Caller, RunTokens},
    failpoint::LostReply,
    meters::HttpMeters,
    rate_limit::{RateLimiter, RateLimits},
    run_broadcast::RunBroadcasts,
    sessions::{BrowserSession, BrowserSessions},
};
use crate::{
    app::AppState,
    history_cache::RunHistoryCache,
    history_provider::HistoryProvider,
    store::{AppendError, RunLeaseState},
    wakeups::WakeupBus,
};

/// Looks back that are under way at once: each may read a whole log and compare whole trees.
const CONCURRENT_HISTORY_READS_MAX: usize = 4;

/// How often a worker that waits for work has the store looked at, at most: the longest time until it sees a task
/// that another coordinator took in, where no hint tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollIntervals {
    /// Where hints of other coordinators come.
    pub with_hints: Duration,
    /// Where none come.
    pub without_hints: Duration,
}

impl Default for PollIntervals {
    fn default() -> Self {
        Self { with_hints: Duration::from_secs(2), without_hints: Duration::from_millis(500) }
    }
}

impl PollIntervals {
    pub(super) fn current_interval(self, wakes: &WakeupBus) -> Duration {
        if wakes.hears_hints() { self.with_hints } else { self.without_hints }
    }
}

/// Times and exposure that routes need.
#[derive(Debug, Clone)]
pub(crate) struct ApiSettings {
    /// How long a lease lasts without a heartbeat, as configured.
    pub(crate) lease_ms: u64,
    /// How often workers are asked to send heartbeats.
    pub(crate) heartbeat_ms: u64,
    /// How long a client may take to send one body.
    pub(crate) body_timeout: Duration,
    /// How often the store is looked at for a worker that waits.
    pub(crate) poll_intervals: PollIntervals,
    /// Names by which the coordinator may be called, beside its addresses: a page of a stranger's must not
    /// reach the API through a name of theirs that resolves to this machine.
    pub(crate) allowed_hosts: Vec<String>,
}

/// What an [`Api`] is made of.
pub(crate) struct ApiConfig<'a> {
    /// The store's: run tokens and browsers' sessions are proven by it.
    pub(crate) secret: &'a [u8; 32],
    /// Owns the readers of followed runs.
    pub(crate) task_tracker: TaskTracker,
    pub(crate) rate_limits: RateLimits,
    pub(crate) settings: ApiSettings,
    /// What shows files of runs, where this program brought it.
    pub(crate) run_history: Option<Arc<dyn HistoryProvider>>,
    /// Tests only: where the coordinator dies before it answers.
    pub(crate) lost_replies: Vec<LostReply>,
}

/// See the module. The application's state is reached as if it were this one's.
pub(crate) struct ApiState {
    pub(crate) app: Arc<AppState>,
    pub(crate) run_tokens: RunTokens,
    pub(super) sessions: BrowserSessions,
    /// Runs that somebody follows.
    pub(super) broadcasts: Arc<RunBroadcasts>,
    pub(super) rate_limiter: RateLimiter,
    pub(super) settings: ApiSettings,
    /// What was asked since the process began.
    pub(super) http_meters: HttpMeters,
    /// The runs that were looked at last.
    pub(crate) histories: RunHistoryCache,
    /// What shows files of runs, where this program brought it.
    pub(super) run_history: Option<Arc<dyn HistoryProvider>>,
    /// Room for those who look back.
    pub(super) history_permits: Semaphore,
    pub(super) lost_replies: Vec<LostReply>,
}

impl Deref for ApiState {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.app
    }
}

impl ApiState {
    pub(super) fn new(app: Arc<AppState>, config: ApiConfig<'_>, meters: HttpMeters) -> Self {
        Self {
            histories: RunHistoryCache::new(Arc::clone(&app.store)),
            app,
            run_tokens: RunTokens::new(config.secret),
            sessions: BrowserSessions::new(config.secret),
            broadcasts: Arc::new(RunBroadcasts::new(config.task_tracker)),
            rate_limiter: RateLimiter::new(config.rate_limits),
            settings: config.settings,
            http_meters: meters,
            run_history: config.run_history,
            history_permits: Semaphore::new(CONCURRENT_HISTORY_READS_MAX),
            lost_replies: config.lost_replies,
        }
    }

    /// Who presents `token`.
    pub(crate) fn authenticate_token(&self, token: &str) -> Option<Caller> {
        if let Some((run, epoch)) = self.run_tokens.verify_token(token) {
            return Some(Caller::RunToken { run, epoch });
        }
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        let (name, role) = self.tokens.find(&hash, self.clock.now())?;
        Some(Caller::ApiToken { name, role, hash, session: None })
    }

    /// Whose browser bears this session.
    pub(crate) fn authenticate_session(&self, session: &BrowserSession) -> Option<Caller> {
        let now = self.clock.now();
        if !self.sessions.is_active(session, now) {
            return None;
        }
        let (name, role, hash) =
            self.tokens.find_by(now, |hash| self.sessions.belongs_to_token(session, hash))?;
        Some(Caller::ApiToken { name, role, hash, session: Some(*session) })
    }

    /// Refuses whoever's token has ended since: before each step of a request that waits.
    pub(crate) fn check_still_authorized(&self, caller: &Caller) -> Result<(), ApiError> {
        let ended = match caller {
            Caller::ApiToken { hash, session, .. } => {
                let now = self.clock.now();
                let stands = session.as_ref().is_none_or(|session| self.sessions.is_active(session, now));
                !stands || self.tokens.find(hash, now).is_none()
            }
            Caller::Anonymous | Caller::RunToken { .. } => false,
        };
        if ended {
            return Err(ApiError::new(
                ProblemCode::Unauthorized,
                "this token has been revoked, or has expired",
            ));
        }
        Ok(())
    }

    /// Refuses a run token whose epoch is past. Appends are not asked here: the store's own condition
    /// refuses them, and one sent again after the end is answered as the first time.
    pub(crate) async fn check_epoch_in_force(&self, caller: &Caller) -> Result<(), ApiError> {
        let Caller::RunToken { run, epoch } = caller else { return Ok(()) };
        match self.store.run_lease_state(*run).await? {
            Some(RunLeaseState::Leased(current)) if current == *epoch => Ok(()),
            Some(RunLeaseState::Leased(current)) => {
                Err(AppendError::Fenced { asked: *epoch, current }.into())
            }
            Some(RunLeaseState::Unleased(_)) => Err(AppendError::LeaseEnded { asked: *epoch }.into()),
            Some(RunLeaseState::Closed) => Err(AppendError::Closed.into()),
            None => Err(AppendError::StreamNotFound.into()),
        }
    }

    /// Refuses whoever is not a process of this run.
    pub(crate) fn require_run_token(caller: &Caller, run: RunId) -> Result<(), ApiError> {
        match caller {
            Caller::RunToken { run: own, .. } if *own == run => Ok(()),
            Caller::RunToken { .. } => {
                Err(ApiError::new(ProblemCode::Forbidden, "this run token is another run's")
                    .with_field("run"))
            }
            Caller::Anonymous | Caller::ApiToken { .. } => {
                Err(ApiError::new(ProblemCode::Forbidden, "only the run's own token may do this"))
            }
        }
    }

    /// Refuses a run token that is not this run's and epoch's.
    pub(crate) fn require_run_epoch(caller: &Caller, run: RunId, epoch: Epoch) -> Result<(), ApiError> {
        Self::require_run_token(caller, run)?;
        match caller {
            Caller::RunToken { epoch: held, .. } if *held != epoch => Err(ApiError::new(
                ProblemCode::Forbidden,
                format!("this run token is good for epoch {held}, the request is of epoch {epoch}"),
            )
            .with_field("epoch")),
            Caller::RunToken { .. } | Caller::Anonymous | Caller::ApiToken { .. } => Ok(()),
        }
    }

    /// A long poll's end: after `wait_ms`, never longer than the protocol's limit.
    pub(crate) fn long_poll_deadline(wait_ms: u64) -> tokio::time::Instant {
        let wait = wait_ms.min(docket_schema::api::LONG_POLL_MS_MAX);
        tokio::time::Instant::now() + Duration::from_millis(wait)
    }
}
