//! Connections and pools of the two databases, so that every query both understand is written once. Only
//! `store/` may use it.
//!
//! Each database has one driver. SQLite uses rusqlite on the calling thread: the writer has a thread anyway,
//! and handing each statement to another thread costs a single append more than its commit. Readers run on a
//! blocking thread (`sqlite_readers.rs`). PostgreSQL uses sqlx, whose error type both share.
//!
//! Numbered parameters (`$1`) work on both. Lists are the only difference: see [`SqlDialect::any_blob_sql`].

use std::sync::Arc;

use sqlx::{PgConnection, PgPool};

use super::{
    db_error::store_error,
    dialect::SqlDialect,
    postgres_driver, sqlite_driver,
    sqlite_readers::SqliteReaders,
    values::{SqlArg, SqlRow},
};
use crate::store::StoreError;

/// Locks no row and changes nothing, but a read-only server rejects it as a write.
const WRITE_PROBE: &str = "SELECT 1 FROM meta WHERE false FOR UPDATE";

/// A pool for reading.
#[derive(Debug, Clone)]
pub(crate) enum DbPool {
    Sqlite(Arc<SqliteReaders>),
    Postgres { pool: PgPool, endpoint: PostgresEndpoint },
}

/// What a PostgreSQL connection leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PostgresEndpoint {
    /// PostgreSQL itself, or a pooler with a session for each connection.
    Server,
    /// A pooler in transaction mode: each transaction may get another session, so there are no prepared
    /// statements, session settings or LISTEN. A statement is sent in two messages that must reach the same
    /// session, so each is sent within a transaction.
    Pooler,
}

impl PostgresEndpoint {
    /// Begins a writing transaction. Direct sessions got the same settings when they were opened
    /// (`postgres/open.rs`).
    pub(crate) const fn begin_sql(self) -> &'static str {
        match self {
            Self::Server => "BEGIN",
            Self::Pooler => {
                "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit TO on; \
                 SET LOCAL lock_timeout TO '4s'; SET LOCAL enable_seqscan TO off; SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off"
            }
        }
    }
}

/// A connection, possibly within a transaction.
pub(crate) enum DbConn<'a> {
    Sqlite(&'a mut rusqlite::Connection),
    Postgres(&'a mut PgConnection, PostgresEndpoint),
}

impl DbPool {
    pub(crate) const fn dialect(&self) -> SqlDialect {
        match self {
            Self::Sqlite(_) => SqlDialect::Sqlite,
            Self::Postgres { .. } => SqlDialect::Postgres,
        }
    }

    /// Returns all rows of a query. `doing` describes the operation in errors.
    pub(crate) async fn query(
        &self,
        doing: &'static str,
        sql: &str,
        args: Vec<SqlArg>,
    ) -> Result<Vec<SqlRow>, StoreError> {
        self.query_rows(sql, args).await.map_err(|source| store_error(self.dialect(), doing, source))
    }

    async fn query_rows(&self, sql: &str, args: Vec<SqlArg>) -> Result<Vec<SqlRow>, sqlx::Error> {
        match self {
            Self::Sqlite(readers) => readers.query_rows(sql, args).await,
            Self::Postgres { pool, endpoint: PostgresEndpoint::Server } => {
                DbConn::Postgres(&mut *pool.acquire().await?, PostgresEndpoint::Server)
                    .query_rows(sql, args)
                    .await
            }
            // Rolled back if it fails or is cancelled.
            Self::Postgres { pool, endpoint: PostgresEndpoint::Pooler } => {
                let mut transaction = pool.begin_with("BEGIN READ ONLY").await?;
                let rows = DbConn::Postgres(&mut transaction, PostgresEndpoint::Pooler)
                    .query_rows(sql, args)
                    .await?;
                transaction.commit().await?;
                Ok(rows)
            }
        }
    }

    /// Checks that a PostgreSQL server accepts writes now.
    pub(crate) async fn check_writable(&self) -> Result<(), StoreError> {
        let Self::Postgres { pool, endpoint: through } = self else { return Ok(()) };
        let probed = async {
            let mut conn = pool.acquire().await?;
            let probed = DbConn::Postgres(&mut conn, *through).probe_write().await;
            if probed.is_err() {
                // It may still be in a failed transaction.
                drop(conn.detach());
            }
            probed
        };
        probed
            .await
            .map_err(|source| store_error(SqlDialect::Postgres, "checking that it accepts writes", source))
    }

    /// Closes idle connections at once and the others after use.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(readers) => readers.close().await,
            Self::Postgres { pool, .. } => pool.close().await,
        }
    }
}

impl DbConn<'_> {
    pub(crate) const fn dialect(&self) -> SqlDialect {
        match self {
            Self::Sqlite(_) => SqlDialect::Sqlite,
            Self::Postgres(..) => SqlDialect::Postgres,
        }
    }

    pub(crate) async fn query_rows(
        &mut self,
        sql: &str,
        args: Vec<SqlArg>,
    ) -> Result<Vec<SqlRow>, sqlx::Error> {
        match self {
            Self::Sqlite(conn) => sqlite_driver::query_rows(conn, sql, &args),
            Self::Postgres(conn, through) => {
                let query = postgres_driver::bind_query(sql, args, *through == PostgresEndpoint::Server);
                query.fetch_all(&mut **conn).await?.iter().map(postgres_driver::to_row).collect()
            }
        }
    }

    /// Runs a statement; returns the number of changed rows.
    pub(crate) async fn execute(&mut self, sql: &str, args: Vec<SqlArg>) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(conn) => sqlite_driver::execute(conn, sql, &args),
            Self::Postgres(conn, through) => {
                let query = postgres_driver::bind_query(sql, args, *through == PostgresEndpoint::Server);
                Ok(query.execute(&mut **conn).await?.rows_affected())
            }
        }
    }

    /// Runs statements without arguments in one message that depends on no session state: begins or ends a
    /// transaction, or migrates.
    pub(crate) async fn execute_batch(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(conn) => conn.execute_batch(sql).map_err(sqlite_driver::to_sqlx_error),
            Self::Postgres(conn, _) => sqlx::raw_sql(sql).execute(&mut **conn).await.map(drop),
        }
    }

    /// Like [`DbConn::query_rows`], for a caller without a transaction.
    pub(crate) async fn query_rows_autocommit(
        &mut self,
        sql: &str,
        args: Vec<SqlArg>,
    ) -> Result<Vec<SqlRow>, sqlx::Error> {
        let Self::Postgres(_, PostgresEndpoint::Pooler) = self else {
            return self.query_rows(sql, args).await;
        };
        self.execute_batch("BEGIN").await?;
        let rows = self.query_rows(sql, args).await?;
        self.execute_batch("COMMIT").await?;
        Ok(rows)
    }

    /// Fails if the server accepts no writes.
    pub(crate) async fn probe_write(&mut self) -> Result<(), sqlx::Error> {
        self.query_rows_autocommit(WRITE_PROBE, Vec::new()).await.map(drop)
    }
}
