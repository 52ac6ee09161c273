//! What a database's error means to a caller, told by code and never by its text.

use super::{StoreError, conn::Dialect, error::DATABASE_ANSWER_PREFIX};

/// What can be done about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Others hold a lock, or another transaction came first: the same again may succeed at once.
    Again,
    /// What was read before the transaction is not what is there: read again, decide again.
    Stale,
    /// The database cannot be reached, goes down, or does not let docket in.
    Away,
    /// The database answers and takes no writes: a standby, an old primary after a failover, a file without the
    /// right to write it.
    ReadOnly,
    /// No space is left.
    Full,
    /// The file is no database, or a damaged one.
    Damaged,
    /// Our SQL, or what is stored.
    Ours,
}

impl Fault {
    /// Whether the same transaction may succeed at once.
    pub(super) const fn is_conflict(self) -> bool {
        matches!(self, Self::Again | Self::Stale)
    }

    /// Whether only another connection may help.
    pub(super) const fn is_of_connection(self) -> bool {
        matches!(self, Self::Away | Self::ReadOnly)
    }
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
        // No permission, no memory, interrupted, input or output, not to be opened, a race over the log's index.
        Ok(3 | 7 | 9 | 10 | 14 | 15) => Fault::Away,
        Ok(8) => Fault::ReadOnly,
        Ok(11 | 26) => Fault::Damaged,
        Ok(19) => Fault::Stale,
        Ok(_) | Err(_) => Fault::Ours,
    }
}

/// Classes and codes of PostgreSQL's appendix A.
fn postgres(code: &str) -> Fault {
    match code {
        // Canceled: a person or `statement_timeout` ended the statement, and nothing else.
        "40001" | "40P01" | "55P03" | "57014" => Fault::Again,
        "25006" => Fault::ReadOnly,
        "53100" => Fault::Full,
        "23505" | "23502" => Fault::Stale,
        // A session that was ended for its age, a login, database or right that is missing for now.
        "25P03" | "25P04" | "3D000" | "42501" => Fault::Away,
        _ if ["08", "28", "53", "57P", "58"].iter().any(|class| code.starts_with(class)) => Fault::Away,
        "XX001" | "XX002" => Fault::Damaged,
        _ => Fault::Ours,
    }
}

/// The error as callers see it.
pub(super) fn store_error(dialect: Dialect, doing: &'static str, source: sqlx::Error) -> StoreError {
    let backend = dialect.name();
    match fault(dialect, &source) {
        Fault::Again | Fault::Away => StoreError::Unavailable { backend, doing, source },
        Fault::ReadOnly => StoreError::ReadOnly { backend, doing, source },
        Fault::Full => StoreError::Full { backend, doing, source },
        Fault::Damaged => StoreError::Damaged { backend, doing, source },
        Fault::Stale | Fault::Ours => StoreError::Fault { backend, doing, source },
    }
}

/// The same error for one more request of the batch it ended.
pub(super) fn again(error: &StoreError) -> StoreError {
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
        StoreError::Fault { backend, doing, source } => {
            StoreError::Fault { backend, doing, source: copy(source) }
        }
        StoreError::Corrupt { what } => StoreError::Corrupt { what: what.clone() },
        StoreError::OtherBuild { what } => StoreError::OtherBuild { what: what.clone() },
        StoreError::Schema { what } => StoreError::Schema { what: what.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unavailable_store_says_what_the_database_answered() {
        use sqlx::Connection as _;
        let mut db = sqlx::SqliteConnection::connect("sqlite::memory:").await.expect("opens");
        let source = sqlx::query("SELECT 1 FROM nowhere").execute(&mut db).await.expect_err("no such table");
        let answered = StoreError::Unavailable { backend: "sqlite", doing: "reading", source };
        let copied = again(&answered);
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

    /// What a database that is away, read-only or short of something says is never docket's own fault.
    #[test]
    fn codes_of_postgres_say_what_can_be_done() {
        for (code, wanted) in [
            ("25006", Fault::ReadOnly),
            ("57P01", Fault::Away),
            ("57P02", Fault::Away),
            ("57P03", Fault::Away),
            ("25P03", Fault::Away),
            ("08006", Fault::Away),
            ("28P01", Fault::Away),
            ("53300", Fault::Away),
            ("58030", Fault::Away),
            ("53100", Fault::Full),
            ("55P03", Fault::Again),
            ("57014", Fault::Again),
            ("23505", Fault::Stale),
            ("XX001", Fault::Damaged),
            ("42601", Fault::Ours),
        ] {
            assert_eq!(postgres(code), wanted, "{code}");
        }
    }

    #[test]
    fn codes_of_sqlite_say_what_can_be_done() {
        // Extended codes hold the primary one in their low byte.
        for (code, wanted) in [
            ("5", Fault::Again),
            ("261", Fault::Again),
            ("8", Fault::ReadOnly),
            ("1032", Fault::ReadOnly),
            ("10", Fault::Away),
            ("13", Fault::Full),
            ("11", Fault::Damaged),
            ("19", Fault::Stale),
            ("1", Fault::Ours),
        ] {
            assert_eq!(sqlite(code), wanted, "{code}");
        }
    }
}
