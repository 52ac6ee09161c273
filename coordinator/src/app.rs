//! State shared by the HTTP handlers and the background jobs of a coordinator. It is below both and imports
//! neither.

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

pub(crate) struct AppState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) wakeups: Arc<WakeupBus>,
    /// Length of leases granted or renewed now.
    pub(crate) lease_length: Arc<LeaseLength>,
    pub(crate) tokens: TokenRegistry,
    pub(crate) schedules: ScheduleTable,
    pub(crate) provider_limits: ProviderLimitTable,
    pub(crate) memory: MemoryTable,
    /// Whether any batch had a budget when this was last checked.
    pub(crate) has_budgets: AtomicBool,
    /// Requests with rejected tokens, counted until they are written to the audit log.
    pub(crate) auth_failures: AuthFailureCounts,
    /// Removes secrets from text that people submit.
    pub(crate) redactor: Redactor,
    pub(crate) archive: ArchiveSettings,
    pub(crate) notifications: Arc<TailedFold<NotificationsFold>>,
    /// Delivers notifications; `None` if this program has no notifier.
    pub(crate) notifier: Option<Arc<dyn Notifier>>,
    pub(crate) notify_metrics: Arc<NotifyMetrics>,
    /// Cancelled when the coordinator shuts down: jobs and followers end, long polls answer at once.
    pub(crate) shutdown: CancellationToken,
}

impl AppState {
    /// Creates the archiver of this coordinator.
    pub(crate) fn task_archiver(&self) -> TaskArchiver {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        TaskArchiver { store, clock, settings: self.archive.clone() }
    }

    /// Creates a leader lease of this coordinator for the given role.
    pub(crate) fn new_leader_lease(&self, office: LeaderRole) -> LeaderLease {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        LeaderLease::new(office, store, clock, Arc::clone(&self.wakeups), Arc::clone(&self.lease_length))
    }

    /// Wakes the waiters affected by a task's new state.
    pub(crate) fn wake_waiters(&self, record: &TaskRecord) {
        self.wakeups.notify_state(record.state);
        if let Some(by) = record.delegated_by.as_ref().filter(|_| record.state.is_ended()) {
            // The child's end resumes its parent in the same transaction.
            self.wakeups.notify_append(by.run);
            self.wakeups.notify_task_available();
        }
    }
}
