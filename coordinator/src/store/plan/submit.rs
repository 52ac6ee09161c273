//! Submit: all tasks or none, each id and each deduplication key once.

use std::collections::HashMap;

use docket_schema::{
    ids::{BlobHash, Epoch, TaskId, Timestamp},
    task::{TaskEvent, TaskState},
};

use super::{
    command::{stage_first_run, stage_submitted, stage_task},
    dependencies::{load_dependency_states, stage_ended_dependencies},
    known_task::{KnownTask, load_known_tasks},
};
use crate::{
    decide::{self, CommandPlan},
    store::{
        AppendError, NewTask,
        api::corrupt_error,
        db::{DbConn, SqlArg, TransactionError},
        writer::{DeadlineChange, StagedRequest, WorkingSet},
    },
};

/// Reply to a submit.
type SubmitResult = Result<Vec<(TaskId, bool)>, AppendError>;

pub(super) async fn plan_submit(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    tasks: &[NewTask],
    by: &str,
    now: Timestamp,
) -> Result<SubmitResult, TransactionError> {
    let mut known = load_known_tasks(set, conn, tasks).await?;
    load_keys(set, conn, tasks.iter().filter_map(|task| task.spec.dedup_key.clone())).await?;
    let mut names: Vec<BlobHash> = tasks.iter().flat_map(required_blobs).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !set.blobs.contains(name));
    if set.optimistic_insert {
        set.blobs.extend(names);
    } else {
        set.load_blobs(conn, names).await?;
    }
    let mut states = load_dependency_states(set, conn, tasks).await?;

    let mut staged = StagedRequest::default();
    let mut touched: Vec<BlobHash> = Vec::new();
    let mut answer = Vec::with_capacity(tasks.len());
    let mut own_keys: HashMap<&str, TaskId> = HashMap::new();
    for task in tasks {
        if let Some(existing) = known.get(&task.id) {
            if let Err(taken) = existing.check_same_content(task) {
                return Ok(Err(AppendError::TaskIdConflict(taken)));
            }
            answer.push((task.id, false));
            continue;
        }
        known.insert(task.id, KnownTask::from_request(task));
        if let Some(key) = &task.spec.dedup_key {
            let holder =
                set.dedup_keys.get(key).copied().flatten().or_else(|| own_keys.get(key.as_str()).copied());
            if let Some(holder) = holder {
                answer.push((holder, true));
                continue;
            }
            own_keys.insert(key, task.id);
        }
        if let Some(missing) = required_blobs(task).find(|name| !set.blobs.contains(name)) {
            return Ok(Err(AppendError::BlobMissing(missing)));
        }
        touched.extend(required_blobs(task));
        if let Err(refused) = stage_new_task(set, conn, &mut staged, task, by, &mut states, now).await? {
            return Ok(Err(refused));
        }
        answer.push((task.id, false));
    }
    set.writes.touched.extend(touched);
    set.merge_staged(staged);
    Ok(Ok(answer))
}

async fn stage_new_task(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    staged: &mut StagedRequest,
    task: &NewTask,
    by: &str,
    states: &mut HashMap<TaskId, TaskState>,
    now: Timestamp,
) -> Result<Result<(), AppendError>, TransactionError> {
    let plan = match &task.fork {
        None => decide::submit(task.spec.clone(), by)
            .map(|event| CommandPlan { task_events: vec![event], ..CommandPlan::default() }),
        Some(fork) => decide::fork(task.spec.clone(), by, fork.from, fork.run, fork.events.clone()),
    };
    let plan = plan.map_err(|e| corrupt_error(format!("a submit that was not checked: {e}")))?;
    let Some((TaskEvent::TaskSubmitted(first), rest)) = plan.task_events.split_first() else {
        return Err(corrupt_error("a submit that submits nothing".to_owned()).into());
    };
    let (mut record, stream_id) = stage_submitted(set, conn, staged, task.id, first, now).await?;
    stage_task(set, staged, &mut record, rest, Epoch(0), now)?;
    if let Some(write) = &plan.run_write
        && let Err(refused) = stage_first_run(set, conn, staged, write, &record).await?
    {
        return Ok(Err(refused));
    }
    if let Err(refused) = stage_ended_dependencies(set, staged, &mut record, states, now)? {
        return Ok(Err(refused));
    }
    states.insert(record.id, record.state);
    staged.tasks.push((record, stream_id, DeadlineChange::Keep));
    Ok(Ok(()))
}

/// Loads which tasks hold these keys, unless this batch already knows.
pub(super) async fn load_keys(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    wanted: impl IntoIterator<Item = String>,
) -> Result<(), TransactionError> {
    let mut keys: Vec<String> = wanted.into_iter().filter(|key| !set.dedup_keys.contains_key(key)).collect();
    if keys.is_empty() || set.optimistic_insert {
        return Ok(());
    }
    keys.sort_unstable();
    keys.dedup();
    let sql = format!(
        "SELECT dedup_key, id FROM tasks WHERE {} AND dedup_key IS NOT NULL \
         AND state NOT IN ('completed', 'cancelled', 'discarded')",
        conn.dialect().any_text_sql("dedup_key", 1)
    );
    for key in &keys {
        set.dedup_keys.insert(key.clone(), None);
    }
    for mut row in conn.query_rows(&sql, vec![SqlArg::Texts(keys)]).await? {
        let id = TaskId(row.get_uuid(1)?);
        // The task may have ended in this batch.
        let ended = set.tasks.get(&id).is_some_and(|(record, _)| record.state.is_ended());
        if !ended {
            set.dedup_keys.insert(row.get_text(0)?, Some(id));
        }
    }
    Ok(())
}

/// Returns the blobs that a task references.
fn required_blobs(task: &NewTask) -> impl Iterator<Item = BlobHash> + '_ {
    let spec = &task.spec;
    let git =
        spec.base.git.iter().flat_map(|git| git.pack.iter().copied().chain([git.pack_index, git.index]));
    let own = [spec.base.manifest].into_iter().chain(git).chain(spec.script).map(|blob| blob.hash);
    own.chain(task.fork.iter().flat_map(|fork| fork.required_blobs.iter().copied()))
}
