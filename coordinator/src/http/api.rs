//! What every route shares: the store, the clock, the tokens, the wake-ups and the limits.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use docket_schema::{
    ids::{Epoch, RunId},
    redact::Redactor,
    task::TaskRecord,
    wire::ProblemCode,
};
use tokio_util::sync::CancellationToken;

use super::{
    auth::{Caller, RunTokens},
    errors::Refusal,
    failpoint::AnswerLost,
    metrics::HttpMeters,
    pace::Pace,
    refused::RefusedCalls,
    relay::Relays,
    sessions::{Session, Sessions},
    table::TokenTable,
};
use crate::{
    archive::ArchiveSettings,
    clock::Clock,
    history::RunHistories,
    lease_length::LeaseLength,
    limits::LimitTable,
    memory::MemoryTable,
    notify::{Notifier, NotifyMeters, NotifyTable},
    past::Past,
    schedules::ScheduleTable,
    server::Polls,
    store::{AppendError, Holding, Store},
    tasks::Wakes,
};

/// Times and exposure that routes need.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long a lease lasts without a heartbeat, as configured.
    pub lease_ms: u64,
    /// How often workers are asked to send heartbeats.
    pub heartbeat_ms: u64,
    /// How long a client may take to send one body.
    pub body_read: Duration,
    /// How often the store is looked at for a worker that waits.
    pub polls: Polls,
    /// Names by which the coordinator may be called, beside its addresses: a page of a stranger's must not
    /// reach the API through a name of theirs that resolves to this machine.
    pub hosts: Vec<String>,
}

/// See the module.
pub struct Api {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) tokens: Arc<TokenTable>,
    pub(crate) run_tokens: RunTokens,
    pub(crate) sessions: Sessions,
    pub(crate) wakes: Arc<Wakes>,
    /// Runs that somebody follows.
    pub(crate) relays: Relays,
    pub(crate) schedules: ScheduleTable,
    pub(crate) model_limits: LimitTable,
    pub(crate) memory: MemoryTable,
    /// Some batch has a budget, as of the last look.
    pub(crate) budgets: AtomicBool,
    pub(crate) pace: Pace,
    /// Calls that were refused for their token, until they are written down.
    pub(crate) refused: RefusedCalls,
    pub(crate) limits: Limits,
    /// How long a lease lasts that is granted or renewed now.
    pub(crate) lease_length: Arc<LeaseLength>,
    /// What was asked since the process began.
    pub(crate) meters: HttpMeters,
    /// Strikes secrets out of what people write.
    pub(crate) redactor: Redactor,
    /// How it archives.
    pub(crate) archive: ArchiveSettings,
    /// The runs that were looked at last.
    pub(crate) histories: RunHistories,
    /// What shows files of runs, where this program brought it.
    pub(crate) past: Option<Arc<dyn Past>>,
    /// What is to be told elsewhere, and what became of it.
    pub(crate) notifications: Arc<NotifyTable>,
    /// Who tells, where this program brought it.
    pub(crate) notifier: Option<Arc<dyn Notifier>>,
    pub(crate) notify_meters: Arc<NotifyMeters>,
    /// Room for those who look back.
    pub(crate) looks: tokio::sync::Semaphore,
    /// Tests only: where the coordinator dies before it answers.
    pub(crate) answers_lost: Vec<AnswerLost>,
    /// Cancelled when the coordinator shuts down: long polls answer at once, followers end.
    pub(crate) shutdown: CancellationToken,
}

impl Api {
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

    /// Wakes whoever a task's new state concerns.
    pub(crate) fn announce(&self, record: &TaskRecord) {
        self.wakes.task_is(record.state);
        if let Some(by) = record.delegated_by.as_ref().filter(|_| record.state.is_ended()) {
            // Its parent goes on, in the same transaction.
            self.wakes.appended(by.run);
            self.wakes.work();
        }
    }

    /// A long poll's end: after `wait_ms`, never longer than the protocol's limit.
    pub(crate) fn poll_end(wait_ms: u64) -> tokio::time::Instant {
        let wait = wait_ms.min(docket_schema::wire::LONG_POLL_MS_MAX);
        tokio::time::Instant::now() + Duration::from_millis(wait)
    }
}
