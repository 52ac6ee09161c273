//! Arguments and rows as sqlx has them for PostgreSQL.

use sqlx::{AssertSqlSafe, Column as _, Row as _, TypeInfo as _};

use super::values::{Arg, Cell, Row};

/// A query with its arguments. `is_prepared` = the session keeps its plan.
pub(super) fn bind(
    sql: &str,
    args: Vec<Arg>,
    is_prepared: bool,
) -> sqlx::query::Query<'static, sqlx::Postgres, sqlx::postgres::PgArguments> {
    let mut query = sqlx::query(AssertSqlSafe(sql.to_owned()));
    for arg in args {
        query = match arg {
            Arg::Int(n) => query.bind(n),
            Arg::IntOrNull(n) => query.bind(n),
            Arg::Text(text) => query.bind(text),
            Arg::TextOrNull(text) => query.bind(text),
            Arg::Blob(bytes) => query.bind(bytes),
            Arg::BlobOrNull(bytes) => query.bind(bytes),
            Arg::Word(word) => query.bind(word),
            Arg::Hash(hash) => query.bind(hash.to_vec()),
            Arg::Texts(texts) => query.bind(texts),
            Arg::Blobs(blobs) => query.bind(blobs),
            Arg::IntColumn(cells) => query.bind(cells),
            Arg::TextColumn(cells) => query.bind(cells),
            Arg::BlobColumn(cells) => query.bind(cells),
        };
    }
    query.persistent(is_prepared)
}

pub(super) fn to_row(row: &sqlx::postgres::PgRow) -> Result<Row, sqlx::Error> {
    (0..row.len())
        .map(|at| match row.column(at).type_info().name() {
            "TEXT" | "VARCHAR" | "NAME" => {
                Ok(row.try_get::<Option<String>, _>(at)?.map_or(Cell::Null, Cell::Text))
            }
            "BYTEA" => Ok(row.try_get::<Option<Vec<u8>>, _>(at)?.map_or(Cell::Null, Cell::Blob)),
            "INT4" => Ok(row.try_get::<Option<i32>, _>(at)?.map_or(Cell::Null, |n| Cell::Int(n.into()))),
            "BOOL" => Ok(row.try_get::<Option<bool>, _>(at)?.map_or(Cell::Null, |b| Cell::Int(b.into()))),
            _ => Ok(row.try_get::<Option<i64>, _>(at)?.map_or(Cell::Null, Cell::Int)),
        })
        .collect::<Result<_, _>>()
        .map(Row::new)
}
