//! A command: the decision on the record as it stands, its run's part, and the projections.

use docket_schema::{
    event::TypedEvent as _,
    ids::{Epoch, StreamId, TaskId, Timestamp, Turn},
    task::{
        TaskEvent, TaskEventMeta, TaskLeaseExpired, TaskLeased, TaskRecord, TaskReleased, TaskRunCrashed,
        TaskState,
    },
};

use super::{
    append::{Target, draft_append},
    batch::{missing_blob, stage_blobs},
    delegate::draft_child,
    depend::draft_waiting_again,
    submit::load_keys,
};
use crate::{
    decide::{FenceAfter, Plan, Rejection, RunCondition, RunWrite, lost_why},
    store::{
        AppendError, Appended, CommandError, Condition, StoreError,
        ask::AskCommand,
        conn::Conn,
        desk::{Deadline, Desk, Draft, LoadError, corrupt, forked},
        row::{Fence, RunRow, StreamRow},
    },
};

/// What a command answers.
pub(super) type Commanded = Result<(TaskRecord, Option<Appended>), CommandError>;

/// Plans a command.
pub(super) async fn plan_command(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    ask: &AskCommand,
) -> Result<Commanded, LoadError> {
    let Some((record, _)) = desk.tasks.get(&ask.task) else {
        return Ok(Err(CommandError::NoTask(ask.task)));
    };
    let plan = match (ask.decide)(record) {
        Ok(plan) => plan,
        Err(rejection) => return Ok(Err(rejection.into())),
    };
    let mut draft = Draft::default();
    let done = match draft_plan(desk, conn, &mut draft, ask.task, plan, Execution::at(ask.now)).await? {
        Ok(done) => done,
        Err(refused) => return Ok(Err(refused)),
    };
    if !done.1.is_some_and(|appended| appended.repeated) {
        if let Some(missing) = missing_blob(desk, &ask.names, &ask.blobs) {
            return Ok(Err(CommandError::Append(Box::new(AppendError::BlobMissing(missing)))));
        }
        desk.staged.touched.extend(&ask.names);
        stage_blobs(desk, &ask.blobs);
    }
    desk.accept(draft);
    Ok(Ok(done))
}

/// When a plan is carried out, and until when its lease lasts if it grants one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Execution {
    pub(super) now: Timestamp,
    pub(super) deadline: Deadline,
}

impl Execution {
    pub(super) const fn at(now: Timestamp) -> Self {
        Self { now, deadline: Deadline::Keep }
    }
}

/// Drafts a plan: the superseded run, the run, the one after it, the task, in this order.
pub(super) async fn draft_plan(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    task: TaskId,
    plan: Plan,
    when: Execution,
) -> Result<Commanded, LoadError> {
    let Some((before, stream_id)) = desk.tasks.get(&task).cloned() else {
        return Ok(Err(CommandError::NoTask(task)));
    };
    if let Some((child, submitted)) = &plan.child {
        match draft_child(desk, conn, draft, (*child, submitted), when.now).await? {
            Ok(true) => {}
            Ok(false) => return Ok(Ok((before, None))),
            Err(taken) => return Ok(Err(CommandError::Append(Box::new(AppendError::IdTaken(taken))))),
        }
    }
    let lease = plan.run.as_ref().and_then(holder);
    if let Some(write) = &plan.superseded
        && let Err(refused) = draft_run(desk, conn, draft, write, when.now).await?
    {
        return Ok(Err(CommandError::Append(Box::new(refused))));
    }
    let mut appended = None;
    let mut new_runs = Vec::new();
    if let Some(write) = &plan.run {
        match draft_run(desk, conn, draft, write, when.now).await? {
            Ok(done) => {
                appended = done.appended;
                new_runs.extend(done.new_stream.map(|id| (write, id)));
            }
            Err(refused) => return Ok(Err(late(&before, lease, plan.task.is_empty(), refused))),
        }
    }
    if plan.task.is_empty() {
        return Ok(Ok((before, appended)));
    }
    if let Some(write) = &plan.next {
        match draft_run(desk, conn, draft, write, when.now).await? {
            Ok(done) => new_runs.extend(done.new_stream.map(|id| (write, id))),
            Err(refused) => return Ok(Err(CommandError::Append(Box::new(refused)))),
        }
    }
    let mut record = before.clone();
    draft_task(desk, draft, &mut record, &plan.task, lease.unwrap_or_default(), when.now)?;
    let waits_again = |event: &TaskEvent| matches!(event, TaskEvent::TaskRetried(retried) if retried.waits);
    if plan.task.iter().any(waits_again)
        && let Some(unknown) = draft_waiting_again(desk, conn, draft, &mut record, when.now).await?
    {
        return Ok(Err(CommandError::Append(Box::new(AppendError::NoDependency(unknown)))));
    }
    if let Some(refused) = key_is_taken(desk, conn, &before, &record).await? {
        return Ok(Err(refused.into()));
    }
    draft.new_runs.extend(new_runs.into_iter().map(|(write, stream_id)| row_of(&record, write, stream_id)));
    draft.tasks.push((record.clone(), stream_id, when.deadline));
    Ok(Ok((record, appended)))
}

const fn holder(write: &RunWrite) -> Option<Epoch> {
    match write.condition {
        RunCondition::Holder(_, epoch) => Some(epoch),
        RunCondition::AtHead => None,
    }
}

/// A write that only a repetition could have made good: the refusal says what became of the lease.
fn late(
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
            let why = lost_why(record, asked).unwrap_or(docket_schema::wire::LostWhy::Ended);
            Rejection::LeaseLost { asked, current: record.epoch, why }.into()
        }
    }
}

struct RunDone {
    appended: Option<Appended>,
    new_stream: Option<i64>,
}

async fn draft_run(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    write: &RunWrite,
    now: Timestamp,
) -> Result<Result<RunDone, AppendError>, LoadError> {
    let stream = StreamId::Run(write.run);
    let is_fresh = matches!(write.fence, FenceAfter::Open(_)) && write.events.is_empty();
    if !is_fresh {
        desk.load_streams(conn, [stream.clone()]).await?;
    }
    let (appended, row, new_stream) = match write.condition {
        RunCondition::Holder(seq, epoch) => {
            let condition = Condition::Holder(seq, epoch);
            let target = Target { stream: &stream, condition, events: &write.events };
            match draft_append(desk, conn, draft, target, now).await? {
                Ok(appended) => (Some(appended), draft.stream(desk, &stream), None),
                Err(refused) => return Ok(Err(refused)),
            }
        }
        RunCondition::AtHead => {
            let (mut row, new) = match draft.stream(desk, &stream) {
                Some(row) => (row, None),
                None => {
                    let row = desk.new_stream(conn).await?;
                    let id = row.id;
                    (row, Some(id))
                }
            };
            if row.fence == Fence::Closed {
                return Ok(Err(AppendError::Closed));
            }
            draft.extend(&stream, &mut row, &write.events, Epoch(0), now);
            let place = (desk.staged.events.len() + draft.events.len()) as u64;
            let appended = (!write.events.is_empty()).then(|| Appended {
                head: row.head,
                position: docket_schema::ids::Position(place.saturating_sub(1)),
                repeated: false,
            });
            (appended, Some(row), new)
        }
    };
    if let Some(mut row) = row.filter(|_| !appended.is_some_and(|appended| appended.repeated)) {
        set_fence(&mut row, write.fence);
        draft.streams.push((stream, row));
    }
    Ok(Ok(RunDone { appended, new_stream }))
}

/// The run that a new task begins with. Its stream must not exist: its first event is another run's
/// continuation, and stands at nobody else's head.
pub(super) async fn draft_first_run(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    write: &RunWrite,
    record: &TaskRecord,
) -> Result<Result<(), AppendError>, LoadError> {
    let stream = StreamId::Run(write.run);
    // What it stands on is locked as well, so that it does not go to the archive meanwhile.
    let parent = write.events.first().and_then(forked).map(|forked| StreamId::Run(forked.parent));
    desk.load_streams(conn, [stream.clone()].into_iter().chain(parent.clone())).await?;
    if parent.is_some_and(|parent| draft.stream(desk, &parent).is_none()) {
        return Ok(Err(AppendError::NoStream));
    }
    if let Some(there) = draft.stream(desk, &stream) {
        return Ok(Err(AppendError::WrongSeq { expected: docket_schema::ids::Seq(0), head: there.head }));
    }
    match draft_run(desk, conn, draft, write, record.submitted_at).await? {
        Err(refused) => return Ok(Err(refused)),
        Ok(done) => draft.new_runs.extend(done.new_stream.map(|id| row_of(record, write, id))),
    }
    Ok(Ok(()))
}

fn row_of(record: &TaskRecord, write: &RunWrite, stream_id: i64) -> RunRow {
    RunRow {
        id: write.run,
        stream_id,
        task: record.id,
        attempt: record.runs,
        stage: "living".to_owned(),
        parent: write.events.first().and_then(forked).map(|forked| (forked.parent, forked.seq)),
        ended_at: None,
    }
}

const fn set_fence(row: &mut StreamRow, after: FenceAfter) {
    match after {
        FenceAfter::Unchanged => {}
        FenceAfter::Open(epoch) => {
            row.epoch = epoch;
            row.fence = Fence::Open;
        }
        FenceAfter::Shut => row.fence = Fence::Shut,
        FenceAfter::Closed => row.fence = Fence::Closed,
    }
}

/// Appends to the task's stream and folds what was appended into `record`.
pub(super) fn draft_task(
    desk: &Desk,
    draft: &mut Draft,
    record: &mut TaskRecord,
    events: &[TaskEvent],
    holder: Epoch,
    now: Timestamp,
) -> Result<(), StoreError> {
    let stream = StreamId::Task(record.id);
    let id = record.id;
    let mut row =
        draft.stream(desk, &stream).ok_or_else(|| corrupt(format!("task {id} has no stream of its own")))?;
    for event in events {
        draft.extend(&stream, &mut row, &[event.encode(Turn(0))], epoch_of(event, holder), now);
        let meta = TaskEventMeta { seq: row.head.seq, hash: row.head.hash, recorded_at: row.head_at };
        record.apply(meta, event.clone()).map_err(|source| corrupt(format!("task {id}: {source}")))?;
    }
    draft.streams.push((stream, row));
    Ok(())
}

/// The epoch that an event of a task is written under.
const fn epoch_of(event: &TaskEvent, holder: Epoch) -> Epoch {
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

/// A task that comes back to life wants its deduplication key back, which another may hold by now.
async fn key_is_taken(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    before: &TaskRecord,
    after: &TaskRecord,
) -> Result<Option<Rejection>, LoadError> {
    let Some(key) =
        after.spec.dedup_key.as_ref().filter(|_| before.state.is_ended() && !after.state.is_ended())
    else {
        return Ok(None);
    };
    load_keys(desk, conn, [key.clone()]).await?;
    let state: TaskState = before.state;
    Ok(match desk.keys.get(key).copied().flatten() {
        Some(holder) if holder != after.id => Some(Rejection::WrongState {
            state,
            remedy: "another task holds its deduplication key by now; cancel that one first",
        }),
        Some(_) | None => None,
    })
}
