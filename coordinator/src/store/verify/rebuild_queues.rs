//! Rebuild of dependencies and queue settings.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    ids::{QueueName, TaskId},
    queue::QueueSettings,
};

use crate::store::{
    ProjectionDifference,
    db::{DbConn, SqlArg, TransactionError},
};

/// Compares the dependencies with the log and corrects them.
pub(crate) async fn rebuild_dependencies(
    conn: &mut DbConn<'_>,
    derived: &mut BTreeSet<(TaskId, TaskId)>,
    differences: &mut Vec<ProjectionDifference>,
) -> Result<(), TransactionError> {
    const TABLE: &str = "task_dependencies";
    for mut row in conn.query_rows("SELECT dependency, task FROM task_dependencies", Vec::new()).await? {
        let pair = (TaskId(row.get_uuid(0)?), TaskId(row.get_uuid(1)?));
        if !derived.remove(&pair) {
            differences.push(ProjectionDifference::new(
                TABLE,
                &pair.1.to_string(),
                "(row)",
                "present",
                "missing",
            ));
            let sql = "DELETE FROM task_dependencies WHERE dependency = $1 AND task = $2";
            conn.execute(sql, vec![SqlArg::from_uuid(pair.0.0), SqlArg::from_uuid(pair.1.0)]).await?;
        }
    }
    for (on, task) in derived.iter() {
        differences.push(ProjectionDifference::new(TABLE, &task.to_string(), "(row)", "missing", "present"));
        let sql = "INSERT INTO task_dependencies (dependency, task) VALUES ($1, $2)";
        conn.execute(sql, vec![SqlArg::from_uuid(on.0), SqlArg::from_uuid(task.0)]).await?;
    }
    Ok(())
}

/// Compares the settings of queues with the log and corrects them.
pub(crate) async fn rebuild_queues(
    conn: &mut DbConn<'_>,
    derived: &mut BTreeMap<QueueName, QueueSettings>,
    differences: &mut Vec<ProjectionDifference>,
) -> Result<(), TransactionError> {
    const TABLE: &str = "queues";
    for mut row in conn.query_rows("SELECT name, paused, running_max FROM queues", Vec::new()).await? {
        let name = row.get_text(0)?;
        let running_max = row.get_i64_or_null(2)?.and_then(|max| u32::try_from(max).ok());
        let stored = QueueSettings { paused: row.get_i64(1)? != 0, running_max };
        let key = name.parse::<QueueName>().ok();
        match key.as_ref().and_then(|key| derived.get(key)) {
            Some(settings) if *settings == stored => {
                derived.retain(|known, _| known.as_str() != name);
            }
            Some(settings) => {
                let (was, is) = (format!("{stored:?}"), format!("{settings:?}"));
                differences.push(ProjectionDifference::new(TABLE, &name, "settings", &was, &is));
                conn.execute("DELETE FROM queues WHERE name = $1", vec![SqlArg::Text(name)]).await?;
            }
            None => {
                differences.push(ProjectionDifference::new(TABLE, &name, "(row)", "present", "missing"));
                conn.execute("DELETE FROM queues WHERE name = $1", vec![SqlArg::Text(name)]).await?;
            }
        }
    }
    for (name, settings) in derived.iter() {
        if !differences.iter().any(|known| known.table == TABLE && known.key == name.as_str()) {
            differences.push(ProjectionDifference::new(TABLE, name.as_str(), "(row)", "missing", "present"));
        }
        let sql = "INSERT INTO queues (name, paused, running_max) VALUES ($1, $2, $3)";
        let args = vec![
            SqlArg::Text(name.as_str().to_owned()),
            SqlArg::Int(settings.paused.into()),
            SqlArg::IntOrNull(settings.running_max.map(i64::from)),
        ];
        conn.execute(sql, args).await?;
    }
    Ok(())
}
