//! The rows of a batch as statements: a round trip each, so as few as possible. Kinds of rows that do not depend on each
//! other share one, as its `WITH` queries; rows are `unnest`s of typed columns.

use std::fmt::Write as _;

use crate::store::{
    db::{Arg, Row},
    writer::{
        ColumnKind::{self, Blob, Int, Payload, Text},
        POSITION_BITS, ROWS, RowWrite, WorkingSet, event_writes, row_writes, stream_writes,
    },
};

/// A statement and its arguments.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) args: Vec<Arg>,
}

/// The one row that a statement answers.
pub(super) fn one_row(rows: Vec<Row>) -> Result<Row, sqlx::Error> {
    rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)
}

/// All that a batch writes, in as few statements as it takes. Each answers one row: the transaction's id.
pub(super) fn statements(set: &mut WorkingSet, offset: i64) -> Vec<Statement> {
    let mut shared: Vec<Vec<RowWrite>> = Vec::new();
    for write in row_writes(set, 0) {
        // Behind a write that stands alone nothing goes before it.
        match shared.iter().rposition(|writes| writes.iter().all(RowWrite::stands_alone)) {
            Some(last) => first_that_fits(&mut shared, last + 1, write),
            None => first_that_fits(&mut shared, 0, write),
        }
    }
    shared.into_iter().map(|writes| together(writes, offset, None)).collect()
}

fn first_that_fits(shared: &mut Vec<Vec<RowWrite>>, from: usize, write: RowWrite) {
    match shared[from..].iter_mut().find(|writes| write.may_join(writes)) {
        Some(writes) => writes.push(write),
        None => shared.push(vec![write]),
    }
}

/// New tasks in one statement of its own transaction, decided without a read of what is stored: it writes nothing
/// where a blob that they name is not there, and fails where an id or a key is. Answers the transaction's id, and
/// whether it wrote. `None` = this is more than such a statement does.
pub(super) fn submission(set: &mut WorkingSet, offset: i64) -> Option<Statement> {
    let mut named: Vec<Vec<u8>> = set.writes.touched.iter().map(|hash| hash.0.to_vec()).collect();
    named.sort_unstable();
    let all = row_writes(set, 0);
    let joins = all.iter().enumerate().all(|(at, write)| write.may_join(&all[..at]));
    joins.then(|| together(all, offset, Some(named)))
}

/// Writes that share a statement; with `named`, only if all blobs of these names are stored.
fn together(writes: Vec<RowWrite>, offset: i64, named: Option<Vec<Vec<u8>>>) -> Statement {
    let mut args = Vec::new();
    let mut sql = String::from("WITH ");
    let guard = match named {
        None => "",
        Some(named) => {
            args.push(Arg::Blobs(named));
            // Kept from garbage collection until the commit.
            sql.push_str("named AS (SELECT hash FROM blobs WHERE hash = ANY($1) FOR KEY SHARE), ");
            sql.push_str("checked AS MATERIALIZED (SELECT count(*) = cardinality($1) AS holds FROM named), ");
            " WHERE (SELECT holds FROM checked)"
        }
    };
    let is_single = writes.iter().all(|write| write.rows() == 1);
    for (at, write) in writes.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let rows = rows(&write, args.len() + 1, offset, is_single);
        let text = write.sql.replace(ROWS, &format!("{rows}{guard}"));
        write!(sql, "{comma}w{at} AS ({text})").expect("a string can be written to");
        if is_single {
            args.extend(write.cells.into_iter().zip(write.columns).map(|(cell, kind)| cell_of(*kind, cell)));
        } else {
            args.extend(columns(write));
        }
    }
    sql.push_str(" SELECT pg_current_xact_id()::text::bigint");
    if !guard.is_empty() {
        sql.push_str(", (SELECT holds FROM checked)");
    }
    Statement { sql, args }
}

/// The rows of a write, parameters counted from `first`. A single one is written out: the server does that in less than
/// half the time that an `unnest` takes.
fn rows(write: &RowWrite, first: usize, offset: i64, is_single: bool) -> String {
    let names: Vec<String> = (0..write.columns.len()).map(|at| format!("c{at}")).collect();
    let source = if is_single {
        let cells: Vec<String> = (write.columns.iter().enumerate())
            .map(|(at, kind)| format!("${}::{}", at + first, type_of(*kind)))
            .collect();
        format!("(SELECT {})", cells.join(", "))
    } else {
        unnest(write.columns, first)
    };
    let place = match names.split_first() {
        Some((place, others)) if write.is_placed => {
            format!("{} + r.{place}, r.{}", first_position(offset), others.join(", r."))
        }
        Some(_) | None => "*".to_owned(),
    };
    format!("SELECT {place} FROM {source} AS r({})", names.join(", "))
}

/// The first position of the transaction.
fn first_position(offset: i64) -> String {
    format!("((pg_current_xact_id()::text::bigint + {offset}) << {POSITION_BITS})")
}

/// The columns of a write's rows.
fn columns(write: RowWrite) -> Vec<Arg> {
    let width = write.columns.len();
    let mut columns: Vec<Arg> = write.columns.iter().map(|kind| empty_column(*kind)).collect();
    for (at, cell) in write.cells.into_iter().enumerate() {
        push_cell(&mut columns[at % width], cell);
    }
    columns
}

/// `unnest` over parameters from `first` on.
fn unnest(columns: &[ColumnKind], first: usize) -> String {
    let arrays: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, kind)| format!("${}::{}[]", at + first, type_of(*kind)))
        .collect();
    format!("unnest({})", arrays.join(", "))
}

fn empty_column(kind: ColumnKind) -> Arg {
    match kind {
        Int => Arg::IntColumn(Vec::new()),
        Text => Arg::TextColumn(Vec::new()),
        Blob | Payload => Arg::BlobColumn(Vec::new()),
    }
}

const fn type_of(kind: ColumnKind) -> &'static str {
    match kind {
        Int => "bigint",
        Text => "text",
        Blob | Payload => "bytea",
    }
}

/// A cell by itself.
fn cell_of(kind: ColumnKind, cell: Arg) -> Arg {
    match (kind, cell) {
        (Payload, Arg::Text(text)) => Arg::Blob(text.into_bytes()),
        (Int | Text | Blob | Payload, cell) => cell,
    }
}

fn push_cell(column: &mut Arg, cell: Arg) {
    match (column, cell) {
        (Arg::IntColumn(cells), Arg::Int(n)) => cells.push(Some(n)),
        (Arg::IntColumn(cells), Arg::IntOrNull(n)) => cells.push(n),
        (Arg::TextColumn(cells), Arg::Text(text)) => cells.push(Some(text)),
        (Arg::TextColumn(cells), Arg::TextOrNull(text)) => cells.push(text),
        (Arg::TextColumn(cells), Arg::Word(word)) => cells.push(Some(word.to_owned())),
        (Arg::BlobColumn(cells), Arg::Hash(hash)) => cells.push(Some(hash.to_vec())),
        (Arg::BlobColumn(cells), Arg::Blob(bytes)) => cells.push(Some(bytes)),
        (Arg::BlobColumn(cells), Arg::BlobOrNull(bytes)) => cells.push(bytes),
        (Arg::BlobColumn(cells), Arg::Text(text)) => cells.push(Some(text.into_bytes())),
        (_, cell) => unreachable!("a statement's cells follow its columns: {cell:?}"),
    }
}

/// [`fenced_append`] for one event, without `unnest`.
const FENCED_ONE: &str = "WITH moved AS (UPDATE streams s SET head_seq = $6, head_hash = $7, head_at = $8 \
     WHERE s.id = $1 AND s.head_seq = $2 AND s.head_hash = $3 AND s.epoch = $4 AND s.fence = $5 RETURNING s.id), \
     written AS (INSERT INTO events (position, stream_id, seq, recorded_at, turn, epoch, kind, version, payload, \
     prev_hash, hash) SELECT ((pg_current_xact_id()::text::bigint + $20) << 16) + $9, $10, $11, $12, $13, $14, $15, \
     $16, $17, $18, $19 FROM moved WHERE moved.id = $10) \
     SELECT pg_current_xact_id()::text::bigint, id FROM moved";
const _: () = assert!(POSITION_BITS == 16, "`FENCED_ONE` shifts by as much");

/// Heads that move and their events in one statement of its own transaction. Only
/// streams whose head, epoch and fence are still those decided upon move, and only their events are
/// written; the rows answered are those streams and the transaction's id. `offset` and the
/// transaction's id make the positions.
pub(super) fn fenced_append(set: &mut WorkingSet, offset: i64) -> Statement {
    let events = event_writes(&mut set.writes, 0);
    let [_, heads, _] = stream_writes(set);
    if events.rows() == 1 && heads.rows() == 1 {
        let cells =
            heads.cells.into_iter().zip(heads.columns).chain(events.cells.into_iter().zip(events.columns));
        let mut args: Vec<Arg> = cells.map(|(cell, kind)| cell_of(*kind, cell)).collect();
        args.push(Arg::Int(offset));
        return Statement { sql: FENCED_ONE.to_owned(), args };
    }
    let first = heads.columns.len() + 1;
    let sql = format!(
        "WITH u AS (SELECT * FROM {} AS u(id, old_seq, old_hash, old_epoch, old_fence, seq, hash, at)), \
         moved AS (UPDATE streams s SET head_seq = u.seq, head_hash = u.hash, head_at = u.at FROM u \
         WHERE s.id = u.id AND s.head_seq = u.old_seq AND s.head_hash = u.old_hash AND s.epoch = u.old_epoch \
         AND s.fence = u.old_fence RETURNING s.id), \
         written AS (INSERT INTO events (position, stream_id, seq, recorded_at, turn, epoch, kind, version, payload, \
         prev_hash, hash) SELECT ((pg_current_xact_id()::text::bigint + ${}) << {POSITION_BITS}) + e.place, \
         e.stream_id, e.seq, e.recorded_at, e.turn, e.epoch, e.kind, e.version, e.payload, e.prev_hash, e.hash \
         FROM {} AS e(place, stream_id, seq, recorded_at, turn, epoch, kind, version, payload, prev_hash, hash) \
         WHERE e.stream_id IN (SELECT id FROM moved)) \
         SELECT pg_current_xact_id()::text::bigint, id FROM moved",
        unnest(heads.columns, 1),
        first + events.columns.len(),
        unnest(events.columns, first),
    );
    let mut args = columns(heads);
    args.extend(columns(events));
    args.push(Arg::Int(offset));
    Statement { sql, args }
}
