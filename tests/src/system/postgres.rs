//! Databases for coordinators under test.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};
use sqlx::{AssertSqlSafe, Connection as _};

use super::coordinator::StoreLocation;
use crate::pg_cluster::PostgresCluster;

/// Creates a separate database on the server.
///
/// # Errors
/// Returns the server's error.
pub async fn fresh_database(cluster: &PostgresCluster) -> Result<StoreLocation> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("docket_system_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut admin = sqlx::PgConnection::connect(cluster.url()).await.context("the server answers")?;
    for sql in [format!("DROP DATABASE IF EXISTS {name}"), format!("CREATE DATABASE {name}")] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await?;
    }
    let (base, query) = cluster.url().split_once('?').unwrap_or((cluster.url(), ""));
    let (base, _) = base.rsplit_once('/').context("a URL names a database")?;
    let query = if query.is_empty() { String::new() } else { format!("?{query}") };
    Ok(StoreLocation::Postgres(format!("{base}/{name}{query}")))
}
