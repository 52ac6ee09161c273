//! Rebuild: derives every projection from the log, compares, and corrects it: tasks, runs, and the head and
//! fence of each stream. Uses one transaction; memory holds a page of streams and a few words per run.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{Envelope, Head},
    ids::{BatchId, Epoch, QueueName, RunId, Seq, StreamId, SystemTopic, TaskId, Timestamp},
    queue::QueueSettings,
    task::{TaskRecord, TaskState},
};

use super::{
    rebuild_budgets::{RunUsageCheck, rebuild_budgets},
    rebuild_queues::{rebuild_dependencies, rebuild_queues},
};
use crate::store::{
    ProjectionDifference, RebuildProgress, StoreError,
    api::corrupt_error,
    archive::{STUB_ROW_COLUMNS, derive_stubs, stub_args},
    db::{
        DbConn, SqlArg, SqlDialect, TransactionError, for_each_event,
        row::{BudgetRow, StreamFence},
    },
    writer::{
        TASK_ROW_COLUMNS, TaskRun, TaskRuns, decode_budget_change, decode_fork, decode_queue_settings,
        into_new_event, run_change, task_args, task_runs,
    },
};

/// Streams read at once.
const PAGE_STREAMS: i64 = 500;

const RUN_ROW_COLUMNS: [&str; 8] =
    ["id", "stream_id", "task", "attempt", "stage", "parent", "parent_seq", "ended_at"];
const STREAM_ROW_COLUMNS: [&str; 6] = ["id", "head_seq", "head_hash", "head_at", "epoch", "fence"];

struct ProjectionRebuild {
    differences: Vec<ProjectionDifference>,
    runs: TaskRuns,
    dependencies: BTreeSet<(TaskId, TaskId)>,
    queues: BTreeMap<QueueName, QueueSettings>,
    budgets: BTreeMap<BatchId, BudgetRow>,
}

/// Derives, compares and corrects the projections within the caller's transaction.
pub(crate) async fn rebuild_projections(
    conn: &mut DbConn<'_>,
    seen: &RebuildProgress,
) -> Result<Vec<ProjectionDifference>, TransactionError> {
    if conn.dialect() == SqlDialect::Postgres {
        // Readers continue; writers wait.
        let tables = "LOCK TABLE streams, tasks, runs, archived_streams, queues, task_dependencies, batch_budgets, run_usage \
                      IN EXCLUSIVE MODE";
        conn.execute(tables, Vec::new()).await?;
    }
    for row in conn.query_rows("SELECT count(*) FROM streams", Vec::new()).await? {
        seen.restart(u64::try_from(row.get_i64(0)?).unwrap_or(0));
    }
    let mut work = ProjectionRebuild {
        differences: Vec::new(),
        runs: TaskRuns::new(),
        dependencies: BTreeSet::new(),
        queues: BTreeMap::new(),
        budgets: BTreeMap::new(),
    };
    // Tasks first: they determine which task a run belongs to, and its fence.
    for class in ["task/", "run/", "queue/", "system/"] {
        if class == "run/" {
            task_runs::add_imported_runs(conn, &mut work.runs).await?;
        }
        let mut after = 0;
        loop {
            let sql = format!(
                "SELECT id, name FROM streams WHERE id > $1 AND substr(name, 1, {}) = $2 ORDER BY id LIMIT $3",
                class.len()
            );
            let args = vec![SqlArg::Int(after), SqlArg::Text(class.to_owned()), SqlArg::Int(PAGE_STREAMS)];
            let page = conn.query_rows(&sql, args).await?;
            if page.is_empty() {
                break;
            }
            for mut row in page {
                after = row.get_i64(0)?;
                let name = row.get_text(1)?;
                let stream: StreamId =
                    name.parse().map_err(|_| corrupt_error(format!("a stream named `{name}`")))?;
                work.rebuild_stream(conn, after, &stream).await?;
                seen.add_stream();
            }
        }
    }
    work.delete_stray_rows(conn, "tasks", "task/").await?;
    work.delete_stray_rows(conn, "runs", "run/").await?;
    let ProjectionRebuild { differences, dependencies, queues, .. } = &mut work;
    rebuild_dependencies(conn, dependencies, differences).await?;
    rebuild_queues(conn, queues, differences).await?;
    rebuild_budgets(conn, &work.budgets, &mut work.differences).await?;
    work.rebuild_stubs(conn).await?;
    Ok(work.differences)
}

impl ProjectionRebuild {
    async fn rebuild_stream(
        &mut self,
        conn: &mut DbConn<'_>,
        id: i64,
        stream: &StreamId,
    ) -> Result<(), TransactionError> {
        let counted = match stream {
            StreamId::Run(run) => RunUsageCheck::load(conn, *run).await?,
            StreamId::Task(_) | StreamId::Queue(_) | StreamId::System(_) => None,
        };
        let mut seen = StreamProjection {
            head: Head::EMPTY,
            at: Timestamp(0),
            record: None,
            run: RunProjection::default(),
            counted_usage: counted,
        };
        for_each_event(conn, stream, |event| self.fold_event(&mut seen, stream, event)).await?;
        let (mut epoch, mut fence) = (Epoch(0), StreamFence::None);
        match stream {
            StreamId::Task(task) => {
                let record = seen
                    .record
                    .take()
                    .ok_or_else(|| corrupt_error(format!("task {task} has no first event")))?;
                self.dependencies.extend(record.waits_for.iter().map(|on| (*on, record.id)));
                self.compare_row(
                    conn,
                    "tasks",
                    &TASK_ROW_COLUMNS,
                    task_args(&record, id),
                    Some(record.state),
                )
                .await?;
            }
            StreamId::Run(run) => {
                if let Some(counted) = seen.counted_usage.take() {
                    counted.compare_and_correct(conn, *run, &mut self.differences).await?;
                }
                if let Some(place) = self.runs.get(run) {
                    (epoch, fence) = (place.epoch, place.fence);
                    let cells = run_args(*run, id, place, &seen.run);
                    self.compare_row(conn, "runs", &RUN_ROW_COLUMNS, cells, None).await?;
                }
            }
            StreamId::Queue(_) | StreamId::System(_) => {}
        }
        let cells = vec![
            SqlArg::Int(id),
            SqlArg::Int(seen.head.seq.0 as i64),
            SqlArg::Blob(seen.head.hash.0.to_vec()),
            SqlArg::Int(seen.at.0),
            SqlArg::Int(epoch.0 as i64),
            SqlArg::Text(fence.as_str().to_owned()),
        ];
        self.compare_row(conn, "streams", &STREAM_ROW_COLUMNS, cells, None).await
    }

    fn fold_event(
        &mut self,
        seen: &mut StreamProjection,
        stream: &StreamId,
        event: Envelope,
    ) -> Result<(), StoreError> {
        seen.head = Head { seq: event.seq, hash: event.hash };
        seen.at = event.recorded_at;
        match stream {
            StreamId::Task(id) => task_runs::apply_task_event(&mut self.runs, &mut seen.record, *id, &event),
            StreamId::Run(_) => {
                if let Some(counted) = &mut seen.counted_usage {
                    counted.add_event(&event)?;
                }
                seen.run.fold_event(event);
                Ok(())
            }
            StreamId::Queue(name) => {
                let event = into_new_event(event);
                self.queues.extend(decode_queue_settings(&event).map(|settings| (name.clone(), settings)));
                Ok(())
            }
            StreamId::System(SystemTopic::Budgets) => {
                self.budgets.extend(decode_budget_change(&into_new_event(event)));
                Ok(())
            }
            StreamId::System(_) => Ok(()),
        }
    }

    /// Compares a derived row with the stored one and corrects it. The first column is the key.
    async fn compare_row(
        &mut self,
        conn: &mut DbConn<'_>,
        table: &'static str,
        columns: &[&str],
        derived: Vec<SqlArg>,
        state: Option<TaskState>,
    ) -> Result<(), TransactionError> {
        let key = columns[0];
        let sql = format!("SELECT {} FROM {table} WHERE {key} = $1", columns.join(", "));
        let found = conn.query_rows(&sql, vec![derived[0].clone()]).await?;
        let row = derived[0].format();
        let Some(stored) = found.first() else {
            self.differences.push(ProjectionDifference::new(table, &row, "(row)", "missing", "present"));
            return insert_row(conn, table, columns, derived, state).await;
        };
        let wrong: Vec<usize> =
            (1..columns.len()).filter(|at| !derived[*at].equals_cell(stored, *at)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let mut set = Vec::new();
        let mut args = vec![derived[0].clone()];
        for at in wrong {
            let (was, is) = (stored.format_cell(at), derived[at].format());
            self.differences.push(ProjectionDifference::new(table, &row, columns[at], &was, &is));
            args.push(derived[at].clone());
            set.push(format!("{} = ${}", columns[at], args.len()));
        }
        match state {
            Some(TaskState::Running) => set.push("deadline_at = coalesce(deadline_at, 0)".to_owned()),
            Some(_) => set.push("deadline_at = NULL".to_owned()),
            None => {}
        }
        conn.execute(&format!("UPDATE {table} SET {} WHERE {key} = $1", set.join(", ")), args).await?;
        Ok(())
    }

    /// Rebuilds the stubs of archived streams from `system/archive` alone.
    async fn rebuild_stubs(&mut self, conn: &mut DbConn<'_>) -> Result<(), TransactionError> {
        let stubs = derive_stubs(conn).await?;
        for stub in stubs.values() {
            self.compare_row(conn, "archived_streams", &STUB_ROW_COLUMNS, stub_args(stub), None).await?;
        }
        for mut row in conn.query_rows("SELECT name FROM archived_streams ORDER BY name", Vec::new()).await? {
            let name = row.get_text(0)?;
            if name.parse().is_ok_and(|stream: StreamId| stubs.contains_key(&stream)) {
                continue;
            }
            self.differences.push(ProjectionDifference::new(
                "archived_streams",
                &name,
                "(row)",
                "present",
                "missing",
            ));
            conn.execute("DELETE FROM archived_streams WHERE name = $1", vec![SqlArg::Text(name)]).await?;
        }
        Ok(())
    }

    /// Deletes rows without a stream.
    async fn delete_stray_rows(
        &mut self,
        conn: &mut DbConn<'_>,
        table: &'static str,
        class: &str,
    ) -> Result<(), TransactionError> {
        let stray = format!(
            "stream_id NOT IN (SELECT id FROM streams WHERE substr(name, 1, {}) = '{class}')",
            class.len()
        );
        for mut row in conn.query_rows(&format!("SELECT id FROM {table} WHERE {stray}"), Vec::new()).await? {
            let id = row.get_uuid(0)?.to_string();
            self.differences.push(ProjectionDifference::new(table, &id, "(row)", "present", "missing"));
        }
        conn.execute(&format!("DELETE FROM {table} WHERE {stray}"), Vec::new()).await?;
        Ok(())
    }
}

async fn insert_row(
    conn: &mut DbConn<'_>,
    table: &str,
    columns: &[&str],
    mut cells: Vec<SqlArg>,
    state: Option<TaskState>,
) -> Result<(), TransactionError> {
    let mut names = columns.join(", ");
    if state == Some(TaskState::Running) {
        names.push_str(", deadline_at");
        cells.push(SqlArg::Int(0));
    }
    let places: Vec<String> = (1..=cells.len()).map(|n| format!("${n}")).collect();
    conn.execute(&format!("INSERT INTO {table} ({names}) VALUES ({})", places.join(", ")), cells).await?;
    Ok(())
}

/// The fold of one stream.
struct StreamProjection {
    head: Head,
    at: Timestamp,
    record: Option<TaskRecord>,
    run: RunProjection,
    counted_usage: Option<RunUsageCheck>,
}

/// The fold of one run's stream.
struct RunProjection {
    stage: &'static str,
    parent: Option<(RunId, Seq)>,
    ended_at: Option<Timestamp>,
}

impl Default for RunProjection {
    fn default() -> Self {
        Self { stage: "living", parent: None, ended_at: None }
    }
}

impl RunProjection {
    fn fold_event(&mut self, event: Envelope) {
        let at = event.recorded_at;
        let seq = event.seq;
        let event = into_new_event(event);
        if seq == Seq(1)
            && let Some(forked) = decode_fork(&event)
        {
            self.parent = Some((forked.parent, forked.seq));
        }
        if let Some(change) = run_change(&event, at)
            && change.from.is_none_or(|from| from == self.stage)
        {
            self.stage = change.to;
            self.ended_at = change.ended_at;
        }
    }
}

fn run_args(run: RunId, stream_id: i64, place: &TaskRun, seen: &RunProjection) -> Vec<SqlArg> {
    vec![
        SqlArg::from_uuid(run.0),
        SqlArg::Int(stream_id),
        SqlArg::from_uuid(place.task.0),
        SqlArg::Int(place.attempt.into()),
        SqlArg::Text(seen.stage.to_owned()),
        SqlArg::from_uuid_or_null(seen.parent.map(|(run, _)| run.0)),
        SqlArg::IntOrNull(seen.parent.map(|(_, seq)| seq.0 as i64)),
        SqlArg::IntOrNull(seen.ended_at.map(|at| at.0)),
    ]
}
