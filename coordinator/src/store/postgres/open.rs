//! Opening a database: schema, where positions begin, the writer's own connection, the readers' pool.

use std::{str::FromStr as _, time::Duration};

use docket_schema::migrations;
use sqlx::{
    ConnectOptions as _, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::writer::PgWriter;
use crate::store::{
    StoreError,
    conn::{Arg, Conn, Db, Dialect},
    desk::LoadError,
    fault::store_error,
    migrate::migrate,
    sql_store::SqlStore,
};

const DOING: &str = "opening";

/// Connections for reading.
const READERS: u32 = 8;

/// Connections for writing. While one waits for its commit the next batch is made and sent on another; to
/// each other they are as two coordinators are.
const WRITERS: usize = 2;

/// How long a reader waits for a connection, also while the server starts again.
const READER_WAIT: Duration = Duration::from_secs(10);

/// Oldest server: `pg_current_xact_id` and `xid8` are from 13, 14 is the oldest that is maintained.
const SERVER_MIN: i64 = 140_000;

/// Opens the database at `url`.
///
/// # Errors
/// [`StoreError`]: the URL is none, the server does not answer or is too old, or the database is a
/// newer docket's.
pub async fn open(url: &str) -> Result<SqlStore, StoreError> {
    let sql_error = |source| store_error(Dialect::Postgres, DOING, source);
    let options = PgConnectOptions::from_str(url)
        .map_err(|_| StoreError::Schema {
            what: "its URL is none; write postgres://USER:PASSWORD@HOST:PORT/DATABASE".to_owned(),
        })?
        .application_name("docket")
        .options([("default_transaction_isolation", "read committed"), ("synchronous_commit", "on")])
        .disable_statement_logging();
    let mut writer = options.connect().await.map_err(sql_error)?;
    check_server(&mut writer).await?;
    migrate(&mut Conn::Postgres(&mut writer), migrations::POSTGRES).await?;
    let offset = position_offset(&mut writer).await.map_err(|error| match error {
        LoadError::Sql(source) => sql_error(source),
        LoadError::Store(error) => error,
    })?;
    let readers = PgPoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(READER_WAIT)
        .connect_with(options.clone())
        .await
        .map_err(sql_error)?;
    let mut writers = vec![PgWriter::new(options.clone(), Some(writer), offset)];
    writers.resize_with(WRITERS, || PgWriter::new(options.clone(), None, offset));
    SqlStore::start(Db::Postgres(readers), writers)
}

async fn check_server(conn: &mut PgConnection) -> Result<(), StoreError> {
    let sql = "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding')";
    let rows = Conn::Postgres(conn)
        .rows(sql, Vec::new())
        .await
        .map_err(|source| store_error(Dialect::Postgres, DOING, source))?;
    let version = rows.first().and_then(|row| row.int(0).ok()).unwrap_or(0);
    if version < SERVER_MIN {
        return Err(StoreError::Schema {
            what: format!("the server is PostgreSQL {}; docket needs 14 or newer", version / 10_000),
        });
    }
    Ok(())
}

/// A position is the writing transaction's id plus this offset, shifted. A database that was
/// restored on another server, whose transaction ids are lower, gets an offset that keeps positions
/// rising.
async fn position_offset(conn: &mut PgConnection) -> Result<i64, LoadError> {
    let mut conn = Conn::Postgres(conn);
    let begin = "INSERT INTO meta (key, value) VALUES ('position_offset', '0') ON CONFLICT (key) DO NOTHING";
    conn.run(begin, Vec::new()).await?;
    let raise = "UPDATE meta SET value = convert_to(((SELECT max(position) FROM events) / 65536 + 1)::text, 'UTF8') \
                 WHERE key = 'position_offset' AND (SELECT max(position) FROM events) / 65536 > \
                 pg_snapshot_xmax(pg_current_snapshot())::text::bigint + convert_from(value, 'UTF8')::bigint";
    conn.run(raise, Vec::<Arg>::new()).await?;
    let sql = "SELECT convert_from(value, 'UTF8')::bigint FROM meta WHERE key = 'position_offset'";
    let rows = conn.rows(sql, Vec::new()).await?;
    let row = rows
        .first()
        .ok_or_else(|| StoreError::Corrupt { what: "the offset of positions is gone".to_owned() })?;
    Ok(row.int(0)?)
}
