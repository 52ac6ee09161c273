//! Migrates a database to this build's schema, step by step. Each step is one transaction that also records
//! it.

use std::time::{Duration, Instant};

use docket_schema::{ids::BlobHash, migrations::Migration};

use super::{
    advisory_locks::MIGRATION,
    conn::DbConn,
    db_error::{DbErrorKind, classify_error, store_error},
    dialect::SqlDialect,
    values::SqlArg,
};
use crate::store::StoreError;

const DOING: &str = "migrating the schema";

/// How long to wait for another coordinator's migration; one that fills a large index takes minutes.
const MIGRATION_WAIT_MAX: Duration = Duration::from_secs(600);

/// Applies missing steps. Coordinators that start together apply each step once.
pub(crate) async fn migrate(conn: &mut DbConn<'_>, steps: &[Migration]) -> Result<(), StoreError> {
    let dialect = conn.dialect();
    let sql_error = |source| store_error(dialect, DOING, source);
    begin_migration(conn).await.map_err(sql_error)?;
    let result = apply_missing_steps(conn, dialect, steps).await;
    let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
    conn.execute_batch(end).await.map_err(sql_error)?;
    result
}

/// Begins the migration transaction. If another coordinator is migrating, logs that and waits.
async fn begin_migration(conn: &mut DbConn<'_>) -> Result<(), sqlx::Error> {
    let DbConn::Postgres(_, through) = conn else {
        return conn.execute("BEGIN IMMEDIATE", Vec::new()).await.map(|_| ());
    };
    let (begin, started) = (through.begin_sql(), Instant::now());
    loop {
        conn.execute_batch(begin).await?;
        let Err(error) = MIGRATION.acquire(conn).await else { return Ok(()) };
        conn.execute_batch("ROLLBACK").await?;
        if classify_error(SqlDialect::Postgres, &error) != DbErrorKind::Retryable
            || started.elapsed() > MIGRATION_WAIT_MAX
        {
            return Err(error);
        }
        tracing::warn!("another coordinator is migrating the schema; waiting until it is done");
    }
}

async fn apply_missing_steps(
    conn: &mut DbConn<'_>,
    dialect: SqlDialect,
    steps: &[Migration],
) -> Result<(), StoreError> {
    let sql_error = |source| store_error(dialect, DOING, source);
    let number = match dialect {
        SqlDialect::Sqlite => "INTEGER",
        SqlDialect::Postgres => "BIGINT",
    };
    let create = format!(
        "CREATE TABLE IF NOT EXISTS schema_steps (version {number} PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL)"
    );
    conn.execute(&create, Vec::new()).await.map_err(sql_error)?;
    let applied = conn
        .query_rows("SELECT version, name, hash FROM schema_steps ORDER BY version", Vec::new())
        .await
        .map_err(sql_error)?;
    let mut done = 0;
    for mut row in applied {
        let (version, name, hash) = (row.get_u32(0)?, row.get_text(1)?, row.get_text(2)?);
        let Some(step) = steps.iter().find(|step| step.version == version) else {
            return Err(StoreError::SchemaMismatch {
                what: format!(
                    "step {version} (`{name}`) was applied by a newer docket; use that version, or restore \
                     an earlier backup"
                ),
            });
        };
        if hash_step(step) != hash {
            return Err(StoreError::SchemaMismatch {
                what: format!(
                    "step {version} (`{name}`) differs from the applied one; use the docket release that \
                     created this database"
                ),
            });
        }
        done = done.max(version);
    }
    for step in steps.iter().filter(|step| step.version > done) {
        let failed = |source: sqlx::Error| StoreError::Schema {
            what: format!("step {} (`{}`) failed and was rolled back: {source}", step.version, step.name),
        };
        conn.execute_batch(step.sql).await.map_err(failed)?;
        let note = "INSERT INTO schema_steps (version, name, hash) VALUES ($1, $2, $3)";
        let args = vec![
            SqlArg::Int(step.version.into()),
            SqlArg::Text(step.name.to_owned()),
            SqlArg::Text(hash_step(step)),
        ];
        conn.execute(note, args).await.map_err(sql_error)?;
    }
    Ok(())
}

fn hash_step(step: &Migration) -> String {
    BlobHash::hash_bytes(step.sql.as_bytes()).to_string()
}
