//! Classification of database errors, by code and never by text.

use super::dialect::SqlDialect;
use crate::store::{StoreError, api::DATABASE_ANSWER_PREFIX};

/// Classes of database errors by the appropriate reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DbErrorKind {
    /// Another session holds a lock or another transaction came first: repeating may succeed at once.
    Retryable,
    /// Data read before the transaction has changed: read and decide again.
    Stale,
    /// The database cannot be reached, is shutting down, or refuses docket's login.
    Unavailable,
    /// The database accepts no writes: a standby, an old primary after a failover, a file without write
    /// permission.
    ReadOnly,
    /// The disk is full.
    Full,
    /// The file is not a database, or is damaged.
    Damaged,
    /// A bug in our SQL, or invalid stored data.
    Internal,
}

impl DbErrorKind {
    /// Whether repeating the transaction may succeed at once.
    pub(crate) const fn is_conflict(self) -> bool {
        matches!(self, Self::Retryable | Self::Stale)
    }

    /// Whether only another connection may help.
    pub(crate) const fn is_connection_error(self) -> bool {
        matches!(self, Self::Unavailable | Self::ReadOnly)
    }
}

/// Classifies an error.
pub(crate) fn classify_error(dialect: SqlDialect, error: &sqlx::Error) -> DbErrorKind {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            match dialect {
                SqlDialect::Sqlite => classify_sqlite_code(&code),
                SqlDialect::Postgres => classify_postgres_code(&code),
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_) => DbErrorKind::Unavailable,
        _ => DbErrorKind::Internal,
    }
}

/// SQLite's primary result code is the low byte of the reported code.
fn classify_sqlite_code(code: &str) -> DbErrorKind {
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(5 | 6) => DbErrorKind::Retryable,
        Ok(13) => DbErrorKind::Full,
        // No permission, no memory, interrupted, I/O error, cannot open, a race for the log's index.
        Ok(3 | 7 | 9 | 10 | 14 | 15) => DbErrorKind::Unavailable,
        Ok(8) => DbErrorKind::ReadOnly,
        Ok(11 | 26) => DbErrorKind::Damaged,
        Ok(19) => DbErrorKind::Stale,
        Ok(_) | Err(_) => DbErrorKind::Internal,
    }
}

/// Error classes and codes of PostgreSQL's appendix A.
fn classify_postgres_code(code: &str) -> DbErrorKind {
    match code {
        // Canceled by a person or by `statement_timeout`.
        "40001" | "40P01" | "55P03" | "57014" => DbErrorKind::Retryable,
        "25006" => DbErrorKind::ReadOnly,
        "53100" => DbErrorKind::Full,
        "23505" | "23502" => DbErrorKind::Stale,
        // A session ended for its age; a missing login, database or privilege, which may be temporary.
        "25P03" | "25P04" | "3D000" | "42501" => DbErrorKind::Unavailable,
        _ if ["08", "28", "53", "57P", "58"].iter().any(|class| code.starts_with(class)) => {
            DbErrorKind::Unavailable
        }
        "XX001" | "XX002" => DbErrorKind::Damaged,
        _ => DbErrorKind::Internal,
    }
}

/// Converts the error for callers.
pub(crate) fn store_error(dialect: SqlDialect, doing: &'static str, source: sqlx::Error) -> StoreError {
    let backend = dialect.name();
    match classify_error(dialect, &source) {
        DbErrorKind::Retryable | DbErrorKind::Unavailable => {
            StoreError::Unavailable { backend, doing, source }
        }
        DbErrorKind::ReadOnly => StoreError::ReadOnly { backend, doing, source },
        DbErrorKind::Full => StoreError::Full { backend, doing, source },
        DbErrorKind::Damaged => StoreError::Damaged { backend, doing, source },
        DbErrorKind::Stale | DbErrorKind::Internal => StoreError::Internal { backend, doing, source },
    }
}

/// Why a transaction ended: a database error or invalid content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransactionError {
    #[error("the database did not respond")]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// PostgreSQL only: the transaction must be restarted under the lock of limited choices
    /// (`plan/lease/running.rs`).
    #[error("a choice depends on limits, and their lock was not taken first")]
    LimitLockMissing,
}

/// Copies an error for another command of the same failed batch.
pub(crate) fn copy_error(error: &StoreError) -> StoreError {
    let copy = |source: &sqlx::Error| match source {
        sqlx::Error::Io(io) => sqlx::Error::Io(std::io::Error::new(io.kind(), io.to_string())),
        sqlx::Error::Database(answer) => {
            sqlx::Error::Protocol(format!("{DATABASE_ANSWER_PREFIX}{}", answer.message()))
        }
        other => sqlx::Error::Protocol(other.to_string()),
    };
    match error {
        StoreError::Unavailable { backend, doing, source } => {
            StoreError::Unavailable { backend, doing, source: copy(source) }
        }
        StoreError::ReadOnly { backend, doing, source } => {
            StoreError::ReadOnly { backend, doing, source: copy(source) }
        }
        StoreError::Full { backend, doing, source } => {
            StoreError::Full { backend, doing, source: copy(source) }
        }
        StoreError::Damaged { backend, doing, source } => {
            StoreError::Damaged { backend, doing, source: copy(source) }
        }
        StoreError::Internal { backend, doing, source } => {
            StoreError::Internal { backend, doing, source: copy(source) }
        }
        StoreError::Corrupt { what } => StoreError::Corrupt { what: what.clone() },
        StoreError::SchemaMismatch { what } => StoreError::SchemaMismatch { what: what.clone() },
        StoreError::Schema { what } => StoreError::Schema { what: what.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::db::sqlite_driver;

    #[test]
    fn unavailable_error_includes_the_database_message() {
        let db = rusqlite::Connection::open_in_memory().expect("opens");
        let source = sqlite_driver::execute(&db, "SELECT 1 FROM nowhere", &[]).expect_err("no such table");
        let answered = StoreError::Unavailable { backend: "sqlite", doing: "reading", source };
        let copied = copy_error(&answered);
        for error in [answered, copied] {
            let text = error.to_string();
            assert!(text.ends_with("while reading (no such table: nowhere)"), "{text}");
        }
        let silent = StoreError::Unavailable {
            backend: "sqlite",
            doing: "reading",
            source: sqlx::Error::PoolTimedOut,
        };
        assert!(silent.to_string().ends_with("while reading"), "{silent}");
    }

    /// Errors of an unavailable, read-only or full database are never docket's own bugs.
    #[test]
    fn postgres_error_codes_map_to_kinds() {
        for (code, wanted) in [
            ("25006", DbErrorKind::ReadOnly),
            ("57P01", DbErrorKind::Unavailable),
            ("57P02", DbErrorKind::Unavailable),
            ("57P03", DbErrorKind::Unavailable),
            ("25P03", DbErrorKind::Unavailable),
            ("08006", DbErrorKind::Unavailable),
            ("28P01", DbErrorKind::Unavailable),
            ("53300", DbErrorKind::Unavailable),
            ("58030", DbErrorKind::Unavailable),
            ("53100", DbErrorKind::Full),
            ("55P03", DbErrorKind::Retryable),
            ("57014", DbErrorKind::Retryable),
            ("23505", DbErrorKind::Stale),
            ("XX001", DbErrorKind::Damaged),
            ("42601", DbErrorKind::Internal),
        ] {
            assert_eq!(classify_postgres_code(code), wanted, "{code}");
        }
    }

    #[test]
    fn sqlite_error_codes_map_to_kinds() {
        // The low byte of an extended code is the primary one.
        for (code, wanted) in [
            ("5", DbErrorKind::Retryable),
            ("261", DbErrorKind::Retryable),
            ("8", DbErrorKind::ReadOnly),
            ("1032", DbErrorKind::ReadOnly),
            ("10", DbErrorKind::Unavailable),
            ("13", DbErrorKind::Full),
            ("11", DbErrorKind::Damaged),
            ("19", DbErrorKind::Stale),
            ("1", DbErrorKind::Internal),
        ] {
            assert_eq!(classify_sqlite_code(code), wanted, "{code}");
        }
    }
}
