//! Statements on SQLite, run by rusqlite on the thread that asks. Errors become sqlx's, so that one place classifies
//! those of both databases.

use std::{borrow::Cow, error::Error, fmt};

use rusqlite::{
    Connection, Statement, ToSql,
    types::{ToSqlOutput, ValueRef},
};
use sqlx::error::{DatabaseError, ErrorKind};

use super::values::{Arg, Cell, Row, hex_list};

impl ToSql for Arg {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Int(n) | Self::IntOrNull(Some(n)) => ToSqlOutput::Borrowed(ValueRef::Integer(*n)),
            Self::Text(text) | Self::TextOrNull(Some(text)) => {
                ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
            }
            Self::Word(word) => ToSqlOutput::Borrowed(ValueRef::Text(word.as_bytes())),
            Self::Blob(bytes) | Self::BlobOrNull(Some(bytes)) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Self::Hash(hash) => ToSqlOutput::Borrowed(ValueRef::Blob(hash)),
            Self::IntOrNull(None) | Self::TextOrNull(None) | Self::BlobOrNull(None) => {
                ToSqlOutput::Borrowed(ValueRef::Null)
            }
            Self::Texts(texts) => serde_json::Value::from(texts.as_slice()).to_string().into(),
            Self::Blobs(blobs) => hex_list(blobs).into(),
            Self::IntColumn(_) | Self::TextColumn(_) | Self::BlobColumn(_) => {
                unreachable!("columns are rendered for PostgreSQL only")
            }
        })
    }
}

/// All rows of a query.
pub(crate) fn rows(conn: &Connection, sql: &str, args: &[Arg]) -> Result<Vec<Row>, sqlx::Error> {
    let all = || {
        let mut statement = conn.prepare_cached(sql)?;
        bind_numbered(&mut statement, args)?;
        let width = statement.column_count();
        let mut found = statement.raw_query();
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let cells = (0..width).map(|at| row.get_ref(at).map(cell));
            rows.push(Row::new(cells.collect::<Result<_, _>>()?));
        }
        Ok(rows)
    };
    all().map_err(to_sqlx)
}

/// Runs a statement; the number of rows it changed.
pub(crate) fn run(conn: &Connection, sql: &str, args: &[Arg]) -> Result<u64, sqlx::Error> {
    let changed = || {
        let mut statement = conn.prepare_cached(sql)?;
        bind_numbered(&mut statement, args)?;
        statement.raw_execute()
    };
    changed().map(|rows| rows as u64).map_err(to_sqlx)
}

/// Runs a statement, whose parameters stand in order, once for each row of `cells`; whether each of them changed a row.
pub(crate) fn run_each(
    conn: &Connection,
    sql: &str,
    width: usize,
    cells: &[Arg],
) -> Result<bool, sqlx::Error> {
    let each = || {
        let mut statement = conn.prepare_cached(sql)?;
        let mut all = true;
        for row in cells.chunks_exact(width) {
            bind(&mut statement, row)?;
            all &= statement.raw_execute()? > 0;
        }
        Ok(all)
    };
    each().map_err(to_sqlx)
}

/// Binds by the numbers of `$1`, as both databases' queries have them. To SQLite those are names, whose
/// places are the order they first stand in.
fn bind_numbered(statement: &mut Statement<'_>, args: &[Arg]) -> rusqlite::Result<()> {
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
fn bind(statement: &mut Statement<'_>, args: &[Arg]) -> rusqlite::Result<()> {
    for (at, arg) in args.iter().enumerate() {
        statement.raw_bind_parameter(at + 1, arg)?;
    }
    Ok(())
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(n) => Cell::Int(n),
        // Our tables are strict and have no such column; its reader refuses what is not an integer.
        ValueRef::Real(n) => Cell::Text(n.to_string()),
        // Its reader refuses what is not UTF-8.
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Cell::Text(text.to_owned()),
            Err(_) => Cell::Blob(bytes.to_vec()),
        },
        ValueRef::Blob(bytes) => Cell::Blob(bytes.to_vec()),
    }
}

/// An error of SQLite, with its code.
#[derive(Debug)]
struct SqliteError {
    code: i32,
    message: String,
}

/// The error for a row that was read and is gone: the constraint that a moved head violates.
pub(crate) fn row_is_gone() -> sqlx::Error {
    let code = rusqlite::ffi::SQLITE_CONSTRAINT;
    sqlx::Error::Database(Box::new(SqliteError { code, message: "a row that was read is gone".to_owned() }))
}

/// The error in sqlx's type, with SQLite's code.
pub(crate) fn to_sqlx(error: rusqlite::Error) -> sqlx::Error {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => {
            let mut message = message.unwrap_or_else(|| failure.to_string());
            // The path comes after it, which callers name themselves.
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
    use crate::store::db::{DbErrorKind, Dialect, classify_error};

    fn table() -> Connection {
        let conn = Connection::open_in_memory().expect("memory opens");
        conn.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY, word TEXT NOT NULL) STRICT")
            .expect("makes");
        conn
    }

    #[test]
    fn parameters_are_bound_by_number_wherever_they_stand() {
        let args = [Arg::Int(7), Arg::Word("seven"), Arg::Blobs(vec![vec![0xab]])];
        let rows = rows(&table(), "SELECT $2, $1, $2, $3", &args).expect("answers");
        let shown: Vec<String> = (0..4).map(|at| rows[0].format_cell(at)).collect();
        assert_eq!(shown, ["seven", "7", "seven", r#"["ab"]"#]);
        assert!(super::rows(&table(), "SELECT $3", &args[..2]).is_err());
    }

    #[test]
    fn missing_row_is_reported() {
        let conn = table();
        run(&conn, "INSERT INTO t VALUES ($1, $2)", &[Arg::Int(1), Arg::Word("a")]).expect("inserts");
        let update = "UPDATE t SET word = ?2 WHERE n = ?1";
        let cells = [Arg::Int(1), Arg::Word("b"), Arg::Int(2), Arg::Word("b")];
        assert!(run_each(&conn, update, 2, &cells[..2]).expect("updates"));
        assert!(!run_each(&conn, update, 2, &cells).expect("updates"));
        assert_eq!(classify_error(Dialect::Sqlite, &row_is_gone()), DbErrorKind::Stale);
    }

    #[test]
    fn errors_are_classified_by_their_code() {
        let conn = table();
        let insert = |word| run(&conn, "INSERT INTO t VALUES (1, $1)", &[word]);
        let refused = insert(Arg::TextOrNull(None)).expect_err("NULL is refused");
        assert_eq!(classify_error(Dialect::Sqlite, &refused), DbErrorKind::Stale);
        assert!(refused.to_string().contains("NOT NULL"), "{refused}");
        let ours = run(&conn, "INSERT INTO nowhere VALUES (1)", &[]).expect_err("there is no such table");
        assert_eq!(classify_error(Dialect::Sqlite, &ours), DbErrorKind::Ours);
    }
}
