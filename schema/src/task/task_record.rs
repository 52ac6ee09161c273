//! The state of a task: the fold of its stream.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    delegation::{DelegatedBy, TaskDelegated},
    delivery_events::DeliveryMode,
    lease_conditions::DEPENDENCIES_MAX,
    task_event::{
        BY_DEPENDENCY, DiscardReason, ForkedFrom, LeaseReleaseReason, TaskBlocked, TaskBlockedReason,
        TaskCompleted, TaskDependencyEnded, TaskDiscarded, TaskEvent, TaskLeaseExpired, TaskLeased,
        TaskReleased, TaskRunCrashed, TaskRunFailed, TaskSubmitted,
    },
    task_spec::TaskSpec,
};
use crate::{
    event::{Envelope, TypedEvent as _},
    ids::{Epoch, EventHash, IncarnationId, RunId, Seq, TaskId, Timestamp},
    run::{CorruptLog, RunOutcome},
    task_state::TaskState,
};

/// How a lease ended: the outcome of the run, or an interruption. Together with [`TaskRecord`] it determines
/// the task's next state; the table is in `coordinator/docs/architecture/leases.md`, where a test reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEnd {
    /// `RunEnded`.
    Ended(RunOutcome),
    /// `RunBlocked` or `RunPaused`.
    Blocked(TaskBlockedReason),
    /// The run process crashed while its supervisor kept running.
    Crashed(String),
    /// It was released.
    Released(LeaseReleaseReason),
    /// It expired without a heartbeat.
    Expired,
}

/// The state of a task: the fold of its stream. Also a row of the `tasks` projection, which adds the lease's
/// deadline, because heartbeats are not events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRecord {
    /// The task.
    pub id: TaskId,
    /// Sequence number of the last folded event.
    pub seq: Seq,
    /// Hash of the last folded event.
    pub hash: EventHash,
    /// The task's state.
    pub state: TaskState,
    /// The specification, with later changes of priority.
    pub spec: TaskSpec,
    /// For a fork: where its first run starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// For a delegated task: the run that delegated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_by: Option<DelegatedBy>,
    /// How many times it was leased: the fencing token of the current lease.
    pub epoch: Epoch,
    /// Number of runs that failed.
    pub failures: u32,
    /// Crashes of run processes since the last run that ended.
    pub crashes: u32,
    /// Consecutive leases that ended with a worker fault, up to
    /// [`WORKER_FAULTS_MAX`](super::WORKER_FAULTS_MAX). Leases that ended because of the worker's state
    /// (drained, expired, unknown) do not change the number.
    pub worker_faults: u32,
    /// Number of runs started.
    pub runs: u32,
    /// The current run: leased now, or continued at the next lease. `None` if the next lease starts a new
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The latest run, current or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    /// Tasks that it still waits for: dependencies, or tasks that its run delegated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<TaskId>,
    /// The worker that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<IncarnationId>,
    /// Since when it has been leased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_at: Option<Timestamp>,
    /// When it becomes available, according to its schedule or backoff.
    pub available_at: Timestamp,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_why: Option<TaskBlockedReason>,
    /// The last failure, crash or discard, or what a blocked task waits for; for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// If its work is done but nothing verified it: why. Set for a completed task, or one that asks a person
    /// about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Position and time of an event, as the fold needs them.
#[derive(Debug, Clone, Copy)]
pub struct TaskEventMeta {
    /// Sequence number in the stream.
    pub seq: Seq,
    /// Hash of the event.
    pub hash: EventHash,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

impl TaskRecord {
    /// Creates the record from the task's first event.
    pub fn from_submitted(id: TaskId, meta: TaskEventMeta, event: TaskSubmitted) -> Self {
        let now = meta.recorded_at;
        let available_at = event.spec.run_at.map_or(now, |at| at.max(now));
        let waits_for = event.spec.conditions.after.clone();
        Self {
            id,
            seq: meta.seq,
            hash: meta.hash,
            state: match (waits_for.is_empty(), available_at > now) {
                (false, _) => TaskState::Pending,
                (true, true) => TaskState::Scheduled,
                (true, false) => TaskState::Available,
            },
            spec: event.spec,
            forked_from: event.forked_from,
            delegated_by: event.delegated_by,
            epoch: Epoch(0),
            failures: 0,
            crashes: 0,
            worker_faults: 0,
            runs: 0,
            run: None,
            last_run: None,
            waits_for,
            worker: None,
            leased_at: None,
            available_at,
            blocked_why: None,
            message: None,
            unverified: None,
            submitted_at: now,
            ended_at: None,
        }
    }

    /// Folds a complete stream.
    ///
    /// # Errors
    ///
    /// [`CorruptLog`] if the stream does not start with `TaskSubmitted`, or if an event cannot follow.
    pub fn fold(id: TaskId, events: &[Envelope]) -> Result<Option<Self>, CorruptLog> {
        let mut record: Option<Self> = None;
        for event in events {
            let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str())
                .map_err(|source| CorruptLog::Decode { seq: event.seq, source })?;
            let meta = TaskEventMeta { seq: event.seq, hash: event.hash, recorded_at: event.recorded_at };
            match (&mut record, typed) {
                (None, TaskEvent::TaskSubmitted(first)) => {
                    record = Some(Self::from_submitted(id, meta, first));
                }
                (None, other) => return Err(illegal_event(meta.seq, other.kind(), "not submitted")),
                (Some(record), typed) => record.apply(meta, typed)?,
            }
        }
        Ok(record)
    }

    /// Applies one event after the first.
    ///
    /// # Errors
    ///
    /// [`CorruptLog`] if it cannot follow.
    pub fn apply(&mut self, meta: TaskEventMeta, event: TaskEvent) -> Result<(), CorruptLog> {
        if meta.seq != self.seq.next() {
            return Err(CorruptLog::Gap { expected: self.seq.next(), found: meta.seq });
        }
        if !self.can_follow(&event) {
            return Err(illegal_event(meta.seq, event.kind(), self.state.as_str()));
        }
        let now = meta.recorded_at;
        match event {
            TaskEvent::TaskSubmitted(_) => {}
            TaskEvent::TaskMadeAvailable(_) => self.make_available(now),
            TaskEvent::TaskUnblocked(_) => {
                self.worker_faults = 0;
                self.message = None;
                self.unverified = None;
                // Paused before its time: it waits for that again. The wait for an outage is over.
                if !self.waits_for.is_empty() {
                    self.leave_running_state(TaskState::Pending);
                } else if self.available_at > now && self.blocked_why != Some(TaskBlockedReason::Outage) {
                    self.leave_running_state(TaskState::Scheduled);
                } else {
                    self.make_available(now);
                }
            }
            TaskEvent::TaskLeased(e) => self.apply_leased(e, now),
            TaskEvent::TaskReleased(e) => {
                match e.why {
                    LeaseReleaseReason::WorkerFault => self.worker_faults += 1,
                    LeaseReleaseReason::Drained | LeaseReleaseReason::Unknown => {}
                }
                self.make_available(now);
            }
            TaskEvent::TaskLeaseExpired(_) => self.make_available(now),
            TaskEvent::TaskRunCrashed(e) => {
                self.worker_faults = 0;
                self.crashes += 1;
                self.message = Some(format!("the run process died: {}", e.how));
                self.make_available(now);
            }
            TaskEvent::TaskRunFailed(e) => {
                self.worker_faults = 0;
                self.failures += 1;
                self.crashes = 0;
                self.run = e.next;
                if e.next.is_some() {
                    self.runs += 1;
                    self.last_run = e.next;
                }
                self.message = Some(e.message);
                // Tasks delegated by that run do not belong to any other.
                self.waits_for.clear();
                self.leave_running_state(TaskState::Retryable);
                self.available_at = e.retry_at;
            }
            TaskEvent::TaskBlocked(e) => {
                self.worker_faults =
                    if e.why == TaskBlockedReason::WorkerFault { self.worker_faults + 1 } else { 0 };
                self.leave_running_state(TaskState::Blocked);
                self.blocked_why = Some(e.why);
                self.message = e.message;
                self.unverified = e.unverified;
                self.available_at = e.wake_at.unwrap_or(self.available_at);
            }
            TaskEvent::TaskPaused(_) => {
                self.leave_running_state(TaskState::Blocked);
                self.blocked_why = Some(TaskBlockedReason::Paused);
            }
            TaskEvent::TaskDeliveryBlocked(e) => {
                // Any other failed delivery is recorded only: no one waits for it.
                if self.state == TaskState::Completed && self.spec.delivery_mode() != DeliveryMode::Patch {
                    self.leave_running_state(TaskState::Blocked);
                    self.blocked_why = Some(TaskBlockedReason::Person);
                    self.ended_at = None;
                }
                if self.is_undelivered() {
                    self.message = Some(e.message);
                }
            }
            TaskEvent::TaskDelivered(_) | TaskEvent::TaskAccepted(_) | TaskEvent::TaskNeededNoDelivery(_) => {
                if self.is_undelivered() {
                    self.message = None;
                    self.set_terminal_state(TaskState::Completed, now);
                }
            }
            TaskEvent::TaskDeliveryHookRan(e) => {
                // The delivery succeeded, but no one would look for this failure in the log.
                if self.state == TaskState::Completed && self.last_run == Some(e.run) {
                    self.message = e.failure_message();
                }
            }
            TaskEvent::TaskDeliveryClaimed(_)
            | TaskEvent::TaskDeliveryRequested(_)
            | TaskEvent::TaskRejected(_) => {}
            TaskEvent::TaskCompleted(e) => {
                // Earlier problems were fixed and remain in the events.
                self.worker_faults = 0;
                self.message = None;
                self.unverified = e.unverified;
                self.set_terminal_state(TaskState::Completed, now);
            }
            TaskEvent::TaskCancelled(e) => {
                // The message names the dependency.
                if e.by == BY_DEPENDENCY {
                    self.message = Some(e.reason);
                }
                self.set_terminal_state(TaskState::Cancelled, now);
            }
            TaskEvent::TaskDiscarded(e) => {
                self.worker_faults = 0;
                match e.why {
                    DiscardReason::Failures => self.failures += 1,
                    DiscardReason::Poison => self.crashes += 1,
                }
                self.message = Some(e.message);
                self.set_terminal_state(TaskState::Discarded, now);
            }
            TaskEvent::TaskRetried(e) => {
                self.reset_for_retry(e.run, now);
                if e.waits && !self.spec.conditions.after.is_empty() {
                    self.leave_running_state(TaskState::Pending);
                    self.waits_for.clone_from(&self.spec.conditions.after);
                }
            }
            TaskEvent::TaskResumed(e) => {
                self.runs += 1;
                self.last_run = Some(e.run);
                self.reset_for_retry(Some(e.run), now);
            }
            TaskEvent::TaskReprioritized(e) => self.spec.priority = e.priority,
            TaskEvent::TaskDependencyEnded(e) => self.apply_dependency_ended(e.on, now),
            TaskEvent::TaskDelegated(e) => self.waits_for.push(e.child),
        }
        self.seq = meta.seq;
        self.hash = meta.hash;
        Ok(())
    }

    /// Whether the event may follow in the current state.
    fn can_follow(&self, event: &TaskEvent) -> bool {
        let state = self.state;
        match event {
            TaskEvent::TaskSubmitted(_) => false,
            TaskEvent::TaskMadeAvailable(_) => {
                matches!(state, TaskState::Pending | TaskState::Scheduled | TaskState::Retryable)
            }
            TaskEvent::TaskLeased(e) => state == TaskState::Available && e.epoch > self.epoch,
            TaskEvent::TaskReleased(TaskReleased { epoch, .. })
            | TaskEvent::TaskLeaseExpired(TaskLeaseExpired { epoch })
            | TaskEvent::TaskRunCrashed(TaskRunCrashed { epoch, .. }) => {
                state == TaskState::Running && *epoch == self.epoch
            }
            TaskEvent::TaskRunFailed(TaskRunFailed { run, .. })
            | TaskEvent::TaskBlocked(TaskBlocked { run, .. })
            | TaskEvent::TaskCompleted(TaskCompleted { run, .. })
            | TaskEvent::TaskDiscarded(TaskDiscarded { run, .. }) => {
                state == TaskState::Running && Some(*run) == self.run
            }
            TaskEvent::TaskPaused(_) => {
                matches!(
                    state,
                    TaskState::Pending | TaskState::Scheduled | TaskState::Available | TaskState::Retryable
                )
            }
            TaskEvent::TaskUnblocked(_) => state == TaskState::Blocked,
            TaskEvent::TaskCancelled(_) | TaskEvent::TaskReprioritized(_) => !state.is_ended(),
            TaskEvent::TaskRetried(e) => {
                state != TaskState::Running && (e.run.is_none() || e.run == self.run)
            }
            TaskEvent::TaskResumed(_)
            | TaskEvent::TaskDeliveryClaimed(_)
            | TaskEvent::TaskNeededNoDelivery(_)
            | TaskEvent::TaskDeliveryRequested(_)
            | TaskEvent::TaskDelivered(_)
            | TaskEvent::TaskDeliveryBlocked(_)
            | TaskEvent::TaskDeliveryHookRan(_)
            | TaskEvent::TaskAccepted(_)
            | TaskEvent::TaskRejected(_) => true,
            TaskEvent::TaskDependencyEnded(TaskDependencyEnded { on, .. }) => self.waits_for.contains(on),
            TaskEvent::TaskDelegated(TaskDelegated { run, child, .. }) => {
                state == TaskState::Running
                    && Some(*run) == self.run
                    && self.waits_for.len() < DEPENDENCIES_MAX
                    && !self.waits_for.contains(child)
            }
        }
    }

    fn apply_dependency_ended(&mut self, on: TaskId, now: Timestamp) {
        self.waits_for.retain(|task| *task != on);
        // Also paused by a person: it keeps waiting for that.
        if self.state != TaskState::Pending || !self.waits_for.is_empty() {
            return;
        }
        if self.available_at > now {
            self.leave_running_state(TaskState::Scheduled);
        } else {
            self.make_available(now);
        }
    }

    /// Whether the work is done and its result could not be delivered: blocked on a person, without a current
    /// run.
    pub fn is_undelivered(&self) -> bool {
        self.state == TaskState::Blocked
            && self.blocked_why == Some(TaskBlockedReason::Person)
            && self.run.is_none()
    }

    fn apply_leased(&mut self, event: TaskLeased, now: Timestamp) {
        if self.run != Some(event.run) {
            self.runs += 1;
        }
        self.state = TaskState::Running;
        self.unverified = None;
        self.epoch = event.epoch;
        self.run = Some(event.run);
        self.last_run = Some(event.run);
        self.worker = Some(event.worker);
        self.leased_at = Some(now);
    }

    fn make_available(&mut self, now: Timestamp) {
        self.leave_running_state(TaskState::Available);
        self.available_at = now;
    }

    fn reset_for_retry(&mut self, run: Option<RunId>, now: Timestamp) {
        self.failures = 0;
        self.crashes = 0;
        self.worker_faults = 0;
        self.run = run;
        self.ended_at = None;
        self.message = None;
        self.unverified = None;
        self.waits_for.clear();
        self.make_available(now);
    }

    fn set_terminal_state(&mut self, state: TaskState, now: Timestamp) {
        self.leave_running_state(state);
        self.run = None;
        self.waits_for.clear();
        self.ended_at = Some(now);
    }

    fn leave_running_state(&mut self, state: TaskState) {
        self.state = state;
        self.worker = None;
        self.leased_at = None;
        self.blocked_why = None;
    }
}

fn illegal_event(seq: Seq, kind: &'static str, stage: &'static str) -> CorruptLog {
    CorruptLog::Illegal { seq, kind, stage, detail: String::new() }
}
