//! What becomes of a task's result: how it is to be delivered, what was done of that, and what a person says of it.
//!
//! Delivering is no work of a worker: it is done where the source repository is, after the run. So the task is
//! completed before, and these events change its state in one case alone: a result that was asked for and cannot
//! be delivered blocks its task until it is, or until a person says otherwise. Pure.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event::TaskEvent;
use crate::{
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{RunId, Seq},
};

/// Most paths that an event names of those that conflict.
pub const CONFLICTS_NAMED_MAX: usize = 100;
/// Longest text of a delivery's event, in bytes: a hook's output, a message.
pub const DELIVERY_TEXT_BYTES_MAX: usize = 16 * 1024;

/// What a finished task gives by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Nothing but its patch, which `docket diff` shows.
    Patch,
    /// A branch in the source repository.
    Branch,
    /// That branch, pushed to the repository's remote.
    Push,
}

impl Delivery {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Branch => "branch",
            Self::Push => "push",
        }
    }
}

/// Longest line of a hook's output that its task's message repeats, in characters.
const HOOK_LINE_CHARS_MAX: usize = 200;
/// Longest time that whoever delivers a result may claim at once.
pub const DELIVERY_TERM_MS_MAX: u64 = 10 * 60 * 1000;

/// Somebody is about to deliver a result, alone: written only where nothing was written since they looked. It holds until
/// what they are about to do is told, or for `term_ms` after it was last written; whoever waits counts that by a clock
/// of their own, from when they first saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryClaimed {
    /// The run whose result it is.
    pub run: RunId,
    /// Who: one at a time bears this name.
    pub deliverer: String,
    /// How long it holds unless it is written again.
    pub term_ms: u64,
    /// They are going to push.
    #[serde(default, skip_serializing_if = "is_false")]
    pub push: bool,
    /// They are going to run their user's hook.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hook: bool,
    /// By which token.
    #[serde(default)]
    pub by: String,
}

const fn is_false(value: &bool) -> bool {
    !*value
}

/// There is nothing to deliver: the run changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskNeededNoDelivery {
    /// The run.
    pub run: RunId,
    /// Who found that.
    #[serde(default)]
    pub by: String,
}

/// A push is about to be made. A push without a result behind it may have been made or not: the remote knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryRequested {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch.
    pub branch: String,
    /// The commit that it is to be at.
    pub commit: String,
    /// The remote: its name, or its address without any user or password.
    pub remote: String,
    /// Who.
    #[serde(default)]
    pub by: String,
}

/// A branch holds the result: of the source repository, or of its remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDelivered {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch.
    pub branch: String,
    /// The commit that it is at.
    pub commit: String,
    /// The remote, where it was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Who.
    #[serde(default)]
    pub by: String,
}

/// Why a result could not be delivered as it was to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryBlockedWhy {
    /// The branch that the task started from has moved, and what came there conflicts with the result.
    Conflict,
    /// A branch of that name holds other work, here or at the remote.
    Taken,
    /// The remote is not there, refuses, or stays away.
    Remote,
    /// The repository is not there, or git or docket fails in it.
    Repository,
}

/// A result could not be delivered as it was to be. Nothing is lost: it stands in the log, and on a branch of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryBlocked {
    /// The run whose result it is.
    pub run: RunId,
    /// The branch that was wanted.
    pub branch: String,
    /// Why not.
    pub why: DeliveryBlockedWhy,
    /// Paths that conflict, at most [`CONFLICTS_NAMED_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// The branch that keeps the result, on the commit that the task started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// What a person is told, with what helps.
    pub message: String,
    /// Who.
    #[serde(default)]
    pub by: String,
}

/// The user's own command ran after a delivery. Whatever it came to, the delivery stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDeliveryHookRan {
    /// The run whose result was delivered.
    pub run: RunId,
    /// The commit that was delivered.
    pub commit: String,
    /// Its exit status; none = it could not be started, was killed, or ran out of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// The end of what it wrote, or why it did not end.
    #[serde(default)]
    pub output: String,
    /// Who.
    #[serde(default)]
    pub by: String,
}

impl TaskDeliveryHookRan {
    /// What went wrong, in a line for people; none where it ended well.
    pub fn trouble(&self) -> Option<String> {
        let how = match self.exit {
            Some(0) => return None,
            Some(exit) => format!("exit {exit}"),
            None => "no exit status".to_owned(),
        };
        let last = self.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let last: String = last.trim().chars().take(HOOK_LINE_CHARS_MAX).collect();
        let said = if last.is_empty() { last } else { format!(": {last}") };
        Some(format!("it is delivered, and the hook after that did not end well ({how}{said})"))
    }
}

/// A person took the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskAccepted {
    /// The run whose result it is.
    pub run: RunId,
    /// Who.
    pub by: String,
    /// What they say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// A person did not take the result. A `TaskResumed` follows, whose run is told the comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRejected {
    /// The run whose result it is.
    pub run: RunId,
    /// Who.
    pub by: String,
    /// Why: stands in the next prompt.
    pub comment: String,
}

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

    use super::*;

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
