//! What every route shares: the application's state, and what HTTP alone needs beside it.

use std::{ops::Deref, sync::Arc, time::Duration};

use docket_schema::{
    ids::{Epoch, RunId},
    wire::ProblemCode,
};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::{
    auth::{Caller, RunTokens},
    errors::Refusal,
    failpoint::AnswerLost,
    meters::HttpMeters,
    pace::{Pace, Rates},
    relay::Relays,
    sessions::{Session, Sessions},
};
use crate::{
    app::AppState,
    history::RunHistories,
    past::Past,
    store::{AppendError, Holding},
    wakeups::Wakes,
};

/// Looks back that are under way at once: each may read a whole log and compare whole trees.
const LOOKS_AT_ONCE: usize = 4;

/// How often a worker that waits for work has the store looked at, at most: the longest time until it sees a task
/// that another coordinator took in, where no hint tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polls {
    /// Where hints of other coordinators come.
    pub hinted: Duration,
    /// Where none come.
    pub unhinted: Duration,
}

impl Default for Polls {
    fn default() -> Self {
        Self { hinted: Duration::from_secs(2), unhinted: Duration::from_millis(500) }
    }
}

impl Polls {
    pub(super) fn of(self, wakes: &Wakes) -> Duration {
        if wakes.are_hinted() { self.hinted } else { self.unhinted }
    }
}

/// Times and exposure that routes need.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// How long a lease lasts without a heartbeat, as configured.
    pub(crate) lease_ms: u64,
    /// How often workers are asked to send heartbeats.
    pub(crate) heartbeat_ms: u64,
    /// How long a client may take to send one body.
    pub(crate) body_read: Duration,
    /// How often the store is looked at for a worker that waits.
    pub(crate) polls: Polls,
    /// Names by which the coordinator may be called, beside its addresses: a page of a stranger's must not
    /// reach the API through a name of theirs that resolves to this machine.
    pub(crate) hosts: Vec<String>,
}

/// What an [`Api`] is made of.
pub(crate) struct ApiConfig<'a> {
    /// The store's: run tokens and browsers' sessions are proven by it.
    pub(crate) secret: &'a [u8; 32],
    /// Owns the readers of followed runs.
    pub(crate) tasks: TaskTracker,
    pub(crate) rates: Rates,
    pub(crate) limits: Limits,
    /// What shows files of runs, where this program brought it.
    pub(crate) past: Option<Arc<dyn Past>>,
    /// Tests only: where the coordinator dies before it answers.
    pub(crate) answers_lost: Vec<AnswerLost>,
}

/// See the module. The application's state is reached as if it were this one's.
pub(crate) struct Api {
    pub(crate) app: Arc<AppState>,
    pub(crate) run_tokens: RunTokens,
    pub(super) sessions: Sessions,
    /// Runs that somebody follows.
    pub(super) relays: Arc<Relays>,
    pub(super) pace: Pace,
    pub(super) limits: Limits,
    /// What was asked since the process began.
    pub(super) meters: HttpMeters,
    /// The runs that were looked at last.
    pub(crate) histories: RunHistories,
    /// What shows files of runs, where this program brought it.
    pub(super) past: Option<Arc<dyn Past>>,
    /// Room for those who look back.
    pub(super) looks: Semaphore,
    pub(super) answers_lost: Vec<AnswerLost>,
}

impl Deref for Api {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.app
    }
}

impl Api {
    pub(super) fn new(app: Arc<AppState>, config: ApiConfig<'_>, meters: HttpMeters) -> Self {
        Self {
            histories: RunHistories::new(Arc::clone(&app.store)),
            app,
            run_tokens: RunTokens::new(config.secret),
            sessions: Sessions::new(config.secret),
            relays: Arc::new(Relays::new(config.tasks)),
            pace: Pace::new(config.rates),
            limits: config.limits,
            meters,
            past: config.past,
            looks: Semaphore::new(LOOKS_AT_ONCE),
            answers_lost: config.answers_lost,
        }
    }

    /// Who presents `token`.
    pub(crate) fn caller(&self, token: &str) -> Option<Caller> {
        if let Some((run, epoch)) = self.run_tokens.check(token) {
            return Some(Caller::Run { run, epoch });
        }
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        let (name, role) = self.tokens.find(&hash, self.clock.now())?;
        Some(Caller::Api { name, role, hash, session: None })
    }

    /// Whose browser bears this session.
    pub(crate) fn browser(&self, session: &Session) -> Option<Caller> {
        let now = self.clock.now();
        if !self.sessions.stands(session, now) {
            return None;
        }
        let (name, role, hash) = self.tokens.find_by(now, |hash| self.sessions.is_of(session, hash))?;
        Some(Caller::Api { name, role, hash, session: Some(*session) })
    }

    /// Refuses whoever's token has ended since: before each step of a request that waits.
    pub(crate) fn must_still_be(&self, caller: &Caller) -> Result<(), Refusal> {
        let ended = match caller {
            Caller::Api { hash, session, .. } => {
                let now = self.clock.now();
                let stands = session.as_ref().is_none_or(|session| self.sessions.stands(session, now));
                !stands || self.tokens.find(hash, now).is_none()
            }
            Caller::Anyone | Caller::Run { .. } => false,
        };
        if ended {
            return Err(Refusal::new(
                ProblemCode::Unauthorized,
                "this token has been revoked, or has expired",
            ));
        }
        Ok(())
    }

    /// Refuses a run token whose epoch is past. Appends are not asked here: the store's own condition
    /// refuses them, and one sent again after the end is answered as the first time.
    pub(crate) async fn must_be_in_force(&self, caller: &Caller) -> Result<(), Refusal> {
        let Caller::Run { run, epoch } = caller else { return Ok(()) };
        match self.store.holding(*run).await? {
            Some(Holding::Open(current)) if current == *epoch => Ok(()),
            Some(Holding::Open(current)) => Err(AppendError::Fenced { asked: *epoch, current }.into()),
            Some(Holding::Shut(_)) => Err(AppendError::LeaseEnded { asked: *epoch }.into()),
            Some(Holding::Closed) => Err(AppendError::Closed.into()),
            None => Err(AppendError::NoStream.into()),
        }
    }

    /// Refuses whoever is not a process of this run.
    pub(crate) fn must_be_of(caller: &Caller, run: RunId) -> Result<(), Refusal> {
        match caller {
            Caller::Run { run: own, .. } if *own == run => Ok(()),
            Caller::Run { .. } => {
                Err(Refusal::new(ProblemCode::Forbidden, "this run token is another run's").field("run"))
            }
            Caller::Anyone | Caller::Api { .. } => {
                Err(Refusal::new(ProblemCode::Forbidden, "only the run's own token may do this"))
            }
        }
    }

    /// Refuses a run token that is not this run's and epoch's.
    pub(crate) fn must_hold(caller: &Caller, run: RunId, epoch: Epoch) -> Result<(), Refusal> {
        Self::must_be_of(caller, run)?;
        match caller {
            Caller::Run { epoch: held, .. } if *held != epoch => Err(Refusal::new(
                ProblemCode::Forbidden,
                format!("this run token is good for epoch {held}, the request is of epoch {epoch}"),
            )
            .field("epoch")),
            Caller::Run { .. } | Caller::Anyone | Caller::Api { .. } => Ok(()),
        }
    }

    /// A long poll's end: after `wait_ms`, never longer than the protocol's limit.
    pub(crate) fn poll_end(wait_ms: u64) -> tokio::time::Instant {
        let wait = wait_ms.min(docket_schema::wire::LONG_POLL_MS_MAX);
        tokio::time::Instant::now() + Duration::from_millis(wait)
    }
}
