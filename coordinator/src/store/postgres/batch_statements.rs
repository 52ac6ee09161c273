//! Statements that write the rows of a batch, each a round trip, so as few as possible. Kinds of rows that
//! are independent of each other share a statement, as its `WITH` queries; rows are `unnest`s of typed
//! columns.

use std::fmt::Write as _;

use crate::store::{
    db::{SqlArg, SqlRow},
    writer::{
        ColumnKind::{self, Blob, Int, Payload, Text},
        POSITION_BITS, ROWS_PLACEHOLDER, RowWrite, WorkingSet, row_writes, stream_writes, take_event_writes,
    },
};

#[derive(Debug)]
pub(super) struct BatchStatement {
    pub(super) sql: String,
    pub(super) args: Vec<SqlArg>,
}

/// Returns a statement's only row.
pub(super) fn single_row(rows: Vec<SqlRow>) -> Result<SqlRow, sqlx::Error> {
    rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)
}

/// Builds the statements of a batch. Each returns one row: the transaction's id.
pub(super) fn batch_statements(set: &mut WorkingSet, offset: i64) -> Vec<BatchStatement> {
    let mut shared: Vec<Vec<RowWrite>> = Vec::new();
    for write in row_writes(set, 0) {
        // Nothing may be placed before a write that has its own statement.
        match shared.iter().rposition(|writes| writes.iter().all(RowWrite::has_own_statement)) {
            Some(last) => add_to_first_fitting(&mut shared, last + 1, write),
            None => add_to_first_fitting(&mut shared, 0, write),
        }
    }
    shared.into_iter().map(|writes| shared_statement(writes, offset, None)).collect()
}

fn add_to_first_fitting(shared: &mut Vec<Vec<RowWrite>>, from: usize, write: RowWrite) {
    match shared[from..].iter_mut().find(|writes| write.can_join(writes)) {
        Some(writes) => writes.push(write),
        None => shared.push(vec![write]),
    }
}

/// Builds one statement, and transaction, that inserts new tasks, decided without reading stored rows: it
/// writes nothing if a required blob is missing, and fails if an id or key exists. Returns the transaction's
/// id and whether it wrote. `None` if the batch contains more than such a statement can write.
pub(super) fn submit_statement(set: &mut WorkingSet, offset: i64) -> Option<BatchStatement> {
    let mut named: Vec<Vec<u8>> = set.writes.touched.iter().map(|hash| hash.0.to_vec()).collect();
    named.sort_unstable();
    let all = row_writes(set, 0);
    let joins = all.iter().enumerate().all(|(at, write)| write.can_join(&all[..at]));
    joins.then(|| shared_statement(all, offset, Some(named)))
}

/// Builds the statement of writes that share one; with `named`, it writes only if all these blobs are stored.
fn shared_statement(writes: Vec<RowWrite>, offset: i64, named: Option<Vec<Vec<u8>>>) -> BatchStatement {
    let mut args = Vec::new();
    let mut sql = String::from("WITH ");
    let guard = match named {
        None => "",
        Some(named) => {
            args.push(SqlArg::Blobs(named));
            // Protected from garbage collection until the commit.
            sql.push_str("named AS (SELECT hash FROM blobs WHERE hash = ANY($1) FOR KEY SHARE), ");
            sql.push_str("checked AS MATERIALIZED (SELECT count(*) = cardinality($1) AS holds FROM named), ");
            " WHERE (SELECT holds FROM checked)"
        }
    };
    let is_single = writes.iter().all(|write| write.row_count() == 1);
    for (at, write) in writes.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let rows = rows_sql(&write, args.len() + 1, offset, is_single);
        let text = write.sql.replace(ROWS_PLACEHOLDER, &format!("{rows}{guard}"));
        write!(sql, "{comma}w{at} AS ({text})").expect("a string can be written to");
        if is_single {
            args.extend(
                write.cells.into_iter().zip(write.columns).map(|(cell, kind)| convert_cell(*kind, cell)),
            );
        } else {
            args.extend(into_columns(write));
        }
    }
    sql.push_str(" SELECT pg_current_xact_id()::text::bigint");
    if !guard.is_empty() {
        sql.push_str(", (SELECT holds FROM checked)");
    }
    BatchStatement { sql, args }
}

/// Builds the rows of a write, with parameters counted from `first`. A single row is written out, which takes
/// the server less than half the time of an `unnest`.
fn rows_sql(write: &RowWrite, first: usize, offset: i64, is_single: bool) -> String {
    let names: Vec<String> = (0..write.columns.len()).map(|at| format!("c{at}")).collect();
    let source = if is_single {
        let cells: Vec<String> = (write.columns.iter().enumerate())
            .map(|(at, kind)| format!("${}::{}", at + first, column_type(*kind)))
            .collect();
        format!("(SELECT {})", cells.join(", "))
    } else {
        unnest_sql(write.columns, first)
    };
    let place = match names.split_first() {
        Some((place, others)) if write.has_position_column => {
            format!("{} + r.{place}, r.{}", first_position_sql(offset), others.join(", r."))
        }
        Some(_) | None => "*".to_owned(),
    };
    format!("SELECT {place} FROM {source} AS r({})", names.join(", "))
}

/// Returns SQL for the transaction's first position.
fn first_position_sql(offset: i64) -> String {
    format!("((pg_current_xact_id()::text::bigint + {offset}) << {POSITION_BITS})")
}

/// Converts a write's rows to columns.
fn into_columns(write: RowWrite) -> Vec<SqlArg> {
    let width = write.columns.len();
    let mut columns: Vec<SqlArg> = write.columns.iter().map(|kind| empty_column(*kind)).collect();
    for (at, cell) in write.cells.into_iter().enumerate() {
        push_cell(&mut columns[at % width], cell);
    }
    columns
}

/// Returns an `unnest` over parameters from `first` on.
fn unnest_sql(columns: &[ColumnKind], first: usize) -> String {
    let arrays: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, kind)| format!("${}::{}[]", at + first, column_type(*kind)))
        .collect();
    format!("unnest({})", arrays.join(", "))
}

fn empty_column(kind: ColumnKind) -> SqlArg {
    match kind {
        Int => SqlArg::IntColumn(Vec::new()),
        Text => SqlArg::TextColumn(Vec::new()),
        Blob | Payload => SqlArg::BlobColumn(Vec::new()),
    }
}

const fn column_type(kind: ColumnKind) -> &'static str {
    match kind {
        Int => "bigint",
        Text => "text",
        Blob | Payload => "bytea",
    }
}

/// Converts a cell to its column's type.
fn convert_cell(kind: ColumnKind, cell: SqlArg) -> SqlArg {
    match (kind, cell) {
        (Payload, SqlArg::Text(text)) => SqlArg::Blob(text.into_bytes()),
        (Int | Text | Blob | Payload, cell) => cell,
    }
}

fn push_cell(column: &mut SqlArg, cell: SqlArg) {
    match (column, cell) {
        (SqlArg::IntColumn(cells), SqlArg::Int(n)) => cells.push(Some(n)),
        (SqlArg::IntColumn(cells), SqlArg::IntOrNull(n)) => cells.push(n),
        (SqlArg::TextColumn(cells), SqlArg::Text(text)) => cells.push(Some(text)),
        (SqlArg::TextColumn(cells), SqlArg::TextOrNull(text)) => cells.push(text),
        (SqlArg::TextColumn(cells), SqlArg::StaticText(word)) => cells.push(Some(word.to_owned())),
        (SqlArg::BlobColumn(cells), SqlArg::Hash(hash)) => cells.push(Some(hash.to_vec())),
        (SqlArg::BlobColumn(cells), SqlArg::Blob(bytes)) => cells.push(Some(bytes)),
        (SqlArg::BlobColumn(cells), SqlArg::BlobOrNull(bytes)) => cells.push(bytes),
        (SqlArg::BlobColumn(cells), SqlArg::Text(text)) => cells.push(Some(text.into_bytes())),
        (_, cell) => unreachable!("a statement's cells follow its columns: {cell:?}"),
    }
}

/// [`fenced_append`] for one event, without `unnest`.
const FENCED_APPEND_ONE: &str = "WITH moved AS (UPDATE streams s SET head_seq = $6, head_hash = $7, head_at = $8 \
     WHERE s.id = $1 AND s.head_seq = $2 AND s.head_hash = $3 AND s.epoch = $4 AND s.fence = $5 RETURNING s.id), \
     written AS (INSERT INTO events (position, stream_id, seq, recorded_at, turn, epoch, kind, version, payload, \
     prev_hash, hash) SELECT ((pg_current_xact_id()::text::bigint + $20) << 16) + $9, $10, $11, $12, $13, $14, $15, \
     $16, $17, $18, $19 FROM moved WHERE moved.id = $10) \
     SELECT pg_current_xact_id()::text::bigint, id FROM moved";
const _: () = assert!(POSITION_BITS == 16, "`FENCED_ONE` shifts by as much");

/// Builds one statement, and transaction, that moves heads and writes their events. Only streams whose head,
/// epoch and fence are unchanged since the decision are written; the rows returned are those streams and the
/// transaction's id. `offset` and the transaction's id determine the positions.
pub(super) fn fenced_append(set: &mut WorkingSet, offset: i64) -> BatchStatement {
    let events = take_event_writes(&mut set.writes, 0);
    let [_, heads, _] = stream_writes(set);
    if events.row_count() == 1 && heads.row_count() == 1 {
        let cells =
            heads.cells.into_iter().zip(heads.columns).chain(events.cells.into_iter().zip(events.columns));
        let mut args: Vec<SqlArg> = cells.map(|(cell, kind)| convert_cell(*kind, cell)).collect();
        args.push(SqlArg::Int(offset));
        return BatchStatement { sql: FENCED_APPEND_ONE.to_owned(), args };
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
        unnest_sql(heads.columns, 1),
        first + events.columns.len(),
        unnest_sql(events.columns, first),
    );
    let mut args = into_columns(heads);
    args.extend(into_columns(events));
    args.push(SqlArg::Int(offset));
    BatchStatement { sql, args }
}
