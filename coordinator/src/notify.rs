//! Telling people and programs elsewhere of what needs them: what is raised, and what became of it.
//!
//! One coordinator at a time reads the log on, under a term of its own, and appends what is to be told to
//! `system/notifications`; only then is anybody told, and what became of that is appended as well. So a crash loses
//! nothing, and what is told twice has the same id. Who is told, and how, is handed in by whoever starts the
//! coordinator ([`Notifier`]): programs are not started here.

mod follow;
mod send;

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
    ids::Timestamp,
    system::{NotificationRecord, Notifications},
    wire::{TargetKind, TargetView},
};

use crate::{
    clock::Clock,
    leases::Lead,
    store::Store,
    system::{CachedFold, TailedFold},
};

pub use crate::decide::{Retries, Sent};
pub(crate) use follow::{begin, follow};
pub(crate) use send::send;

impl CachedFold for Notifications {
    const UNREADABLE: &'static str =
        "the log's notifications cannot be read; `docket verify` says more, a newer docket may know them";
    const CONTENDED: &'static str = "many write notifications at once; try again";
}

/// Who is told, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As it is shown.
    pub view: TargetView,
    /// When it is told again.
    pub retries: Retries,
}

/// What a target is told.
#[derive(Debug, Clone)]
pub struct Letter {
    /// The notification.
    pub record: NotificationRecord,
    /// The manieth attempt this is, from 1.
    pub attempt: u32,
    /// Now.
    pub now: Timestamp,
}

/// An attempt under way.
pub type Sending<'a> = Pin<Box<dyn Future<Output = Sent> + Send + 'a>>;

/// Tells. An attempt ends by itself, within a time that is the target's.
pub trait Notifier: fmt::Debug + Send + Sync {
    /// Whom.
    fn targets(&self) -> &[Target];
    /// Tells one of them, by its name.
    fn send(&self, target: &str, letter: Letter) -> Sending<'_>;
}

/// How an attempt ended, for those who count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    Failed,
    DeadLettered,
}

impl Outcome {
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
pub(crate) struct NotifyMeters([[AtomicU64; 3]; 2]);

impl NotifyMeters {
    fn place(&self, kind: TargetKind, outcome: Outcome) -> &AtomicU64 {
        let of_kind = match kind {
            TargetKind::Webhook => &self.0[0],
            TargetKind::Command => &self.0[1],
        };
        match outcome {
            Outcome::Delivered => &of_kind[0],
            Outcome::Failed => &of_kind[1],
            Outcome::DeadLettered => &of_kind[2],
        }
    }

    fn count(&self, kind: TargetKind, outcome: Outcome) {
        self.place(kind, outcome).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, kind: TargetKind, outcome: Outcome) -> u64 {
        self.place(kind, outcome).load(Ordering::Relaxed)
    }
}

/// What those who tell share.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) table: Arc<TailedFold<Notifications>>,
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) meters: Arc<NotifyMeters>,
    pub(crate) lead: Arc<Lead>,
}
