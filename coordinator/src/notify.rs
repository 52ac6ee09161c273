//! Notifications to people and programs: which are raised, and how their delivery went.
//!
//! One coordinator at a time follows the log under its own leader lease and appends due notifications to
//! `system/notifications`; only then are they sent, and the outcome is appended as well. A crash loses
//! nothing, and a repeated delivery has the same id. Targets and transport are injected by the program that
//! starts the coordinator ([`Notifier`]): no program is started here.

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
        "the log's notifications cannot be read; run `docket verify` for details, or use a newer docket";
    const CONTENDED: &'static str = "too many concurrent writes of notifications; try again";
}

/// A target and its retry policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationTarget {
    /// The target as displayed.
    pub view: TargetView,
    /// When failed deliveries are retried.
    pub retry_policy: DeliveryRetryPolicy,
}

/// A message to a target.
#[derive(Debug, Clone)]
pub struct NotificationMessage {
    pub record: NotificationRecord,
    /// Number of this attempt, from 1.
    pub attempt: u32,
    /// Time of the attempt.
    pub now: Timestamp,
}

/// A delivery attempt in progress.
pub type DeliveryFuture<'a> = Pin<Box<dyn Future<Output = DeliveryAttemptResult> + Send + 'a>>;

/// Sends notifications. An attempt ends by itself within the target's timeout.
pub trait Notifier: fmt::Debug + Send + Sync {
    /// Returns the configured targets.
    fn targets(&self) -> &[NotificationTarget];
    /// Sends a message to the target with this name.
    fn send(&self, target: &str, letter: NotificationMessage) -> DeliveryFuture<'_>;
}

/// Outcome of an attempt, for metrics.
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

/// Attempts of this process, by kind of target and outcome.
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

/// State shared by the notification jobs.
#[derive(Clone)]
pub(crate) struct NotifyContext {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) notifications: Arc<TailedFold<NotificationsFold>>,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) metrics: Arc<NotifyMetrics>,
    pub(crate) leader_lease: Arc<LeaderLease>,
}
