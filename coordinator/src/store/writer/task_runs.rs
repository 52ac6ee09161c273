//! Runs according to their task's stream: their ordinal in the task and who may append to them. Derived only
//! here, for `db rebuild`, imports and restores, so that all of them produce the same rows.

use std::collections::HashMap;

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{Epoch, RunId, StreamId, SystemTopic, TaskId},
    system::SystemEvent,
    task::{TaskEvent, TaskEventMeta, TaskRecord},
};

use crate::store::{
    StoreError,
    api::corrupt_error,
    db::{DbConn, TransactionError, for_each_event, row::StreamFence},
};

/// A run as recorded in its task's stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TaskRun {
    pub(crate) task: TaskId,
    pub(crate) attempt: u32,
    pub(crate) epoch: Epoch,
    pub(crate) fence: StreamFence,
}

/// Runs by id.
pub(crate) type TaskRuns = HashMap<RunId, TaskRun>;

/// Folds `event` into the task's record and into its runs.
pub(crate) fn apply_task_event(
    runs: &mut TaskRuns,
    record: &mut Option<TaskRecord>,
    id: TaskId,
    event: &Envelope,
) -> Result<(), StoreError> {
    let broken = |what: String| corrupt_error(format!("task {id}, event {}: {what}", event.seq));
    let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str())
        .map_err(|e| broken(e.to_string()))?;
    let meta = TaskEventMeta { seq: event.seq, hash: event.hash, recorded_at: event.recorded_at };
    let before = record.as_ref().and_then(|record| record.run);
    match (record.as_mut(), typed) {
        (None, TaskEvent::TaskSubmitted(first)) => {
            *record = Some(TaskRecord::from_submitted(id, meta, first))
        }
        (None, other) => return Err(broken(format!("a task begins with {}", other.kind()))),
        (Some(record), typed) => {
            record.apply(meta, typed.clone()).map_err(|e| broken(e.to_string()))?;
            apply_fence(runs, record, &typed, before);
        }
    }
    Ok(())
}

/// Returns the runs derived from a task's full stream.
pub(crate) fn runs_from_task_events(task: TaskId, events: &[Envelope]) -> Result<TaskRuns, StoreError> {
    let (mut runs, mut record) = (TaskRuns::new(), None);
    for event in events {
        apply_task_event(&mut runs, &mut record, task, event)?;
    }
    Ok(runs)
}

/// Adds imported runs that no task here names.
pub(crate) async fn add_imported_runs(
    conn: &mut DbConn<'_>,
    runs: &mut TaskRuns,
) -> Result<(), TransactionError> {
    for_each_event(conn, &StreamId::System(SystemTopic::Imports), |event| {
        let broken = |what: String| corrupt_error(format!("{}, event {}: {what}", event.stream, event.seq));
        let SystemEvent::RunImported(imported) =
            SystemEvent::decode(&event.kind, event.version, event.payload.as_str())
                .map_err(|e| broken(e.to_string()))?
        else {
            return Err(broken(format!("a {} belongs elsewhere", event.kind)));
        };
        for stream in imported.streams {
            if let (StreamId::Run(run), Some(of)) = (stream.stream, stream.run_of) {
                let (task, attempt) = (of.task, of.attempt);
                let closed = TaskRun { task, attempt, epoch: Epoch(0), fence: StreamFence::Closed };
                runs.entry(run).or_insert(closed);
            }
        }
        Ok(())
    })
    .await
}

/// Returns a run that continues another's history and was not leased yet.
const fn unleased_run(record: &TaskRecord) -> TaskRun {
    TaskRun { task: record.id, attempt: record.runs, epoch: Epoch(0), fence: StreamFence::Shut }
}

/// Updates the fences of a task's runs after one of its events, as the decisions do.
fn apply_fence(runs: &mut TaskRuns, record: &TaskRecord, event: &TaskEvent, before: Option<RunId>) {
    let set = |runs: &mut TaskRuns, run: Option<RunId>, fence| {
        if let Some(facts) = run.and_then(|run| runs.get_mut(&run)) {
            facts.fence = fence;
        }
    };
    match event {
        TaskEvent::TaskLeased(e) => {
            let new =
                TaskRun { task: record.id, attempt: record.runs, epoch: e.epoch, fence: StreamFence::Open };
            let facts = runs.entry(e.run).or_insert(new);
            facts.epoch = e.epoch;
            facts.fence = StreamFence::Open;
        }
        TaskEvent::TaskReleased(_)
        | TaskEvent::TaskLeaseExpired(_)
        | TaskEvent::TaskRunCrashed(_)
        | TaskEvent::TaskBlocked(_) => set(runs, before, StreamFence::Shut),
        TaskEvent::TaskRunFailed(e) => {
            set(runs, before, StreamFence::Closed);
            runs.extend(e.next.map(|next| (next, unleased_run(record))));
        }
        TaskEvent::TaskRetried(e) if e.run.is_some() => {}
        TaskEvent::TaskCompleted(_)
        | TaskEvent::TaskCancelled(_)
        | TaskEvent::TaskDiscarded(_)
        | TaskEvent::TaskRetried(_) => set(runs, before, StreamFence::Closed),
        TaskEvent::TaskResumed(e) => {
            set(runs, before, StreamFence::Closed);
            runs.insert(e.run, unleased_run(record));
        }
        TaskEvent::TaskSubmitted(_)
        | TaskEvent::TaskMadeAvailable(_)
        | TaskEvent::TaskUnblocked(_)
        | TaskEvent::TaskReprioritized(_)
        | TaskEvent::TaskPaused(_)
        | TaskEvent::TaskDependencyEnded(_)
        | TaskEvent::TaskDelegated(_)
        | TaskEvent::TaskDeliveryClaimed(_)
        | TaskEvent::TaskNeededNoDelivery(_)
        | TaskEvent::TaskDeliveryRequested(_)
        | TaskEvent::TaskDelivered(_)
        | TaskEvent::TaskDeliveryBlocked(_)
        | TaskEvent::TaskDeliveryHookRan(_)
        | TaskEvent::TaskAccepted(_)
        | TaskEvent::TaskRejected(_) => {}
    }
}
