//! In-memory working set of one write batch: stream heads and task records before and after the batch, and
//! the rows to write.
//!
//! A request stages its writes, which are merged only if it succeeds: a refused request leaves nothing. The
//! SQLite writer, being the only one, keeps its set from batch to batch; a PostgreSQL transaction has its
//! own, over rows it has locked.

use std::collections::{HashMap, HashSet};

use docket_schema::{
    event::{EventHashInput, Head, NewEvent, chain_hash},
    ids::{BatchId, BlobHash, Epoch, QueueName, RunId, Seq, StreamId, SystemTopic, TaskId, Timestamp},
    queue::QueueSettings,
    task::{Flow, TaskRecord, TaskState},
};

use super::{
    batch_writes::{BatchWrites, DeadlineChange, EventRow},
    event_effects::{RunChange, decode_budget_change, decode_fork, decode_queue_settings, run_change},
    lease_cursor::LeaseCursor,
    lease_reads::LeaseReads,
};
use crate::{
    decide::CLOCK_SKEW_MAX_MS,
    store::{
        StoreError,
        api::corrupt_error,
        db::{
            DbConn, SqlArg, SqlDialect, SqlRow, TransactionError,
            row::{
                BudgetRow, RunRow, STREAM_COLUMNS, StreamFence, StreamRow, TASK_COLUMN_COUNT, TASK_COLUMNS,
                TASK_TABLES, read_stream_row, read_task_row,
            },
        },
    },
};

/// Streams and tasks kept between batches, about 2 KB each; beyond this the set is cleared.
const CACHED_ENTRIES_MAX: usize = 8192;

/// Stream ids that a coordinator allocates at once; must match the migration.
const STREAM_ID_BLOCK: i64 = 1000;

/// Writes of one request until it is certain to succeed.
#[derive(Debug, Default)]
pub(crate) struct StagedRequest {
    pub(crate) events: Vec<EventRow>,
    pub(crate) streams: Vec<(StreamId, StreamRow)>,
    pub(crate) tasks: Vec<(TaskRecord, i64, DeadlineChange)>,
    pub(crate) new_runs: Vec<RunRow>,
    pub(crate) runs: Vec<(RunId, RunChange)>,
    pub(crate) queues: Vec<(QueueName, QueueSettings)>,
    pub(crate) budgets: Vec<(BatchId, BudgetRow)>,
}

impl StagedRequest {
    /// Returns the stream as this request leaves it, otherwise as the set has it.
    pub(crate) fn find_stream(&self, set: &WorkingSet, id: &StreamId) -> Option<StreamRow> {
        let staged = self.streams.iter().rev().find(|(name, _)| name == id).map(|(_, row)| row.clone());
        staged.or_else(|| set.streams.get(id).cloned())
    }

    /// Appends events to a stream.
    pub(crate) fn append_events(
        &mut self,
        id: &StreamId,
        row: &mut StreamRow,
        events: &[NewEvent],
        epoch: Epoch,
        now: Timestamp,
    ) {
        let name = id.to_string();
        // Time increases within a stream while the coordinators' clocks differ by no more than allowed. A
        // stream further ahead was written by a wrong clock: its new events get the right time again and are
        // ordered by seq.
        let is_ahead = row.head_at > now.plus_ms(CLOCK_SKEW_MAX_MS);
        let recorded_at = if is_ahead { now } else { now.max(row.head_at) };
        for event in events {
            let seq = row.head.seq.next();
            if seq == Seq(1)
                && let Some(forked) = decode_fork(event)
            {
                row.head.hash = forked.hash;
            }
            let prev_hash = row.head.hash;
            let hash = chain_hash(
                &prev_hash,
                &EventHashInput {
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
            self.events.push(EventRow {
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
                self.budgets.extend(decode_budget_change(event));
            }
            if let StreamId::Queue(queue) = id
                && let Some(settings) = decode_queue_settings(event)
            {
                self.queues.push((queue.clone(), settings));
            }
        }
        if !events.is_empty() {
            row.head_at = recorded_at;
        }
    }
}

#[derive(Debug)]
pub(crate) struct WorkingSet {
    pub(crate) streams: HashMap<StreamId, StreamRow>,
    pub(crate) tasks: HashMap<TaskId, (TaskRecord, i64)>,
    pub(crate) writes: BatchWrites,
    /// Blobs known to be stored.
    pub(crate) blobs: HashSet<BlobHash>,
    /// Tasks by deduplication key, as loaded or created in this batch. `None` if no task holds it.
    pub(crate) dedup_keys: HashMap<String, Option<TaskId>>,
    /// Ids for new streams.
    free_stream_ids: std::ops::Range<i64>,
    dialect: SqlDialect,
    /// Whether rows are locked until the commit when they are read.
    locks_rows: bool,
    /// Nothing is read: the writing statement checks that ids and keys are new and that blobs are stored.
    pub(crate) optimistic_insert: bool,
    /// Scan state of lease requests.
    pub(crate) cursor: LeaseCursor,
    pub(crate) lease_reads: LeaseReads,
}

impl WorkingSet {
    pub(crate) fn new(dialect: SqlDialect, ids: std::ops::Range<i64>) -> Self {
        Self {
            streams: HashMap::new(),
            tasks: HashMap::new(),
            writes: BatchWrites::default(),
            blobs: HashSet::new(),
            dedup_keys: HashMap::new(),
            free_stream_ids: ids,
            dialect,
            locks_rows: true,
            optimistic_insert: false,
            cursor: LeaseCursor::default(),
            lease_reads: LeaseReads::default(),
        }
    }

    /// Creates a set whose reads lock nothing: the writing statement must check what the decision was based
    /// on.
    pub(crate) fn new_optimistic(dialect: SqlDialect) -> Self {
        Self { locks_rows: false, ..Self::new(dialect, 0..0) }
    }

    /// Creates a set that does not read what a submit depends on.
    pub(crate) fn for_optimistic_insert(dialect: SqlDialect, ids: std::ops::Range<i64>) -> Self {
        Self { optimistic_insert: true, ..Self::new(dialect, ids) }
    }

    /// Clears what was read, after a failed transaction or when another writer was detected.
    pub(crate) fn clear(&mut self) {
        self.streams.clear();
        self.tasks.clear();
        self.begin_batch(Timestamp(0));
    }

    /// Begins a batch.
    pub(crate) fn begin_batch(&mut self, now: Timestamp) {
        self.writes = BatchWrites { now, ..BatchWrites::default() };
        self.blobs.clear();
        self.dedup_keys.clear();
        self.lease_reads = LeaseReads::default();
        if self.streams.len() > CACHED_ENTRIES_MAX || self.tasks.len() > CACHED_ENTRIES_MAX {
            self.streams.clear();
            self.tasks.clear();
        }
    }

    /// Stores in an optimistic set the heads that a locked transaction left for holders to append to.
    pub(crate) fn remember_heads(&mut self, done: &mut Self) {
        if self.streams.len() > CACHED_ENTRIES_MAX {
            self.streams.clear();
        }
        for (id, _) in std::mem::take(&mut done.writes.streams) {
            match done.streams.remove(&id) {
                Some(row) if row.fence == StreamFence::Open => self.streams.insert(id, row),
                Some(_) | None => self.streams.remove(&id),
            };
        }
    }

    /// Returns unused ids for new streams.
    pub(crate) fn remaining_stream_ids(&self) -> std::ops::Range<i64> {
        self.free_stream_ids.clone()
    }

    /// Creates a new, empty stream.
    pub(crate) async fn new_stream(&mut self, conn: &mut DbConn<'_>) -> Result<StreamRow, sqlx::Error> {
        let id = match self.free_stream_ids.next() {
            Some(id) => id,
            None => {
                let rows = conn.query_rows("SELECT nextval('stream_ids')", Vec::new()).await?;
                let last =
                    rows.first().and_then(|row| row.get_i64(0).ok()).ok_or(sqlx::Error::RowNotFound)?;
                self.free_stream_ids = last - STREAM_ID_BLOCK + 1..last + 1;
                self.free_stream_ids.next().expect("a block is not empty")
            }
        };
        Ok(StreamRow {
            id,
            head: Head::EMPTY,
            head_at: Timestamp(0),
            epoch: Epoch(0),
            fence: StreamFence::None,
        })
    }

    /// Loads streams that are not in the set.
    pub(crate) async fn load_streams(
        &mut self,
        conn: &mut DbConn<'_>,
        wanted: impl IntoIterator<Item = StreamId>,
    ) -> Result<(), TransactionError> {
        let is_new = |id: &StreamId| !self.streams.contains_key(id) && !self.writes.is_removed(id);
        let mut names: Vec<String> = wanted.into_iter().filter(is_new).map(|id| id.to_string()).collect();
        if names.is_empty() {
            return Ok(());
        }
        names.sort_unstable();
        names.dedup();
        let sql = format!(
            "SELECT s.name, {STREAM_COLUMNS} FROM streams s WHERE {} ORDER BY s.name{}",
            self.dialect.any_text_sql("s.name", 1),
            if self.locks_rows { self.dialect.lock_rows_sql() } else { "" }
        );
        for mut row in conn.query_rows(&sql, vec![SqlArg::Texts(names)]).await? {
            let name = row.get_text(0)?;
            let id = name.parse().map_err(|_| corrupt_error(format!("a stream named `{name}`")))?;
            self.streams.insert(id, read_stream_row(&mut row, 1)?);
        }
        Ok(())
    }

    /// Loads tasks that are not in the set, and the streams of all of them and of their runs.
    pub(crate) async fn load_tasks(
        &mut self,
        conn: &mut DbConn<'_>,
        wanted: &[TaskId],
    ) -> Result<(), TransactionError> {
        let is_new =
            |id: &TaskId| !self.tasks.contains_key(id) && !self.writes.is_removed(&StreamId::Task(*id));
        let mut ids: Vec<TaskId> = wanted.iter().copied().filter(is_new).collect();
        ids.sort_unstable();
        ids.dedup();
        if !ids.is_empty() {
            let sql = format!(
                "SELECT {TASK_COLUMNS}, t.stream_id FROM {TASK_TABLES} WHERE {} ORDER BY t.id{}",
                self.dialect.any_blob_sql("t.id", 1),
                match self.dialect {
                    SqlDialect::Sqlite => "",
                    SqlDialect::Postgres => " FOR UPDATE OF t",
                }
            );
            let ids = SqlArg::from_uuids(ids.iter().map(|id| id.0));
            for mut row in conn.query_rows(&sql, vec![ids]).await? {
                self.insert_task_row(&mut row)?;
            }
        }
        let streams: Vec<StreamId> = wanted
            .iter()
            .filter_map(|id| self.tasks.get(id))
            .flat_map(|(record, _)| command_streams(record))
            .collect();
        self.load_streams(conn, streams).await
    }

    /// Inserts a row of [`TASK_COLUMNS`] and the stream's id.
    pub(crate) fn insert_task_row(&mut self, row: &mut SqlRow) -> Result<TaskId, StoreError> {
        let (record, _) = read_task_row(row)?;
        let stream_id = row.get_i64(TASK_COLUMN_COUNT)?;
        let id = record.id;
        self.tasks.insert(id, (record, stream_id));
        Ok(id)
    }

    /// Loads which of `hashes` are stored, and protects them from garbage collection until the commit.
    pub(crate) async fn load_blobs(
        &mut self,
        conn: &mut DbConn<'_>,
        hashes: Vec<BlobHash>,
    ) -> Result<(), TransactionError> {
        if hashes.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT hash FROM blobs WHERE {} ORDER BY hash{}",
            self.dialect.any_blob_sql("hash", 1),
            match self.dialect {
                SqlDialect::Sqlite => "",
                SqlDialect::Postgres => " FOR KEY SHARE",
            }
        );
        for mut row in conn.query_rows(&sql, vec![SqlArg::from_hashes(&hashes)]).await? {
            self.blobs.insert(BlobHash(row.get_array(0)?));
        }
        Ok(())
    }

    /// Merges the writes of a successful request.
    pub(crate) fn merge_staged(&mut self, staged: StagedRequest) {
        for (id, row) in staged.streams {
            let before = self.streams.insert(id.clone(), row);
            self.writes.streams.entry(id).or_insert(before);
        }
        for (record, stream_id, deadline) in staged.tasks {
            let id = record.id;
            if let Some(key) = &record.spec.dedup_key {
                let holder = if record.state.is_ended() { None } else { Some(id) };
                if holder.is_some() || self.dedup_keys.get(key) == Some(&Some(id)) {
                    self.dedup_keys.insert(key.clone(), holder);
                }
            }
            let waited = self.tasks.get(&id).map(|(before, _)| before.waits_for.clone()).unwrap_or_default();
            self.writes.record_dependencies(id, &waited, &record.waits_for);
            if self.dialect == SqlDialect::Postgres && record.state == TaskState::Available {
                self.cursor.note_available(Flow::from_spec(&record.spec).to_string(), &record);
            }
            self.tasks.insert(id, (record, stream_id));
            let entry = self.writes.tasks.entry(id).or_insert(deadline);
            if deadline != DeadlineChange::Keep {
                *entry = deadline;
            }
        }
        for row in staged.new_runs {
            self.writes.new_runs.insert(row.id, row);
        }
        for (run, change) in staged.runs {
            self.writes.change_run(run, change);
        }
        self.writes.queues.extend(staged.queues);
        self.writes.budgets.extend(staged.budgets);
        self.writes.events.extend(staged.events);
    }
}

/// Returns the streams that a command on a task may touch.
pub(crate) fn command_streams(record: &TaskRecord) -> impl Iterator<Item = StreamId> + use<> {
    [Some(StreamId::Task(record.id)), record.run.map(StreamId::Run)].into_iter().flatten()
}
