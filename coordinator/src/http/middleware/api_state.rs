//! State shared by all routes: the application state, and what only HTTP needs.

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

/// Maximum number of concurrent history reads: each may read a full log and compare full trees.
const CONCURRENT_HISTORY_READS_MAX: usize = 4;

/// How often the store is polled at most for a worker that waits for work. This is the longest
/// delay until the worker sees a task accepted by another coordinator without a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollIntervals {
    /// Interval if hints of other coordinators arrive.
    pub with_hints: Duration,
    /// Interval without such hints.
    pub without_hints: Duration,
}

impl Default for PollIntervals {
    fn default() -> Self {
        Self { with_hints: Duration::from_secs(2), without_hints: Duration::from_millis(500) }
    }
}

impl PollIntervals {
    pub(in crate::http) fn current_interval(self, wakes: &WakeupBus) -> Duration {
        if wakes.hears_hints() { self.with_hints } else { self.without_hints }
    }
}

/// Timing and exposure settings of the routes.
#[derive(Debug, Clone)]
pub(crate) struct ApiSettings {
    /// Configured duration of a lease without a heartbeat.
    pub(crate) lease_ms: u64,
    /// Heartbeat interval requested from workers.
    pub(crate) heartbeat_ms: u64,
    /// Time limit for a client to send a body.
    pub(crate) body_timeout: Duration,
    /// Poll intervals for waiting workers.
    pub(crate) poll_intervals: PollIntervals,
    /// Names under which the coordinator may be called, in addition to its addresses. Prevents pages of
    /// other sites from reaching the API through a name that resolves to this machine (DNS rebinding).
    pub(crate) allowed_hosts: Vec<String>,
}

/// Inputs for building an [`ApiState`].
pub(crate) struct ApiConfig<'a> {
    /// The store's secret, which signs run tokens and browser sessions.
    pub(crate) secret: &'a [u8; 32],
    /// Owns the readers of followed runs.
    pub(crate) task_tracker: TaskTracker,
    pub(crate) rate_limits: RateLimits,
    pub(crate) settings: ApiSettings,
    /// Provides views of run files, if this program has any.
    pub(crate) run_history: Option<Arc<dyn HistoryProvider>>,
    /// Tests only: where the coordinator dies before it replies.
    pub(crate) lost_replies: Vec<LostReply>,
}

/// State of the HTTP API. Dereferences to the application state.
pub(crate) struct ApiState {
    pub(crate) app: Arc<AppState>,
    pub(crate) run_tokens: RunTokens,
    pub(in crate::http) sessions: BrowserSessions,
    /// Broadcasts of followed runs.
    pub(in crate::http) broadcasts: Arc<RunBroadcasts>,
    pub(in crate::http) rate_limiter: RateLimiter,
    pub(in crate::http) settings: ApiSettings,
    /// Request meters since the process started.
    pub(in crate::http) http_meters: HttpMeters,
    /// Cache of recently viewed runs.
    pub(crate) histories: RunHistoryCache,
    /// Provides views of run files, if this program has any.
    pub(in crate::http) run_history: Option<Arc<dyn HistoryProvider>>,
    /// Limits concurrent history reads.
    pub(in crate::http) history_permits: Semaphore,
    pub(in crate::http) lost_replies: Vec<LostReply>,
}

impl Deref for ApiState {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.app
    }
}

impl ApiState {
    pub(in crate::http) fn new(app: Arc<AppState>, config: ApiConfig<'_>, meters: HttpMeters) -> Self {
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

    /// Returns the caller that presents `token`.
    pub(crate) fn authenticate_token(&self, token: &str) -> Option<Caller> {
        if let Some((run, epoch)) = self.run_tokens.verify_token(token) {
            return Some(Caller::RunToken { run, epoch });
        }
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        let (name, role) = self.tokens.find(&hash, self.clock.now())?;
        Some(Caller::ApiToken { name, role, hash, session: None })
    }

    /// Returns the caller of a browser session.
    pub(crate) fn authenticate_session(&self, session: &BrowserSession) -> Option<Caller> {
        let now = self.clock.now();
        if !self.sessions.is_active(session, now) {
            return None;
        }
        let (name, role, hash) =
            self.tokens.find_by(now, |hash| self.sessions.belongs_to_token(session, hash))?;
        Some(Caller::ApiToken { name, role, hash, session: Some(*session) })
    }

    /// Refuses callers whose token has ended. Checked before each step of a request that waits.
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

    /// Refuses a run token of a past epoch. Appends skip this check: the store refuses stale ones
    /// itself, and a repeated append after the end must get the same response as the first.
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

    /// Refuses callers that are not a process of this run.
    pub(crate) fn require_run_token(caller: &Caller, run: RunId) -> Result<(), ApiError> {
        match caller {
            Caller::RunToken { run: own, .. } if *own == run => Ok(()),
            Caller::RunToken { .. } => {
                Err(ApiError::new(ProblemCode::Forbidden, "this run token belongs to another run")
                    .with_field("run"))
            }
            Caller::Anonymous | Caller::ApiToken { .. } => {
                Err(ApiError::new(ProblemCode::Forbidden, "only the run's own token may do this"))
            }
        }
    }

    /// Refuses a run token of another run or epoch.
    pub(crate) fn require_run_epoch(caller: &Caller, run: RunId, epoch: Epoch) -> Result<(), ApiError> {
        Self::require_run_token(caller, run)?;
        match caller {
            Caller::RunToken { epoch: held, .. } if *held != epoch => Err(ApiError::new(
                ProblemCode::Forbidden,
                format!("this run token is valid for epoch {held}, the request is for epoch {epoch}"),
            )
            .with_field("epoch")),
            Caller::RunToken { .. } | Caller::Anonymous | Caller::ApiToken { .. } => Ok(()),
        }
    }

    /// Returns the end of a long poll: after `wait_ms`, limited by the protocol's maximum.
    pub(crate) fn long_poll_deadline(wait_ms: u64) -> tokio::time::Instant {
        let wait = wait_ms.min(docket_schema::api::LONG_POLL_MS_MAX);
        tokio::time::Instant::now() + Duration::from_millis(wait)
    }
}
