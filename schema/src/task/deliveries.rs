//! Everything that became of a task's results: the fold of its stream, for people and for deliverers. Pure.

use std::collections::BTreeSet;

use super::{
    delivery::{
        Delivery, TaskAccepted, TaskDelivered, TaskDeliveryBlocked, TaskDeliveryClaimed, TaskDeliveryHookRan,
        TaskDeliveryRequested, TaskRejected,
    },
    event::TaskEvent,
};
use crate::{
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{RunId, Seq},
};

/// What a person said of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// They took it.
    Accepted(TaskAccepted),
    /// They did not.
    Rejected(TaskRejected),
}

/// Everything that became of a task's results: the fold of its stream, for people and for whoever delivers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deliveries {
    /// What was delivered, oldest first.
    pub delivered: Vec<TaskDelivered>,
    /// The push that was begun last, and of which no result is known.
    pub open: Option<TaskDeliveryRequested>,
    /// Why the last delivery did not come to be, while none has since.
    pub blocked: Option<TaskDeliveryBlocked>,
    /// What the hook came to, each time, oldest first.
    pub hooks: Vec<TaskDeliveryHookRan>,
    /// What a person said last.
    pub judged: Option<Judged>,
    /// Who is delivering, and has not told the end of it.
    pub claim: Option<Claim>,
    /// Runs whose deliverer was going to run the hook, and has not told what it came to.
    pub hooks_owed: BTreeSet<RunId>,
    /// The last run whose result could not be delivered as it was to be, and is settled otherwise; or needed no delivery.
    pub settled: Option<RunId>,
    /// The last run that changed nothing, and so needed no delivery.
    pub needless: Option<RunId>,
}

/// A claim, as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What was said.
    pub claimed: TaskDeliveryClaimed,
    /// Where: another place is another claim, or a renewal.
    pub seq: Seq,
}

impl Deliveries {
    /// Folds a task's stream; what is no delivery is passed over.
    ///
    /// # Errors
    /// An event that this build cannot read.
    pub fn of(events: &[Envelope]) -> Result<Self, DecodeError> {
        let mut found = Self::default();
        for event in events {
            found.apply(event.seq, TaskEvent::decode(&event.kind, event.version, event.payload.as_str())?);
        }
        Ok(found)
    }

    fn apply(&mut self, seq: Seq, event: TaskEvent) {
        match event {
            TaskEvent::TaskDeliveryClaimed(claimed) => {
                if claimed.hook {
                    self.hooks_owed.insert(claimed.run);
                }
                self.claim = Some(Claim { claimed, seq });
            }
            TaskEvent::TaskNeededNoDelivery(e) => {
                self.hooks_owed.remove(&e.run);
                self.settle(e.run);
                self.settled = Some(e.run);
                self.needless = Some(e.run);
                self.claim = None;
            }
            TaskEvent::TaskDeliveryRequested(e) => self.open = Some(e),
            TaskEvent::TaskDelivered(e) => {
                if self.open.as_ref().is_some_and(|open| e.remote.is_some() && open.commit == e.commit) {
                    self.open = None;
                }
                self.settle(e.run);
                let done = |claim: &Claim| !claim.claimed.hook && claim.claimed.push == e.remote.is_some();
                self.claim = self.claim.take().filter(|claim| claim.claimed.run != e.run || !done(claim));
                self.delivered.push(e);
            }
            TaskEvent::TaskDeliveryBlocked(e) => {
                self.open = None;
                self.claim = None;
                self.hooks_owed.remove(&e.run);
                self.blocked = Some(e);
            }
            TaskEvent::TaskDeliveryHookRan(e) => {
                self.claim = None;
                self.hooks_owed.remove(&e.run);
                self.hooks.push(e);
            }
            TaskEvent::TaskAccepted(e) => {
                self.settle(e.run);
                self.judged = Some(Judged::Accepted(e));
            }
            TaskEvent::TaskRejected(e) => {
                self.blocked = None;
                self.judged = Some(Judged::Rejected(e));
            }
            TaskEvent::TaskSubmitted(_)
            | TaskEvent::TaskMadeAvailable(_)
            | TaskEvent::TaskLeased(_)
            | TaskEvent::TaskReleased(_)
            | TaskEvent::TaskLeaseExpired(_)
            | TaskEvent::TaskRunCrashed(_)
            | TaskEvent::TaskRunFailed(_)
            | TaskEvent::TaskBlocked(_)
            | TaskEvent::TaskUnblocked(_)
            | TaskEvent::TaskCompleted(_)
            | TaskEvent::TaskCancelled(_)
            | TaskEvent::TaskDiscarded(_)
            | TaskEvent::TaskRetried(_)
            | TaskEvent::TaskResumed(_)
            | TaskEvent::TaskReprioritized(_)
            | TaskEvent::TaskPaused(_)
            | TaskEvent::TaskDelegated(_)
            | TaskEvent::TaskDependencyEnded(_) => {}
        }
    }

    /// What blocked is blocked no more.
    fn settle(&mut self, run: RunId) {
        if self.blocked.take().is_some() {
            self.settled = Some(run);
        }
    }

    /// Whether a person took the result of `run`, and has not changed their mind.
    pub fn is_accepted(&self, run: RunId) -> bool {
        matches!(&self.judged, Some(Judged::Accepted(accepted)) if accepted.run == run)
    }

    /// Whether the result of `run` was delivered as it was `wanted`, or settled otherwise, or needed no delivery.
    pub fn is_over(&self, run: RunId, wanted: Delivery) -> bool {
        let is_delivered = |one: &TaskDelivered| {
            one.run == run
                && match wanted {
                    Delivery::Patch | Delivery::Branch => true,
                    Delivery::Push => one.remote.is_some(),
                }
        };
        wanted == Delivery::Patch
            || self.settled == Some(run)
            || (self.blocked.is_none() && self.delivered.iter().any(is_delivered))
    }

    /// Whether the hook ran well for this commit.
    pub fn is_hooked(&self, commit: &str) -> bool {
        self.hooks.iter().any(|hook| hook.commit == commit && hook.exit == Some(0))
    }

    /// What the hook came to, last.
    pub fn hook(&self) -> Option<&TaskDeliveryHookRan> {
        self.hooks.last()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{
        super::delivery::{DeliveryBlockedWhy, TaskNeededNoDelivery},
        *,
    };

    const RUN: RunId = RunId(Uuid::from_u128(1));

    fn folded(events: Vec<TaskEvent>) -> Deliveries {
        let mut found = Deliveries::default();
        for (nth, event) in (1..).zip(events) {
            found.apply(Seq(nth), event);
        }
        found
    }

    fn claimed(push: bool, hook: bool) -> TaskEvent {
        let (deliverer, by) = ("a".to_owned(), String::new());
        TaskDeliveryClaimed { run: RUN, deliverer, term_ms: 1, push, hook, by }.into()
    }

    fn delivered(remote: Option<&str>) -> TaskEvent {
        let (branch, commit, by) = ("b".to_owned(), "1".to_owned(), String::new());
        TaskDelivered { run: RUN, branch, commit, remote: remote.map(str::to_owned), by }.into()
    }

    fn blocked() -> TaskEvent {
        let (branch, message, by) = ("b".to_owned(), String::new(), String::new());
        let (why, paths, kept) = (DeliveryBlockedWhy::Remote, Vec::new(), None);
        TaskDeliveryBlocked { run: RUN, branch, why, paths, kept, message, by }.into()
    }

    fn hooked() -> TaskEvent {
        let (commit, output, by) = ("1".to_owned(), String::new(), String::new());
        TaskDeliveryHookRan { run: RUN, commit, exit: Some(0), output, by }.into()
    }

    #[test]
    fn a_claim_holds_until_what_it_was_for_is_told() {
        for (push, hook, told, holds) in [
            (false, false, vec![], true),
            (false, false, vec![delivered(None)], false),
            (true, false, vec![delivered(None)], true),
            (true, false, vec![delivered(None), delivered(Some("origin"))], false),
            (true, true, vec![delivered(None), delivered(Some("origin"))], true),
            (false, true, vec![delivered(None)], true),
            (false, true, vec![delivered(None), hooked()], false),
            (true, true, vec![blocked()], false),
        ] {
            let events = [vec![claimed(push, hook)], told.clone()].concat();
            assert_eq!(folded(events).claim.is_some(), holds, "push {push}, hook {hook}: {told:?}");
        }
    }

    #[test]
    fn a_hook_is_owed_until_it_ran_whoever_delivers_meanwhile() {
        for (told, owed) in [
            (vec![claimed(false, true), delivered(None)], true),
            // Another deliverer, who has no hook.
            (vec![claimed(false, true), delivered(None), claimed(false, false), delivered(None)], true),
            (vec![claimed(false, true), delivered(None), hooked()], false),
            (vec![claimed(true, true), blocked()], false),
            (vec![claimed(false, false), delivered(None)], false),
        ] {
            assert_eq!(folded(told.clone()).hooks_owed.contains(&RUN), owed, "{told:?}");
        }
    }

    #[test]
    fn a_result_is_over_once_it_is_where_it_was_wanted_or_settled() {
        let accepted =
            || TaskEvent::from(TaskAccepted { run: RUN, by: String::new(), comment: String::new() });
        let needless = || TaskEvent::from(TaskNeededNoDelivery { run: RUN, by: String::new() });
        for (told, branch, push) in [
            (vec![], false, false),
            (vec![delivered(None)], true, false),
            (vec![delivered(None), delivered(Some("origin"))], true, true),
            (vec![delivered(None), blocked()], false, false),
            (vec![blocked(), accepted()], true, true),
            // Taken by a person, and yet to be delivered.
            (vec![accepted()], false, false),
            (vec![needless()], true, true),
        ] {
            let found = folded(told.clone());
            let over = (found.is_over(RUN, Delivery::Branch), found.is_over(RUN, Delivery::Push));
            assert_eq!(over, (branch, push), "{told:?}");
            assert!(found.is_over(RUN, Delivery::Patch));
            assert!(!found.is_over(RunId(Uuid::from_u128(2)), Delivery::Branch), "another run's is its own");
        }
    }
}
