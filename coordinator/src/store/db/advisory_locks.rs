//! Every advisory lock that docket takes in PostgreSQL, each with its own number and its purpose.
//!
//! The server knows such a lock by its number alone. A number with two purposes is a deadlock that the server does not
//! detect: a transaction waits for a session that keeps the lock until its process ends. So no other file names a
//! number or one of the functions; a tidy test reads this table and holds the workspace to that.
//!
//! Invariants: numbers are distinct. A transaction waits only for a [`TransactionLock`], which ends with the
//! transaction that has it. A [`SessionLock`] is held shared by every session that wants it and is never requested
//! exclusively, so taking it never waits either: it is there to be counted.

use super::{conn::DbConn, dialect::SqlDialect};

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LockEntry {
    number: i64,
    purpose: &'static str,
}

/// A lock of which one transaction at a time is the holder, until it ends. Works through a pooler as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransactionLock(LockEntry);

/// A lock that many sessions hold together, each until it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionLock(LockEntry);

/// Every lock. A lock is made from its place in this array and from nothing else, so none is left out of the check of
/// its numbers below.
const LOCKS: [LockEntry; 3] = [
    LockEntry { number: 723_540, purpose: "one coordinator at a time migrates the schema" },
    LockEntry { number: 723_541, purpose: "one coordinator at a time chooses tasks under limits" },
    LockEntry { number: 723_542, purpose: "a coordinator listens for hints" },
];

const _: () = assert!(are_numbers_distinct(&LOCKS), "two locks have the same number");

/// One coordinator at a time brings the schema up to date.
pub(crate) const MIGRATION: TransactionLock = TransactionLock(LOCKS[0]);

/// Coordinators choose tasks under limits one after the other: each counts what the one before it leased.
pub(crate) const LIMITED_CHOICE: TransactionLock = TransactionLock(LOCKS[1]);

/// A coordinator listens for hints of the others.
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
    /// Waits until the transaction under way on `conn` has the lock. SQLite has one writer and needs none.
    pub(crate) async fn acquire(self, conn: &mut DbConn<'_>) -> Result<(), sqlx::Error> {
        match conn.dialect() {
            SqlDialect::Sqlite => Ok(()),
            SqlDialect::Postgres => conn.execute(&self.acquire_sql(), Vec::new()).await.map(|_| ()),
        }
    }

    /// The purpose comes along as a comment, for people who look at what the server's sessions wait for.
    fn acquire_sql(self) -> String {
        let LockEntry { number, purpose } = self.0;
        format!("SELECT pg_advisory_xact_lock({number}) /* {purpose} */")
    }
}

impl SessionLock {
    /// Takes the lock for as long as the session lasts.
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
        // That all of them are distinct is checked when this file is compiled; here, that the check finds one that is not.
        assert!(
            !are_numbers_distinct(&[LOCKS[0], LOCKS[1], LOCKS[0]]),
            "a number with two purposes is found"
        );
    }
}
