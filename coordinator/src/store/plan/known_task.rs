//! Existing tasks whose ids a submit names. A repeated submit with equal content returns the existing task;
//! different content is refused, because otherwise its sender would never learn that it was not stored.

use std::collections::{BTreeSet, HashMap, HashSet};

use docket_schema::{
    event::TypedEvent as _,
    ids::{Seq, StreamId, TaskId},
    task::{ForkedFrom, TaskEvent, TaskSpec, TaskSubmitted},
};
use serde_json::{Map, Value};

use crate::store::{
    NewTask, TaskIdConflict,
    api::corrupt_error,
    db::{DbConn, SqlArg, SqlRow, TransactionError},
    writer::{EventRow, WorkingSet},
};

/// Content fields that the stub of an archived task retains.
const ARCHIVED_FIELDS: [&str; 5] = ["title", "queue", "batch", "batch_name", "dedup_key"];

/// Longest title in an error, in characters.
const TITLE_CHARS_MAX: usize = 60;

/// An existing task as it was submitted: a later change of priority is not a difference.
#[derive(Debug)]
pub(super) struct KnownTask {
    fields: Map<String, Value>,
    /// Of an archived task only [`ARCHIVED_FIELDS`] are known without its archive.
    is_complete: bool,
}

impl KnownTask {
    /// Creates the entry for a task of the same request.
    pub(super) fn from_request(task: &NewTask) -> Self {
        Self {
            fields: content_fields(&task.spec, task.fork.as_ref().map(|fork| &fork.from)),
            is_complete: true,
        }
    }

    fn from_submitted_event(kind: &str, version: u16, payload: &str) -> Result<Self, TransactionError> {
        let first = TaskEvent::decode(kind, version, payload);
        let Ok(TaskEvent::TaskSubmitted(TaskSubmitted { spec, forked_from, .. })) = first else {
            return Err(corrupt_error(format!("a task's stream begins with `{kind}`")).into());
        };
        Ok(Self { fields: content_fields(&spec, forked_from.as_ref()), is_complete: true })
    }

    fn from_stub_row(row: &mut SqlRow) -> Result<Self, TransactionError> {
        let mut fields = Map::new();
        for (at, field) in [(1, "title"), (2, "queue"), (3, "batch_name"), (4, "dedup_key")] {
            if let Some(text) = row.get_text_or_null(at)? {
                fields.insert(field.to_owned(), text.into());
            }
        }
        if let Some(batch) = row.get_array_or_null(5)? {
            fields.insert("batch".to_owned(), uuid::Uuid::from_bytes(batch).to_string().into());
        }
        Ok(Self { fields, is_complete: false })
    }

    /// Refuses a task that has this one's id but other content.
    pub(super) fn check_same_content(&self, task: &NewTask) -> Result<(), Box<TaskIdConflict>> {
        let wanted = content_fields(&task.spec, task.fork.as_ref().map(|fork| &fork.from));
        let names: BTreeSet<&str> = if self.is_complete {
            self.fields.keys().chain(wanted.keys()).map(String::as_str).collect()
        } else {
            ARCHIVED_FIELDS.into()
        };
        match names.into_iter().find(|name| self.fields.get(*name) != wanted.get(*name)) {
            None => Ok(()),
            Some(field) => Err(Box::new(TaskIdConflict {
                id: task.id,
                existing: shortened_title(&self.fields),
                requested: shortened_title(&wanted),
                field: field.to_owned(),
            })),
        }
    }
}

/// Refuses a child that has an existing one's id but other content. Fields that the coordinator takes from
/// the parent's record at each request (priority, policy) are not compared.
pub(super) fn check_same_child(
    id: TaskId,
    existing: (&TaskSpec, Option<&docket_schema::task::DelegatedBy>),
    submitted: &TaskSubmitted,
) -> Result<(), Box<TaskIdConflict>> {
    let (spec, delegated_by) = existing;
    let wanted = TaskSpec { priority: spec.priority, policy: spec.policy.clone(), ..submitted.spec.clone() };
    let known = KnownTask { fields: content_fields(spec, None), is_complete: true };
    known.check_same_content(&NewTask { id, spec: wanted, fork: None })?;
    if delegated_by == submitted.delegated_by.as_ref() {
        return Ok(());
    }
    Err(Box::new(TaskIdConflict {
        id,
        existing: shortened_title(&known.fields),
        requested: shorten_title(&submitted.spec.title),
        field: "delegated_by".to_owned(),
    }))
}

/// Returns the content as JSON, in the form in which it is read back from the log.
fn content_fields(spec: &TaskSpec, forked_from: Option<&ForkedFrom>) -> Map<String, Value> {
    let text = serde_json::to_string(spec).expect("plain data with string keys");
    let mut fields: Map<String, Value> = serde_json::from_str(&text).expect("it was written as an object");
    if let Some(from) = forked_from {
        let from = serde_json::to_value(from).expect("plain data with string keys");
        fields.insert("forked_from".to_owned(), from);
    }
    fields
}

fn shortened_title(fields: &Map<String, Value>) -> String {
    shorten_title(fields.get("title").and_then(Value::as_str).unwrap_or_default())
}

fn shorten_title(title: &str) -> String {
    match title.char_indices().nth(TITLE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &title[..at]),
        None => title.to_owned(),
    }
}

/// Loads those of `tasks` whose ids are already used: in this batch, in the log or in the archive.
pub(super) async fn load_known_tasks(
    set: &WorkingSet,
    conn: &mut DbConn<'_>,
    tasks: &[NewTask],
) -> Result<HashMap<TaskId, KnownTask>, TransactionError> {
    let mut used: HashSet<TaskId> =
        tasks.iter().map(|task| task.id).filter(|id| set.tasks.contains_key(id)).collect();
    if !set.optimistic_insert {
        let unknown = tasks.iter().map(|task| task.id).filter(|id| !used.contains(id));
        let ids = SqlArg::from_uuids(unknown.map(|id| id.0));
        let known_id = conn.dialect().any_blob_sql("id", 1);
        let sql = format!(
            "SELECT id FROM tasks WHERE {known_id} UNION ALL SELECT id FROM archived_streams WHERE {known_id}"
        );
        for mut row in conn.query_rows(&sql, vec![ids]).await? {
            used.insert(TaskId(row.get_uuid(0)?));
        }
    }
    let mut known = HashMap::with_capacity(used.len());
    for id in &used {
        let Some((_, stream_id)) = set.tasks.get(id) else { continue };
        let is_first = |event: &&EventRow| event.stream_id == *stream_id && event.seq == Seq(1);
        if let Some(first) = set.writes.events.iter().find(is_first) {
            known.insert(*id, KnownTask::from_submitted_event(&first.kind, first.version, &first.payload)?);
        }
    }
    used.retain(|id| !known.contains_key(id));
    if !used.is_empty() {
        read_known_tasks(conn, &used, &mut known).await?;
    }
    Ok(known)
}

async fn read_known_tasks(
    conn: &mut DbConn<'_>,
    used: &HashSet<TaskId>,
    known: &mut HashMap<TaskId, KnownTask>,
) -> Result<(), TransactionError> {
    let names: Vec<String> = used.iter().map(|id| StreamId::Task(*id).to_string()).collect();
    let id_of = |name: String| match name.parse() {
        Ok(StreamId::Task(id)) => Ok(id),
        Ok(StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_)) | Err(_) => {
            Err(corrupt_error(format!("a task's stream named `{name}`")))
        }
    };
    let sql = format!(
        "SELECT s.name, e.kind, e.version, e.payload FROM streams s \
         JOIN events e ON e.stream_id = s.id AND e.seq = 1 WHERE {}",
        conn.dialect().any_text_sql("s.name", 1)
    );
    for mut row in conn.query_rows(&sql, vec![SqlArg::Texts(names.clone())]).await? {
        let (id, kind, payload) = (id_of(row.get_text(0)?)?, row.get_text(1)?, row.get_text(3)?);
        let version =
            u16::try_from(row.get_i64(2)?).map_err(|_| corrupt_error(format!("the version of task {id}")))?;
        known.insert(id, KnownTask::from_submitted_event(&kind, version, &payload)?);
    }
    let sql = format!(
        "SELECT name, title, queue, batch_name, dedup_key, batch FROM archived_streams WHERE {}",
        conn.dialect().any_text_sql("name", 1)
    );
    for mut row in conn.query_rows(&sql, vec![SqlArg::Texts(names)]).await? {
        let id = id_of(row.get_text(0)?)?;
        known.insert(id, KnownTask::from_stub_row(&mut row)?);
    }
    Ok(())
}
