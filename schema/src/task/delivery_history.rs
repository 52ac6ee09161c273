//! Delivery history of a task: a fold of its stream, for people and for deliverers. Pure.

use std::collections::BTreeSet;

use super::{
    delivery_events::{
        DeliveryMode, TaskAccepted, TaskDelivered, TaskDeliveryBlocked, TaskDeliveryClaimed,
        TaskDeliveryHookRan, TaskDeliveryRequested, TaskRejected,
    },
    task_event::TaskEvent,
};
use crate::{
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{RunId, Seq},
};

/// A person's review of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultReview {
    /// The result was accepted.
    Accepted(TaskAccepted),
    /// The result was rejected.
    Rejected(TaskRejected),
}

/// Delivery history of a task. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryHistory {
    /// Deliveries, oldest first.
    pub delivered: Vec<TaskDelivered>,
    /// The last push that was started, if its result is unknown.
    pub open_push: Option<TaskDeliveryRequested>,
    /// Why the last delivery failed, until another one succeeds.
    pub blocked: Option<TaskDeliveryBlocked>,
    /// Runs of the hook, oldest first.
    pub hooks: Vec<TaskDeliveryHookRan>,
    /// The last review.
    pub review: Option<ResultReview>,
    /// The current delivery claim.
    pub claim: Option<DeliveryClaim>,
    /// Runs whose deliverer was going to run the hook and has not reported its result.
    pub hooks_owed: BTreeSet<RunId>,
    /// The last run whose result was not delivered as requested but settled otherwise, or needed no delivery.
    pub settled_run: Option<RunId>,
    /// The last run that changed nothing and therefore needed no delivery.
    pub unchanged_run: Option<RunId>,
}

/// A claim as recorded in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryClaim {
    /// The claim's event.
    pub claimed: TaskDeliveryClaimed,
    /// Sequence number of the event: another one means another claim, or a renewal.
    pub seq: Seq,
}

impl DeliveryHistory {
    /// Folds a task's stream; events that are not about deliveries are skipped.
    ///
    /// # Errors
    ///
    /// Fails if this build cannot decode an event.
    pub fn from_events(events: &[Envelope]) -> Result<Self, DecodeError> {
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
                self.claim = Some(DeliveryClaim { claimed, seq });
            }
            TaskEvent::TaskNeededNoDelivery(e) => {
                self.hooks_owed.remove(&e.run);
                self.clear_blocked(e.run);
                self.settled_run = Some(e.run);
                self.unchanged_run = Some(e.run);
                self.claim = None;
            }
            TaskEvent::TaskDeliveryRequested(e) => self.open_push = Some(e),
            TaskEvent::TaskDelivered(e) => {
                if self.open_push.as_ref().is_some_and(|open| e.remote.is_some() && open.commit == e.commit) {
                    self.open_push = None;
                }
                self.clear_blocked(e.run);
                let done =
                    |claim: &DeliveryClaim| !claim.claimed.hook && claim.claimed.push == e.remote.is_some();
                self.claim = self.claim.take().filter(|claim| claim.claimed.run != e.run || !done(claim));
                self.delivered.push(e);
            }
            TaskEvent::TaskDeliveryBlocked(e) => {
                self.open_push = None;
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
                self.clear_blocked(e.run);
                self.review = Some(ResultReview::Accepted(e));
            }
            TaskEvent::TaskRejected(e) => {
                self.blocked = None;
                self.review = Some(ResultReview::Rejected(e));
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

    /// Clears a failed delivery.
    fn clear_blocked(&mut self, run: RunId) {
        if self.blocked.take().is_some() {
            self.settled_run = Some(run);
        }
    }

    /// Whether the latest review accepted the result of `run`.
    pub fn is_accepted(&self, run: RunId) -> bool {
        matches!(&self.review, Some(ResultReview::Accepted(accepted)) if accepted.run == run)
    }

    /// Whether the result of `run` was delivered as `wanted`, settled otherwise, or needed no delivery.
    pub fn is_settled(&self, run: RunId, wanted: DeliveryMode) -> bool {
        let is_delivered = |one: &TaskDelivered| {
            one.run == run
                && match wanted {
                    DeliveryMode::Patch | DeliveryMode::Branch => true,
                    DeliveryMode::Push => one.remote.is_some(),
                }
        };
        wanted == DeliveryMode::Patch
            || self.settled_run == Some(run)
            || (self.blocked.is_none() && self.delivered.iter().any(is_delivered))
    }

    /// Whether the hook succeeded for this commit.
    pub fn has_hook_succeeded(&self, commit: &str) -> bool {
        self.hooks.iter().any(|hook| hook.commit == commit && hook.exit == Some(0))
    }

    /// Returns the last run of the hook.
    pub fn last_hook_run(&self) -> Option<&TaskDeliveryHookRan> {
        self.hooks.last()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{
        super::delivery_events::{DeliveryBlockedReason, TaskNeededNoDelivery},
        *,
    };

    const RUN: RunId = RunId(Uuid::from_u128(1));

    fn fold_events(events: Vec<TaskEvent>) -> DeliveryHistory {
        let mut found = DeliveryHistory::default();
        for (nth, event) in (1..).zip(events) {
            found.apply(Seq(nth), event);
        }
        found
    }

    fn claimed_event(push: bool, hook: bool) -> TaskEvent {
        let (deliverer, by) = ("a".to_owned(), String::new());
        TaskDeliveryClaimed { run: RUN, deliverer, term_ms: 1, push, hook, by }.into()
    }

    fn delivered_event(remote: Option<&str>) -> TaskEvent {
        let (branch, commit, by) = ("b".to_owned(), "1".to_owned(), String::new());
        TaskDelivered { run: RUN, branch, commit, remote: remote.map(str::to_owned), by }.into()
    }

    fn blocked_event() -> TaskEvent {
        let (branch, message, by) = ("b".to_owned(), String::new(), String::new());
        let (why, paths, kept) = (DeliveryBlockedReason::Remote, Vec::new(), None);
        TaskDeliveryBlocked { run: RUN, branch, why, paths, kept, message, by }.into()
    }

    fn hook_ran_event() -> TaskEvent {
        let (commit, output, by) = ("1".to_owned(), String::new(), String::new());
        TaskDeliveryHookRan { run: RUN, commit, exit: Some(0), output, by }.into()
    }

    #[test]
    fn claim_holds_until_its_step_is_recorded() {
        for (push, hook, told, holds) in [
            (false, false, vec![], true),
            (false, false, vec![delivered_event(None)], false),
            (true, false, vec![delivered_event(None)], true),
            (true, false, vec![delivered_event(None), delivered_event(Some("origin"))], false),
            (true, true, vec![delivered_event(None), delivered_event(Some("origin"))], true),
            (false, true, vec![delivered_event(None)], true),
            (false, true, vec![delivered_event(None), hook_ran_event()], false),
            (true, true, vec![blocked_event()], false),
        ] {
            let events = [vec![claimed_event(push, hook)], told.clone()].concat();
            assert_eq!(fold_events(events).claim.is_some(), holds, "push {push}, hook {hook}: {told:?}");
        }
    }

    #[test]
    fn hook_is_owed_until_it_runs() {
        for (told, owed) in [
            (vec![claimed_event(false, true), delivered_event(None)], true),
            // Another deliverer, without a hook.
            (
                vec![
                    claimed_event(false, true),
                    delivered_event(None),
                    claimed_event(false, false),
                    delivered_event(None),
                ],
                true,
            ),
            (vec![claimed_event(false, true), delivered_event(None), hook_ran_event()], false),
            (vec![claimed_event(true, true), blocked_event()], false),
            (vec![claimed_event(false, false), delivered_event(None)], false),
        ] {
            assert_eq!(fold_events(told.clone()).hooks_owed.contains(&RUN), owed, "{told:?}");
        }
    }

    #[test]
    fn result_is_settled_once_delivered_as_requested() {
        let accepted =
            || TaskEvent::from(TaskAccepted { run: RUN, by: String::new(), comment: String::new() });
        let needless = || TaskEvent::from(TaskNeededNoDelivery { run: RUN, by: String::new() });
        for (told, branch, push) in [
            (vec![], false, false),
            (vec![delivered_event(None)], true, false),
            (vec![delivered_event(None), delivered_event(Some("origin"))], true, true),
            (vec![delivered_event(None), blocked_event()], false, false),
            (vec![blocked_event(), accepted()], true, true),
            // Accepted by a person, and not delivered yet.
            (vec![accepted()], false, false),
            (vec![needless()], true, true),
        ] {
            let found = fold_events(told.clone());
            let over =
                (found.is_settled(RUN, DeliveryMode::Branch), found.is_settled(RUN, DeliveryMode::Push));
            assert_eq!(over, (branch, push), "{told:?}");
            assert!(found.is_settled(RUN, DeliveryMode::Patch));
            assert!(
                !found.is_settled(RunId(Uuid::from_u128(2)), DeliveryMode::Branch),
                "another run's is its own"
            );
        }
    }
}
