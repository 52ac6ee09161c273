//! Submit: all tasks or none, each id and each deduplication key once.

use std::collections::HashSet;

use docket_schema::{
    event::TypedEvent as _,
    ids::{BlobHash, Epoch, StreamId, TaskId, Timestamp, Turn},
    task::{TaskEvent, TaskEventMeta, TaskRecord, TaskSpec},
};

use crate::{
    decide,
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
    let mut known = load_known(desk, conn, tasks).await?;
    load_keys(desk, conn, tasks.iter().filter_map(|task| task.spec.dedup_key.clone())).await?;
    let mut names: Vec<BlobHash> = tasks.iter().flat_map(|task| blobs_of(&task.spec)).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !desk.blobs.contains(name));
    desk.load_blobs(conn, names).await?;

    let mut draft = Draft::default();
    let mut answer = Vec::with_capacity(tasks.len());
    let mut own_keys: std::collections::HashMap<&str, TaskId> = std::collections::HashMap::new();
    for task in tasks {
        if !known.insert(task.id) {
            answer.push((task.id, false));
            continue;
        }
        if let Some(key) = &task.spec.dedup_key {
            let holder =
                desk.keys.get(key).copied().flatten().or_else(|| own_keys.get(key.as_str()).copied());
            if let Some(holder) = holder {
                answer.push((holder, true));
                continue;
            }
            own_keys.insert(key, task.id);
        }
        if let Some(missing) = blobs_of(&task.spec).find(|name| !desk.blobs.contains(name)) {
            return Ok(Err(AppendError::BlobMissing(missing)));
        }
        desk.staged.touched.extend(blobs_of(&task.spec));
        draft_new(desk, conn, &mut draft, task, by, now).await?;
        answer.push((task.id, false));
    }
    desk.accept(draft);
    Ok(Ok(answer))
}

async fn draft_new(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    draft: &mut Draft,
    task: &NewTask,
    by: &str,
    now: Timestamp,
) -> Result<(), LoadError> {
    let event = decide::submit(task.spec.clone(), by)
        .map_err(|e| corrupt(format!("a submit that was not checked: {e}")))?;
    let stream = StreamId::Task(task.id);
    let mut row = desk.new_stream(conn).await?;
    draft.extend(&stream, &mut row, &[event.encode(Turn(0))], Epoch(0), now);
    let meta = TaskEventMeta { seq: row.head.seq, hash: row.head.hash, recorded_at: row.head_at };
    if let TaskEvent::TaskSubmitted(submitted) = event {
        let record = TaskRecord::submitted(task.id, meta, submitted);
        draft.tasks.push((record, row.id, Deadline::Keep));
    }
    draft.streams.push((stream, row));
    Ok(())
}

/// Which of these ids exist already.
async fn load_known(
    desk: &Desk,
    conn: &mut Conn<'_>,
    tasks: &[NewTask],
) -> Result<HashSet<TaskId>, LoadError> {
    let mut known: HashSet<TaskId> =
        tasks.iter().map(|task| task.id).filter(|id| desk.tasks.contains_key(id)).collect();
    let ids: Vec<Vec<u8>> = tasks
        .iter()
        .filter(|task| !known.contains(&task.id))
        .map(|task| task.id.0.as_bytes().to_vec())
        .collect();
    let sql = format!("SELECT id FROM tasks WHERE {}", conn.dialect().any_blob("id", 1));
    for mut row in conn.rows(&sql, vec![Arg::Blobs(ids)]).await? {
        known.insert(TaskId(uuid::Uuid::from_bytes(row.fixed(0)?)));
    }
    Ok(known)
}

/// Reads who holds these keys, unless this batch knows already.
pub(super) async fn load_keys(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    wanted: impl IntoIterator<Item = String>,
) -> Result<(), LoadError> {
    let mut keys: Vec<String> = wanted.into_iter().filter(|key| !desk.keys.contains_key(key)).collect();
    if keys.is_empty() {
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
fn blobs_of(spec: &TaskSpec) -> impl Iterator<Item = BlobHash> + '_ {
    let git =
        spec.base.git.iter().flat_map(|git| git.pack.iter().copied().chain([git.pack_index, git.index]));
    [spec.base.manifest].into_iter().chain(git).chain(spec.script).map(|blob| blob.hash)
}
