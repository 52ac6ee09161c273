//! The seam to the two databases: arguments, rows and connections, so that every query which both
//! understand is written once. Only `store/` may use it.
//!
//! Numbered parameters (`$1`) mean the same on both. Lists are the one thing that differs: see [`Dialect::any`].

use std::{fmt::Write as _, sync::Arc};

use sqlx::{
    AssertSqlSafe, Column as _, PgConnection, PgPool, Row as _, SqliteConnection, SqlitePool, TypeInfo as _,
    Value as _, ValueRef as _,
};

use super::{
    StoreError,
    sqlite::{Scans, direct},
};

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The name in errors and in `Status`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// `column` is in the list that is argument `n`, an [`Arg::Blobs`].
    pub(super) fn any_blob(self, column: &str, n: u8) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT unhex(value) FROM json_each(${n}))"),
            Self::Postgres => format!("{column} = ANY(${n})"),
        }
    }

    /// `column` is in the list that is argument `n`, an [`Arg::Texts`].
    pub(super) fn any_text(self, column: &str, n: u8) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT value FROM json_each(${n}))"),
            Self::Postgres => format!("{column} = ANY(${n})"),
        }
    }

    /// Whether the database refuses writes of others to rows that were read for a decision.
    pub(super) const fn lock_rows(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// As [`Self::lock_rows`], but those that another transaction holds are left out.
    pub(super) const fn lock_free_rows(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }
}

/// An argument.
#[derive(Debug, Clone)]
pub(super) enum Arg {
    Int(i64),
    IntOrNull(Option<i64>),
    Text(String),
    TextOrNull(Option<String>),
    Blob(Vec<u8>),
    BlobOrNull(Option<Vec<u8>>),
    /// Text that is one of ours.
    Word(&'static str),
    /// A hash, where it stands: an append has three.
    Hash([u8; 32]),
    Texts(Vec<String>),
    Blobs(Vec<Vec<u8>>),
    /// Columns of many rows, for PostgreSQL's `unnest`; SQLite is given rows.
    IntColumn(Vec<Option<i64>>),
    TextColumn(Vec<Option<String>>),
    BlobColumn(Vec<Option<Vec<u8>>>),
}

/// A cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Cell {
    fn shown(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Int(n) => n.to_string(),
            Self::Text(text) => text.clone(),
            Self::Blob(bytes) => hex(bytes),
        }
    }
}

impl Arg {
    /// The cell that this becomes; `None` for lists.
    fn cell(&self) -> Option<Cell> {
        match self {
            Self::Int(n) | Self::IntOrNull(Some(n)) => Some(Cell::Int(*n)),
            Self::Text(text) | Self::TextOrNull(Some(text)) => Some(Cell::Text(text.clone())),
            Self::Blob(bytes) | Self::BlobOrNull(Some(bytes)) => Some(Cell::Blob(bytes.clone())),
            Self::Word(word) => Some(Cell::Text((*word).to_owned())),
            Self::Hash(hash) => Some(Cell::Blob(hash.to_vec())),
            Self::IntOrNull(None) | Self::TextOrNull(None) | Self::BlobOrNull(None) => Some(Cell::Null),
            Self::Texts(_)
            | Self::Blobs(_)
            | Self::IntColumn(_)
            | Self::TextColumn(_)
            | Self::BlobColumn(_) => None,
        }
    }

    /// Whether a row holds this at a place.
    pub(super) fn is(&self, row: &Row, at: usize) -> bool {
        self.cell().as_ref() == row.0.get(at)
    }

    /// For people.
    pub(super) fn shown(&self) -> String {
        self.cell().map(|cell| cell.shown()).unwrap_or_default()
    }
}

/// A row. Cells are taken out by place.
#[derive(Debug, Clone)]
pub(super) struct Row(Vec<Cell>);

/// A row that does not have the shape its query gives it: the database was altered.
fn misshapen(at: usize, wanted: &str) -> StoreError {
    StoreError::Corrupt { what: format!("column {at} of a row is no {wanted}") }
}

impl Row {
    pub(super) const fn of(cells: Vec<Cell>) -> Self {
        Self(cells)
    }

    /// A cell, for people.
    pub(super) fn shown(&self, at: usize) -> String {
        self.0.get(at).map(Cell::shown).unwrap_or_default()
    }

    pub(super) fn int(&self, at: usize) -> Result<i64, StoreError> {
        self.int_or_null(at)?.ok_or_else(|| misshapen(at, "integer"))
    }

    pub(super) fn int_or_null(&self, at: usize) -> Result<Option<i64>, StoreError> {
        match self.0.get(at) {
            Some(Cell::Int(n)) => Ok(Some(*n)),
            Some(Cell::Null) => Ok(None),
            Some(Cell::Text(_) | Cell::Blob(_)) | None => Err(misshapen(at, "integer")),
        }
    }

    /// An integer that cannot be negative.
    pub(super) fn count(&self, at: usize) -> Result<u64, StoreError> {
        u64::try_from(self.int(at)?).map_err(|_| misshapen(at, "count"))
    }

    pub(super) fn small(&self, at: usize) -> Result<u32, StoreError> {
        u32::try_from(self.int(at)?).map_err(|_| misshapen(at, "small count"))
    }

    pub(super) fn text(&mut self, at: usize) -> Result<String, StoreError> {
        self.text_or_null(at)?.ok_or_else(|| misshapen(at, "text"))
    }

    pub(super) fn text_or_null(&mut self, at: usize) -> Result<Option<String>, StoreError> {
        match self.0.get_mut(at).map(|cell| std::mem::replace(cell, Cell::Null)) {
            Some(Cell::Text(text)) => Ok(Some(text)),
            Some(Cell::Blob(bytes)) => String::from_utf8(bytes).map(Some).map_err(|_| misshapen(at, "text")),
            Some(Cell::Null) => Ok(None),
            Some(Cell::Int(_)) | None => Err(misshapen(at, "text")),
        }
    }

    pub(super) fn blob(&mut self, at: usize) -> Result<Vec<u8>, StoreError> {
        self.blob_or_null(at)?.ok_or_else(|| misshapen(at, "bytes"))
    }

    pub(super) fn blob_or_null(&mut self, at: usize) -> Result<Option<Vec<u8>>, StoreError> {
        match self.0.get_mut(at).map(|cell| std::mem::replace(cell, Cell::Null)) {
            Some(Cell::Blob(bytes)) => Ok(Some(bytes)),
            Some(Cell::Null) => Ok(None),
            Some(Cell::Text(_) | Cell::Int(_)) | None => Err(misshapen(at, "bytes")),
        }
    }

    pub(super) fn fixed<const N: usize>(&mut self, at: usize) -> Result<[u8; N], StoreError> {
        self.blob(at)?.try_into().map_err(|_| misshapen(at, "id or hash"))
    }

    pub(super) fn fixed_or_null<const N: usize>(&mut self, at: usize) -> Result<Option<[u8; N]>, StoreError> {
        self.blob_or_null(at)?.map(|b| b.try_into().map_err(|_| misshapen(at, "id or hash"))).transpose()
    }
}

/// A pool, for reading.
#[derive(Debug, Clone)]
pub(super) enum Db {
    Sqlite {
        pool: SqlitePool,
        /// For events.
        scans: Arc<Scans>,
    },
    Postgres {
        pool: PgPool,
        through: Through,
    },
}

/// What stands between docket and PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Through {
    /// Nothing, or what keeps a session for each connection.
    Server,
    /// A pooler in transaction mode: each transaction may meet another session, so there is no
    /// statement that was prepared before, no setting and no listening. A statement is sent in two messages that must
    /// meet the same session, so each stands in a transaction.
    Pooler,
}

impl Through {
    /// Begins a transaction that writes. Sessions of our own were set up when they began (`postgres/open.rs`), with the
    /// same settings.
    pub(super) const fn begin(self) -> &'static str {
        match self {
            Self::Server => "BEGIN",
            Self::Pooler => {
                "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit TO on; \
                 SET LOCAL lock_timeout TO '4s'; SET LOCAL enable_seqscan TO off; SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off"
            }
        }
    }
}

/// One connection, perhaps within a transaction.
pub(super) enum Conn<'a> {
    Sqlite(&'a mut SqliteConnection),
    /// The writer's own, which answers on the thread that asks.
    Direct(&'a mut rusqlite::Connection),
    Postgres(&'a mut PgConnection, Through),
}

impl Db {
    pub(super) const fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite { .. } => Dialect::Sqlite,
            Self::Postgres { .. } => Dialect::Postgres,
        }
    }

    pub(super) async fn rows(&self, sql: &str, args: Vec<Arg>) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite { pool, .. } => Conn::Sqlite(&mut *pool.acquire().await?).rows(sql, args).await,
            Self::Postgres { pool, through: Through::Server } => {
                Conn::Postgres(&mut *pool.acquire().await?, Through::Server).rows(sql, args).await
            }
            // Rolled back where it fails, or where nobody waits for it any more.
            Self::Postgres { pool, through: Through::Pooler } => {
                let mut transaction = pool.begin_with("BEGIN READ ONLY").await?;
                let rows = Conn::Postgres(&mut transaction, Through::Pooler).rows(sql, args).await?;
                transaction.commit().await?;
                Ok(rows)
            }
        }
    }
}

impl Conn<'_> {
    pub(super) const fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) | Self::Direct(_) => Dialect::Sqlite,
            Self::Postgres(..) => Dialect::Postgres,
        }
    }

    pub(super) async fn rows(&mut self, sql: &str, args: Vec<Arg>) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(conn) => {
                let rows = bind_sqlite(sql, args).fetch_all(&mut **conn).await?;
                rows.iter().map(sqlite_row).collect()
            }
            Self::Direct(conn) => direct::rows(conn, sql, &args),
            Self::Postgres(conn, through) => {
                let rows = bind_postgres(sql, args, *through).fetch_all(&mut **conn).await?;
                rows.iter().map(postgres_row).collect()
            }
        }
    }

    pub(super) async fn run(&mut self, sql: &str, args: Vec<Arg>) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(conn) => Ok(bind_sqlite(sql, args).execute(&mut **conn).await?.rows_affected()),
            Self::Direct(conn) => direct::run(conn, sql, &args),
            Self::Postgres(conn, through) => {
                Ok(bind_postgres(sql, args, *through).execute(&mut **conn).await?.rows_affected())
            }
        }
    }

    /// Begins or ends a transaction: one message, that needs no session's memory.
    pub(super) async fn control(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        if let Self::Postgres(conn, _) = self {
            sqlx::raw_sql(sql).execute(&mut **conn).await?;
        } else {
            self.run(sql, Vec::new()).await?;
        }
        Ok(())
    }

    /// As [`Conn::rows`], where the caller began no transaction.
    pub(super) async fn rows_alone(&mut self, sql: &str, args: Vec<Arg>) -> Result<Vec<Row>, sqlx::Error> {
        let Self::Postgres(_, Through::Pooler) = self else { return self.rows(sql, args).await };
        self.control("BEGIN").await?;
        let rows = self.rows(sql, args).await?;
        self.control("COMMIT").await?;
        Ok(rows)
    }
}

fn bind_sqlite(
    sql: &str,
    args: Vec<Arg>,
) -> sqlx::query::Query<'static, sqlx::Sqlite, sqlx::sqlite::SqliteArguments> {
    let mut query = sqlx::query(AssertSqlSafe(sql.to_owned()));
    for arg in args {
        query = match arg {
            Arg::Int(n) => query.bind(n),
            Arg::IntOrNull(n) => query.bind(n),
            Arg::Text(text) => query.bind(text),
            Arg::TextOrNull(text) => query.bind(text),
            Arg::Blob(bytes) => query.bind(bytes),
            Arg::BlobOrNull(bytes) => query.bind(bytes),
            Arg::Word(word) => query.bind(word),
            Arg::Hash(hash) => query.bind(hash.to_vec()),
            Arg::Texts(texts) => query.bind(serde_json::Value::from(texts).to_string()),
            Arg::Blobs(blobs) => query.bind(hex_list(&blobs)),
            Arg::IntColumn(_) | Arg::TextColumn(_) | Arg::BlobColumn(_) => {
                unreachable!("columns are rendered for PostgreSQL only")
            }
        };
    }
    query
}

fn bind_postgres(
    sql: &str,
    args: Vec<Arg>,
    through: Through,
) -> sqlx::query::Query<'static, sqlx::Postgres, sqlx::postgres::PgArguments> {
    let mut query = sqlx::query(AssertSqlSafe(sql.to_owned()));
    for arg in args {
        query = match arg {
            Arg::Int(n) => query.bind(n),
            Arg::IntOrNull(n) => query.bind(n),
            Arg::Text(text) => query.bind(text),
            Arg::TextOrNull(text) => query.bind(text),
            Arg::Blob(bytes) => query.bind(bytes),
            Arg::BlobOrNull(bytes) => query.bind(bytes),
            Arg::Word(word) => query.bind(word),
            Arg::Hash(hash) => query.bind(hash.to_vec()),
            Arg::Texts(texts) => query.bind(texts),
            Arg::Blobs(blobs) => query.bind(blobs),
            Arg::IntColumn(cells) => query.bind(cells),
            Arg::TextColumn(cells) => query.bind(cells),
            Arg::BlobColumn(cells) => query.bind(cells),
        };
    }
    query.persistent(through == Through::Server)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        write!(out, "{byte:02x}").expect("writing to a string cannot fail");
        out
    })
}

pub(super) fn hex_list(blobs: &[Vec<u8>]) -> String {
    serde_json::Value::from(blobs.iter().map(|blob| hex(blob)).collect::<Vec<_>>()).to_string()
}

fn sqlite_row(row: &sqlx::sqlite::SqliteRow) -> Result<Row, sqlx::Error> {
    (0..row.len())
        .map(|at| {
            let raw = row.try_get_raw(at)?;
            if raw.is_null() {
                return Ok(Cell::Null);
            }
            let value = raw.to_owned();
            match value.type_info().name() {
                // Text that is no UTF-8 was altered: whoever wants text of it says where it stands.
                "TEXT" => match value.try_decode() {
                    Ok(text) => Ok(Cell::Text(text)),
                    Err(_) => Ok(Cell::Blob(value.try_decode_unchecked()?)),
                },
                "BLOB" => Ok(Cell::Blob(value.try_decode()?)),
                _ => Ok(Cell::Int(value.try_decode()?)),
            }
        })
        .collect::<Result<_, _>>()
        .map(Row)
}

fn postgres_row(row: &sqlx::postgres::PgRow) -> Result<Row, sqlx::Error> {
    (0..row.len())
        .map(|at| match row.column(at).type_info().name() {
            "TEXT" | "VARCHAR" | "NAME" => {
                Ok(row.try_get::<Option<String>, _>(at)?.map_or(Cell::Null, Cell::Text))
            }
            "BYTEA" => Ok(row.try_get::<Option<Vec<u8>>, _>(at)?.map_or(Cell::Null, Cell::Blob)),
            "INT4" => Ok(row.try_get::<Option<i32>, _>(at)?.map_or(Cell::Null, |n| Cell::Int(n.into()))),
            "BOOL" => Ok(row.try_get::<Option<bool>, _>(at)?.map_or(Cell::Null, |b| Cell::Int(b.into()))),
            _ => Ok(row.try_get::<Option<i64>, _>(at)?.map_or(Cell::Null, Cell::Int)),
        })
        .collect::<Result<_, _>>()
        .map(Row)
}
