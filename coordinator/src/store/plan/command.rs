//! Commands on tasks: the decision on the current record, the run's part, and the projections.

use docket_schema::{
    event::TypedEvent as _,
    ids::{Epoch, StreamId, TaskId, Timestamp, Turn},
    task::{
        TaskEvent, TaskEventMeta, TaskLeaseExpired, TaskLeased, TaskRecord, TaskReleased, TaskRunCrashed,
        TaskState, TaskSubmitted,
    },
};

use super::{
    append::{AppendTarget, stage_append},
    blobs::{find_missing_blob, stage_blobs},
    delegate::stage_child,
    dependencies::stage_dependencies_again,
    submit::load_keys,
};
use crate::{
    decide::{CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite, lease_lost_reason},
    store::{
        AppendCondition, AppendError, AppendOutcome, CommandError, StoreError,
        api::corrupt_error,
        db::{
            DbConn, TransactionError,
            row::{RunRow, StreamFence, StreamRow},
        },
        writer::{DeadlineChange, StagedRequest, TaskCommand, WorkingSet, decode_fork},
    },
};

/// Reply to a command.
pub(super) type CommandOutcome = Result<(TaskRecord, Option<AppendOutcome>), CommandError>;

pub(super) async fn plan_command(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    command: &TaskCommand,
) -> Result<CommandOutcome, TransactionError> {
    let Some((record, _)) = set.tasks.get(&command.task) else {
        return Ok(Err(CommandError::TaskNotFound(command.task)));
    };
    let plan = match (command.decide)(record) {
        Ok(plan) => plan,
        Err(rejection) => return Ok(Err(rejection.into())),
    };
    let mut staged = StagedRequest::default();
    let done = match stage_plan(set, conn, &mut staged, command.task, plan, PlanExecution::new(command.now))
        .await?
    {
        Ok(done) => done,
        Err(refused) => return Ok(Err(refused)),
    };
    if !done.1.is_some_and(|appended| appended.was_repeated) {
        if let Some(missing) = find_missing_blob(set, &command.required_blobs, &command.blobs) {
            return Ok(Err(CommandError::Append(Box::new(AppendError::BlobMissing(missing)))));
        }
        set.writes.touched.extend(&command.required_blobs);
        stage_blobs(set, &command.blobs);
    }
    set.merge_staged(staged);
    Ok(Ok(done))
}

/// When a plan is executed, and the deadline of a lease that it grants.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanExecution {
    pub(super) now: Timestamp,
    pub(super) deadline: DeadlineChange,
}

impl PlanExecution {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self { now, deadline: DeadlineChange::Keep }
    }
}

/// Stages a plan in this order: superseded run, run, retry run, task.
pub(super) async fn stage_plan(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    task: TaskId,
    plan: CommandPlan,
    when: PlanExecution,
) -> Result<CommandOutcome, TransactionError> {
    let Some((before, stream_id)) = set.tasks.get(&task).cloned() else {
        return Ok(Err(CommandError::TaskNotFound(task)));
    };
    if let Some((child, submitted)) = &plan.delegated_task {
        match stage_child(set, conn, staged, (*child, submitted), when.now).await? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok((before, None))),
            Err(taken) => return Ok(Err(CommandError::Append(Box::new(AppendError::TaskIdConflict(taken))))),
        }
    }
    let lease = plan.run_write.as_ref().and_then(holder_epoch);
    if let Some(write) = &plan.superseded_run
        && let Err(refused) = stage_run(set, conn, staged, write, when.now).await?
    {
        return Ok(Err(CommandError::Append(Box::new(refused))));
    }
    let mut appended = None;
    let mut new_runs = Vec::new();
    if let Some(write) = &plan.run_write {
        match stage_run(set, conn, staged, write, when.now).await? {
            Ok(done) => {
                appended = done.appended;
                new_runs.extend(done.new_stream.map(|id| (write, id)));
            }
            Err(refused) => {
                return Ok(Err(late_write_error(&before, lease, plan.task_events.is_empty(), refused)));
            }
        }
    }
    if plan.task_events.is_empty() {
        return Ok(Ok((before, appended)));
    }
    if let Some(write) = &plan.retry_run {
        match stage_run(set, conn, staged, write, when.now).await? {
            Ok(done) => new_runs.extend(done.new_stream.map(|id| (write, id))),
            Err(refused) => return Ok(Err(CommandError::Append(Box::new(refused)))),
        }
    }
    let mut record = before.clone();
    stage_task(set, staged, &mut record, &plan.task_events, lease.unwrap_or_default(), when.now)?;
    let waits_again = |event: &TaskEvent| matches!(event, TaskEvent::TaskRetried(retried) if retried.waits);
    if plan.task_events.iter().any(waits_again)
        && let Some(unknown) = stage_dependencies_again(set, conn, staged, &mut record, when.now).await?
    {
        return Ok(Err(CommandError::Append(Box::new(AppendError::DependencyNotFound(unknown)))));
    }
    if let Some(refused) = check_dedup_key(set, conn, &before, &record).await? {
        return Ok(Err(refused.into()));
    }
    staged
        .new_runs
        .extend(new_runs.into_iter().map(|(write, stream_id)| new_run_row(&record, write, stream_id)));
    staged.tasks.push((record.clone(), stream_id, when.deadline));
    Ok(Ok((record, appended)))
}

const fn holder_epoch(write: &RunWrite) -> Option<Epoch> {
    match write.condition {
        RunCondition::Holder(_, epoch) => Some(epoch),
        RunCondition::AtHead => None,
    }
}

/// Returns the error of a late write that is not a repetition: it says how the lease was lost.
fn late_write_error(
    record: &TaskRecord,
    lease: Option<Epoch>,
    no_transition: bool,
    refused: AppendError,
) -> CommandError {
    let lost =
        matches!(refused, AppendError::Fenced { .. } | AppendError::LeaseEnded { .. } | AppendError::Closed);
    match lease.filter(|_| lost && no_transition) {
        None => CommandError::Append(Box::new(refused)),
        Some(asked) => {
            let why = lease_lost_reason(record, asked).unwrap_or(docket_schema::api::LeaseLostReason::Ended);
            CommandRejection::LeaseLost { asked, current: record.epoch, why }.into()
        }
    }
}

struct StagedRun {
    appended: Option<AppendOutcome>,
    new_stream: Option<i64>,
}

async fn stage_run(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    write: &RunWrite,
    now: Timestamp,
) -> Result<Result<StagedRun, AppendError>, TransactionError> {
    let stream = StreamId::Run(write.run);
    let is_fresh = matches!(write.fence, FenceAfter::Open(_)) && write.events.is_empty();
    if !is_fresh {
        set.load_streams(conn, [stream.clone()]).await?;
    }
    let (appended, row, new_stream) = match write.condition {
        RunCondition::Holder(seq, epoch) => {
            let condition = AppendCondition::LeaseHolder(seq, epoch);
            let target = AppendTarget { stream: &stream, condition, events: &write.events };
            match stage_append(set, conn, staged, target, now).await? {
                Ok(appended) => (Some(appended), staged.find_stream(set, &stream), None),
                Err(refused) => return Ok(Err(refused)),
            }
        }
        RunCondition::AtHead => {
            let (mut row, new) = match staged.find_stream(set, &stream) {
                Some(row) => (row, None),
                None => {
                    let row = set.new_stream(conn).await?;
                    let id = row.id;
                    (row, Some(id))
                }
            };
            if row.fence == StreamFence::Closed {
                return Ok(Err(AppendError::Closed));
            }
            staged.append_events(&stream, &mut row, &write.events, Epoch(0), now);
            let place = (set.writes.events.len() + staged.events.len()) as u64;
            let appended = (!write.events.is_empty()).then(|| AppendOutcome {
                head: row.head,
                position: docket_schema::ids::Position(place.saturating_sub(1)),
                was_repeated: false,
            });
            (appended, Some(row), new)
        }
    };
    if let Some(mut row) = row.filter(|_| !appended.is_some_and(|appended| appended.was_repeated)) {
        set_fence(&mut row, write.fence);
        staged.streams.push((stream, row));
    }
    Ok(Ok(StagedRun { appended, new_stream }))
}

/// Stages the first run of a new task. Its stream must not exist: its first event continues another run and
/// follows no other head.
pub(super) async fn stage_first_run(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    write: &RunWrite,
    record: &TaskRecord,
) -> Result<Result<(), AppendError>, TransactionError> {
    let stream = StreamId::Run(write.run);
    // The parent is locked as well, so that it is not archived meanwhile.
    let parent = write.events.first().and_then(decode_fork).map(|forked| StreamId::Run(forked.parent));
    set.load_streams(conn, [stream.clone()].into_iter().chain(parent.clone())).await?;
    if parent.is_some_and(|parent| staged.find_stream(set, &parent).is_none()) {
        return Ok(Err(AppendError::StreamNotFound));
    }
    if let Some(there) = staged.find_stream(set, &stream) {
        return Ok(Err(AppendError::WrongSeq { expected: docket_schema::ids::Seq(0), head: there.head }));
    }
    match stage_run(set, conn, staged, write, record.submitted_at).await? {
        Err(refused) => return Ok(Err(refused)),
        Ok(done) => staged.new_runs.extend(done.new_stream.map(|id| new_run_row(record, write, id))),
    }
    Ok(Ok(()))
}

fn new_run_row(record: &TaskRecord, write: &RunWrite, stream_id: i64) -> RunRow {
    RunRow {
        id: write.run,
        stream_id,
        task: record.id,
        attempt: record.runs,
        stage: "living".to_owned(),
        parent: write.events.first().and_then(decode_fork).map(|forked| (forked.parent, forked.seq)),
        ended_at: None,
    }
}

const fn set_fence(row: &mut StreamRow, after: FenceAfter) {
    match after {
        FenceAfter::Unchanged => {}
        FenceAfter::Open(epoch) => {
            row.epoch = epoch;
            row.fence = StreamFence::Open;
        }
        FenceAfter::Shut => row.fence = StreamFence::Shut,
        FenceAfter::Closed => row.fence = StreamFence::Closed,
    }
}

/// Stages the first event of a new task. Returns its record and the number of its stream.
pub(super) async fn stage_submitted(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    id: TaskId,
    submitted: &TaskSubmitted,
    now: Timestamp,
) -> Result<(TaskRecord, i64), TransactionError> {
    let stream = StreamId::Task(id);
    let mut row = set.new_stream(conn).await?;
    let stream_id = row.id;
    let first = TaskEvent::from(submitted.clone()).encode(Turn(0));
    staged.append_events(&stream, &mut row, &[first], Epoch(0), now);
    let meta = TaskEventMeta { seq: row.head.seq, hash: row.head.hash, recorded_at: row.head_at };
    staged.streams.push((stream, row));
    Ok((TaskRecord::from_submitted(id, meta, submitted.clone()), stream_id))
}

/// Stages events of the task's stream and folds them into `record`.
pub(super) fn stage_task(
    set: &WorkingSet,
    staged: &mut StagedRequest,
    record: &mut TaskRecord,
    events: &[TaskEvent],
    holder: Epoch,
    now: Timestamp,
) -> Result<(), StoreError> {
    let stream = StreamId::Task(record.id);
    let id = record.id;
    let mut row = staged
        .find_stream(set, &stream)
        .ok_or_else(|| corrupt_error(format!("task {id} has no stream of its own")))?;
    for event in events {
        staged.append_events(&stream, &mut row, &[event.encode(Turn(0))], event_epoch(event, holder), now);
        let meta = TaskEventMeta { seq: row.head.seq, hash: row.head.hash, recorded_at: row.head_at };
        record.apply(meta, event.clone()).map_err(|source| corrupt_error(format!("task {id}: {source}")))?;
    }
    staged.streams.push((stream, row));
    Ok(())
}

/// Returns the epoch under which a task's event is written.
const fn event_epoch(event: &TaskEvent, holder: Epoch) -> Epoch {
    match event {
        TaskEvent::TaskLeased(TaskLeased { epoch, .. })
        | TaskEvent::TaskReleased(TaskReleased { epoch, .. })
        | TaskEvent::TaskLeaseExpired(TaskLeaseExpired { epoch })
        | TaskEvent::TaskRunCrashed(TaskRunCrashed { epoch, .. }) => *epoch,
        TaskEvent::TaskSubmitted(_)
        | TaskEvent::TaskMadeAvailable(_)
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
        | TaskEvent::TaskDependencyEnded(_)
        | TaskEvent::TaskDelegated(_)
        | TaskEvent::TaskDeliveryClaimed(_)
        | TaskEvent::TaskNeededNoDelivery(_)
        | TaskEvent::TaskDeliveryRequested(_)
        | TaskEvent::TaskDelivered(_)
        | TaskEvent::TaskDeliveryBlocked(_)
        | TaskEvent::TaskDeliveryHookRan(_)
        | TaskEvent::TaskAccepted(_)
        | TaskEvent::TaskRejected(_) => holder,
    }
}

/// A reopened task needs its deduplication key back, which another task may hold.
async fn check_dedup_key(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    before: &TaskRecord,
    after: &TaskRecord,
) -> Result<Option<CommandRejection>, TransactionError> {
    let Some(key) =
        after.spec.dedup_key.as_ref().filter(|_| before.state.is_ended() && !after.state.is_ended())
    else {
        return Ok(None);
    };
    load_keys(set, conn, [key.clone()]).await?;
    let state: TaskState = before.state;
    Ok(match set.dedup_keys.get(key).copied().flatten() {
        Some(holder) if holder != after.id => Some(CommandRejection::WrongState {
            state,
            remedy: "another task now holds its deduplication key; cancel that one first",
        }),
        Some(_) | None => None,
    })
}
