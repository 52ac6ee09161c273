//! Wake-ups within one process: hints that something may have changed, never proof.
//!
//! A waiter registers first, then queries the store, then waits, with a slow jittered poll as fallback:
//! another coordinator's hint may be lost, and a wake-up may arrive between query and wait. Local changes are
//! kept for the other coordinators until they are sent (`background/hints.rs`).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use docket_schema::{ids::RunId, task::TaskState};
use tokio::sync::{Notify, futures::Notified};

use crate::store::WakeupHint;

/// The wake-ups of one process; see the module.
#[derive(Default)]
pub struct WakeupBus {
    task_available: Notify,
    lease_lost: Notify,
    due_sooner: Notify,
    schedules_changed: Notify,
    /// Number of followers; without any, an append pays for one load.
    follower_count: AtomicUsize,
    followers: Mutex<HashMap<RunId, (Arc<Notify>, usize)>>,
    pending_hints: PendingHints,
    /// Whether hints of other coordinators are received.
    hears_hints: AtomicBool,
}

/// Hints not yet sent to other coordinators.
#[derive(Default)]
struct PendingHints {
    task_available: AtomicBool,
    lease_lost: AtomicBool,
    due_sooner: AtomicBool,
    any: Notify,
}

impl WakeupBus {
    /// Notifies that a task entered `state`.
    pub(crate) fn notify_state(&self, state: TaskState) {
        match state {
            TaskState::Available => self.notify_task_available(),
            TaskState::Scheduled | TaskState::Retryable => self.notify_due_sooner(),
            TaskState::Pending
            | TaskState::Running
            | TaskState::Blocked
            | TaskState::Completed
            | TaskState::Cancelled
            | TaskState::Discarded => {}
        }
    }

    /// Notifies that a task may be available.
    pub fn notify_task_available(&self) {
        self.task_available.notify_waiters();
        self.queue_hint(&self.pending_hints.task_available);
    }

    /// Notifies that a lease may have been lost.
    pub fn notify_lease_lost(&self) {
        self.lease_lost.notify_waiters();
        self.queue_hint(&self.pending_hints.lease_lost);
    }

    /// Notifies that a task may become due sooner than the scheduler knows. Kept until it checks.
    pub fn notify_due_sooner(&self) {
        self.due_sooner.notify_one();
        self.queue_hint(&self.pending_hints.due_sooner);
    }

    fn queue_hint(&self, what: &AtomicBool) {
        what.store(true, Ordering::Release);
        self.pending_hints.any.notify_one();
    }

    /// Waits for something to send to the other coordinators and returns it.
    pub(crate) async fn next_hint(&self) -> WakeupHint {
        self.pending_hints.any.notified().await;
        let take = |what: &AtomicBool| what.swap(false, Ordering::AcqRel);
        let PendingHints { task_available: work, lease_lost: leases, due_sooner: due, .. } =
            &self.pending_hints;
        WakeupHint { task_available: take(work), lease_lost: take(leases), due_sooner: take(due) }
    }

    /// Handles a hint of another coordinator.
    pub(crate) fn receive_hint(&self, hint: WakeupHint) {
        if hint.task_available {
            self.task_available.notify_waiters();
        }
        if hint.lease_lost {
            self.lease_lost.notify_waiters();
        }
        if hint.due_sooner {
            self.due_sooner.notify_one();
        }
    }

    /// Records whether other coordinators are heard. Waiters check again in either case and adapt their poll
    /// interval.
    pub(crate) fn set_hears_hints(&self, hears: bool) {
        self.hears_hints.store(hears, Ordering::Release);
        self.receive_hint(WakeupHint { task_available: true, lease_lost: true, due_sooner: true });
    }

    /// Whether hints of other coordinators are received.
    pub fn hears_hints(&self) -> bool {
        self.hears_hints.load(Ordering::Acquire)
    }

    /// Notifies that a run's stream has grown.
    pub fn notify_append(&self, run: RunId) {
        if self.follower_count.load(Ordering::Acquire) == 0 {
            return;
        }
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((notify, _)) = followers.get(&run) {
            notify.notify_waiters();
        }
    }

    /// Notifies that a schedule was set or resumed. Kept until the background job checks.
    pub(crate) fn notify_schedules(&self) {
        self.schedules_changed.notify_one();
    }

    pub(crate) fn wait_for_schedules(&self) -> Notified<'_> {
        self.schedules_changed.notified()
    }

    pub(crate) fn wait_for_task(&self) -> Notified<'_> {
        self.task_available.notified()
    }

    pub(crate) fn wait_for_leases(&self) -> Notified<'_> {
        self.lease_lost.notified()
    }

    pub(crate) fn wait_for_due(&self) -> Notified<'_> {
        self.due_sooner.notified()
    }

    /// Registers a follower of `run` until the guard is dropped.
    pub(crate) fn follow_run(self: &Arc<Self>, run: RunId) -> FollowerGuard {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let (notify, count) = followers.entry(run).or_default();
        *count += 1;
        self.follower_count.fetch_add(1, Ordering::AcqRel);
        FollowerGuard { wakeups: Arc::clone(self), run, notify: Arc::clone(notify) }
    }
}

/// A registered follower of a run.
pub(crate) struct FollowerGuard {
    wakeups: Arc<WakeupBus>,
    run: RunId,
    notify: Arc<Notify>,
}

impl FollowerGuard {
    /// Waits for the next growth of the run's stream after this call.
    pub(crate) fn wait_for_append(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for FollowerGuard {
    fn drop(&mut self) {
        let mut followers = self.wakeups.followers.lock().unwrap_or_else(PoisonError::into_inner);
        self.wakeups.follower_count.fetch_sub(1, Ordering::AcqRel);
        if let Some((_, count)) = followers.get_mut(&self.run) {
            *count -= 1;
            if *count == 0 {
                followers.remove(&self.run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_followers_are_forgotten() {
        let wakes = Arc::new(WakeupBus::default());
        let run = RunId(uuid::Uuid::from_u128(1));
        let (one, two) = (wakes.follow_run(run), wakes.follow_run(run));
        assert_eq!(wakes.follower_count.load(Ordering::Acquire), 2);
        drop(one);
        wakes.notify_append(run);
        drop(two);
        assert!(wakes.followers.lock().expect("whole").is_empty());
        assert_eq!(wakes.follower_count.load(Ordering::Acquire), 0);
    }
}
