//! Arguments and rows in sqlx's types for PostgreSQL.

use sqlx::{AssertSqlSafe, Column as _, Row as _, TypeInfo as _};

use super::values::{SqlArg, SqlCell, SqlRow};

/// Binds a query's arguments. `is_prepared`: the session keeps its plan.
pub(super) fn bind_query(
    sql: &str,
    args: Vec<SqlArg>,
    is_prepared: bool,
) -> sqlx::query::Query<'static, sqlx::Postgres, sqlx::postgres::PgArguments> {
    let mut query = sqlx::query(AssertSqlSafe(sql.to_owned()));
    for arg in args {
        query = match arg {
            SqlArg::Int(n) => query.bind(n),
            SqlArg::IntOrNull(n) => query.bind(n),
            SqlArg::Text(text) => query.bind(text),
            SqlArg::TextOrNull(text) => query.bind(text),
            SqlArg::Blob(bytes) => query.bind(bytes),
            SqlArg::BlobOrNull(bytes) => query.bind(bytes),
            SqlArg::StaticText(word) => query.bind(word),
            SqlArg::Hash(hash) => query.bind(hash.to_vec()),
            SqlArg::Texts(texts) => query.bind(texts),
            SqlArg::Blobs(blobs) => query.bind(blobs),
            SqlArg::IntColumn(cells) => query.bind(cells),
            SqlArg::TextColumn(cells) => query.bind(cells),
            SqlArg::BlobColumn(cells) => query.bind(cells),
        };
    }
    query.persistent(is_prepared)
}

pub(super) fn to_row(row: &sqlx::postgres::PgRow) -> Result<SqlRow, sqlx::Error> {
    (0..row.len())
        .map(|at| match row.column(at).type_info().name() {
            "TEXT" | "VARCHAR" | "NAME" => {
                Ok(row.try_get::<Option<String>, _>(at)?.map_or(SqlCell::Null, SqlCell::Text))
            }
            "BYTEA" => Ok(row.try_get::<Option<Vec<u8>>, _>(at)?.map_or(SqlCell::Null, SqlCell::Blob)),
            "INT4" => {
                Ok(row.try_get::<Option<i32>, _>(at)?.map_or(SqlCell::Null, |n| SqlCell::Int(n.into())))
            }
            "BOOL" => {
                Ok(row.try_get::<Option<bool>, _>(at)?.map_or(SqlCell::Null, |b| SqlCell::Int(b.into())))
            }
            _ => Ok(row.try_get::<Option<i64>, _>(at)?.map_or(SqlCell::Null, SqlCell::Int)),
        })
        .collect::<Result<_, _>>()
        .map(SqlRow::new)
}
