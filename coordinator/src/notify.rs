//! Telling people and programs elsewhere of what needs them: what is raised, and what became of it.
//!
//! One coordinator at a time reads the log on, under a term of its own, and appends what is to be told to
//! `system/notifications`; only then is anybody told, and what became of that is appended as well. So a crash loses
//! nothing, and what is told twice has the same id. Who is told, and how, is handed in by whoever starts the
//! coordinator ([`Notifier`]): programs are not started here.

mod log_follower;
mod target_sender;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use docket_schema::{
    api::{TargetKind, TargetView},
    ids::Timestamp,
    system::{NotificationRecord, NotificationsFold},
};

use crate::{
    clock::Clock,
    leases::LeaderLease,
    store::Store,
    system::{CachedFold, TailedFold},
};

pub use crate::decide::{DeliveryAttemptResult, DeliveryRetryPolicy};
pub(crate) use log_follower::{run_log_follower, start_following};
pub(crate) use target_sender::run_target_sender;

impl CachedFold for NotificationsFold {
    const UNREADABLE: &'static str =
        "the log's notifications cannot be read; `docket verify` says more, a newer docket may know them";
    const CONTENDED: &'static str = "many write notifications at once; try again";
}

/// Who is told, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationTarget {
    /// As it is shown.
    pub view: TargetView,
    /// When it is told again.
    pub retry_policy: DeliveryRetryPolicy,
}

/// What a target is told.
#[derive(Debug, Clone)]
pub struct NotificationMessage {
    /// The notification.
    pub record: NotificationRecord,
    /// The manieth attempt this is, from 1.
    pub attempt: u32,
    /// Now.
    pub now: Timestamp,
}

/// An attempt under way.
pub type DeliveryFuture<'a> = Pin<Box<dyn Future<Output = DeliveryAttemptResult> + Send + 'a>>;

/// Tells. An attempt ends by itself, within a time that is the target's.
pub trait Notifier: fmt::Debug + Send + Sync {
    /// Whom.
    fn targets(&self) -> &[NotificationTarget];
    /// Tells one of them, by its name.
    fn send(&self, target: &str, letter: NotificationMessage) -> DeliveryFuture<'_>;
}

/// How an attempt ended, for those who count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryOutcome {
    Delivered,
    Failed,
    DeadLettered,
}

impl DeliveryOutcome {
    pub(crate) const ALL: [Self; 3] = [Self::Delivered, Self::Failed, Self::DeadLettered];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::DeadLettered => "dead_lettered",
        }
    }
}

/// Attempts of this process, by what the target is and how they ended.
#[derive(Debug, Default)]
pub(crate) struct NotifyMetrics([[AtomicU64; 3]; 2]);

impl NotifyMetrics {
    fn counter(&self, kind: TargetKind, outcome: DeliveryOutcome) -> &AtomicU64 {
        let of_kind = match kind {
            TargetKind::Webhook => &self.0[0],
            TargetKind::Command => &self.0[1],
        };
        match outcome {
            DeliveryOutcome::Delivered => &of_kind[0],
            DeliveryOutcome::Failed => &of_kind[1],
            DeliveryOutcome::DeadLettered => &of_kind[2],
        }
    }

    fn count_attempt(&self, kind: TargetKind, outcome: DeliveryOutcome) {
        self.counter(kind, outcome).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read_count(&self, kind: TargetKind, outcome: DeliveryOutcome) -> u64 {
        self.counter(kind, outcome).load(Ordering::Relaxed)
    }
}

/// What those who tell share.
#[derive(Clone)]
pub(crate) struct NotifyContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) notifications: Arc<TailedFold<NotificationsFold>>,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) metrics: Arc<NotifyMetrics>,
    pub(crate) leader_lease: Arc<LeaderLease>,
}
