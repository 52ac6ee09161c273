//! Opening a database: schema, where positions begin, the writer's own connection, the readers' pool.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use docket_schema::migrations;
use sqlx::{
    ConnectOptions as _,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::{hints::PgCoordinatorHints, server_link::ServerConnector, writer::PgWriter};
use crate::store::{
    StoreError,
    api::corrupt_error,
    db::{DbConn, DbPool, PostgresEndpoint, SqlArg, SqlDialect, TransactionError, migrate, store_error},
    sql_store::SqlStore,
};

const DOING: &str = "opening";

/// Connections for reading.
const READER_CONNECTIONS: u32 = 8;

/// Connections for writing. While one waits for its commit the next batch is made and sent on another; they
/// treat each other like two coordinators.
const WRITER_CONNECTIONS: usize = 2;

/// All that a writer reads or changes it knows the keys of. The plan of its prepared statements is made early, when
/// tables are small or nothing is known of them: without these it may be one that reads the whole table for each batch,
/// and compares every row with every key, until statistics come.
const PLANNER_SETTINGS: [(&str, &str); 4] =
    [("enable_seqscan", "off"), ("enable_hashjoin", "off"), ("enable_mergejoin", "off"), ("jit", "off")];

/// Prepared statements of a writer: a shape for each combination of what batches write.
const WRITER_STATEMENTS_MAX: usize = 400;

/// How long a reader waits for a connection, also while the server starts again.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a statement waits for a lock that another session holds. A lock that is never given back then becomes an
/// error that is logged and answered, instead of silence; waiting longer is a decision of the caller.
const LOCK_TIMEOUT: &str = "4s";

/// Oldest server: `pg_current_xact_id` and `xid8` are from 13, 14 is the oldest that is maintained.
const SERVER_VERSION_MIN: i64 = 140_000;

/// Opens the database at `url`. With `pooler=transaction` among the URL's parameters, a pooler in transaction
/// mode may stand before it.
///
/// # Errors
/// [`StoreError`]: the URL is none, the server does not answer or is too old, or the database is a
/// newer docket's.
pub async fn open(url: &str) -> Result<SqlStore, StoreError> {
    let sql_error = |source| store_error(SqlDialect::Postgres, DOING, source);
    let (url, through) = parse_endpoint(url)?;
    let options = PgConnectOptions::from_str(&url)
        .map_err(|_| StoreError::Schema {
            what: "its URL is none; write postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned(),
        })?
        .application_name("docket")
        .disable_statement_logging();
    let options = match through {
        PostgresEndpoint::Server => options.options([
            ("default_transaction_isolation", "read committed"),
            ("synchronous_commit", "on"),
            ("lock_timeout", LOCK_TIMEOUT),
        ]),
        // A pooler refuses what it would have to remember for a session.
        PostgresEndpoint::Pooler => options.extra_float_digits(None),
    };
    let writing = match through {
        PostgresEndpoint::Server => {
            options.clone().options(PLANNER_SETTINGS).statement_cache_capacity(WRITER_STATEMENTS_MAX)
        }
        PostgresEndpoint::Pooler => options.clone(),
    };
    let mut writer = writing.connect().await.map_err(session_error)?;
    let mut conn = DbConn::Postgres(&mut writer, through);
    check_server(&mut conn).await?;
    migrate(&mut conn, migrations::POSTGRES).await?;
    let offset = ensure_position_offset(&mut conn).await.map_err(|error| match error {
        TransactionError::Sql(source) => sql_error(source),
        TransactionError::Store(error) => error,
        TransactionError::LimitLockMissing => unreachable!("no task is chosen while a database is opened"),
    })?;
    let link = ServerConnector::new(writing, through);
    let pool = PgPoolOptions::new().max_connections(READER_CONNECTIONS).acquire_timeout(READER_TIMEOUT);
    let readers = link.connect_readers(pool, options.clone()).await.map_err(sql_error)?;
    let failover = Arc::clone(&link.failover);
    let first = PgWriter::new(link, Some(writer), offset);
    let mut writers: Vec<PgWriter> = (1..WRITER_CONNECTIONS).map(|_| first.sibling_writer()).collect();
    writers.insert(0, first);
    let hints = PgCoordinatorHints::new(readers.clone(), options, through, failover);
    Ok(SqlStore::start(DbPool::Postgres { pool: readers, endpoint: through }, writers)?
        .with_hints(Arc::new(hints)))
}

/// The URL without what is ours in it, and what that says.
fn parse_endpoint(url: &str) -> Result<(String, PostgresEndpoint), StoreError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (ours, others): (Vec<&str>, Vec<&str>) =
        query.split('&').filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("pooler="));
    let through = match ours.as_slice() {
        [] => PostgresEndpoint::Server,
        ["pooler=transaction"] => PostgresEndpoint::Pooler,
        _ => {
            let what = "its URL names a pooler that docket does not know; pooler=transaction is all there is";
            return Err(StoreError::Schema { what: what.to_owned() });
        }
    };
    let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
    Ok((url, through))
}

/// A connection that is refused for how it begins: servers take it, poolers do not.
fn session_error(source: sqlx::Error) -> StoreError {
    const PROTOCOL_VIOLATION: &str = "08P01";
    match &source {
        sqlx::Error::Database(error) if error.code().as_deref() == Some(PROTOCOL_VIOLATION) => {
            StoreError::Schema {
                what: format!(
                    "what answers is no PostgreSQL server ({error}); is it a pooler? Then end the URL with ?pooler=transaction"
                ),
            }
        }
        _ => store_error(SqlDialect::Postgres, DOING, source),
    }
}

async fn check_server(conn: &mut DbConn<'_>) -> Result<(), StoreError> {
    let sql = "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding')";
    let rows = conn
        .query_rows_autocommit(sql, Vec::new())
        .await
        .map_err(|source| store_error(SqlDialect::Postgres, DOING, source))?;
    let version = rows.first().and_then(|row| row.get_i64(0).ok()).unwrap_or(0);
    if version < SERVER_VERSION_MIN {
        return Err(StoreError::Schema {
            what: format!("the server is PostgreSQL {}; docket needs 14 or newer", version / 10_000),
        });
    }
    Ok(())
}

/// A position is the writing transaction's id plus this offset, shifted. A database that was
/// restored on another server, whose transaction ids are lower, gets an offset that keeps positions
/// rising.
async fn ensure_position_offset(conn: &mut DbConn<'_>) -> Result<i64, TransactionError> {
    conn.execute_batch("BEGIN").await?;
    let begin = "INSERT INTO meta (key, value) VALUES ('position_offset', '0') ON CONFLICT (key) DO NOTHING";
    conn.execute(begin, Vec::new()).await?;
    let raise = "UPDATE meta SET value = convert_to(((SELECT max(position) FROM events) / 65536 + 1)::text, 'UTF8') \
                 WHERE key = 'position_offset' AND (SELECT max(position) FROM events) / 65536 > \
                 pg_snapshot_xmax(pg_current_snapshot())::text::bigint + convert_from(value, 'UTF8')::bigint";
    conn.execute(raise, Vec::<SqlArg>::new()).await?;
    let sql = "SELECT convert_from(value, 'UTF8')::bigint FROM meta WHERE key = 'position_offset'";
    let rows = conn.query_rows(sql, Vec::new()).await?;
    conn.execute_batch("COMMIT").await?;
    let row = rows.first().ok_or_else(|| corrupt_error("the offset of positions is gone".to_owned()))?;
    Ok(row.get_i64(0)?)
}
