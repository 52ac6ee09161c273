//! What the stream of a task says of its runs: whose manieth run it is, and who may append to it. Derived
//! here alone, for `db rebuild` and for imports, so that both come to the same rows.

use std::collections::HashMap;

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{Epoch, RunId, Seq, StreamId, SystemTopic, TaskId},
    system::SystemEvent,
    task::{TaskEvent, TaskEventMeta, TaskRecord},
};

use super::{
    StoreError,
    conn::{Arg, Conn},
    desk::{LoadError, corrupt},
    row::{EVENT_COLUMNS, Fence, envelope},
};

/// Events read in one go.
const PAGE: i64 = 1000;

/// What the stream of a task says of one of its runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunFacts {
    pub(super) task: TaskId,
    pub(super) attempt: u32,
    pub(super) epoch: Epoch,
    pub(super) fence: Fence,
}

/// Runs by id.
pub(super) type Facts = HashMap<RunId, RunFacts>;

/// Folds `event` into the task's record, and into what is known of its runs.
pub(super) fn apply(
    runs: &mut Facts,
    record: &mut Option<TaskRecord>,
    id: TaskId,
    event: &Envelope,
) -> Result<(), StoreError> {
    let broken = |what: String| corrupt(format!("task {id}, event {}: {what}", event.seq));
    let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str())
        .map_err(|e| broken(e.to_string()))?;
    let meta = TaskEventMeta { seq: event.seq, hash: event.hash, recorded_at: event.recorded_at };
    let before = record.as_ref().and_then(|record| record.run);
    match (record.as_mut(), typed) {
        (None, TaskEvent::TaskSubmitted(first)) => *record = Some(TaskRecord::submitted(id, meta, first)),
        (None, other) => return Err(broken(format!("a task begins with {}", other.kind()))),
        (Some(record), typed) => {
            record.apply(meta, typed.clone()).map_err(|e| broken(e.to_string()))?;
            fence(runs, record, &typed, before);
        }
    }
    Ok(())
}

/// What a task's whole stream says of its runs.
pub(super) fn of_task(task: TaskId, events: &[Envelope]) -> Result<Facts, StoreError> {
    let (mut runs, mut record) = (Facts::new(), None);
    for event in events {
        apply(&mut runs, &mut record, task, event)?;
    }
    Ok(runs)
}

/// Adds runs that came by an import and that no task here speaks of.
pub(super) async fn add_imported(conn: &mut Conn<'_>, runs: &mut Facts) -> Result<(), LoadError> {
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id \
         WHERE s.name = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3"
    );
    let stream = StreamId::System(SystemTopic::Imports).to_string();
    let mut after = Seq(0);
    loop {
        let args = vec![Arg::Text(stream.clone()), Arg::Int(after.0 as i64), Arg::Int(PAGE)];
        let page = conn.rows(&sql, args).await?;
        let is_last = page.len() < PAGE as usize;
        for mut row in page {
            let event = envelope(&mut row)?;
            after = event.seq;
            let SystemEvent::RunImported(imported) =
                SystemEvent::decode(&event.kind, event.version, event.payload.as_str())
                    .map_err(|e| corrupt(format!("{stream}, event {after}: {e}")))?
            else {
                return Err(
                    corrupt(format!("{stream}, event {after}: a {} belongs elsewhere", event.kind)).into()
                );
            };
            for stream in imported.streams {
                if let (StreamId::Run(run), Some(of)) = (stream.stream, stream.run_of) {
                    let (task, attempt) = (of.task, of.attempt);
                    let closed = RunFacts { task, attempt, epoch: Epoch(0), fence: Fence::Closed };
                    runs.entry(run).or_insert(closed);
                }
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

/// A run that begins with another's history: nobody is at it yet.
const fn shut(record: &TaskRecord) -> RunFacts {
    RunFacts { task: record.id, attempt: record.runs, epoch: Epoch(0), fence: Fence::Shut }
}

/// What an event of a task does to the fences of its runs: as the decisions have it.
fn fence(runs: &mut Facts, record: &TaskRecord, event: &TaskEvent, before: Option<RunId>) {
    let set = |runs: &mut Facts, run: Option<RunId>, fence| {
        if let Some(facts) = run.and_then(|run| runs.get_mut(&run)) {
            facts.fence = fence;
        }
    };
    match event {
        TaskEvent::TaskLeased(e) => {
            let new = RunFacts { task: record.id, attempt: record.runs, epoch: e.epoch, fence: Fence::Open };
            let facts = runs.entry(e.run).or_insert(new);
            facts.epoch = e.epoch;
            facts.fence = Fence::Open;
        }
        TaskEvent::TaskReleased(_)
        | TaskEvent::TaskLeaseExpired(_)
        | TaskEvent::TaskRunCrashed(_)
        | TaskEvent::TaskBlocked(_) => set(runs, before, Fence::Shut),
        TaskEvent::TaskRunFailed(e) => {
            set(runs, before, Fence::Closed);
            runs.extend(e.next.map(|next| (next, shut(record))));
        }
        TaskEvent::TaskRetried(e) if e.run.is_some() => {}
        TaskEvent::TaskCompleted(_)
        | TaskEvent::TaskCancelled(_)
        | TaskEvent::TaskDiscarded(_)
        | TaskEvent::TaskRetried(_) => set(runs, before, Fence::Closed),
        TaskEvent::TaskResumed(e) => {
            set(runs, before, Fence::Closed);
            runs.insert(e.run, shut(record));
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
