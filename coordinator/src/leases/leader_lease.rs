//! Leader lease: one coordinator at a time maintains the store while its term lasts.
//!
//! The others wait and take over when the term is not renewed. Whether a new leader can trust the deadlines
//! it finds depends on the gap before its term. Workers send a heartbeat every third of a lease, so for that
//! long after a coordinator was last available no lease of a living worker can have expired, and two thirds
//! remain for the worker to find another coordinator. A term lasts a quarter of a lease and the window after
//! it a twelfth: a leader that takes over within both trusts the deadlines. After a longer gap every lease is
//! extended to its full length, because workers may have had no coordinator at all.
//!
//! # Stepped clocks
//! Deadlines and terms are instants that one coordinator writes and another reads, so a stepped clock
//! (`clock.rs`) must neither end a lease early nor keep one open:
//!
//! - The length of this coordinator's own term is measured in elapsed time, which no step affects.
//! - A term or deadline further away than its maximum length was written by a wrong clock. It is shortened to
//!   that length from now ([`TermRequest`]), so it is not believed for the length
//!   of the step.
//! - After a followed step every lease is extended to its full length
//!   ([`LeaderLease::handle_clock_observation`]), and no lease is ended until then.
//! - Coordinators of one database follow its clock within a few seconds of each other. From the first sight
//!   of a step until all have followed it and every living worker has sent a heartbeat, a coordinator ends no
//!   lease. It also reads the database's clock between finding an overdue lease and ending it (`expirer.rs`):
//!   either the clocks agreed when it was found, or the step is seen.
//!
//! Invariant: a lease is ended only during the term, by a clock that agreed with its source at that moment.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{ClockObservation, LeaseLength, clock_check::FOLLOW_SPREAD_MS};
use crate::{
    clock::{self, BootInstant, Clock, jittered_interval},
    error_chain::error_chain,
    store::{DeadlineTrust, Store, StoreError, TermOutcome, TermRequest},
    wakeups::WakeupBus,
};

/// Purpose of a leader lease. Each is held separately: a coordinator without notifications never leads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaderRole {
    /// End lost leases and wake due tasks.
    Maintenance,
    /// Deliver notifications.
    Notifications,
}

impl LeaderRole {
    const fn term_name(self) -> &'static str {
        match self {
            Self::Maintenance => "maintenance",
            Self::Notifications => "notifications",
        }
    }
}

/// A coordinator's hold on one leader role; see the module.
pub(crate) struct LeaderLease {
    store: Arc<dyn Store>,
    clock: Arc<Clock>,
    wakeups: Arc<WakeupBus>,
    role: LeaderRole,
    holder: String,
    lease_length: Arc<LeaseLength>,
    /// End of this coordinator's term, in elapsed time; 0 if it is not the leader.
    until: AtomicI64,
    /// Clock steps that have been handled. No lease is ended while the clock has followed more.
    heeded_steps: AtomicU64,
    /// Time until which no lease is ended because of a clock step, in elapsed time.
    quiet_until: AtomicI64,
    /// Whether a step was followed and leases have not been extended since.
    owes_grace: AtomicBool,
    /// Whether waits may have been written by a clock that was ahead since they were last checked.
    owes_recheck: AtomicBool,
}

impl LeaderLease {
    pub(crate) fn new(
        office: LeaderRole,
        store: Arc<dyn Store>,
        clock: Arc<Clock>,
        wakes: Arc<WakeupBus>,
        lease_length: Arc<LeaseLength>,
    ) -> Self {
        let holder = clock::new_id().to_string();
        let heeded = AtomicU64::new(clock.followed_steps());
        let (until, quiet_until) = (AtomicI64::new(0), AtomicI64::new(0));
        let (owes_grace, owes_recheck) = (AtomicBool::new(false), AtomicBool::new(true));
        Self {
            store,
            clock,
            wakeups: wakes,
            role: office,
            holder,
            lease_length,
            until,
            heeded_steps: heeded,
            quiet_until,
            owes_grace,
            owes_recheck,
        }
    }

    /// Whether excessive waits must be searched for.
    pub(crate) fn owes_recheck(&self) -> bool {
        self.owes_recheck.load(Ordering::Acquire)
    }

    /// Records that the search is done.
    pub(crate) fn mark_rechecked(&self) {
        self.owes_recheck.store(false, Ordering::Release);
    }

    /// Whether this coordinator is the leader now.
    pub(crate) fn is_leader(&self) -> bool {
        BootInstant::now().0 < self.until.load(Ordering::Acquire)
    }

    /// Whether it may end leases: it is the leader, and no clock was stepped recently.
    pub(crate) fn can_end_leases(&self) -> bool {
        self.is_leader()
            && self.heeded_steps.load(Ordering::Acquire) == self.clock.followed_steps()
            && !self.owes_grace.load(Ordering::Acquire)
            && BootInstant::now().0 >= self.quiet_until.load(Ordering::Acquire)
    }

    /// Reacts to a clock observation; see the module. With a shared clock a step counts from when it is first
    /// seen, because others may have followed it already; otherwise from when it is followed here.
    pub(crate) fn handle_clock_observation(&self, seen: ClockObservation) {
        let quiet_ms = match seen {
            ClockObservation::Steady => return,
            ClockObservation::OwnFollowed => self.lease_length.current_ms(),
            ClockObservation::SharedStepped | ClockObservation::SharedFollowed => {
                let lease_ms = self.lease_length.current_ms();
                lease_ms.max(FOLLOW_SPREAD_MS + lease_ms / 2)
            }
        };
        self.quiet_until.fetch_max(BootInstant::now().plus_ms(quiet_ms).0, Ordering::AcqRel);
        if matches!(seen, ClockObservation::OwnFollowed | ClockObservation::SharedFollowed) {
            self.owes_grace.store(true, Ordering::Release);
            self.owes_recheck.store(true, Ordering::Release);
            self.heeded_steps.store(self.clock.followed_steps(), Ordering::Release);
            // Tasks may be due by the new time.
            self.wakeups.notify_due_sooner();
            self.wakeups.notify_schedules();
        }
    }

    /// Terms keep the configured length: the time to failover must not depend on late workers.
    fn term_ms(&self) -> u64 {
        self.lease_length.configured_ms() / 4
    }

    fn takeover_window_ms(&self) -> u64 {
        self.lease_length.configured_ms() / 12
    }

    /// Acquires or renews the term for `term_ms`; returns whether this coordinator is the leader.
    async fn acquire(&self, term_ms: u64) -> Result<bool, StoreError> {
        // First, so that an extension still owed is given by the followed time or stays owed.
        let owes_grace = self.owes_grace.swap(false, Ordering::AcqRel);
        let (asked, now) = (BootInstant::now(), self.clock.now());
        let trust = match self.role {
            LeaderRole::Maintenance => Some(DeadlineTrust {
                max_gap_ms: if owes_grace { None } else { Some(self.takeover_window_ms()) },
                lease_ms: self.lease_length.current_ms(),
            }),
            LeaderRole::Notifications => None,
        };
        let term = TermRequest {
            name: self.role.term_name(),
            holder: self.holder.clone(),
            until: now.plus_ms(term_ms),
            now,
            max_term_ms: self.term_ms(),
            deadline_trust: trust,
        };
        let taken = self.store.acquire_term(term).await;
        if owes_grace && !matches!(taken, Ok(TermOutcome::Acquired { .. })) {
            self.owes_grace.store(true, Ordering::Release);
        }
        match taken? {
            TermOutcome::HeldByOther => {
                self.until.store(0, Ordering::Release);
                Ok(false)
            }
            TermOutcome::Acquired { extended_leases: graced } => {
                if let Some(leases) = graced {
                    let why = if owes_grace {
                        "the clock was stepped"
                    } else {
                        "no coordinator maintained the store"
                    };
                    tracing::info!(leases, "{why}; leases are extended to their full length");
                    // A coordinator that does not yet follow the database's clock may write an earlier
                    // deadline meanwhile.
                    self.quiet_until
                        .fetch_max(asked.plus_ms(self.lease_length.current_ms()).0, Ordering::AcqRel);
                }
                let until = asked.plus_ms(term_ms).0;
                let began = self.until.swap(until, Ordering::AcqRel) <= asked.0;
                if began && self.role == LeaderRole::Maintenance {
                    // Only the leader looks for due tasks.
                    self.owes_recheck.store(true, Ordering::Release);
                    self.wakeups.notify_due_sooner();
                }
                Ok(true)
            }
        }
    }
}

/// Renews the term or waits for it until `shutdown`, and then gives it up.
pub(crate) async fn maintain_leadership(lead: Arc<LeaderLease>, shutdown: CancellationToken) {
    let renew = Duration::from_millis(lead.term_ms() / 2);
    let look = Duration::from_millis(lead.takeover_window_ms() / 2);
    loop {
        let wait = match lead.acquire(lead.term_ms()).await {
            Ok(true) => renew,
            Ok(false) => look,
            Err(error) => {
                tracing::warn!("cannot determine the leader: {}", error_chain(&error));
                look
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(jittered_interval(wait)) => {}
        }
    }
    if lead.is_leader() {
        // If this fails, the term ends by itself.
        let _ = lead.acquire(0).await;
    }
}
