//! Derives every projection from the log again, compares, and corrects it: tasks, runs, and the head and fence of each
//! stream. Runs within one transaction; memory holds a page of streams and a few words per run.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{Envelope, Head},
    ids::{BatchId, Epoch, QueueName, RunId, Seq, StreamId, SystemTopic, TaskId, Timestamp},
    queue::QueueSettings,
    task::{TaskRecord, TaskState},
};

use super::{
    rebuild_budgets::{RunCounted, rebuild_budgets},
    rebuild_queues::{rebuild_dependencies, rebuild_queues},
};
use crate::store::{
    Difference, Rebuilding, StoreError,
    api::corrupt,
    archive::{STUB_ROW, derive_stubs, stub_cells},
    db::{
        Arg, Conn, Dialect, TransactionError, for_each_event,
        row::{BudgetRow, Fence},
    },
    writer::{
        TASK_ROW, TaskRun, TaskRuns, budget_change, forked, into_new_event, queue_settings, run_change,
        task_cells, task_runs,
    },
};

/// Streams read at once.
const PAGE: i64 = 500;

const RUN_ROW: [&str; 8] =
    ["id", "stream_id", "task", "attempt", "stage", "parent", "parent_seq", "ended_at"];
const STREAM_ROW: [&str; 6] = ["id", "head_seq", "head_hash", "head_at", "epoch", "fence"];

struct Rebuild {
    differences: Vec<Difference>,
    runs: TaskRuns,
    dependencies: BTreeSet<(TaskId, TaskId)>,
    queues: BTreeMap<QueueName, QueueSettings>,
    budgets: BTreeMap<BatchId, BudgetRow>,
}

/// Derives, compares, and writes what the log says; within the caller's transaction.
pub(crate) async fn rebuild(
    conn: &mut Conn<'_>,
    seen: &Rebuilding,
) -> Result<Vec<Difference>, TransactionError> {
    if conn.dialect() == Dialect::Postgres {
        // Readers continue; writers wait.
        let tables = "LOCK TABLE streams, tasks, runs, archived_streams, queues, task_dependencies, batch_budgets, run_usage \
                      IN EXCLUSIVE MODE";
        conn.run(tables, Vec::new()).await?;
    }
    for row in conn.rows("SELECT count(*) FROM streams", Vec::new()).await? {
        seen.begin(u64::try_from(row.int(0)?).unwrap_or(0));
    }
    let mut work = Rebuild {
        differences: Vec::new(),
        runs: TaskRuns::new(),
        dependencies: BTreeSet::new(),
        queues: BTreeMap::new(),
        budgets: BTreeMap::new(),
    };
    // Tasks first: they say which run belongs to whom, and under which fence.
    for class in ["task/", "run/", "queue/", "system/"] {
        if class == "run/" {
            task_runs::add_imported(conn, &mut work.runs).await?;
        }
        let mut after = 0;
        loop {
            let sql = format!(
                "SELECT id, name FROM streams WHERE id > $1 AND substr(name, 1, {}) = $2 ORDER BY id LIMIT $3",
                class.len()
            );
            let args = vec![Arg::Int(after), Arg::Text(class.to_owned()), Arg::Int(PAGE)];
            let page = conn.rows(&sql, args).await?;
            if page.is_empty() {
                break;
            }
            for mut row in page {
                after = row.int(0)?;
                let name = row.text(1)?;
                let stream: StreamId =
                    name.parse().map_err(|_| corrupt(format!("a stream named `{name}`")))?;
                work.stream(conn, after, &stream).await?;
                seen.add_stream();
            }
        }
    }
    work.strays(conn, "tasks", "task/").await?;
    work.strays(conn, "runs", "run/").await?;
    let Rebuild { differences, dependencies, queues, .. } = &mut work;
    rebuild_dependencies(conn, dependencies, differences).await?;
    rebuild_queues(conn, queues, differences).await?;
    rebuild_budgets(conn, &work.budgets, &mut work.differences).await?;
    work.stubs(conn).await?;
    Ok(work.differences)
}

impl Rebuild {
    async fn stream(
        &mut self,
        conn: &mut Conn<'_>,
        id: i64,
        stream: &StreamId,
    ) -> Result<(), TransactionError> {
        let counted = match stream {
            StreamId::Run(run) => RunCounted::read(conn, *run).await?,
            StreamId::Task(_) | StreamId::Queue(_) | StreamId::System(_) => None,
        };
        let mut seen =
            Seen { head: Head::EMPTY, at: Timestamp(0), record: None, run: RunSeen::default(), counted };
        for_each_event(conn, stream, |event| self.add(&mut seen, stream, event)).await?;
        let (mut epoch, mut fence) = (Epoch(0), Fence::None);
        match stream {
            StreamId::Task(task) => {
                let record =
                    seen.record.take().ok_or_else(|| corrupt(format!("task {task} has no first event")))?;
                self.dependencies.extend(record.waits_for.iter().map(|on| (*on, record.id)));
                self.compare(conn, "tasks", &TASK_ROW, task_cells(&record, id), Some(record.state)).await?;
            }
            StreamId::Run(run) => {
                if let Some(counted) = seen.counted.take() {
                    counted.compare(conn, *run, &mut self.differences).await?;
                }
                if let Some(place) = self.runs.get(run) {
                    (epoch, fence) = (place.epoch, place.fence);
                    let cells = run_cells(*run, id, place, &seen.run);
                    self.compare(conn, "runs", &RUN_ROW, cells, None).await?;
                }
            }
            StreamId::Queue(_) | StreamId::System(_) => {}
        }
        let cells = vec![
            Arg::Int(id),
            Arg::Int(seen.head.seq.0 as i64),
            Arg::Blob(seen.head.hash.0.to_vec()),
            Arg::Int(seen.at.0),
            Arg::Int(epoch.0 as i64),
            Arg::Text(fence.as_str().to_owned()),
        ];
        self.compare(conn, "streams", &STREAM_ROW, cells, None).await
    }

    fn add(&mut self, seen: &mut Seen, stream: &StreamId, event: Envelope) -> Result<(), StoreError> {
        seen.head = Head { seq: event.seq, hash: event.hash };
        seen.at = event.recorded_at;
        match stream {
            StreamId::Task(id) => task_runs::apply(&mut self.runs, &mut seen.record, *id, &event),
            StreamId::Run(_) => {
                if let Some(counted) = &mut seen.counted {
                    counted.add(&event)?;
                }
                seen.run.add(event);
                Ok(())
            }
            StreamId::Queue(name) => {
                let event = into_new_event(event);
                self.queues.extend(queue_settings(&event).map(|settings| (name.clone(), settings)));
                Ok(())
            }
            StreamId::System(SystemTopic::Budgets) => {
                self.budgets.extend(budget_change(&into_new_event(event)));
                Ok(())
            }
            StreamId::System(_) => Ok(()),
        }
    }

    /// Compares a derived row with the stored one, and corrects it. The first column is the key.
    async fn compare(
        &mut self,
        conn: &mut Conn<'_>,
        table: &'static str,
        columns: &[&str],
        derived: Vec<Arg>,
        state: Option<TaskState>,
    ) -> Result<(), TransactionError> {
        let key = columns[0];
        let sql = format!("SELECT {} FROM {table} WHERE {key} = $1", columns.join(", "));
        let found = conn.rows(&sql, vec![derived[0].clone()]).await?;
        let row = derived[0].format();
        let Some(stored) = found.first() else {
            self.differences.push(Difference::new(table, &row, "(row)", "missing", "present"));
            return insert(conn, table, columns, derived, state).await;
        };
        let wrong: Vec<usize> = (1..columns.len()).filter(|at| !derived[*at].equals(stored, *at)).collect();
        if wrong.is_empty() {
            return Ok(());
        }
        let mut set = Vec::new();
        let mut args = vec![derived[0].clone()];
        for at in wrong {
            let (was, is) = (stored.format_cell(at), derived[at].format());
            self.differences.push(Difference::new(table, &row, columns[at], &was, &is));
            args.push(derived[at].clone());
            set.push(format!("{} = ${}", columns[at], args.len()));
        }
        match state {
            Some(TaskState::Running) => set.push("deadline_at = coalesce(deadline_at, 0)".to_owned()),
            Some(_) => set.push("deadline_at = NULL".to_owned()),
            None => {}
        }
        conn.run(&format!("UPDATE {table} SET {} WHERE {key} = $1", set.join(", ")), args).await?;
        Ok(())
    }

    /// Stubs of archived streams: what `system/archive` says, and nothing else.
    async fn stubs(&mut self, conn: &mut Conn<'_>) -> Result<(), TransactionError> {
        let stubs = derive_stubs(conn).await?;
        for stub in stubs.values() {
            self.compare(conn, "archived_streams", &STUB_ROW, stub_cells(stub), None).await?;
        }
        for mut row in conn.rows("SELECT name FROM archived_streams ORDER BY name", Vec::new()).await? {
            let name = row.text(0)?;
            if name.parse().is_ok_and(|stream: StreamId| stubs.contains_key(&stream)) {
                continue;
            }
            self.differences.push(Difference::new("archived_streams", &name, "(row)", "present", "missing"));
            conn.run("DELETE FROM archived_streams WHERE name = $1", vec![Arg::Text(name)]).await?;
        }
        Ok(())
    }

    /// Rows without a stream.
    async fn strays(
        &mut self,
        conn: &mut Conn<'_>,
        table: &'static str,
        class: &str,
    ) -> Result<(), TransactionError> {
        let stray = format!(
            "stream_id NOT IN (SELECT id FROM streams WHERE substr(name, 1, {}) = '{class}')",
            class.len()
        );
        for mut row in conn.rows(&format!("SELECT id FROM {table} WHERE {stray}"), Vec::new()).await? {
            let id = row.uuid(0)?.to_string();
            self.differences.push(Difference::new(table, &id, "(row)", "present", "missing"));
        }
        conn.run(&format!("DELETE FROM {table} WHERE {stray}"), Vec::new()).await?;
        Ok(())
    }
}

async fn insert(
    conn: &mut Conn<'_>,
    table: &str,
    columns: &[&str],
    mut cells: Vec<Arg>,
    state: Option<TaskState>,
) -> Result<(), TransactionError> {
    let mut names = columns.join(", ");
    if state == Some(TaskState::Running) {
        names.push_str(", deadline_at");
        cells.push(Arg::Int(0));
    }
    let places: Vec<String> = (1..=cells.len()).map(|n| format!("${n}")).collect();
    conn.run(&format!("INSERT INTO {table} ({names}) VALUES ({})", places.join(", ")), cells).await?;
    Ok(())
}

/// The fold of one stream.
struct Seen {
    head: Head,
    at: Timestamp,
    record: Option<TaskRecord>,
    run: RunSeen,
    counted: Option<RunCounted>,
}

/// The fold of one run's stream.
struct RunSeen {
    stage: &'static str,
    parent: Option<(RunId, Seq)>,
    ended_at: Option<Timestamp>,
}

impl Default for RunSeen {
    fn default() -> Self {
        Self { stage: "living", parent: None, ended_at: None }
    }
}

impl RunSeen {
    fn add(&mut self, event: Envelope) {
        let at = event.recorded_at;
        let seq = event.seq;
        let event = into_new_event(event);
        if seq == Seq(1)
            && let Some(forked) = forked(&event)
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

fn run_cells(run: RunId, stream_id: i64, place: &TaskRun, seen: &RunSeen) -> Vec<Arg> {
    vec![
        Arg::uuid(run.0),
        Arg::Int(stream_id),
        Arg::uuid(place.task.0),
        Arg::Int(place.attempt.into()),
        Arg::Text(seen.stage.to_owned()),
        Arg::uuid_or_null(seen.parent.map(|(run, _)| run.0)),
        Arg::IntOrNull(seen.parent.map(|(_, seq)| seq.0 as i64)),
        Arg::IntOrNull(seen.ended_at.map(|at| at.0)),
    ]
}
