//! The rows that flow control adds: who waits for whom, and what is set for queues.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    ids::{QueueName, TaskId},
    queue::QueueSettings,
};
use uuid::Uuid;

use super::{
    Difference,
    conn::{Arg, Conn},
    desk::{LoadError, Staged, Waits},
    rebuild::difference,
    write::{
        Kind::{Blob, Int, Text},
        Write,
    },
};

/// Dependencies that begin and end.
pub(super) fn dependencies(staged: &Staged) -> [Write; 2] {
    let mut begins = Write::insert(
        "INSERT INTO task_dependencies (dependency, task) {rows} ON CONFLICT (dependency, task) DO NOTHING",
        &[Blob, Blob],
    )
    .on_rows_of("task_dependencies");
    let mut ends = Write::update(
        "WITH u(dependency, task) AS ({rows}) DELETE FROM task_dependencies d USING u \
         WHERE d.dependency = u.dependency AND d.task = u.task",
        "DELETE FROM task_dependencies WHERE dependency = ?1 AND task = ?2",
        &[Blob, Blob],
    )
    .on_rows_of("task_dependencies");
    for ((on, task), waits) in &staged.dependencies {
        let write = match waits {
            Waits::Begins => &mut begins,
            Waits::Ends => &mut ends,
        };
        write.cells.extend([on, task].map(|id| Arg::Blob(id.0.as_bytes().to_vec())));
    }
    [begins, ends]
}

/// Settings of queues.
pub(super) fn queues(staged: &Staged) -> Write {
    let mut write = Write::insert(
        "INSERT INTO queues (name, paused, running_max) {rows} ON CONFLICT (name) DO UPDATE SET \
         paused = excluded.paused, running_max = excluded.running_max",
        &[Text, Int, Int],
    )
    .on("queues");
    for (name, settings) in &staged.queues {
        write.cells.extend([
            Arg::Text(name.as_str().to_owned()),
            Arg::Int(settings.paused.into()),
            Arg::IntOrNull(settings.running_max.map(i64::from)),
        ]);
    }
    write
}

/// Compares who waits for whom with what the log says, and mends it.
pub(super) async fn rebuild_dependencies(
    conn: &mut Conn<'_>,
    derived: &mut BTreeSet<(TaskId, TaskId)>,
    differences: &mut Vec<Difference>,
) -> Result<(), LoadError> {
    const TABLE: &str = "task_dependencies";
    let bytes = |id: &TaskId| Arg::Blob(id.0.as_bytes().to_vec());
    for mut row in conn.rows("SELECT dependency, task FROM task_dependencies", Vec::new()).await? {
        let pair = (TaskId(Uuid::from_bytes(row.fixed(0)?)), TaskId(Uuid::from_bytes(row.fixed(1)?)));
        if !derived.remove(&pair) {
            differences.push(difference(TABLE, &pair.1.to_string(), "(row)", "present", "missing"));
            let sql = "DELETE FROM task_dependencies WHERE dependency = $1 AND task = $2";
            conn.run(sql, vec![bytes(&pair.0), bytes(&pair.1)]).await?;
        }
    }
    for (on, task) in derived.iter() {
        differences.push(difference(TABLE, &task.to_string(), "(row)", "missing", "present"));
        let sql = "INSERT INTO task_dependencies (dependency, task) VALUES ($1, $2)";
        conn.run(sql, vec![bytes(on), bytes(task)]).await?;
    }
    Ok(())
}

/// Compares what is set for queues with what the log says, and mends it.
pub(super) async fn rebuild_queues(
    conn: &mut Conn<'_>,
    derived: &mut BTreeMap<QueueName, QueueSettings>,
    differences: &mut Vec<Difference>,
) -> Result<(), LoadError> {
    const TABLE: &str = "queues";
    for mut row in conn.rows("SELECT name, paused, running_max FROM queues", Vec::new()).await? {
        let name = row.text(0)?;
        let running_max = row.int_or_null(2)?.and_then(|max| u32::try_from(max).ok());
        let stored = QueueSettings { paused: row.int(1)? != 0, running_max };
        let key = name.parse::<QueueName>().ok();
        match key.as_ref().and_then(|key| derived.get(key)) {
            Some(settings) if *settings == stored => {
                derived.retain(|known, _| known.as_str() != name);
            }
            Some(settings) => {
                let (was, is) = (format!("{stored:?}"), format!("{settings:?}"));
                differences.push(difference(TABLE, &name, "settings", &was, &is));
                conn.run("DELETE FROM queues WHERE name = $1", vec![Arg::Text(name)]).await?;
            }
            None => {
                differences.push(difference(TABLE, &name, "(row)", "present", "missing"));
                conn.run("DELETE FROM queues WHERE name = $1", vec![Arg::Text(name)]).await?;
            }
        }
    }
    for (name, settings) in derived.iter() {
        if !differences.iter().any(|known| known.table == TABLE && known.key == name.as_str()) {
            differences.push(difference(TABLE, name.as_str(), "(row)", "missing", "present"));
        }
        let sql = "INSERT INTO queues (name, paused, running_max) VALUES ($1, $2, $3)";
        let args = vec![
            Arg::Text(name.as_str().to_owned()),
            Arg::Int(settings.paused.into()),
            Arg::IntOrNull(settings.running_max.map(i64::from)),
        ];
        conn.run(sql, args).await?;
    }
    Ok(())
}
