//! What a batch writes, kind of row by kind of row: on PostgreSQL many kinds stand in one statement, on SQLite each row
//! has its own.

use std::borrow::Cow;

use docket_schema::ids::StreamId;

use super::{
    archived::stub_cells,
    budgets::budgets,
    conn::Arg,
    desk::{Desk, Staged},
    flow_rows::{dependencies, queues},
    inbox::inbox,
    sqlite::direct,
    task_rows::tasks,
};

/// A blob touched within this time is not touched again: gc leaves alone what was touched within 24 h.
pub(crate) const TOUCH_MS: i64 = 3_600_000;

/// Where the rows of a statement come from.
pub(super) const ROWS: &str = "{rows}";

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Text,
    Blob,
    /// Text on SQLite, bytes on PostgreSQL.
    Payload,
}
use Kind::{Blob, Int, Payload, Text};

/// Rows of a kind. On SQLite each has a statement: there a statement costs little, but one over rows of its own fills a
/// table in memory first.
#[derive(Debug)]
pub(super) struct Write {
    /// With `{rows}` in place of the rows.
    pub(super) sql: &'static str,
    /// For SQLite, where it is not `sql` with one row of `VALUES`.
    one: Option<&'static str>,
    pub(super) columns: &'static [Kind],
    /// Row after row.
    pub(super) cells: Vec<Arg>,
    /// A row that changes nothing shows that what was decided upon is gone.
    must_change: bool,
    /// For PostgreSQL: the first column counts from the transaction's first position.
    pub(super) is_placed: bool,
    /// For PostgreSQL: what it may share a statement with.
    beside: Beside,
}

/// For PostgreSQL: which writes may share a statement. None sees what the others of its statement do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// It has a statement of its own.
    Nothing,
    /// Writes to other tables than this.
    OtherTables(&'static str),
    /// As well as writes to this table that say the same: their rows are others.
    OtherRows(&'static str),
}

impl Beside {
    fn may_share(self, other: Self) -> bool {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => false,
            (Self::OtherRows(one), Self::OtherRows(two)) if one == two => true,
            (
                Self::OtherTables(one) | Self::OtherRows(one),
                Self::OtherTables(two) | Self::OtherRows(two),
            ) => one != two,
        }
    }
}

impl Write {
    /// An insert, or an upsert.
    pub(super) const fn insert(sql: &'static str, columns: &'static [Kind]) -> Self {
        Self {
            sql,
            one: None,
            columns,
            cells: Vec::new(),
            must_change: false,
            is_placed: false,
            beside: Beside::Nothing,
        }
    }

    /// An update, for PostgreSQL and for one row on SQLite.
    pub(super) const fn update(sql: &'static str, one: &'static str, columns: &'static [Kind]) -> Self {
        Self {
            sql,
            one: Some(one),
            columns,
            cells: Vec::new(),
            must_change: false,
            is_placed: false,
            beside: Beside::Nothing,
        }
    }

    /// Each row must be there.
    pub(super) fn that_must_change(self) -> Self {
        Self { must_change: true, ..self }
    }

    /// May share a statement with writes to other tables.
    pub(super) fn on(self, table: &'static str) -> Self {
        Self { beside: Beside::OtherTables(table), ..self }
    }

    /// May share a statement also with writes to the same table, whose rows are others.
    pub(super) fn on_rows_of(self, table: &'static str) -> Self {
        Self { beside: Beside::OtherRows(table), ..self }
    }

    /// For PostgreSQL: whether `self` may stand in a statement with all of these.
    pub(super) fn may_join(&self, others: &[Self]) -> bool {
        others.iter().all(|other| self.beside.may_share(other.beside))
    }

    /// For PostgreSQL: it shares a statement with no other.
    pub(super) fn stands_alone(&self) -> bool {
        self.beside == Beside::Nothing
    }

    /// How many rows.
    pub(super) fn rows(&self) -> usize {
        self.cells.len() / self.columns.len()
    }

    /// For SQLite: writes row after row. `false` = a row that must be there is not.
    pub(super) fn run(&self, conn: &rusqlite::Connection) -> Result<bool, sqlx::Error> {
        let sql = match self.one {
            Some(sql) => Cow::Borrowed(sql),
            None => {
                let places = vec!["?"; self.columns.len()].join(",");
                Cow::Owned(self.sql.replace(ROWS, &format!("VALUES ({places})")))
            }
        };
        let all = direct::run_each(conn, &sql, self.columns.len(), &self.cells)?;
        Ok(all || !self.must_change)
    }
}

/// All that a batch writes, in an order that references allow. `base` is the first position.
pub(super) fn writes(desk: &mut Desk, base: u64) -> Vec<Write> {
    let events = events(&mut desk.staged, base);
    let (staged, desk) = (&desk.staged, &*desk);
    let mut all = vec![restored(staged)];
    all.extend(streams(staged, desk));
    all.push(events);
    all.extend(tasks(staged, desk));
    all.extend(dependencies(staged));
    all.push(queues(staged));
    all.push(budgets(staged));
    all.extend(inbox(staged));
    all.extend(runs(staged));
    all.push(deadlines(staged));
    all.extend(workers(staged));
    all.extend(blobs(staged));
    all.extend(removed(staged));
    all.retain(|write| !write.cells.is_empty());
    all
}

pub(super) fn int(n: u64) -> Arg {
    Arg::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Bits of a PostgreSQL position that count within a transaction; the rest is the transaction's id.
pub(super) const POSITION_BITS: u32 = 16;

/// New streams, heads that go on, and heads that go on while their epoch or fence changes: the
/// second kind is every append of a holder, and a statement that leaves the checked columns alone
/// costs a third. The fence is in the statement: a head, epoch or fence that is not what was
/// decided upon makes `head_seq` NULL, which the table refuses, and with it the batch.
pub(super) fn streams(staged: &Staged, desk: &Desk) -> [Write; 3] {
    let mut new = Write::insert(
        "INSERT INTO streams (id, name, head_seq, head_hash, head_at, epoch, fence) {rows}",
        &[Int, Text, Int, Blob, Int, Int, Text],
    )
    .on_rows_of("streams");
    let mut gone_on = Write::update(
        "WITH u(id, old_seq, old_hash, old_epoch, old_fence, seq, hash, at) AS ({rows}) \
         UPDATE streams SET head_seq = CASE WHEN streams.head_seq = u.old_seq AND streams.head_hash = u.old_hash \
         AND streams.epoch = u.old_epoch AND streams.fence = u.old_fence THEN u.seq END, \
         head_hash = u.hash, head_at = u.at FROM u WHERE streams.id = u.id",
        "UPDATE streams SET head_seq = CASE WHEN head_seq = ?2 AND head_hash = ?3 AND epoch = ?4 AND fence = ?5 \
         THEN ?6 END, head_hash = ?7, head_at = ?8 WHERE id = ?1",
        &[Int, Int, Blob, Int, Text, Int, Blob, Int],
    )
    .on_rows_of("streams")
    .that_must_change();
    let mut moved = Write::update(
        "WITH u(id, old_seq, old_hash, old_epoch, old_fence, seq, hash, at, epoch, fence) AS ({rows}) \
         UPDATE streams SET head_seq = CASE WHEN streams.head_seq = u.old_seq AND streams.head_hash = u.old_hash \
         AND streams.epoch = u.old_epoch AND streams.fence = u.old_fence THEN u.seq END, \
         head_hash = u.hash, head_at = u.at, epoch = u.epoch, fence = u.fence FROM u WHERE streams.id = u.id",
        "UPDATE streams SET head_seq = CASE WHEN head_seq = ?2 AND head_hash = ?3 AND epoch = ?4 AND fence = ?5 \
         THEN ?6 END, head_hash = ?7, head_at = ?8, epoch = ?9, fence = ?10 WHERE id = ?1",
        &[Int, Int, Blob, Int, Text, Int, Blob, Int, Int, Text],
    )
    .on_rows_of("streams")
    .that_must_change();
    for (id, before) in &staged.streams {
        let Some(row) = desk.streams.get(id) else { continue };
        let head = [int(row.head.seq.0), Arg::Hash(row.head.hash.0), Arg::Int(row.head_at.0)];
        let fence = || [int(row.epoch.0), Arg::Word(row.fence.as_str())];
        let Some(old) = before else {
            new.cells.extend([Arg::Int(row.id), Arg::Text(id.to_string())]);
            new.cells.extend(head);
            new.cells.extend(fence());
            continue;
        };
        let keeps_fence = old.epoch == row.epoch && old.fence == row.fence;
        let write = if keeps_fence { &mut gone_on } else { &mut moved };
        write.cells.extend([
            Arg::Int(row.id),
            int(old.head.seq.0),
            Arg::Hash(old.head.hash.0),
            int(old.epoch.0),
            Arg::Word(old.fence.as_str()),
        ]);
        write.cells.extend(head);
        if !keeps_fence {
            write.cells.extend(fence());
        }
    }
    [new, gone_on, moved]
}

/// Takes kinds and payloads out of what is staged: a batch that fails is planned again.
pub(super) fn events(staged: &mut Staged, base: u64) -> Write {
    let mut write = Write::insert(
        "INSERT INTO events (position, stream_id, seq, recorded_at, turn, epoch, kind, version, payload, \
         prev_hash, hash) {rows}",
        &[Int, Int, Int, Int, Int, Int, Text, Int, Payload, Blob, Blob],
    )
    .on("events");
    write.is_placed = true;
    write.cells.reserve(staged.events.len() * 11);
    for (event, position) in staged.events.iter_mut().zip(base..) {
        write.cells.extend([
            int(position),
            Arg::Int(event.stream_id),
            int(event.seq.0),
            Arg::Int(event.recorded_at.0),
            Arg::Int(event.turn.0.into()),
            int(event.epoch.0),
            Arg::Text(std::mem::take(&mut event.kind)),
            Arg::Int(event.version.into()),
            Arg::Text(std::mem::take(&mut event.payload)),
            Arg::Hash(event.prev_hash.0),
            Arg::Hash(event.hash.0),
        ]);
    }
    write
}

fn runs(staged: &Staged) -> [Write; 2] {
    let mut new = Write::insert(
        "INSERT INTO runs (id, stream_id, task, attempt, stage, parent, parent_seq, ended_at) {rows}",
        &[Blob, Int, Blob, Int, Text, Blob, Int, Int],
    )
    .on_rows_of("runs");
    for row in staged.new_runs.values() {
        new.cells.extend([
            Arg::Blob(row.id.0.as_bytes().to_vec()),
            Arg::Int(row.stream_id),
            Arg::Blob(row.task.0.as_bytes().to_vec()),
            Arg::Int(row.attempt.into()),
            Arg::Text(row.stage.clone()),
            Arg::BlobOrNull(row.parent.map(|(run, _)| run.0.as_bytes().to_vec())),
            Arg::IntOrNull(row.parent.map(|(_, seq)| seq.0 as i64)),
            Arg::IntOrNull(row.ended_at.map(|at| at.0)),
        ]);
    }
    let mut changed = Write::update(
        "WITH u(id, stage, only_from, ended_at) AS ({rows}) \
         UPDATE runs SET stage = u.stage, ended_at = u.ended_at FROM u \
         WHERE runs.id = u.id AND (u.only_from IS NULL OR runs.stage = u.only_from)",
        "UPDATE runs SET stage = ?2, ended_at = ?4 WHERE id = ?1 AND (?3 IS NULL OR stage = ?3)",
        &[Blob, Text, Text, Int],
    )
    .on_rows_of("runs");
    for (run, change) in &staged.runs {
        changed.cells.extend([
            Arg::Blob(run.0.as_bytes().to_vec()),
            Arg::Word(change.to),
            Arg::TextOrNull(change.from.map(str::to_owned)),
            Arg::IntOrNull(change.ended_at.map(|at| at.0)),
        ]);
    }
    [new, changed]
}

fn deadlines(staged: &Staged) -> Write {
    let mut write = Write::update(
        "WITH u(id, epoch, deadline_at) AS ({rows}) UPDATE tasks SET deadline_at = u.deadline_at FROM u \
         WHERE tasks.id = u.id AND tasks.epoch = u.epoch AND tasks.state = 'running'",
        "UPDATE tasks SET deadline_at = ?3 WHERE id = ?1 AND epoch = ?2 AND state = 'running'",
        &[Blob, Int, Int],
    )
    .on("tasks");
    for (task, (epoch, at)) in &staged.deadlines {
        write.cells.extend([Arg::Blob(task.0.as_bytes().to_vec()), int(epoch.0), Arg::Int(at.0)]);
    }
    write
}

fn workers(staged: &Staged) -> [Write; 2] {
    let mut seen = Write::insert(
        "INSERT INTO workers (incarnation, name, seen_at, about, slots, full_why) {rows} \
         ON CONFLICT (incarnation) DO UPDATE SET \
         name = CASE excluded.name WHEN '' THEN workers.name ELSE excluded.name END, seen_at = excluded.seen_at, \
         about = coalesce(excluded.about, workers.about), slots = coalesce(excluded.slots, workers.slots), \
         full_why = CASE WHEN excluded.slots IS NULL THEN workers.full_why ELSE excluded.full_why END",
        &[Blob, Text, Int, Text, Int, Text],
    )
    .on("workers");
    for (incarnation, worker) in &staged.workers {
        seen.cells.extend([
            Arg::Blob(incarnation.0.as_bytes().to_vec()),
            Arg::Text(worker.name.clone()),
            Arg::Int(worker.at.0),
            Arg::TextOrNull(worker.about.clone()),
            Arg::IntOrNull(worker.room.as_ref().map(|room| room.slots.into())),
            Arg::TextOrNull(worker.room.as_ref().and_then(|room| room.full.clone())),
        ]);
    }
    let mut answers = Write::insert(
        "INSERT INTO lease_requests (incarnation, number, answer) {rows} ON CONFLICT (incarnation) DO UPDATE \
         SET number = excluded.number, answer = excluded.answer",
        &[Blob, Int, Text],
    )
    .on("lease_requests");
    for (incarnation, (number, answer)) in &staged.lease_answers {
        answers.cells.extend([
            Arg::Blob(incarnation.0.as_bytes().to_vec()),
            int(*number),
            Arg::Text(answer.clone()),
        ]);
    }
    [seen, answers]
}

fn blobs(staged: &Staged) -> [Write; 2] {
    let mut stored = Write::insert(
        "INSERT INTO blobs (hash, size, data, touched_at) {rows} \
         ON CONFLICT (hash) DO UPDATE SET touched_at = excluded.touched_at",
        &[Blob, Int, Blob, Int],
    )
    .on_rows_of("blobs");
    for blob in staged.blobs.values() {
        stored.cells.extend([
            Arg::Hash(blob.hash.0),
            int(blob.bytes),
            Arg::Blob(blob.data.to_vec()),
            Arg::Int(staged.now.0),
        ]);
    }
    let mut touched = Write::update(
        "WITH u(hash, at, before) AS ({rows}) UPDATE blobs SET touched_at = u.at FROM u \
         WHERE blobs.hash = u.hash AND blobs.touched_at < u.before",
        "UPDATE blobs SET touched_at = ?2 WHERE hash = ?1 AND touched_at < ?3",
        &[Blob, Int, Int],
    )
    .on_rows_of("blobs");
    let mut names: Vec<_> = staged.touched.iter().filter(|hash| !staged.blobs.contains_key(hash)).collect();
    names.sort_unstable();
    for hash in names {
        let before = staged.now.0.saturating_sub(TOUCH_MS * 1000);
        touched.cells.extend([Arg::Hash(hash.0), Arg::Int(staged.now.0), Arg::Int(before)]);
    }
    [stored, touched]
}

/// For SQLite: refuses the batch if another process dropped a blob after it was read that the batch names.
/// A size that is NULL is what the table refuses; on PostgreSQL the rows are locked, and nothing is lost.
pub(super) fn named_blobs_are_there(staged: &Staged) -> Write {
    let mut write = Write::insert(
        "WITH u(hash) AS ({rows}) INSERT INTO blobs (hash, size, data, touched_at) \
         SELECT u.hash, NULL, x'', 0 FROM u WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.hash = u.hash)",
        &[Blob],
    );
    let names = staged.touched.iter().filter(|hash| !staged.blobs.contains_key(hash));
    write.cells.extend(names.map(|hash| Arg::Blob(hash.0.to_vec())));
    write
}

/// Stubs of streams that come back: before the streams, whose names they hold.
fn restored(staged: &Staged) -> Write {
    let mut write = Write::update(
        "WITH u(name) AS ({rows}) DELETE FROM archived_streams USING u WHERE archived_streams.name = u.name",
        "DELETE FROM archived_streams WHERE name = ?1",
        &[Text],
    );
    write.cells.extend(staged.restored.iter().map(|stream| Arg::Text(stream.to_string())));
    write
}

/// Streams that go: first what stays in their place, for the database deletes no event without it.
fn removed(staged: &Staged) -> [Write; 7] {
    let mut stubs = Write::insert(
        "INSERT INTO archived_streams (name, id, head_seq, head_hash, archived_at, place, file, file_hash, \
         file_bytes, title, queue, state, batch, batch_name, dedup_key, runs, failures, crashes, submitted_at, \
         ended_at) {rows}",
        &[
            Text, Blob, Int, Blob, Int, Text, Text, Blob, Int, Text, Text, Text, Blob, Text, Text, Int, Int,
            Int, Int, Int,
        ],
    );
    for super::desk::Removed { stub, .. } in &staged.removed {
        stubs.cells.extend(stub_cells(stub));
    }
    let mut tasks = Write::update(
        "WITH u(id) AS ({rows}) DELETE FROM tasks USING u WHERE tasks.id = u.id",
        "DELETE FROM tasks WHERE id = ?1",
        &[Blob],
    );
    let mut runs = Write::update(
        "WITH u(id) AS ({rows}) DELETE FROM runs USING u WHERE runs.id = u.id",
        "DELETE FROM runs WHERE id = ?1",
        &[Blob],
    );
    for super::desk::Removed { stub, .. } in &staged.removed {
        match &stub.stream {
            StreamId::Task(task) => tasks.cells.push(Arg::Blob(task.0.as_bytes().to_vec())),
            StreamId::Run(run) => runs.cells.push(Arg::Blob(run.0.as_bytes().to_vec())),
            StreamId::Queue(_) | StreamId::System(_) => {}
        }
    }
    let each = |mut write: Write| {
        write.cells.extend(staged.removed.iter().map(|removed| Arg::Int(removed.stream_id)));
        write
    };
    [
        stubs,
        each(Write::insert("INSERT INTO archiving (stream_id) {rows}", &[Int])),
        each(Write::update(
            "WITH u(id) AS ({rows}) DELETE FROM events USING u WHERE events.stream_id = u.id",
            "DELETE FROM events WHERE stream_id = ?1",
            &[Int],
        )),
        tasks,
        runs,
        each(Write::update(
            "WITH u(id) AS ({rows}) DELETE FROM streams USING u WHERE streams.id = u.id",
            "DELETE FROM streams WHERE id = ?1",
            &[Int],
        )),
        each(Write::update(
            "WITH u(id) AS ({rows}) DELETE FROM archiving USING u WHERE archiving.stream_id = u.id",
            "DELETE FROM archiving WHERE stream_id = ?1",
            &[Int],
        )),
    ]
}
