//! What the HTTP handlers and the background jobs of a coordinator share. It is below both and imports neither.

use std::sync::{Arc, atomic::AtomicBool};

use docket_schema::{redact::Redactor, system::NotificationsFold, task::TaskRecord};
use tokio_util::sync::CancellationToken;

use crate::{
    archive::{ArchiveSettings, TaskArchiver},
    clock::Clock,
    leases::{LeaderLease, LeaderRole, LeaseLength},
    notify::{Notifier, NotifyMetrics},
    store::Store,
    system::{AuthFailureCounts, MemoryTable, ProviderLimitTable, ScheduleTable, TailedFold, TokenRegistry},
    wakeups::WakeupBus,
};

/// See the module.
pub(crate) struct AppState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) wakeups: Arc<WakeupBus>,
    /// How long a lease lasts that is granted or renewed now.
    pub(crate) lease_length: Arc<LeaseLength>,
    pub(crate) tokens: TokenRegistry,
    pub(crate) schedules: ScheduleTable,
    pub(crate) provider_limits: ProviderLimitTable,
    pub(crate) memory: MemoryTable,
    /// Some batch has a budget, as of the last look.
    pub(crate) has_budgets: AtomicBool,
    /// Calls that were refused for their token, until they are written down.
    pub(crate) auth_failures: AuthFailureCounts,
    /// Strikes secrets out of what people write.
    pub(crate) redactor: Redactor,
    pub(crate) archive: ArchiveSettings,
    pub(crate) notifications: Arc<TailedFold<NotificationsFold>>,
    /// Delivers notifications, where this program brought a way to.
    pub(crate) notifier: Option<Arc<dyn Notifier>>,
    pub(crate) notify_metrics: Arc<NotifyMetrics>,
    /// Cancelled when the coordinator shuts down: jobs and followers end, long polls answer at once.
    pub(crate) shutdown: CancellationToken,
}

impl AppState {
    /// The archive as this coordinator uses it.
    pub(crate) fn task_archiver(&self) -> TaskArchiver {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        TaskArchiver { store, clock, settings: self.archive.clone() }
    }

    /// What keeps a term of this coordinator.
    pub(crate) fn new_leader_lease(&self, office: LeaderRole) -> LeaderLease {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        LeaderLease::new(office, store, clock, Arc::clone(&self.wakeups), Arc::clone(&self.lease_length))
    }

    /// Wakes whoever a task's new state concerns.
    pub(crate) fn wake_waiters(&self, record: &TaskRecord) {
        self.wakeups.notify_state(record.state);
        if let Some(by) = record.delegated_by.as_ref().filter(|_| record.state.is_ended()) {
            // Its parent goes on, in the same transaction.
            self.wakeups.notify_append(by.run);
            self.wakeups.notify_task_available();
        }
    }
}
