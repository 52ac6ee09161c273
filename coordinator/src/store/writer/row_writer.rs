//! The rows that a batch writes, kind by kind.

use docket_schema::ids::StreamId;

use super::{
    batch_writes::{BatchWrites, RemovedStream},
    queue_rows::{budget_writes, dependency_writes, inbox_writes, queue_writes},
    row_write::{
        ColumnKind::{Blob, Int, Payload, Text},
        RowWrite,
    },
    task_rows::task_writes,
    working_set::WorkingSet,
};
use crate::store::{archive::stub_args, blobs::TOUCH_INTERVAL_MS, db::SqlArg};

/// Builds the writes of a batch in an order that satisfies references. `base` is the first position.
pub(crate) fn row_writes(set: &mut WorkingSet, base: u64) -> Vec<RowWrite> {
    let events = take_event_writes(&mut set.writes, base);
    let (writes, set) = (&set.writes, &*set);
    let mut all = vec![restored_writes(writes)];
    all.extend(stream_writes(set));
    all.push(events);
    all.extend(task_writes(set));
    all.extend(dependency_writes(writes));
    all.push(queue_writes(writes));
    all.push(budget_writes(writes));
    all.extend(inbox_writes(writes));
    all.extend(run_writes(writes));
    all.push(deadline_writes(writes));
    all.extend(worker_writes(writes));
    all.extend(blob_writes(writes));
    all.extend(removed_writes(writes));
    all.retain(|write| !write.cells.is_empty());
    all
}

/// Bits of a PostgreSQL position that count within a transaction; the others are the transaction's id.
pub(crate) const POSITION_BITS: u32 = 16;

/// New streams, heads that advance, and heads that advance while their epoch or fence changes. Every append
/// of a holder is of the second kind, and a statement that leaves the checked columns alone costs a third
/// less. The statement checks the fence: if head, epoch or fence differ from the decision's, `head_seq`
/// becomes NULL, which the table rejects, and with it the batch.
pub(crate) fn stream_writes(set: &WorkingSet) -> [RowWrite; 3] {
    let mut new = RowWrite::insert(
        "INSERT INTO streams (id, name, head_seq, head_hash, head_at, epoch, fence) {rows}",
        &[Int, Text, Int, Blob, Int, Int, Text],
    )
    .sharing_within_table("streams");
    let mut advanced = RowWrite::update(
        "WITH u(id, old_seq, old_hash, old_epoch, old_fence, seq, hash, at) AS ({rows}) \
         UPDATE streams SET head_seq = CASE WHEN streams.head_seq = u.old_seq AND streams.head_hash = u.old_hash \
         AND streams.epoch = u.old_epoch AND streams.fence = u.old_fence THEN u.seq END, \
         head_hash = u.hash, head_at = u.at FROM u WHERE streams.id = u.id",
        "UPDATE streams SET head_seq = CASE WHEN head_seq = ?2 AND head_hash = ?3 AND epoch = ?4 AND fence = ?5 \
         THEN ?6 END, head_hash = ?7, head_at = ?8 WHERE id = ?1",
        &[Int, Int, Blob, Int, Text, Int, Blob, Int],
    )
    .sharing_within_table("streams")
    .with_required_change();
    let mut moved = RowWrite::update(
        "WITH u(id, old_seq, old_hash, old_epoch, old_fence, seq, hash, at, epoch, fence) AS ({rows}) \
         UPDATE streams SET head_seq = CASE WHEN streams.head_seq = u.old_seq AND streams.head_hash = u.old_hash \
         AND streams.epoch = u.old_epoch AND streams.fence = u.old_fence THEN u.seq END, \
         head_hash = u.hash, head_at = u.at, epoch = u.epoch, fence = u.fence FROM u WHERE streams.id = u.id",
        "UPDATE streams SET head_seq = CASE WHEN head_seq = ?2 AND head_hash = ?3 AND epoch = ?4 AND fence = ?5 \
         THEN ?6 END, head_hash = ?7, head_at = ?8, epoch = ?9, fence = ?10 WHERE id = ?1",
        &[Int, Int, Blob, Int, Text, Int, Blob, Int, Int, Text],
    )
    .sharing_within_table("streams")
    .with_required_change();
    for (id, before) in &set.writes.streams {
        let Some(row) = set.streams.get(id) else { continue };
        let head =
            [SqlArg::from_u64(row.head.seq.0), SqlArg::Hash(row.head.hash.0), SqlArg::Int(row.head_at.0)];
        let fence = || [SqlArg::from_u64(row.epoch.0), SqlArg::StaticText(row.fence.as_str())];
        let Some(old) = before else {
            new.cells.extend([SqlArg::Int(row.id), SqlArg::Text(id.to_string())]);
            new.cells.extend(head);
            new.cells.extend(fence());
            continue;
        };
        let keeps_fence = old.epoch == row.epoch && old.fence == row.fence;
        let write = if keeps_fence { &mut advanced } else { &mut moved };
        write.cells.extend([
            SqlArg::Int(row.id),
            SqlArg::from_u64(old.head.seq.0),
            SqlArg::Hash(old.head.hash.0),
            SqlArg::from_u64(old.epoch.0),
            SqlArg::StaticText(old.fence.as_str()),
        ]);
        write.cells.extend(head);
        if !keeps_fence {
            write.cells.extend(fence());
        }
    }
    [new, advanced, moved]
}

/// Takes kinds and payloads out of the staged events; a batch that fails is planned again.
pub(crate) fn take_event_writes(writes: &mut BatchWrites, base: u64) -> RowWrite {
    let mut write = RowWrite::insert(
        "INSERT INTO events (position, stream_id, seq, recorded_at, turn, epoch, kind, version, payload, \
         prev_hash, hash) {rows}",
        &[Int, Int, Int, Int, Int, Int, Text, Int, Payload, Blob, Blob],
    )
    .sharing_across_tables("events");
    write.has_position_column = true;
    write.cells.reserve(writes.events.len() * 11);
    for (event, position) in writes.events.iter_mut().zip(base..) {
        write.cells.extend([
            SqlArg::from_u64(position),
            SqlArg::Int(event.stream_id),
            SqlArg::from_u64(event.seq.0),
            SqlArg::Int(event.recorded_at.0),
            SqlArg::Int(event.turn.0.into()),
            SqlArg::from_u64(event.epoch.0),
            SqlArg::Text(std::mem::take(&mut event.kind)),
            SqlArg::Int(event.version.into()),
            SqlArg::Text(std::mem::take(&mut event.payload)),
            SqlArg::Hash(event.prev_hash.0),
            SqlArg::Hash(event.hash.0),
        ]);
    }
    write
}

fn run_writes(writes: &BatchWrites) -> [RowWrite; 2] {
    let mut new = RowWrite::insert(
        "INSERT INTO runs (id, stream_id, task, attempt, stage, parent, parent_seq, ended_at) {rows}",
        &[Blob, Int, Blob, Int, Text, Blob, Int, Int],
    )
    .sharing_within_table("runs");
    for row in writes.new_runs.values() {
        new.cells.extend([
            SqlArg::from_uuid(row.id.0),
            SqlArg::Int(row.stream_id),
            SqlArg::from_uuid(row.task.0),
            SqlArg::Int(row.attempt.into()),
            SqlArg::Text(row.stage.clone()),
            SqlArg::from_uuid_or_null(row.parent.map(|(run, _)| run.0)),
            SqlArg::IntOrNull(row.parent.map(|(_, seq)| seq.0 as i64)),
            SqlArg::IntOrNull(row.ended_at.map(|at| at.0)),
        ]);
    }
    let mut changed = RowWrite::update(
        "WITH u(id, stage, only_from, ended_at) AS ({rows}) \
         UPDATE runs SET stage = u.stage, ended_at = u.ended_at FROM u \
         WHERE runs.id = u.id AND (u.only_from IS NULL OR runs.stage = u.only_from)",
        "UPDATE runs SET stage = ?2, ended_at = ?4 WHERE id = ?1 AND (?3 IS NULL OR stage = ?3)",
        &[Blob, Text, Text, Int],
    )
    .sharing_within_table("runs");
    for (run, change) in &writes.runs {
        changed.cells.extend([
            SqlArg::from_uuid(run.0),
            SqlArg::StaticText(change.to),
            SqlArg::TextOrNull(change.from.map(str::to_owned)),
            SqlArg::IntOrNull(change.ended_at.map(|at| at.0)),
        ]);
    }
    [new, changed]
}

fn deadline_writes(writes: &BatchWrites) -> RowWrite {
    let mut write = RowWrite::update(
        "WITH u(id, epoch, deadline_at) AS ({rows}) UPDATE tasks SET deadline_at = u.deadline_at FROM u \
         WHERE tasks.id = u.id AND tasks.epoch = u.epoch AND tasks.state = 'running'",
        "UPDATE tasks SET deadline_at = ?3 WHERE id = ?1 AND epoch = ?2 AND state = 'running'",
        &[Blob, Int, Int],
    )
    .sharing_across_tables("tasks");
    for (task, (epoch, at)) in &writes.deadlines {
        write.cells.extend([SqlArg::from_uuid(task.0), SqlArg::from_u64(epoch.0), SqlArg::Int(at.0)]);
    }
    write
}

fn worker_writes(writes: &BatchWrites) -> [RowWrite; 2] {
    let mut seen = RowWrite::insert(
        "INSERT INTO workers (incarnation, name, seen_at, about, slots, full_why) {rows} \
         ON CONFLICT (incarnation) DO UPDATE SET \
         name = CASE excluded.name WHEN '' THEN workers.name ELSE excluded.name END, seen_at = excluded.seen_at, \
         about = coalesce(excluded.about, workers.about), slots = coalesce(excluded.slots, workers.slots), \
         full_why = CASE WHEN excluded.slots IS NULL THEN workers.full_why ELSE excluded.full_why END",
        &[Blob, Text, Int, Text, Int, Text],
    )
    .sharing_across_tables("workers");
    for (incarnation, worker) in &writes.workers {
        seen.cells.extend([
            SqlArg::from_uuid(incarnation.0),
            SqlArg::Text(worker.name.clone()),
            SqlArg::Int(worker.seen_at.0),
            SqlArg::TextOrNull(worker.about.clone()),
            SqlArg::IntOrNull(worker.capacity.as_ref().map(|room| room.slots.into())),
            SqlArg::TextOrNull(worker.capacity.as_ref().and_then(|room| room.full.clone())),
        ]);
    }
    let mut answers = RowWrite::insert(
        "INSERT INTO lease_requests (incarnation, number, answer) {rows} ON CONFLICT (incarnation) DO UPDATE \
         SET number = excluded.number, answer = excluded.answer",
        &[Blob, Int, Text],
    )
    .sharing_across_tables("lease_requests");
    for (incarnation, (number, answer)) in &writes.lease_answers {
        answers.cells.extend([
            SqlArg::from_uuid(incarnation.0),
            SqlArg::from_u64(*number),
            SqlArg::Text(answer.clone()),
        ]);
    }
    [seen, answers]
}

fn blob_writes(writes: &BatchWrites) -> [RowWrite; 2] {
    let mut stored = RowWrite::insert(
        "INSERT INTO blobs (hash, size, data, touched_at) {rows} \
         ON CONFLICT (hash) DO UPDATE SET touched_at = excluded.touched_at",
        &[Blob, Int, Blob, Int],
    )
    .sharing_within_table("blobs");
    for blob in writes.blobs.values() {
        stored.cells.extend([
            SqlArg::Hash(blob.hash.0),
            SqlArg::from_u64(blob.bytes),
            SqlArg::Blob(blob.data.to_vec()),
            SqlArg::Int(writes.now.0),
        ]);
    }
    let mut touched = RowWrite::update(
        "WITH u(hash, at, before) AS ({rows}) UPDATE blobs SET touched_at = u.at FROM u \
         WHERE blobs.hash = u.hash AND blobs.touched_at < u.before",
        "UPDATE blobs SET touched_at = ?2 WHERE hash = ?1 AND touched_at < ?3",
        &[Blob, Int, Int],
    )
    .sharing_within_table("blobs");
    let mut names: Vec<_> = writes.touched.iter().filter(|hash| !writes.blobs.contains_key(hash)).collect();
    names.sort_unstable();
    for hash in names {
        let before = writes.now.0.saturating_sub(TOUCH_INTERVAL_MS * 1000);
        touched.cells.extend([SqlArg::Hash(hash.0), SqlArg::Int(writes.now.0), SqlArg::Int(before)]);
    }
    [stored, touched]
}

/// SQLite only: rejects the batch if another process deleted a referenced blob after it was read, by a NULL
/// size that the table rejects. On PostgreSQL the rows are locked instead.
pub(crate) fn named_blobs_check(writes: &BatchWrites) -> RowWrite {
    let mut write = RowWrite::insert(
        "WITH u(hash) AS ({rows}) INSERT INTO blobs (hash, size, data, touched_at) \
         SELECT u.hash, NULL, x'', 0 FROM u WHERE NOT EXISTS (SELECT 1 FROM blobs b WHERE b.hash = u.hash)",
        &[Blob],
    );
    let names = writes.touched.iter().filter(|hash| !writes.blobs.contains_key(hash));
    write.cells.extend(names.map(|hash| SqlArg::Hash(hash.0)));
    write
}

/// Stubs of restored streams, deleted before the streams are inserted, because they hold the names.
fn restored_writes(writes: &BatchWrites) -> RowWrite {
    let mut write = RowWrite::update(
        "WITH u(name) AS ({rows}) DELETE FROM archived_streams USING u WHERE archived_streams.name = u.name",
        "DELETE FROM archived_streams WHERE name = ?1",
        &[Text],
    );
    write.cells.extend(writes.restored.iter().map(|stream| SqlArg::Text(stream.to_string())));
    write
}

/// Archived streams. Their stubs come first, because the database deletes no event without one.
fn removed_writes(writes: &BatchWrites) -> [RowWrite; 7] {
    let mut stubs = RowWrite::insert(
        "INSERT INTO archived_streams (name, id, head_seq, head_hash, archived_at, place, file, file_hash, \
         file_bytes, title, queue, state, batch, batch_name, dedup_key, runs, failures, crashes, submitted_at, \
         ended_at) {rows}",
        &[
            Text, Blob, Int, Blob, Int, Text, Text, Blob, Int, Text, Text, Text, Blob, Text, Text, Int, Int,
            Int, Int, Int,
        ],
    );
    for RemovedStream { stub, .. } in &writes.removed {
        stubs.cells.extend(stub_args(stub));
    }
    let mut tasks = RowWrite::update(
        "WITH u(id) AS ({rows}) DELETE FROM tasks USING u WHERE tasks.id = u.id",
        "DELETE FROM tasks WHERE id = ?1",
        &[Blob],
    );
    let mut runs = RowWrite::update(
        "WITH u(id) AS ({rows}) DELETE FROM runs USING u WHERE runs.id = u.id",
        "DELETE FROM runs WHERE id = ?1",
        &[Blob],
    );
    for RemovedStream { stub, .. } in &writes.removed {
        match &stub.stream {
            StreamId::Task(task) => tasks.cells.push(SqlArg::from_uuid(task.0)),
            StreamId::Run(run) => runs.cells.push(SqlArg::from_uuid(run.0)),
            StreamId::Queue(_) | StreamId::System(_) => {}
        }
    }
    let each = |mut write: RowWrite| {
        write.cells.extend(writes.removed.iter().map(|removed| SqlArg::Int(removed.stream_id)));
        write
    };
    [
        stubs,
        each(RowWrite::insert("INSERT INTO archiving (stream_id) {rows}", &[Int])),
        each(RowWrite::update(
            "WITH u(id) AS ({rows}) DELETE FROM events USING u WHERE events.stream_id = u.id",
            "DELETE FROM events WHERE stream_id = ?1",
            &[Int],
        )),
        tasks,
        runs,
        each(RowWrite::update(
            "WITH u(id) AS ({rows}) DELETE FROM streams USING u WHERE streams.id = u.id",
            "DELETE FROM streams WHERE id = ?1",
            &[Int],
        )),
        each(RowWrite::update(
            "WITH u(id) AS ({rows}) DELETE FROM archiving USING u WHERE archiving.stream_id = u.id",
            "DELETE FROM archiving WHERE stream_id = ?1",
            &[Int],
        )),
    ]
}
