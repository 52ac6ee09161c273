//! Wake-ups within one process: a hint that something may be there, never the proof.
//!
//! Whoever waits registers first, then asks the store, then waits, with a slow jittered poll
//! behind it: another coordinator's hint may be lost, and a wake-up may come between asking
//! and waiting. What happened here is kept for the others until it is told (`tasks/hints.rs`).

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use docket_schema::{ids::RunId, task::TaskState};
use tokio::sync::{Notify, futures::Notified};

use crate::store::Hint;

/// See the module.
#[derive(Default)]
pub struct Wakes {
    work: Notify,
    leases: Notify,
    due: Notify,
    schedules: Notify,
    /// How many followers there are: an append without any pays one load.
    following: AtomicUsize,
    followers: Mutex<HashMap<RunId, (Arc<Notify>, usize)>>,
    untold: Untold,
    /// Whether the others' hints are heard.
    hears: AtomicBool,
}

/// What the others have not been told.
#[derive(Default)]
struct Untold {
    work: AtomicBool,
    leases: AtomicBool,
    due: AtomicBool,
    any: Notify,
}

impl Wakes {
    /// A task came into `state`.
    pub(crate) fn task_is(&self, state: TaskState) {
        match state {
            TaskState::Available => self.work(),
            TaskState::Scheduled | TaskState::Retryable => self.due(),
            TaskState::Pending
            | TaskState::Running
            | TaskState::Blocked
            | TaskState::Completed
            | TaskState::Cancelled
            | TaskState::Discarded => {}
        }
    }

    /// A task may be leased.
    pub fn work(&self) {
        self.work.notify_waiters();
        self.tell(&self.untold.work);
    }

    /// A lease may have been lost.
    pub fn leases(&self) {
        self.leases.notify_waiters();
        self.tell(&self.untold.leases);
    }

    /// A task's time may come sooner than the scheduler knows. Kept until it looks.
    pub fn due(&self) {
        self.due.notify_one();
        self.tell(&self.untold.due);
    }

    fn tell(&self, what: &AtomicBool) {
        what.store(true, Ordering::Release);
        self.untold.any.notify_one();
    }

    /// What the others should be told, once there is something.
    pub(crate) async fn to_tell(&self) -> Hint {
        self.untold.any.notified().await;
        let take = |what: &AtomicBool| what.swap(false, Ordering::AcqRel);
        let Untold { work, leases, due, .. } = &self.untold;
        Hint { work: take(work), leases: take(leases), due: take(due) }
    }

    /// Another coordinator's hint.
    pub(crate) fn heard(&self, hint: Hint) {
        if hint.work {
            self.work.notify_waiters();
        }
        if hint.leases {
            self.leases.notify_waiters();
        }
        if hint.due {
            self.due.notify_one();
        }
    }

    /// Others are heard from now on, or no more: either way whoever waits looks, and waits as is right then.
    pub(crate) fn hears(&self, hears: bool) {
        self.hears.store(hears, Ordering::Release);
        self.heard(Hint { work: true, leases: true, due: true });
    }

    /// Whether hints of other coordinators come here.
    pub fn are_hinted(&self) -> bool {
        self.hears.load(Ordering::Acquire)
    }

    /// A run's stream has grown.
    pub fn appended(&self, run: RunId) {
        if self.following.load(Ordering::Acquire) == 0 {
            return;
        }
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((notify, _)) = followers.get(&run) {
            notify.notify_waiters();
        }
    }

    /// A schedule was set or goes on. Kept until its task looks.
    pub(crate) fn schedules(&self) {
        self.schedules.notify_one();
    }

    pub(crate) fn wait_for_schedules(&self) -> Notified<'_> {
        self.schedules.notified()
    }

    pub(crate) fn wait_for_work(&self) -> Notified<'_> {
        self.work.notified()
    }

    pub(crate) fn wait_for_leases(&self) -> Notified<'_> {
        self.leases.notified()
    }

    pub(crate) fn wait_for_due(&self) -> Notified<'_> {
        self.due.notified()
    }

    /// Registers a follower of `run` until the guard is dropped.
    pub(crate) fn follow(self: &Arc<Self>, run: RunId) -> FollowerGuard {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let (notify, count) = followers.entry(run).or_default();
        *count += 1;
        self.following.fetch_add(1, Ordering::AcqRel);
        FollowerGuard { wakes: Arc::clone(self), run, notify: Arc::clone(notify) }
    }
}

/// A registered follower of a run.
pub(crate) struct FollowerGuard {
    wakes: Arc<Wakes>,
    run: RunId,
    notify: Arc<Notify>,
}

impl FollowerGuard {
    /// The next growth of the run's stream after this call.
    pub(crate) fn grown(&self) -> Notified<'_> {
        self.notify.notified()
    }
}

impl Drop for FollowerGuard {
    fn drop(&mut self) {
        let mut followers = self.wakes.followers.lock().unwrap_or_else(PoisonError::into_inner);
        self.wakes.following.fetch_sub(1, Ordering::AcqRel);
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
    fn followers_are_forgotten_when_they_go() {
        let wakes = Arc::new(Wakes::default());
        let run = RunId(uuid::Uuid::from_u128(1));
        let (one, two) = (wakes.follow(run), wakes.follow(run));
        assert_eq!(wakes.following.load(Ordering::Acquire), 2);
        drop(one);
        wakes.appended(run);
        drop(two);
        assert!(wakes.followers.lock().expect("whole").is_empty());
        assert_eq!(wakes.following.load(Ordering::Acquire), 0);
    }
}
