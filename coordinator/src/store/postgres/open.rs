//! Opening of a PostgreSQL database: schema, position offset, the writers' connections, the readers' pool.

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

/// Connections for writing. While one waits for its commit the next batch is prepared and sent on another;
/// they treat each other like two coordinators.
const WRITER_CONNECTIONS: usize = 2;

/// A writer knows the keys of all rows it reads or changes. Its prepared statements are planned early, when
/// tables are small or have no statistics: without these settings a plan may read the whole table for each
/// batch and compare every row with every key until statistics exist.
const PLANNER_SETTINGS: [(&str, &str); 4] =
    [("enable_seqscan", "off"), ("enable_hashjoin", "off"), ("enable_mergejoin", "off"), ("jit", "off")];

/// Prepared statements of a writer: one for each combination of row kinds in a batch.
const WRITER_STATEMENTS_MAX: usize = 400;

/// How long a reader waits for a connection, for example while the server restarts.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a statement waits for a lock of another session. A lock that is never released then becomes an
/// error that is logged and returned instead of silence; waiting longer is up to the caller.
const LOCK_TIMEOUT: &str = "4s";

/// Oldest supported server: `pg_current_xact_id` and `xid8` exist since 13, and 14 is the oldest maintained
/// version.
const SERVER_VERSION_MIN: i64 = 140_000;

/// Opens the database at `url`. With `pooler=transaction` among the URL's parameters, it may be reached
/// through a pooler in transaction mode.
///
/// # Errors
/// [`StoreError`] if the URL is invalid, the server does not reply or is too old, or the database belongs to
/// a newer docket.
pub async fn open(url: &str) -> Result<SqlStore, StoreError> {
    let sql_error = |source| store_error(SqlDialect::Postgres, DOING, source);
    let (url, through) = parse_endpoint(url)?;
    let options = PgConnectOptions::from_str(&url)
        .map_err(|_| StoreError::Schema {
            what: "its URL is invalid; use postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned(),
        })?
        .application_name("docket")
        .disable_statement_logging();
    let options = match through {
        PostgresEndpoint::Server => options.options([
            ("default_transaction_isolation", "read committed"),
            ("synchronous_commit", "on"),
            ("lock_timeout", LOCK_TIMEOUT),
        ]),
        // A pooler rejects session parameters.
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

/// Splits docket's own parameters off the URL; returns the rest and the endpoint.
fn parse_endpoint(url: &str) -> Result<(String, PostgresEndpoint), StoreError> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (ours, others): (Vec<&str>, Vec<&str>) =
        query.split('&').filter(|pair| !pair.is_empty()).partition(|pair| pair.starts_with("pooler="));
    let through = match ours.as_slice() {
        [] => PostgresEndpoint::Server,
        ["pooler=transaction"] => PostgresEndpoint::Pooler,
        _ => {
            let what = "its URL names an unknown pooler mode; only pooler=transaction is supported";
            return Err(StoreError::Schema { what: what.to_owned() });
        }
    };
    let url = if others.is_empty() { base.to_owned() } else { format!("{base}?{}", others.join("&")) };
    Ok((url, through))
}

/// Converts the error of a connection rejected for its startup parameters, which servers accept and poolers
/// do not.
fn session_error(source: sqlx::Error) -> StoreError {
    const PROTOCOL_VIOLATION: &str = "08P01";
    match &source {
        sqlx::Error::Database(error) if error.code().as_deref() == Some(PROTOCOL_VIOLATION) => {
            StoreError::Schema {
                what: format!(
                    "this is not a PostgreSQL server ({error}); for a pooler, append ?pooler=transaction to \
                     the URL"
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

/// Ensures the position offset: a position is the writing transaction's id plus this offset, shifted. A
/// database restored on another server with lower transaction ids gets an offset that keeps positions
/// increasing.
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
    let row = rows.first().ok_or_else(|| corrupt_error("the position offset is missing".to_owned()))?;
    Ok(row.get_i64(0)?)
}
