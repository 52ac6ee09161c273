//! The desk: streams and tasks as a batch finds and leaves them, in memory, and what must be
//! written for it. The SQLite writer, being the only one, keeps its desk from batch to batch; a
//! PostgreSQL transaction has one of its own, over rows it has locked.
//!
//! Nothing reaches the desk from a request that is refused: a request drafts, and the draft is
//! taken over whole.

use std::collections::{HashMap, HashSet};

use docket_schema::{
    event::{Hashed, NewEvent, TypedEvent as _, chain_hash},
    ids::{
        BatchId, BlobHash, Epoch, IncarnationId, QueueName, RunId, Seq, StreamId, SystemTopic, TaskId,
        Timestamp,
    },
    queue::{QueueEvent, QueueSettings},
    run::Forked,
    task::{Flow, TaskRecord, TaskState},
};

use crate::decide::{CLOCKS_APART_MS, FlowHead};

use super::{
    StoreError,
    budgets::{self, BudgetRow},
    conn::{Arg, Conn, Dialect},
    lookout::Lookout,
    plan::RunningTask,
    row::{RunRow, STREAM_COLUMNS, StreamRow, TASK_COLUMNS, TASK_TABLES, TASK_WIDTH, stream_row, task_row},
};

/// Streams and tasks kept between batches; beyond this the desk is cleared. About 2 KB each.
const KEPT_MAX: usize = 8192;

pub(super) use super::staged::{Deadline, Removed, RunChange, Staged, StagedEvent, Waits, WorkerSeen};

/// What one request writes, until it is sure to succeed.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) events: Vec<StagedEvent>,
    pub(super) streams: Vec<(StreamId, StreamRow)>,
    pub(super) tasks: Vec<(TaskRecord, i64, Deadline)>,
    pub(super) new_runs: Vec<RunRow>,
    pub(super) runs: Vec<(RunId, RunChange)>,
    pub(super) queues: Vec<(QueueName, QueueSettings)>,
    pub(super) budgets: Vec<(BatchId, BudgetRow)>,
}

impl Draft {
    /// The stream as this draft, or the desk, has it.
    pub(super) fn stream(&self, desk: &Desk, id: &StreamId) -> Option<StreamRow> {
        let drafted = self.streams.iter().rev().find(|(name, _)| name == id).map(|(_, row)| row.clone());
        drafted.or_else(|| desk.streams.get(id).cloned())
    }

    /// Adds events to a stream.
    pub(super) fn extend(
        &mut self,
        id: &StreamId,
        row: &mut StreamRow,
        events: &[NewEvent],
        epoch: Epoch,
        now: Timestamp,
    ) {
        let name = id.to_string();
        // Time rises within a stream as long as the coordinators' clocks differ by no more than they may. A stream that is
        // further ahead was written by a clock that was: its events bear the right time again, and are ordered by seq.
        let is_ahead = row.head_at > now.plus_ms(CLOCKS_APART_MS);
        let recorded_at = if is_ahead { now } else { now.max(row.head_at) };
        for event in events {
            let seq = row.head.seq.next();
            if seq == Seq(1)
                && let Some(forked) = forked(event)
            {
                row.head.hash = forked.hash;
            }
            let prev_hash = row.head.hash;
            let hash = chain_hash(
                &prev_hash,
                &Hashed {
                    stream: &name,
                    seq,
                    recorded_at,
                    turn: event.turn,
                    epoch,
                    kind: &event.kind,
                    version: event.version,
                    payload: event.payload.as_str().as_bytes(),
                },
            );
            self.events.push(StagedEvent {
                stream_id: row.id,
                seq,
                recorded_at,
                turn: event.turn,
                epoch,
                kind: event.kind.clone(),
                version: event.version,
                payload: event.payload.as_str().to_owned(),
                prev_hash,
                hash,
            });
            row.head.seq = seq;
            row.head.hash = hash;
            if let StreamId::Run(run) = id
                && let Some(change) = run_change(event, recorded_at)
            {
                self.runs.push((*run, change));
            }
            if *id == StreamId::System(SystemTopic::Budgets) {
                self.budgets.extend(budgets::of_event(event));
            }
            if let StreamId::Queue(queue) = id
                && let Some(settings) = queue_settings(event)
            {
                self.queues.push((queue.clone(), settings));
            }
        }
        if !events.is_empty() {
            row.head_at = recorded_at;
        }
    }
}

/// The fork a stream begins with: its first event follows the parent's, not nothing.
pub(super) fn forked(event: &NewEvent) -> Option<Forked> {
    if event.kind == "Forked" { serde_json::from_str(event.payload.as_str()).ok() } else { None }
}

/// What an event of a queue's stream sets.
pub(super) fn queue_settings(event: &NewEvent) -> Option<QueueSettings> {
    match QueueEvent::decode(&event.kind, event.version, event.payload.as_str()).ok()? {
        QueueEvent::QueueSet(set) => Some(set.settings),
    }
}

/// What an event does to the row of its run. Names alone decide, but for the end's outcome.
pub(super) fn run_change(event: &NewEvent, at: Timestamp) -> Option<RunChange> {
    let change = |to, from| Some(RunChange { to, from, ended_at: None });
    match event.kind.as_str() {
        "RunEnded" => {
            let ended: docket_schema::run::RunEnded = serde_json::from_str(event.payload.as_str()).ok()?;
            Some(RunChange { to: ended.result.as_str(), from: None, ended_at: Some(at) })
        }
        "RunBlocked" => change("blocked", None),
        "RunPaused" => change("paused", None),
        "BlockerAnswered" => change("living", Some("blocked")),
        "ChildAnswered" => {
            // It rests on while others are out.
            let answer: docket_schema::run::ChildAnswered =
                serde_json::from_str(event.payload.as_str()).ok()?;
            if answer.more { None } else { change("living", Some("blocked")) }
        }
        "Unpaused" => change("living", Some("paused")),
        _ => None,
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) streams: HashMap<StreamId, StreamRow>,
    pub(super) tasks: HashMap<TaskId, (TaskRecord, i64)>,
    pub(super) staged: Staged,
    /// Blobs known to be stored.
    pub(super) blobs: HashSet<BlobHash>,
    /// Tasks by deduplication key, as loaded or made in this batch. `None` = nobody holds it.
    pub(super) keys: HashMap<String, Option<TaskId>>,
    /// Ids for new streams.
    ids: std::ops::Range<i64>,
    dialect: Dialect,
    /// What is read is locked until the commit.
    locks: bool,
    /// Nothing is read: that ids and keys are new, and blobs stored, is for the statement that writes it to say.
    pub(super) takes_on_trust: bool,
    /// Whose turn it is, and where to look for tasks.
    pub(super) lookout: Lookout,
    /// What the lease requests of a batch have read in common.
    pub(super) leasing: Leasing,
}

/// What the lease requests of a batch read once for all of them. What the batch itself changes is not in it.
#[derive(Debug, Default)]
pub(super) struct Leasing {
    pub(super) requests: usize,
    /// Leases that all of them ask for.
    pub(super) wanted: usize,
    /// Their workers, as the database knows them. None of them = it does not.
    pub(super) workers: HashMap<IncarnationId, Option<KnownWorker>>,
    /// What is set for queues, and the batches whose budget is spent.
    pub(super) queues: Option<(HashMap<QueueName, QueueSettings>, HashSet<BatchId>)>,
    pub(super) heads: Option<SeenHeads>,
    /// On PostgreSQL: a choice under limits is expected, so its lock is taken before anything else.
    pub(super) expects_limits: bool,
    /// What runs, as the database had it under that lock.
    pub(super) running: Option<Vec<RunningTask>>,
    /// A choice depended on limits.
    pub(super) meets_limits: bool,
    /// How long a worker that is not heard of counts as there.
    pub(super) lease_ms: u64,
    /// Queues of one task that a living worker serves by name.
    pub(super) claimed: Option<HashSet<QueueName>>,
}

/// A worker as the database knows it.
#[derive(Debug, Clone)]
pub(super) struct KnownWorker {
    /// Somebody wants it to take no more.
    pub(super) drain: bool,
    /// Number of its last request that got leases, and what it got, in JSON.
    pub(super) kept: Option<(u64, String)>,
}

/// The first tasks of some flows.
#[derive(Debug)]
pub(super) struct SeenHeads {
    pub(super) of: Vec<Flow>,
    pub(super) heads: Vec<FlowHead>,
    /// So many were asked for: a flow that showed fewer has no more.
    pub(super) limit: usize,
}

impl Desk {
    pub(super) fn new(dialect: Dialect, ids: std::ops::Range<i64>) -> Self {
        Self {
            streams: HashMap::new(),
            tasks: HashMap::new(),
            staged: Staged::default(),
            blobs: HashSet::new(),
            keys: HashMap::new(),
            ids,
            dialect,
            locks: true,
            takes_on_trust: false,
            lookout: Lookout::default(),
            leasing: Leasing::default(),
        }
    }

    /// A desk whose reads lock nothing: what is decided on it must be checked by the statement that
    /// writes it.
    pub(super) fn optimistic(dialect: Dialect) -> Self {
        Self { locks: false, ..Self::new(dialect, 0..0) }
    }

    /// A desk that reads nothing of what a submit depends on.
    pub(super) fn on_trust(dialect: Dialect, ids: std::ops::Range<i64>) -> Self {
        Self { takes_on_trust: true, ..Self::new(dialect, ids) }
    }

    /// Forgets what was read; after a failed transaction, or when another writer was noticed.
    pub(super) fn clear(&mut self) {
        self.streams.clear();
        self.tasks.clear();
        self.begin(Timestamp(0));
    }

    /// Begins a batch.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.staged = Staged { now, ..Staged::default() };
        self.blobs.clear();
        self.keys.clear();
        self.leasing = Leasing::default();
        if self.streams.len() > KEPT_MAX || self.tasks.len() > KEPT_MAX {
            self.streams.clear();
            self.tasks.clear();
        }
    }

    /// Notes on an optimistic desk what a locked transaction left: heads that holders go on from.
    pub(super) fn note(&mut self, done: &mut Self) {
        if self.streams.len() > KEPT_MAX {
            self.streams.clear();
        }
        for (id, _) in std::mem::take(&mut done.staged.streams) {
            match done.streams.remove(&id) {
                Some(row) if row.fence == super::row::Fence::Open => self.streams.insert(id, row),
                Some(_) | None => self.streams.remove(&id),
            };
        }
    }

    /// Ids that are left for new streams.
    pub(super) fn ids_left(&self) -> std::ops::Range<i64> {
        self.ids.clone()
    }

    /// A new, empty stream.
    pub(super) async fn new_stream(&mut self, conn: &mut Conn<'_>) -> Result<StreamRow, sqlx::Error> {
        let id = match self.ids.next() {
            Some(id) => id,
            None => {
                let rows = conn.rows("SELECT nextval('stream_ids')", Vec::new()).await?;
                let last = rows.first().and_then(|row| row.int(0).ok()).ok_or(sqlx::Error::RowNotFound)?;
                self.ids = last - STREAM_ID_BLOCK + 1..last + 1;
                self.ids.next().expect("a block is not empty")
            }
        };
        Ok(StreamRow {
            id,
            head: docket_schema::event::Head::EMPTY,
            head_at: Timestamp(0),
            epoch: Epoch(0),
            fence: super::row::Fence::None,
        })
    }

    /// Reads streams that are not on the desk.
    pub(super) async fn load_streams(
        &mut self,
        conn: &mut Conn<'_>,
        wanted: impl IntoIterator<Item = StreamId>,
    ) -> Result<(), LoadError> {
        let is_new = |id: &StreamId| !self.streams.contains_key(id) && !self.staged.removes(id);
        let mut names: Vec<String> = wanted.into_iter().filter(is_new).map(|id| id.to_string()).collect();
        if names.is_empty() {
            return Ok(());
        }
        names.sort_unstable();
        names.dedup();
        let sql = format!(
            "SELECT s.name, {STREAM_COLUMNS} FROM streams s WHERE {} ORDER BY s.name{}",
            self.dialect.any_text("s.name", 1),
            if self.locks { self.dialect.lock_rows() } else { "" }
        );
        for mut row in conn.rows(&sql, vec![Arg::Texts(names)]).await? {
            let name = row.text(0)?;
            let id = name.parse().map_err(|_| corrupt(format!("a stream named `{name}`")))?;
            self.streams.insert(id, stream_row(&mut row, 1)?);
        }
        Ok(())
    }

    /// Reads tasks that are not on the desk, and the streams of all of them and of their runs.
    pub(super) async fn load_tasks(
        &mut self,
        conn: &mut Conn<'_>,
        wanted: &[TaskId],
    ) -> Result<(), LoadError> {
        let is_new = |id: &TaskId| !self.tasks.contains_key(id) && !self.staged.removes(&StreamId::Task(*id));
        let mut ids: Vec<TaskId> = wanted.iter().copied().filter(is_new).collect();
        ids.sort_unstable();
        ids.dedup();
        if !ids.is_empty() {
            let sql = format!(
                "SELECT {TASK_COLUMNS}, t.stream_id FROM {TASK_TABLES} WHERE {} ORDER BY t.id{}",
                self.dialect.any_blob("t.id", 1),
                match self.dialect {
                    Dialect::Sqlite => "",
                    Dialect::Postgres => " FOR UPDATE OF t",
                }
            );
            let ids = ids.iter().map(|id| id.0.as_bytes().to_vec()).collect();
            for mut row in conn.rows(&sql, vec![Arg::Blobs(ids)]).await? {
                self.put_task(&mut row)?;
            }
        }
        let streams: Vec<StreamId> = wanted
            .iter()
            .filter_map(|id| self.tasks.get(id))
            .flat_map(|(record, _)| streams_of(record))
            .collect();
        self.load_streams(conn, streams).await
    }

    /// Puts a row of [`TASK_COLUMNS`] and the stream's id on the desk.
    pub(super) fn put_task(&mut self, row: &mut super::conn::Row) -> Result<TaskId, StoreError> {
        let (record, _) = task_row(row)?;
        let stream_id = row.int(TASK_WIDTH)?;
        let id = record.id;
        self.tasks.insert(id, (record, stream_id));
        Ok(id)
    }

    /// Reads which of `hashes` are stored, and keeps them from garbage collection until the commit.
    pub(super) async fn load_blobs(
        &mut self,
        conn: &mut Conn<'_>,
        hashes: Vec<BlobHash>,
    ) -> Result<(), LoadError> {
        if hashes.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT hash FROM blobs WHERE {} ORDER BY hash{}",
            self.dialect.any_blob("hash", 1),
            match self.dialect {
                Dialect::Sqlite => "",
                Dialect::Postgres => " FOR KEY SHARE",
            }
        );
        let list = hashes.iter().map(|hash| hash.0.to_vec()).collect();
        for mut row in conn.rows(&sql, vec![Arg::Blobs(list)]).await? {
            self.blobs.insert(BlobHash(row.fixed(0)?));
        }
        Ok(())
    }

    /// Takes a request's draft over.
    pub(super) fn accept(&mut self, draft: Draft) {
        for (id, row) in draft.streams {
            let before = self.streams.insert(id.clone(), row);
            self.staged.streams.entry(id).or_insert(before);
        }
        for (record, stream_id, deadline) in draft.tasks {
            let id = record.id;
            if let Some(key) = &record.spec.dedup_key {
                let holder = if record.state.is_ended() { None } else { Some(id) };
                if holder.is_some() || self.keys.get(key) == Some(&Some(id)) {
                    self.keys.insert(key.clone(), holder);
                }
            }
            let waited = self.tasks.get(&id).map(|(before, _)| before.waits_for.clone()).unwrap_or_default();
            self.staged.wait(id, &waited, &record.waits_for);
            if self.dialect == Dialect::Postgres && record.state == TaskState::Available {
                self.lookout.available(Flow::of(&record.spec).to_string(), &record);
            }
            self.tasks.insert(id, (record, stream_id));
            let entry = self.staged.tasks.entry(id).or_insert(deadline);
            if deadline != Deadline::Keep {
                *entry = deadline;
            }
        }
        for row in draft.new_runs {
            self.staged.new_runs.insert(row.id, row);
        }
        for (run, change) in draft.runs {
            self.staged.change_run(run, change);
        }
        self.staged.queues.extend(draft.queues);
        self.staged.budgets.extend(draft.budgets);
        self.staged.events.extend(draft.events);
    }
}

/// Stream ids that a coordinator draws at once; as in the migration.
const STREAM_ID_BLOCK: i64 = 1000;

/// The streams a command on a task may touch.
pub(super) fn streams_of(record: &TaskRecord) -> impl Iterator<Item = StreamId> + use<> {
    [Some(StreamId::Task(record.id)), record.run.map(StreamId::Run)].into_iter().flatten()
}

/// Reading for a batch failed: the database's fault, or what it holds.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("the database did not answer")]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// On PostgreSQL: the transaction is to be begun again under the lock of limited choices (`plan/running.rs`).
    #[error("a choice depends on limits, and their lock was not taken first")]
    LimitsUnexpected,
}

pub(super) const fn corrupt(what: String) -> StoreError {
    StoreError::Corrupt { what }
}
