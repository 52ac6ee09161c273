//! Who looks after the store: of all its coordinators one at a time, while its term lasts.
//!
//! The others stand by and take over when the term is not renewed. Whether a new term may trust the deadlines that
//! it finds depends on what was before it. A worker says every third of a lease that it lives; so long after a
//! coordinator was last there, no lease of a living worker can have run out, and two thirds
//! are left for it to find another coordinator. A term lasts a quarter of a lease and the window after it a twelfth:
//! who takes over within both trusts. Later nobody was there, perhaps for everybody: every lease gets its whole time.
//!
//! Invariant: nothing is expired here but while the term lasts, by this coordinator's clock, which follows the
//! database's (`clock.rs`).

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use docket_schema::ids::Timestamp;
use tokio_util::sync::CancellationToken;

use super::{Wakes, jittered};
use crate::{
    clock::{self, Clock},
    http::error_chain,
    store::{Store, StoreError, Taken, Term, Trust},
};

/// How often the clock is compared with the database's.
const CLOCK_EVERY: Duration = Duration::from_secs(30);

/// What a term is for. Each is held for itself: a coordinator that tells nobody of anything holds no term to do so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Office {
    /// To end lost leases, and wake what is due.
    Maintenance,
    /// To tell people and programs elsewhere.
    Notifications,
}

impl Office {
    const fn name(self) -> &'static str {
        match self {
            Self::Maintenance => "maintenance",
            Self::Notifications => "notifications",
        }
    }
}

/// See the module.
pub(crate) struct Lead {
    store: Arc<dyn Store>,
    clock: Arc<Clock>,
    wakes: Arc<Wakes>,
    office: Office,
    holder: String,
    lease_ms: u64,
    /// Until when the term is ours; 0 = it is not.
    until: AtomicI64,
}

impl Lead {
    pub(crate) fn new(
        office: Office,
        store: Arc<dyn Store>,
        clock: Arc<Clock>,
        wakes: Arc<Wakes>,
        lease_ms: u64,
    ) -> Self {
        let holder = clock::new_id().to_string();
        Self { store, clock, wakes, office, holder, lease_ms, until: AtomicI64::new(0) }
    }

    /// Whether this coordinator looks after the store now.
    pub(crate) fn is_ours(&self) -> bool {
        self.clock.now().0 < self.until.load(Ordering::Acquire)
    }

    const fn term_ms(&self) -> u64 {
        self.lease_ms / 4
    }

    const fn window_ms(&self) -> u64 {
        self.lease_ms / 12
    }

    /// Takes the term until `until`, or goes on with it; whether it is ours.
    async fn take(&self, now: Timestamp, until: Timestamp) -> Result<bool, StoreError> {
        let trust = match self.office {
            Office::Maintenance => Some(Trust { window_ms: self.window_ms(), lease_ms: self.lease_ms }),
            Office::Notifications => None,
        };
        let term = Term { name: self.office.name(), holder: self.holder.clone(), until, now, trust };
        match self.store.take_term(term).await? {
            Taken::ByAnother => {
                self.until.store(0, Ordering::Release);
                Ok(false)
            }
            Taken::Ours { graced } => {
                if let Some(leases) = graced {
                    tracing::info!(leases, "nobody looked after the store; leases get their whole time");
                }
                let began = self.until.swap(until.0, Ordering::AcqRel) <= now.0;
                if began && self.office == Office::Maintenance {
                    // What is due is looked for by whoever leads.
                    self.wakes.due();
                }
                Ok(true)
            }
        }
    }
}

/// Keeps the term, or stands by. Runs until `shutdown`, and gives the term back then.
pub(crate) async fn keep_term(lead: Arc<Lead>, shutdown: CancellationToken) {
    let renew = Duration::from_millis(lead.term_ms() / 2);
    let look = Duration::from_millis(lead.window_ms() / 2);
    loop {
        let now = lead.clock.now();
        let wait = match lead.take(now, now.plus_ms(lead.term_ms())).await {
            Ok(true) => renew,
            Ok(false) => look,
            Err(error) => {
                tracing::warn!("who looks after the store is not known for now: {}", error_chain(&error));
                look
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = tokio::time::sleep(jittered(wait)) => {}
        }
    }
    if lead.is_ours() {
        let now = lead.clock.now();
        // Otherwise it ends by itself.
        let _ = lead.take(now, now).await;
    }
}

/// Keeps the clock with the database's. Runs until `shutdown`.
pub(crate) async fn follow_clock(store: Arc<dyn Store>, clock: Arc<Clock>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered(CLOCK_EVERY)) => {}
        }
        if let Err(error) = set_clock(&*store, &clock).await {
            tracing::debug!("the clock is not compared for now: {}", error_chain(&error));
        }
    }
}

/// Sets the clock by the database's, where coordinators share one.
pub(crate) async fn set_clock(store: &dyn Store, clock: &Clock) -> Result<(), StoreError> {
    let asked = clock.of_this_machine();
    if let Some(theirs) = store.time().await? {
        clock.follow(asked, theirs);
    }
    Ok(())
}
