//! What the HTTP handlers and the background jobs of a coordinator share. It is below both and imports neither.

use std::sync::{Arc, atomic::AtomicBool};

use docket_schema::{redact::Redactor, system::Notifications, task::TaskRecord};
use tokio_util::sync::CancellationToken;

use crate::{
    archive::{ArchiveSettings, Archiver},
    clock::Clock,
    leases::{Lead, LeaseLength, Office},
    notify::{Notifier, NotifyMeters},
    store::Store,
    system::{LimitTable, MemoryTable, RefusedCalls, ScheduleTable, TailedFold, TokenRegistry},
    wakeups::Wakes,
};

/// See the module.
pub(crate) struct AppState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) wakes: Arc<Wakes>,
    /// How long a lease lasts that is granted or renewed now.
    pub(crate) lease_length: Arc<LeaseLength>,
    pub(crate) tokens: TokenRegistry,
    pub(crate) schedules: ScheduleTable,
    pub(crate) model_limits: LimitTable,
    pub(crate) memory: MemoryTable,
    /// Some batch has a budget, as of the last look.
    pub(crate) budgets: AtomicBool,
    /// Calls that were refused for their token, until they are written down.
    pub(crate) refused: RefusedCalls,
    /// Strikes secrets out of what people write.
    pub(crate) redactor: Redactor,
    pub(crate) archive: ArchiveSettings,
    pub(crate) notifications: Arc<TailedFold<Notifications>>,
    /// Delivers notifications, where this program brought a way to.
    pub(crate) notifier: Option<Arc<dyn Notifier>>,
    pub(crate) notify_meters: Arc<NotifyMeters>,
    /// Cancelled when the coordinator shuts down: jobs and followers end, long polls answer at once.
    pub(crate) shutdown: CancellationToken,
}

impl AppState {
    /// The archive as this coordinator uses it.
    pub(crate) fn archiver(&self) -> Archiver {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        Archiver { store, clock, settings: self.archive.clone() }
    }

    /// What keeps a term of this coordinator.
    pub(crate) fn lead(&self, office: Office) -> Lead {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        Lead::new(office, store, clock, Arc::clone(&self.wakes), Arc::clone(&self.lease_length))
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
}
