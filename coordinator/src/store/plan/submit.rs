//! Submit: all tasks or none, each id and each deduplication key once.

use std::collections::HashMap;

use docket_schema::{
    ids::{BlobHash, Epoch, TaskId, Timestamp},
    task::{TaskEvent, TaskState},
};

use super::{
    command::{stage_first_run, stage_submitted, stage_task},
    depend::{load_states, stage_ended},
    known_task::{KnownTask, load_known_tasks},
};
use crate::{
    decide::{self, Plan},
    store::{
        AppendError, NewTask,
        api::corrupt,
        db::{Arg, Conn, TransactionError},
        writer::{DeadlineChange, StagedRequest, WorkingSet},
    },
};

/// The answer of a submit.
type Submitted = Result<Vec<(TaskId, bool)>, AppendError>;

/// Plans a submit.
pub(super) async fn plan_submit(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    tasks: &[NewTask],
    by: &str,
    now: Timestamp,
) -> Result<Submitted, TransactionError> {
    let mut known = load_known_tasks(set, conn, tasks).await?;
    load_keys(set, conn, tasks.iter().filter_map(|task| task.spec.dedup_key.clone())).await?;
    let mut names: Vec<BlobHash> = tasks.iter().flat_map(blobs_of).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !set.blobs.contains(name));
    if set.optimistic_insert {
        set.blobs.extend(names);
    } else {
        set.load_blobs(conn, names).await?;
    }
    let mut states = load_states(set, conn, tasks).await?;

    let mut staged = StagedRequest::default();
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
            let holder = set.keys.get(key).copied().flatten().or_else(|| own_keys.get(key.as_str()).copied());
            if let Some(holder) = holder {
                answer.push((holder, true));
                continue;
            }
            own_keys.insert(key, task.id);
        }
        if let Some(missing) = blobs_of(task).find(|name| !set.blobs.contains(name)) {
            return Ok(Err(AppendError::BlobMissing(missing)));
        }
        touched.extend(blobs_of(task));
        if let Err(refused) = stage_new_task(set, conn, &mut staged, task, by, &mut states, now).await? {
            return Ok(Err(refused));
        }
        answer.push((task.id, false));
    }
    set.writes.touched.extend(touched);
    set.accept(staged);
    Ok(Ok(answer))
}

async fn stage_new_task(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    staged: &mut StagedRequest,
    task: &NewTask,
    by: &str,
    states: &mut HashMap<TaskId, TaskState>,
    now: Timestamp,
) -> Result<Result<(), AppendError>, TransactionError> {
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
    let (mut record, stream_id) = stage_submitted(set, conn, staged, task.id, first, now).await?;
    stage_task(set, staged, &mut record, rest, Epoch(0), now)?;
    if let Some(write) = &plan.run
        && let Err(refused) = stage_first_run(set, conn, staged, write, &record).await?
    {
        return Ok(Err(refused));
    }
    if let Err(refused) = stage_ended(set, staged, &mut record, states, now)? {
        return Ok(Err(refused));
    }
    states.insert(record.id, record.state);
    staged.tasks.push((record, stream_id, DeadlineChange::Keep));
    Ok(Ok(()))
}

/// Reads which tasks hold these keys, unless this batch knows already.
pub(super) async fn load_keys(
    set: &mut WorkingSet,
    conn: &mut Conn<'_>,
    wanted: impl IntoIterator<Item = String>,
) -> Result<(), TransactionError> {
    let mut keys: Vec<String> = wanted.into_iter().filter(|key| !set.keys.contains_key(key)).collect();
    if keys.is_empty() || set.optimistic_insert {
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
        set.keys.insert(key.clone(), None);
    }
    for mut row in conn.rows(&sql, vec![Arg::Texts(keys)]).await? {
        let id = TaskId(row.uuid(1)?);
        // It may have ended within this batch.
        let ended = set.tasks.get(&id).is_some_and(|(record, _)| record.state.is_ended());
        if !ended {
            set.keys.insert(row.text(0)?, Some(id));
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
