//! SQLite statements, run by rusqlite on the calling thread. Errors are converted to sqlx's, so that one
//! place classifies those of both databases.

use std::{borrow::Cow, error::Error, fmt};

use rusqlite::{
    Connection, Statement, ToSql,
    types::{ToSqlOutput, ValueRef},
};
use sqlx::error::{DatabaseError, ErrorKind};

use super::values::{SqlArg, SqlCell, SqlRow, encode_hex_list};

impl ToSql for SqlArg {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Int(n) | Self::IntOrNull(Some(n)) => ToSqlOutput::Borrowed(ValueRef::Integer(*n)),
            Self::Text(text) | Self::TextOrNull(Some(text)) => {
                ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
            }
            Self::StaticText(word) => ToSqlOutput::Borrowed(ValueRef::Text(word.as_bytes())),
            Self::Blob(bytes) | Self::BlobOrNull(Some(bytes)) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Self::Hash(hash) => ToSqlOutput::Borrowed(ValueRef::Blob(hash)),
            Self::IntOrNull(None) | Self::TextOrNull(None) | Self::BlobOrNull(None) => {
                ToSqlOutput::Borrowed(ValueRef::Null)
            }
            Self::Texts(texts) => serde_json::Value::from(texts.as_slice()).to_string().into(),
            Self::Blobs(blobs) => encode_hex_list(blobs).into(),
            Self::IntColumn(_) | Self::TextColumn(_) | Self::BlobColumn(_) => {
                unreachable!("columns are rendered for PostgreSQL only")
            }
        })
    }
}

pub(crate) fn query_rows(conn: &Connection, sql: &str, args: &[SqlArg]) -> Result<Vec<SqlRow>, sqlx::Error> {
    let all = || {
        let mut statement = conn.prepare_cached(sql)?;
        bind_numbered(&mut statement, args)?;
        let width = statement.column_count();
        let mut found = statement.raw_query();
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let cells = (0..width).map(|at| row.get_ref(at).map(cell_from_value));
            rows.push(SqlRow::new(cells.collect::<Result<_, _>>()?));
        }
        Ok(rows)
    };
    all().map_err(to_sqlx_error)
}

/// Runs a statement; returns the number of changed rows.
pub(crate) fn execute(conn: &Connection, sql: &str, args: &[SqlArg]) -> Result<u64, sqlx::Error> {
    let changed = || {
        let mut statement = conn.prepare_cached(sql)?;
        bind_numbered(&mut statement, args)?;
        statement.raw_execute()
    };
    changed().map(|rows| rows as u64).map_err(to_sqlx_error)
}

/// Runs a statement with ordered parameters once for each row of `cells`; returns whether every execution
/// changed a row.
pub(crate) fn execute_each(
    conn: &Connection,
    sql: &str,
    width: usize,
    cells: &[SqlArg],
) -> Result<bool, sqlx::Error> {
    let each = || {
        let mut statement = conn.prepare_cached(sql)?;
        let mut all = true;
        for row in cells.chunks_exact(width) {
            bind_in_order(&mut statement, row)?;
            all &= statement.raw_execute()? > 0;
        }
        Ok(all)
    };
    each().map_err(to_sqlx_error)
}

/// Binds by parameter number (`$1`), as in queries for both databases. SQLite treats these as names, numbered
/// by first occurrence.
fn bind_numbered(statement: &mut Statement<'_>, args: &[SqlArg]) -> rusqlite::Result<()> {
    for at in 1..=statement.parameter_count() {
        let number = statement.parameter_name(at).and_then(|name| name.strip_prefix('$')?.parse().ok());
        let number: usize = number.unwrap_or(at);
        let arg = args
            .get(number.wrapping_sub(1))
            .ok_or(rusqlite::Error::InvalidParameterCount(args.len(), number))?;
        statement.raw_bind_parameter(at, arg)?;
    }
    Ok(())
}

/// Binds in order.
fn bind_in_order(statement: &mut Statement<'_>, args: &[SqlArg]) -> rusqlite::Result<()> {
    for (at, arg) in args.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, arg)?;
    }
    Ok(())
}

fn cell_from_value(value: ValueRef<'_>) -> SqlCell {
    match value {
        ValueRef::Null => SqlCell::Null,
        ValueRef::Integer(n) => SqlCell::Int(n),
        // Our tables are strict and have no such column; the reader rejects non-integers.
        ValueRef::Real(n) => SqlCell::Text(n.to_string()),
        // The reader rejects invalid UTF-8.
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => SqlCell::Text(text.to_owned()),
            Err(_) => SqlCell::Blob(bytes.to_vec()),
        },
        ValueRef::Blob(bytes) => SqlCell::Blob(bytes.to_vec()),
    }
}

/// A SQLite error with its code.
#[derive(Debug)]
struct SqliteError {
    code: i32,
    message: String,
}

/// Creates the error for a row that was read and has disappeared: the same constraint violation as a moved
/// head.
pub(crate) fn row_gone_error() -> sqlx::Error {
    let code = rusqlite::ffi::SQLITE_CONSTRAINT;
    sqlx::Error::Database(Box::new(SqliteError {
        code,
        message: "a row that was read has disappeared".to_owned(),
    }))
}

/// Converts an error to sqlx's type, keeping SQLite's code.
pub(crate) fn to_sqlx_error(error: rusqlite::Error) -> sqlx::Error {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => {
            let mut message = message.unwrap_or_else(|| failure.to_string());
            // SQLite appends the path, which callers name themselves.
            if failure.code == rusqlite::ErrorCode::CannotOpen {
                message.truncate(message.find(": ").unwrap_or(message.len()));
            }
            sqlx::Error::Database(Box::new(SqliteError { code: failure.extended_code, message }))
        }
        other => sqlx::Error::InvalidArgument(other.to_string()),
    }
}

impl fmt::Display for SqliteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "(code: {}) {}", self.code, self.message)
    }
}

impl Error for SqliteError {}

impl DatabaseError for SqliteError {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.code.to_string().into())
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::db::{DbErrorKind, SqlDialect, classify_error};

    fn memory_table() -> Connection {
        let conn = Connection::open_in_memory().expect("memory opens");
        conn.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, word TEXT NOT NULL) STRICT")
            .expect("makes");
        conn
    }

    #[test]
    fn parameters_are_bound_by_number_in_any_order() {
        let args = [SqlArg::Int(7), SqlArg::StaticText("seven"), SqlArg::Blobs(vec![vec![0xab]])];
        let rows = query_rows(&memory_table(), "SELECT $2, $1, $2, $3", &args).expect("answers");
        let shown: Vec<String> = (0..4).map(|at| rows[0].format_cell(at)).collect();
        assert_eq!(shown, ["seven", "7", "seven", r#"["ab"]"#]);
        assert!(super::query_rows(&memory_table(), "SELECT $3", &args[..2]).is_err());
    }

    #[test]
    fn missing_row_is_reported() {
        let conn = memory_table();
        execute(&conn, "INSERT INTO t VALUES ($1, $2)", &[SqlArg::Int(1), SqlArg::StaticText("a")])
            .expect("inserts");
        let update = "UPDATE t SET word = ?2 WHERE n = ?1";
        let cells = [SqlArg::Int(1), SqlArg::StaticText("b"), SqlArg::Int(2), SqlArg::StaticText("b")];
        assert!(execute_each(&conn, update, 2, &cells[..2]).expect("updates"));
        assert!(!execute_each(&conn, update, 2, &cells).expect("updates"));
        assert_eq!(classify_error(SqlDialect::Sqlite, &row_gone_error()), DbErrorKind::Stale);
    }

    #[test]
    fn errors_are_classified_by_their_code() {
        let conn = memory_table();
        let insert = |word| execute(&conn, "INSERT INTO t VALUES (1, $1)", &[word]);
        let refused = insert(SqlArg::TextOrNull(None)).expect_err("NULL is refused");
        assert_eq!(classify_error(SqlDialect::Sqlite, &refused), DbErrorKind::Stale);
        assert!(refused.to_string().contains("NOT NULL"), "{refused}");
        let ours = execute(&conn, "INSERT INTO nowhere VALUES (1)", &[]).expect_err("there is no such table");
        assert_eq!(classify_error(SqlDialect::Sqlite, &ours), DbErrorKind::Internal);
    }
}
