//! A task of the backlog: what is asked, its events, and the state they fold to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::{BlobRef, WorkPath},
    event::{Envelope, TypedEvent as _, typed_events},
    ids::{BatchId, Epoch, EventHash, IncarnationId, QueueName, RunId, Seq, TaskId, Timestamp},
    message::ModelRef,
    run::{CorruptLog, FailureKind, RunOutcome},
    snapshot::Base,
};

/// Longest title, in characters: what a list can show.
pub const TITLE_CHARS_MAX: usize = 200;
/// Longest task text, in bytes.
pub const TEXT_BYTES_MAX: usize = 128 * 1024;
/// Longest deduplication key, in bytes: it stands in an index.
pub const DEDUP_KEY_BYTES_MAX: usize = 256;
/// Priorities lie within ± this.
pub const PRIORITY_MAX: i16 = 1000;

/// What is asked of docket: one piece of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// One line for lists. At most [`TITLE_CHARS_MAX`] characters.
    pub title: String,
    /// The work, in words for the model. At most [`TEXT_BYTES_MAX`] bytes.
    pub text: String,
    /// Queue.
    #[serde(default)]
    pub queue: QueueName,
    /// Higher goes first; within ± [`PRIORITY_MAX`].
    #[serde(default)]
    pub priority: i16,
    /// Not before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// While a task with this key is not ended, another is not accepted: the submit answers the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<String>,
    /// Runs that may fail before the task is discarded.
    #[serde(default = "TaskSpec::default_attempts_max")]
    pub attempts_max: u32,
    /// Run-process crashes before the task is discarded as poison.
    #[serde(default = "TaskSpec::default_crashes_max")]
    pub crashes_max: u32,
    /// Backoff between runs.
    #[serde(default)]
    pub backoff: Backoff,
    /// The tree it starts from.
    pub base: Base,
    /// Engine.
    #[serde(default = "TaskSpec::default_engine")]
    pub engine: String,
    /// Model.
    pub model: ModelRef,
    /// For `scripted` models: the script.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<BlobRef>,
    /// Settings that differ from the worker's.
    #[serde(default)]
    pub settings: SettingsPatch,
    /// The shell line that tests the work; none = found by looking at the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<String>,
    /// Paths that must exist at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<WorkPath>,
    /// Shell lines that make a fresh workspace ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// Branch that the result is to be delivered to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Tasks submitted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
}

impl TaskSpec {
    const fn default_attempts_max() -> u32 {
        3
    }

    const fn default_crashes_max() -> u32 {
        5
    }

    fn default_engine() -> String {
        "react".to_owned()
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// The field that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), FieldError> {
        let fail = |field, must| Err(FieldError { field, must });
        if self.title.trim().is_empty() || self.title.chars().count() > TITLE_CHARS_MAX {
            return fail("title", "1 to 200 characters");
        }
        if self.title.contains(['\n', '\r']) {
            return fail("title", "one line");
        }
        if self.text.len() > TEXT_BYTES_MAX {
            return fail("text", "at most 131072 bytes");
        }
        if self.priority.abs() > PRIORITY_MAX {
            return fail("priority", "within -1000 and 1000");
        }
        if self.dedup_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > DEDUP_KEY_BYTES_MAX) {
            return fail("dedup_key", "1 to 256 bytes");
        }
        if self.attempts_max == 0 || self.crashes_max == 0 {
            return fail("attempts_max and crashes_max", "at least 1");
        }
        Ok(())
    }
}

/// A field that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` must be {must}")]
pub struct FieldError {
    /// The field.
    pub field: &'static str,
    /// What it must be.
    pub must: &'static str,
}

/// Exponential backoff: the n-th retry waits base × 2^(n−1), at most max, ± a quarter of jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// Wait before the first retry.
    pub base_ms: u64,
    /// Longest wait.
    pub max_ms: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base_ms: 10_000, max_ms: 3_600_000 }
    }
}

impl Backoff {
    /// The wait before the retry after `failures` failed runs. `jitter` is drawn by the caller and
    /// taken modulo its range, so that this stays pure.
    pub const fn delay_ms(&self, failures: u32, jitter: u64) -> u64 {
        let doublings = if failures == 0 { 0 } else { failures - 1 };
        let factor = if doublings >= 63 { u64::MAX } else { 1 << doublings };
        let wanted = self.base_ms.saturating_mul(factor);
        let wait = if wanted > self.max_ms { self.max_ms } else { wanted };
        let span = wait / 2;
        // wait × [3/4, 5/4)
        wait - wait / 4 + if span == 0 { 0 } else { jitter % span }
    }
}

/// Settings a task overrides; what is absent is the worker's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsPatch {
    /// See [`crate::run::RunSettings::turns_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_max: Option<u32>,
    /// See [`crate::run::RunSettings::corrections_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrections_max: Option<u32>,
    /// See [`crate::run::RunSettings::command_timeout_ms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_ms: Option<u64>,
    /// See [`crate::run::RunSettings::auto_lint`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_lint: Option<bool>,
}

typed_events! {
    /// An event of a task's stream.
    pub enum TaskEvent {
        TaskSubmitted 1,
        TaskMadeAvailable 1,
        TaskLeased 1,
        TaskReleased 1,
        TaskLeaseExpired 1,
        TaskRunCrashed 1,
        TaskRunFailed 1,
        TaskBlocked 1,
        TaskUnblocked 1,
        TaskCompleted 1,
        TaskCancelled 1,
        TaskDiscarded 1,
        TaskRetried 1,
        TaskResumed 1,
        TaskReprioritized 1,
    }
}

/// A task entered the backlog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSubmitted {
    /// What is asked.
    pub spec: TaskSpec,
    /// Who asked.
    #[serde(default)]
    pub by: String,
}

/// Its time has come, or what it waited for has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskMadeAvailable {}

/// A worker has it. The envelope's epoch is the lease's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskLeased {
    /// The fencing token: higher than any before.
    pub epoch: Epoch,
    /// The run that goes on, or begins.
    pub run: RunId,
    /// The worker's incarnation.
    pub worker: IncarnationId,
    /// The worker's name, for people.
    #[serde(default)]
    pub worker_name: String,
}

/// Why a lease was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseWhy {
    /// The worker drains: it ends its turn and goes.
    Drained,
    /// The worker does not know the lease: its answer was lost.
    Unknown,
}

/// The worker gave it back; nothing is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReleased {
    /// The lease's epoch.
    pub epoch: Epoch,
    /// Why.
    pub why: ReleaseWhy,
}

/// Nothing was heard of the worker for a lease time; nothing is counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskLeaseExpired {
    /// The lease's epoch.
    pub epoch: Epoch,
}

/// The run process died while its supervisor lived.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRunCrashed {
    /// The lease's epoch.
    pub epoch: Epoch,
    /// How it died: `signal 9`, `exit 101`.
    pub how: String,
}

/// A run failed, and another will be tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRunFailed {
    /// The run.
    pub run: RunId,
    /// Why.
    pub why: FailureKind,
    /// One line for a person.
    pub message: String,
    /// When the next run may start.
    pub retry_at: Timestamp,
}

/// Why a task is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskBlockedWhy {
    /// A person has to answer.
    Person,
    /// A child task has to end.
    Child,
    /// A person paused it.
    Paused,
}

/// The run waits; its slot is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBlocked {
    /// The run.
    pub run: RunId,
    /// For what.
    pub why: TaskBlockedWhy,
}

/// What it waited for is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskUnblocked {}

/// The work is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCompleted {
    /// The run that did it.
    pub run: RunId,
}

/// Somebody cancelled it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCancelled {
    /// Who.
    pub by: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// Why a task was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DiscardWhy {
    /// The last allowed run failed.
    Failures,
    /// Its run process crashed too often.
    Poison,
}

/// The task was given up. All of it is kept; `docket retry` takes it up again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskDiscarded {
    /// The last run.
    pub run: RunId,
    /// Why.
    pub why: DiscardWhy,
    /// One line for a person.
    pub message: String,
}

/// Somebody wants an ended or waiting task run again from the start. Counters begin again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRetried {
    /// Who.
    pub by: String,
}

/// Somebody wants a run gone on with from a turn's end, as a new run of this task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskResumed {
    /// Who.
    pub by: String,
    /// The new run, whose stream begins with `Forked`.
    pub run: RunId,
    /// The run it stands on.
    pub parent: RunId,
}

/// Somebody changed its priority.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskReprioritized {
    /// The priority from here on.
    pub priority: i16,
}

/// The states of a task. The words are the same in SQL, JSON, CLI and documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waits for other tasks.
    Pending,
    /// Waits for its time.
    Scheduled,
    /// May be leased.
    Available,
    /// A worker has it.
    Running,
    /// A run failed; waits for its backoff.
    Retryable,
    /// Waits for a person, a child, or the end of a pause.
    Blocked,
    /// Done.
    Completed,
    /// Cancelled.
    Cancelled,
    /// Given up after its last try.
    Discarded,
}

impl TaskState {
    /// All states, in declaration order.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Scheduled,
        Self::Available,
        Self::Running,
        Self::Retryable,
        Self::Blocked,
        Self::Completed,
        Self::Cancelled,
        Self::Discarded,
    ];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Available => "available",
            Self::Running => "running",
            Self::Retryable => "retryable",
            Self::Blocked => "blocked",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
        }
    }

    /// Whether nothing more happens by itself.
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Completed | Self::Cancelled | Self::Discarded => true,
            Self::Pending
            | Self::Scheduled
            | Self::Available
            | Self::Running
            | Self::Retryable
            | Self::Blocked => false,
        }
    }
}

impl std::fmt::Display for TaskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for TaskState {
    type Err = crate::ids::ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| Self::Err {
            expected: "task state (pending, scheduled, available, running, retryable, blocked, completed, cancelled, discarded)",
            text: text.chars().take(80).collect(),
        })
    }
}

/// How a lease can end: what a run came to, or what came over it. With [`TaskRecord`] this decides
/// the task's next state; the table stands in ARCHITECTURE.md and a test enumerates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEnd {
    /// `RunEnded`.
    Ended(RunOutcome),
    /// `RunBlocked` or `RunPaused`.
    Blocked(TaskBlockedWhy),
    /// The run process died under a living supervisor.
    Crashed(String),
    /// Given back.
    Released(ReleaseWhy),
    /// Not heard of for a lease time.
    Expired,
}

/// The state of a task: the fold of its stream. Also a row of the `tasks` projection, which adds
/// the lease's deadline: heartbeats are no events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskRecord {
    /// The task.
    pub id: TaskId,
    /// Head of its stream.
    pub seq: Seq,
    /// Hash of the last event folded.
    pub hash: EventHash,
    /// State.
    pub state: TaskState,
    /// What was asked, with later changes of priority.
    pub spec: TaskSpec,
    /// How often it was leased: the fencing token of the present lease.
    pub epoch: Epoch,
    /// Runs that failed.
    pub failures: u32,
    /// Run-process crashes since the last run that ended.
    pub crashes: u32,
    /// Runs begun.
    pub runs: u32,
    /// The run in hand: leased now, or gone on with at the next lease. `None` = the next lease
    /// begins a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The last run, in hand or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunId>,
    /// The worker that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<IncarnationId>,
    /// When it may be leased: its schedule or its backoff.
    pub available_at: Timestamp,
    /// For what it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_why: Option<TaskBlockedWhy>,
    /// The last failure, crash or discard, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Place and time of an event, as the fold needs them.
#[derive(Debug, Clone, Copy)]
pub struct TaskEventMeta {
    /// Place in the stream.
    pub seq: Seq,
    /// Hash of the event.
    pub hash: EventHash,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

impl TaskRecord {
    /// The task as its first event makes it.
    pub fn submitted(id: TaskId, meta: TaskEventMeta, event: TaskSubmitted) -> Self {
        let now = meta.recorded_at;
        let available_at = event.spec.run_at.map_or(now, |at| at.max(now));
        Self {
            id,
            seq: meta.seq,
            hash: meta.hash,
            state: if available_at > now { TaskState::Scheduled } else { TaskState::Available },
            spec: event.spec,
            epoch: Epoch(0),
            failures: 0,
            crashes: 0,
            runs: 0,
            run: None,
            last_run: None,
            worker: None,
            available_at,
            blocked_why: None,
            message: None,
            submitted_at: now,
            ended_at: None,
        }
    }

    /// Folds a whole stream.
    ///
    /// # Errors
    /// [`CorruptLog`]: the stream does not begin with `TaskSubmitted`, or an event cannot follow.
    pub fn fold(id: TaskId, events: &[Envelope]) -> Result<Option<Self>, CorruptLog> {
        let mut record: Option<Self> = None;
        for event in events {
            let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str())
                .map_err(|source| CorruptLog::Decode { seq: event.seq, source })?;
            let meta = TaskEventMeta { seq: event.seq, hash: event.hash, recorded_at: event.recorded_at };
            match (&mut record, typed) {
                (None, TaskEvent::TaskSubmitted(first)) => {
                    record = Some(Self::submitted(id, meta, first));
                }
                (None, other) => return Err(illegal(meta.seq, other.kind(), "not submitted")),
                (Some(record), typed) => record.apply(meta, typed)?,
            }
        }
        Ok(record)
    }

    /// Applies one event after the first.
    ///
    /// # Errors
    /// [`CorruptLog`]: it cannot follow.
    pub fn apply(&mut self, meta: TaskEventMeta, event: TaskEvent) -> Result<(), CorruptLog> {
        if meta.seq != self.seq.next() {
            return Err(CorruptLog::Gap { expected: self.seq.next(), found: meta.seq });
        }
        if !self.admits(&event) {
            return Err(illegal(meta.seq, event.kind(), self.state.as_str()));
        }
        let now = meta.recorded_at;
        match event {
            TaskEvent::TaskSubmitted(_) => {}
            TaskEvent::TaskMadeAvailable(_) | TaskEvent::TaskUnblocked(_) => self.wait_for_lease(now),
            TaskEvent::TaskLeased(e) => self.leased(e),
            TaskEvent::TaskReleased(_) | TaskEvent::TaskLeaseExpired(_) => self.wait_for_lease(now),
            TaskEvent::TaskRunCrashed(e) => {
                self.crashes += 1;
                self.message = Some(format!("the run process died: {}", e.how));
                self.wait_for_lease(now);
            }
            TaskEvent::TaskRunFailed(e) => {
                self.failures += 1;
                self.crashes = 0;
                self.run = None;
                self.message = Some(e.message);
                self.rest(TaskState::Retryable);
                self.available_at = e.retry_at;
            }
            TaskEvent::TaskBlocked(e) => {
                self.rest(TaskState::Blocked);
                self.blocked_why = Some(e.why);
            }
            TaskEvent::TaskCompleted(_) => self.end(TaskState::Completed, now),
            TaskEvent::TaskCancelled(_) => self.end(TaskState::Cancelled, now),
            TaskEvent::TaskDiscarded(e) => {
                match e.why {
                    DiscardWhy::Failures => self.failures += 1,
                    DiscardWhy::Poison => self.crashes += 1,
                }
                self.message = Some(e.message);
                self.end(TaskState::Discarded, now);
            }
            TaskEvent::TaskRetried(_) => self.begin_again(None, now),
            TaskEvent::TaskResumed(e) => {
                self.runs += 1;
                self.last_run = Some(e.run);
                self.begin_again(Some(e.run), now);
            }
            TaskEvent::TaskReprioritized(e) => self.spec.priority = e.priority,
        }
        self.seq = meta.seq;
        self.hash = meta.hash;
        Ok(())
    }

    /// Which events may follow in which state.
    fn admits(&self, event: &TaskEvent) -> bool {
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
            | TaskEvent::TaskCompleted(TaskCompleted { run })
            | TaskEvent::TaskDiscarded(TaskDiscarded { run, .. }) => {
                state == TaskState::Running && Some(*run) == self.run
            }
            TaskEvent::TaskUnblocked(_) => state == TaskState::Blocked,
            TaskEvent::TaskCancelled(_) | TaskEvent::TaskReprioritized(_) => !state.is_ended(),
            TaskEvent::TaskRetried(_) => state != TaskState::Running,
            TaskEvent::TaskResumed(_) => true,
        }
    }

    fn leased(&mut self, event: TaskLeased) {
        if self.run != Some(event.run) {
            self.runs += 1;
        }
        self.state = TaskState::Running;
        self.epoch = event.epoch;
        self.run = Some(event.run);
        self.last_run = Some(event.run);
        self.worker = Some(event.worker);
    }

    fn wait_for_lease(&mut self, now: Timestamp) {
        self.rest(TaskState::Available);
        self.available_at = now;
    }

    fn begin_again(&mut self, run: Option<RunId>, now: Timestamp) {
        self.failures = 0;
        self.crashes = 0;
        self.run = run;
        self.ended_at = None;
        self.message = None;
        self.wait_for_lease(now);
    }

    fn end(&mut self, state: TaskState, now: Timestamp) {
        self.rest(state);
        self.run = None;
        self.ended_at = Some(now);
    }

    fn rest(&mut self, state: TaskState) {
        self.state = state;
        self.worker = None;
        self.blocked_why = None;
    }
}

fn illegal(seq: Seq, kind: &'static str, stage: &'static str) -> CorruptLog {
    CorruptLog::Illegal { seq, kind, stage, detail: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_cap_and_jitters_by_a_quarter() {
        let backoff = Backoff { base_ms: 1000, max_ms: 60_000 };
        for (failures, centre) in [(1, 1000), (2, 2000), (3, 4000), (7, 60_000), (200, 60_000)] {
            for jitter in [0, 1, u64::MAX / 2, u64::MAX] {
                let delay = backoff.delay_ms(failures, jitter);
                assert!(delay >= centre * 3 / 4 && delay < centre * 5 / 4, "{failures}: {delay}");
            }
        }
        assert_eq!(Backoff { base_ms: 0, max_ms: 0 }.delay_ms(1, 7), 0);
    }

    #[test]
    fn the_states_read_back() {
        for state in TaskState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
            assert_eq!(serde_json::to_string(&state).expect("json"), format!("\"{state}\""));
        }
    }
}
