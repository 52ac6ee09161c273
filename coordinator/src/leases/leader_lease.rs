//! Who looks after the store: of all its coordinators one at a time, while its term lasts.
//!
//! The others wait and take over when the term is not renewed. Whether a new term may trust the deadlines that
//! it finds depends on what was before it. A worker says every third of a lease that it lives; so long after a
//! coordinator was last there, no lease of a living worker can have run out, and two thirds
//! are left for it to find another coordinator. A term lasts a quarter of a lease and the window after it a twelfth:
//! who takes over within both trusts. Later nobody was there, perhaps for everybody: every lease gets its whole time.
//!
//! # Clocks that are stepped
//! Deadlines and terms are instants that one coordinator writes and another reads, so a stepped clock (`clock.rs`) must
//! end no lease early, nor keep one open:
//!
//! - How long this coordinator's own term lasts is counted in elapsed time, which no step touches.
//! - A term or deadline further off than its longest length was written by a clock that was wrong. It is shortened to
//!   that length from now on ([`Term`]), so that it is not believed for as long as the step was.
//! - After a step that is followed, every lease gets its whole time ([`Lead::heed`]), and no lease is ended until then.
//! - Coordinators of one database follow its clock within some seconds of each other. While one of them has seen a step,
//!   and until all have followed it and every living worker has been heard of since, it ends no lease. It looks at the
//!   database's clock once more between finding a lease past its deadline and ending it (`expirer.rs`): either the
//!   clocks agreed when it was found, or the step is seen.
//!
//! Invariant: no lease is ended here but while the term lasts, by a clock that agreed with its source at that moment.

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

/// What a term is for. Each is held for itself: a coordinator that tells nobody of anything holds no term to do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaderRole {
    /// To end lost leases, and wake what is due.
    Maintenance,
    /// To tell people and programs elsewhere.
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

/// See the module.
pub(crate) struct LeaderLease {
    store: Arc<dyn Store>,
    clock: Arc<Clock>,
    wakeups: Arc<WakeupBus>,
    role: LeaderRole,
    holder: String,
    lease_length: Arc<LeaseLength>,
    /// Until when the term is ours, in elapsed time; 0 = it is not.
    until: AtomicI64,
    /// The steps that the clock has followed and that were heeded: between the two no lease is ended.
    heeded_steps: AtomicU64,
    /// Until when no lease is ended because a clock was stepped, in elapsed time.
    quiet_until: AtomicI64,
    /// Whether a step was followed and the leases have not been given their whole time since.
    owes_grace: AtomicBool,
    /// Whether waits may have been written by a clock that was ahead, since they were looked at last.
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

    /// Whether waits that are too long must be looked for.
    pub(crate) fn owes_recheck(&self) -> bool {
        self.owes_recheck.load(Ordering::Acquire)
    }

    /// They were.
    pub(crate) fn mark_rechecked(&self) {
        self.owes_recheck.store(false, Ordering::Release);
    }

    /// Whether this coordinator looks after the store now.
    pub(crate) fn is_leader(&self) -> bool {
        BootInstant::now().0 < self.until.load(Ordering::Acquire)
    }

    /// Whether it may end leases as well: not where a clock was stepped lately.
    pub(crate) fn can_end_leases(&self) -> bool {
        self.is_leader()
            && self.heeded_steps.load(Ordering::Acquire) == self.clock.followed_steps()
            && !self.owes_grace.load(Ordering::Acquire)
            && BootInstant::now().0 >= self.quiet_until.load(Ordering::Acquire)
    }

    /// Heeds what was seen of the clock: see the module. Where coordinators share one, a step counts from when it is
    /// first seen, for others may have followed it already; else from when it is followed here.
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
            // What is due by the new time.
            self.wakeups.notify_due_sooner();
            self.wakeups.notify_schedules();
        }
    }

    /// Terms keep the configured length: how soon another coordinator takes over does not depend on late workers.
    fn term_ms(&self) -> u64 {
        self.lease_length.configured_ms() / 4
    }

    fn takeover_window_ms(&self) -> u64 {
        self.lease_length.configured_ms() / 12
    }

    /// Takes the term for `term_ms`, or continues it; whether it is ours.
    async fn acquire(&self, term_ms: u64) -> Result<bool, StoreError> {
        // First, so that what is owed is given by the time that was followed, or is still owed.
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
                        "no coordinator looked after the store"
                    };
                    tracing::info!(leases, "{why}; leases get their whole time");
                    // A coordinator that has not followed the database's clock yet may write an earlier deadline meanwhile.
                    self.quiet_until
                        .fetch_max(asked.plus_ms(self.lease_length.current_ms()).0, Ordering::AcqRel);
                }
                let until = asked.plus_ms(term_ms).0;
                let began = self.until.swap(until, Ordering::AcqRel) <= asked.0;
                if began && self.role == LeaderRole::Maintenance {
                    // What is due is looked for by the holder of the term alone.
                    self.owes_recheck.store(true, Ordering::Release);
                    self.wakeups.notify_due_sooner();
                }
                Ok(true)
            }
        }
    }
}

/// Keeps the term, or stands by. Runs until `shutdown`, and gives the term back then.
pub(crate) async fn maintain_leadership(lead: Arc<LeaderLease>, shutdown: CancellationToken) {
    let renew = Duration::from_millis(lead.term_ms() / 2);
    let look = Duration::from_millis(lead.takeover_window_ms() / 2);
    loop {
        let wait = match lead.acquire(lead.term_ms()).await {
            Ok(true) => renew,
            Ok(false) => look,
            Err(error) => {
                tracing::warn!("who looks after the store is not known for now: {}", error_chain(&error));
                look
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(jittered_interval(wait)) => {}
        }
    }
    if lead.is_leader() {
        // Otherwise it ends by itself.
        let _ = lead.acquire(0).await;
    }
}
