//! A database for one case: its location, how to open it, and how to bypass the store.

use std::{fmt, path::PathBuf, sync::Arc};

use docket_coordinator::store::{self, Store};
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

/// The kind of database.
#[derive(Debug, Clone)]
pub enum DatabaseKind {
    /// A file in a separate folder.
    Sqlite,
    /// A separate database on this server.
    Postgres {
        /// URL of a database whose user may create others.
        server: String,
    },
    /// The same, with a pooler between it and the store.
    Pooled {
        /// The server itself.
        server: String,
        /// URL of the same database through the pooler.
        pooler: String,
    },
}

impl fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres { .. } => "PostgreSQL",
            Self::Pooled { .. } => "PostgreSQL behind a pooler",
        })
    }
}

/// A test database; see the module.
#[derive(Clone)]
pub struct TestDatabase {
    location: DatabaseLocation,
}

#[derive(Clone)]
enum DatabaseLocation {
    Sqlite { path: PathBuf, _folder: Arc<tempfile::TempDir> },
    Postgres { url: String, store: String },
}

/// A raw connection.
pub enum RawConnection {
    /// To the file.
    Sqlite(sqlx::SqliteConnection),
    /// To the server.
    Postgres(sqlx::PgConnection),
}

impl RawConnection {
    /// Runs statements.
    ///
    /// # Errors
    /// Returns the database's error.
    pub async fn execute(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        Ok(match self {
            Self::Sqlite(conn) => sqlx::raw_sql(sql).execute(conn).await?.rows_affected(),
            Self::Postgres(conn) => sqlx::raw_sql(sql).execute(conn).await?.rows_affected(),
        })
    }

    /// Returns one number.
    ///
    /// # Errors
    /// Returns the database's error.
    pub async fn query_number(&mut self, sql: &str) -> Result<i64, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(conn) => sqlx::query_scalar(sql).fetch_one(conn).await,
            Self::Postgres(conn) => sqlx::query_scalar(sql).fetch_one(conn).await,
        }
    }

    /// Returns one text.
    ///
    /// # Errors
    /// Returns the database's error.
    pub async fn query_text(&mut self, sql: &str) -> Result<String, sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(conn) => sqlx::query_scalar(sql).fetch_one(conn).await,
            Self::Postgres(conn) => sqlx::query_scalar(sql).fetch_one(conn).await,
        }
    }

    /// Returns the database's query plan.
    ///
    /// # Errors
    /// Returns the database's error.
    pub async fn explain_query(&mut self, sql: &str) -> Result<String, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(conn) => {
                let sql = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
                let rows = sqlx::query(sql).fetch_all(conn).await?;
                rows.iter().map(|row| row.try_get::<String, _>(3)).collect::<Result<Vec<_>, _>>()?
            }
            Self::Postgres(conn) => {
                let sql = AssertSqlSafe(format!("EXPLAIN {sql}"));
                sqlx::query_scalar(sql).fetch_all(conn).await?
            }
        }
        .join("\n"))
    }
}

impl TestDatabase {
    /// Creates a fresh database.
    ///
    /// # Panics
    /// Panics if it cannot be created.
    pub async fn new(kind: &DatabaseKind, name: &str) -> Self {
        let at = match kind {
            DatabaseKind::Sqlite => {
                let folder = Arc::new(tempfile::tempdir().expect("a temporary folder"));
                DatabaseLocation::Sqlite { path: folder.path().join("docket.db"), _folder: folder }
            }
            DatabaseKind::Postgres { server } | DatabaseKind::Pooled { server, .. } => {
                let name = format!("docket_{name}_{}", std::process::id());
                let name: String = name.chars().take(63).collect();
                let mut admin = sqlx::PgConnection::connect(server).await.expect("the server answers");
                for sql in [format!("DROP DATABASE IF EXISTS {name}"), format!("CREATE DATABASE {name}")] {
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.expect("a separate database");
                }
                let of = |server: &str| {
                    let (base, query) = server.split_once('?').unwrap_or((server, ""));
                    let (base, _) = base.rsplit_once('/').expect("a URL names a database");
                    format!("{base}/{name}?{query}")
                };
                let url = of(server);
                let store =
                    if let DatabaseKind::Pooled { pooler, .. } = kind { of(pooler) } else { url.clone() };
                DatabaseLocation::Postgres { url, store }
            }
        };
        Self { location: at }
    }

    /// Opens the store on it, as another coordinator would.
    ///
    /// # Panics
    /// Panics if it cannot be opened.
    pub async fn open(&self) -> Arc<dyn Store> {
        self.try_open().await.expect("the store opens")
    }

    /// Opens the store on it.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn try_open(&self) -> Result<Arc<dyn Store>, store::StoreError> {
        Ok(match &self.location {
            DatabaseLocation::Sqlite { path, .. } => Arc::new(store::sqlite::open(path).await?),
            DatabaseLocation::Postgres { store: url, .. } => Arc::new(store::postgres::open(url).await?),
        })
    }

    /// Opens a store on it that keeps large blobs outside.
    ///
    /// # Panics
    /// Panics if it cannot be opened.
    pub async fn open_with_blobs(&self, outside: store::ExternalBlobSettings) -> Arc<dyn Store> {
        let opened = match &self.location {
            DatabaseLocation::Sqlite { path, .. } => store::sqlite::open(path).await,
            DatabaseLocation::Postgres { store: url, .. } => store::postgres::open(url).await,
        };
        Arc::new(opened.expect("the store opens").with_external_blobs(outside))
    }

    /// Opens the store with SQLite's file limited to `pages` pages.
    ///
    /// # Panics
    /// Panics if it cannot be opened.
    pub async fn open_limited(&self, pages: u32) -> Arc<dyn Store> {
        match &self.location {
            DatabaseLocation::Sqlite { path, .. } => {
                Arc::new(store::sqlite::open_with_page_limit(path, pages).await.expect("the store opens"))
            }
            DatabaseLocation::Postgres { .. } => self.open().await,
        }
    }

    /// Opens a connection that bypasses the store.
    ///
    /// # Panics
    /// Panics if it cannot be opened.
    pub async fn raw_connection(&self) -> RawConnection {
        match &self.location {
            DatabaseLocation::Sqlite { path, .. } => {
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
                RawConnection::Sqlite(sqlx::SqliteConnection::connect_with(&options).await.expect("opens"))
            }
            DatabaseLocation::Postgres { url, .. } => {
                RawConnection::Postgres(sqlx::PgConnection::connect(url).await.expect("connects"))
            }
        }
    }

    /// Returns its URL, if it has one.
    pub fn url(&self) -> Option<&str> {
        match &self.location {
            DatabaseLocation::Sqlite { .. } => None,
            DatabaseLocation::Postgres { url, .. } => Some(url),
        }
    }

    /// Returns its file, if it is one.
    pub fn file(&self) -> Option<&std::path::Path> {
        match &self.location {
            DatabaseLocation::Sqlite { path, .. } => Some(path),
            DatabaseLocation::Postgres { .. } => None,
        }
    }

    /// Returns whether it is SQLite, for the few cases that only one database supports.
    pub const fn is_sqlite(&self) -> bool {
        matches!(self.location, DatabaseLocation::Sqlite { .. })
    }
}
