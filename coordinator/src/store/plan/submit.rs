//! Submit: all tasks or none, each id and each deduplication key once.

use std::collections::HashMap;

use docket_schema::{
    event::TypedEvent as _,
    ids::{BlobHash, Epoch, StreamId, TaskId, Timestamp, Turn},
    task::{TaskEvent, TaskEventMeta, TaskRecord, TaskState},
};

use super::{
    command::{draft_first_run, draft_task},
    depend::{draft_ended, load_states},
    known_task::{KnownTask, load_known_tasks},
};
use crate::{
    decide::{self, Plan},
    store::{
        AppendError, NewTask,
        conn::{Arg, Conn},
        desk::{Deadline, Desk, Draft, LoadError, corrupt},
    },
};

/// What a submit answers.
type Submitted = Result<Vec<(TaskId, bool)>, AppendError>;

/// Plans a submit.
pub(super) async fn plan_submit(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    tasks: &[NewTask],
    by: &str,
    now: Timestamp,
) -> Result<Submitted, LoadError> {
    let mut known = load_known_tasks(desk, conn, tasks).await?;
    load_keys(desk, conn, tasks.iter().filter_map(|task| task.spec.dedup_key.clone())).await?;
    let mut names: Vec<BlobHash> = tasks.iter().flat_map(blobs_of).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !desk.blobs.contains(name));
    if desk.takes_on_trust {
        desk.blobs.extend(names);
    } else {
        desk.load_blobs(conn, names).await?;
    }
    let mut states = load_states(desk, conn, tasks).await?;

    let mut draft = Draft::default();
    let mut touched: Vec<BlobHash> = Vec::new();
    let mut answer = Vec::with_capacity(tasks.len());
    let mut own_keys: HashMap<&str, TaskId> = HashMap::new();
    for task in tasks {
        if let Some(existing) = known.get(&task.id) {
            if let Err(taken) = existing.check_same(task) {
                return Ok(Err(AppendError::IdTaken(taken)));
            }
            answer.push((task.id, false));
            continue;
        }
        known.insert(task.id, KnownTask::requested(task));
        if let Some(key) = &task.spec.dedup_key {
            let holder =
                desk.keys.get(key).copied().flatten().or_else(|| own_keys.get(key.as_str()).copied());
            if let Some(holder) = holder {
                answer.push((holder, true));
                continue;
            }
            own_keys.insert(key, task.id);
        }
        if let Some(missing) = blobs_of(task).find(|name| !desk.blobs.contains(name)) {
            return Ok(Err(AppendError::BlobMissing(missing)));
        }
        touched.extend(blobs_of(task));
        if let Err(refused) = draft_new(desk, conn, &mut draft, task, by, &mut states, now).await? {
            return Ok(Err(refused));
        }
        answer.push((task.id, false));
    }
    desk.staged.touched.extend(touched);
    desk.accept(draft);
    Ok(Ok(answer))
}

async fn draft_new(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    task: &NewTask,
    by: &str,
    states: &mut HashMap<TaskId, TaskState>,
    now: Timestamp,
) -> Result<Result<(), AppendError>, LoadError> {
    let plan = match &task.fork {
        None => {
            decide::submit(task.spec.clone(), by).map(|event| Plan { task: vec![event], ..Plan::default() })
        }
        Some(fork) => decide::fork(task.spec.clone(), by, fork.from, fork.run, fork.events.clone()),
    };
    let plan = plan.map_err(|e| corrupt(format!("a submit that was not checked: {e}")))?;
    let Some((TaskEvent::TaskSubmitted(first), rest)) = plan.task.split_first() else {
        return Err(corrupt("a submit that submits nothing".to_owned()).into());
    };
    let stream = StreamId::Task(task.id);
    let mut row = desk.new_stream(conn).await?;
    let stream_id = row.id;
    draft.extend(&stream, &mut row, &[TaskEvent::from(first.clone()).encode(Turn(0))], Epoch(0), now);
    let meta = TaskEventMeta { seq: row.head.seq, hash: row.head.hash, recorded_at: row.head_at };
    let mut record = TaskRecord::submitted(task.id, meta, first.clone());
    draft.streams.push((stream, row));
    draft_task(desk, draft, &mut record, rest, Epoch(0), now)?;
    if let Some(write) = &plan.run
        && let Err(refused) = draft_first_run(desk, conn, draft, write, &record).await?
    {
        return Ok(Err(refused));
    }
    if let Err(refused) = draft_ended(desk, draft, &mut record, states, now)? {
        return Ok(Err(refused));
    }
    states.insert(record.id, record.state);
    draft.tasks.push((record, stream_id, Deadline::Keep));
    Ok(Ok(()))
}

/// Reads who holds these keys, unless this batch knows already.
pub(super) async fn load_keys(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    wanted: impl IntoIterator<Item = String>,
) -> Result<(), LoadError> {
    let mut keys: Vec<String> = wanted.into_iter().filter(|key| !desk.keys.contains_key(key)).collect();
    if keys.is_empty() || desk.takes_on_trust {
        return Ok(());
    }
    keys.sort_unstable();
    keys.dedup();
    let sql = format!(
        "SELECT dedup_key, id FROM tasks WHERE {} AND dedup_key IS NOT NULL \
         AND state NOT IN ('completed', 'cancelled', 'discarded')",
        conn.dialect().any_text("dedup_key", 1)
    );
    for key in &keys {
        desk.keys.insert(key.clone(), None);
    }
    for mut row in conn.rows(&sql, vec![Arg::Texts(keys)]).await? {
        let id = TaskId(uuid::Uuid::from_bytes(row.fixed(1)?));
        // It may have ended within this batch.
        let ended = desk.tasks.get(&id).is_some_and(|(record, _)| record.state.is_ended());
        if !ended {
            desk.keys.insert(row.text(0)?, Some(id));
        }
    }
    Ok(())
}

/// The blobs that a task names.
fn blobs_of(task: &NewTask) -> impl Iterator<Item = BlobHash> + '_ {
    let spec = &task.spec;
    let git =
        spec.base.git.iter().flat_map(|git| git.pack.iter().copied().chain([git.pack_index, git.index]));
    let own = [spec.base.manifest].into_iter().chain(git).chain(spec.script).map(|blob| blob.hash);
    own.chain(task.fork.iter().flat_map(|fork| fork.names.iter().copied()))
}
