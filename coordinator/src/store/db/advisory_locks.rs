//! Every advisory lock that docket takes in PostgreSQL, each with its number and purpose.
//!
//! The server identifies such a lock by its number alone. A number with two purposes is a deadlock that the
//! server does not detect: a transaction waits for a session that keeps the lock until its process ends. So
//! no other file names a number or one of the functions; a tidy test reads this table and enforces it for the
//! workspace.
//!
//! Invariants: numbers are distinct. A transaction waits only for a [`TransactionLock`], which ends with the
//! transaction that holds it. A [`SessionLock`] is held shared and never requested exclusively, so taking it
//! never waits; it exists to be counted.

use super::{conn::DbConn, dialect::SqlDialect};

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LockEntry {
    number: i64,
    purpose: &'static str,
}

/// A lock held by one transaction at a time until it ends. Also works through a pooler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransactionLock(LockEntry);

/// A lock that many sessions hold together, each until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionLock(LockEntry);

/// Every lock. A lock can only be created from an entry of this array, so the check of distinct numbers below
/// covers all of them.
const LOCKS: [LockEntry; 3] = [
    LockEntry { number: 723_540, purpose: "one coordinator at a time migrates the schema" },
    LockEntry { number: 723_541, purpose: "one coordinator at a time chooses tasks under limits" },
    LockEntry { number: 723_542, purpose: "a coordinator listens for hints" },
];

const _: () = assert!(are_numbers_distinct(&LOCKS), "two locks have the same number");

/// Serializes schema migrations.
pub(crate) const MIGRATION: TransactionLock = TransactionLock(LOCKS[0]);

/// Serializes choices of tasks under limits, so that each coordinator counts what the previous one leased.
pub(crate) const LIMITED_CHOICE: TransactionLock = TransactionLock(LOCKS[1]);

/// Held by coordinators that listen for hints.
pub(crate) const LISTENING: SessionLock = SessionLock(LOCKS[2]);

const fn are_numbers_distinct(locks: &[LockEntry]) -> bool {
    let mut one = 0;
    while one < locks.len() {
        let mut other = one + 1;
        while other < locks.len() {
            if locks[one].number == locks[other].number {
                return false;
            }
            other += 1;
        }
        one += 1;
    }
    true
}

impl TransactionLock {
    /// Waits until the current transaction on `conn` has the lock. SQLite has one writer and needs none.
    pub(crate) async fn acquire(self, conn: &mut DbConn<'_>) -> Result<(), sqlx::Error> {
        match conn.dialect() {
            SqlDialect::Sqlite => Ok(()),
            SqlDialect::Postgres => conn.execute(&self.acquire_sql(), Vec::new()).await.map(|_| ()),
        }
    }

    /// The purpose is added as a comment, for people who inspect what sessions wait for.
    fn acquire_sql(self) -> String {
        let LockEntry { number, purpose } = self.0;
        format!("SELECT pg_advisory_xact_lock({number}) /* {purpose} */")
    }
}

impl SessionLock {
    /// Takes the lock for the rest of the session.
    pub(crate) fn hold_sql(self) -> String {
        let LockEntry { number, purpose } = self.0;
        format!("SELECT pg_advisory_lock_shared({number}) /* {purpose} */")
    }

    /// Counts the sessions of this database that hold the lock.
    pub(crate) fn count_sql(self) -> String {
        format!(
            "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database \
             WHERE l.locktype = 'advisory' AND l.classid = 0 AND l.objid = {} AND l.objsubid = 1 \
             AND d.datname = current_database()",
            self.0.number
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicate_lock_number_is_detected() {
        // Distinctness is checked at compile time; this tests that the check detects a duplicate.
        assert!(
            !are_numbers_distinct(&[LOCKS[0], LOCKS[1], LOCKS[0]]),
            "a number with two purposes is found"
        );
    }
}
