//! What a database's error means to a caller, told by code and never by its text.

use super::{StoreError, conn::Dialect};

/// What can be done about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Others hold a lock, or another transaction came first: the same again may succeed at once.
    Again,
    /// What was read before the transaction is not what is there: read again, decide again.
    Stale,
    /// The database cannot be reached, or goes down.
    Away,
    /// No space is left.
    Full,
    /// The file is no database, or a damaged one.
    Damaged,
    /// Our SQL, or what is stored.
    Ours,
}

/// Classifies an error.
pub(super) fn fault(dialect: Dialect, error: &sqlx::Error) -> Fault {
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            match dialect {
                Dialect::Sqlite => sqlite(&code),
                Dialect::Postgres => postgres(&code),
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_) => Fault::Away,
        _ => Fault::Ours,
    }
}

/// Primary result codes of SQLite are the low byte of what it reports.
fn sqlite(code: &str) -> Fault {
    match code.parse::<u32>().map(|code| code & 0xff) {
        Ok(5 | 6) => Fault::Again,
        Ok(13) => Fault::Full,
        Ok(10 | 14) => Fault::Away,
        Ok(11 | 26) => Fault::Damaged,
        Ok(19) => Fault::Stale,
        Ok(_) | Err(_) => Fault::Ours,
    }
}

/// Classes and codes of PostgreSQL's appendix A.
fn postgres(code: &str) -> Fault {
    match code {
        "40001" | "40P01" | "55P03" => Fault::Again,
        "53100" => Fault::Full,
        "23505" | "23502" => Fault::Stale,
        _ if code.starts_with("08") || code.starts_with("57P") || code.starts_with("53") => Fault::Away,
        _ => Fault::Ours,
    }
}

/// The error as callers see it.
pub(super) fn store_error(dialect: Dialect, doing: &'static str, source: sqlx::Error) -> StoreError {
    let backend = dialect.name();
    match fault(dialect, &source) {
        Fault::Again | Fault::Away => StoreError::Unavailable { backend, doing, source },
        Fault::Full => StoreError::Full { backend, doing, source },
        Fault::Damaged => StoreError::Damaged { backend, doing, source },
        Fault::Stale | Fault::Ours => StoreError::Fault { backend, doing, source },
    }
}

/// The same error for one more request of the batch it ended.
pub(super) fn again(error: &StoreError) -> StoreError {
    let copy = |source: &sqlx::Error| match source {
        sqlx::Error::Io(io) => sqlx::Error::Io(std::io::Error::new(io.kind(), io.to_string())),
        other => sqlx::Error::Protocol(other.to_string()),
    };
    match error {
        StoreError::Unavailable { backend, doing, source } => {
            StoreError::Unavailable { backend, doing, source: copy(source) }
        }
        StoreError::Full { backend, doing, source } => {
            StoreError::Full { backend, doing, source: copy(source) }
        }
        StoreError::Damaged { backend, doing, source } => {
            StoreError::Damaged { backend, doing, source: copy(source) }
        }
        StoreError::Fault { backend, doing, source } => {
            StoreError::Fault { backend, doing, source: copy(source) }
        }
        StoreError::Corrupt { what } => StoreError::Corrupt { what: what.clone() },
        StoreError::Schema { what } => StoreError::Schema { what: what.clone() },
    }
}
