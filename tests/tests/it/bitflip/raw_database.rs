//! Around the store: cells of its tables as they lie there, on either database.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};

use super::flip_cell;

/// A cell as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StoredCell {
    Int(i64),
    Bytes(Vec<u8>),
}

/// A connection beside the store's.
pub(super) enum RawDatabase {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ColumnKind {
    Integers,
    Bytes,
    Text,
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl RawDatabase {
    pub(super) async fn connect_sqlite(path: &Path) -> Result<Self> {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
        Ok(Self::Sqlite(SqliteConnection::connect_with(&options).await?))
    }

    pub(super) async fn connect_postgres(url: &str) -> Result<Self> {
        Ok(Self::Postgres(PgConnection::connect(url).await?))
    }

    pub(super) const fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Closes it; on SQLite all of the log is in the one file then.
    pub(super) async fn close(self) -> Result<()> {
        match self {
            Self::Sqlite(mut conn) => {
                sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut conn).await?;
                Ok(conn.close().await?)
            }
            Self::Postgres(conn) => Ok(conn.close().await?),
        }
    }

    pub(super) async fn drop_triggers(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(conn) => {
                sqlx::raw_sql("DROP TRIGGER events_refuse_update").execute(conn).await?.rows_affected()
            }
            Self::Postgres(conn) => sqlx::raw_sql("DROP TRIGGER events_refuse_change ON events")
                .execute(conn)
                .await?
                .rows_affected(),
        };
        Ok(())
    }

    /// A condition on a hash.
    pub(super) fn hash_condition(&self, column: &str, hash: &str) -> String {
        match self {
            Self::Sqlite(_) => format!("{column} = x'{hash}'"),
            Self::Postgres(_) => format!("{column} = '\\x{hash}'::bytea"),
        }
    }

    /// Position, stream and seq of every event.
    pub(super) async fn list_events(&mut self) -> Result<Vec<(i64, String, i64)>> {
        let sql =
            "SELECT e.position, s.name, e.seq FROM events e JOIN streams s ON s.id = e.stream_id ORDER BY 1";
        Ok(match self {
            Self::Sqlite(conn) => sqlx::query_as(sql).fetch_all(conn).await?,
            Self::Postgres(conn) => sqlx::query_as(sql).fetch_all(conn).await?,
        })
    }

    /// The hash of every blob, in hexadecimal.
    pub(super) async fn list_blobs(&mut self) -> Result<Vec<String>> {
        let sql = "SELECT hash FROM blobs ORDER BY hash";
        let hashes: Vec<Vec<u8>> = match self {
            Self::Sqlite(conn) => sqlx::query_scalar(sql).fetch_all(conn).await?,
            Self::Postgres(conn) => sqlx::query_scalar(sql).fetch_all(conn).await?,
        };
        Ok(hashes.iter().map(|hash| to_hex(hash)).collect())
    }

    /// The name of every stream.
    pub(super) async fn list_streams(&mut self) -> Result<Vec<String>> {
        let sql = "SELECT name FROM streams ORDER BY name";
        Ok(match self {
            Self::Sqlite(conn) => sqlx::query_scalar(sql).fetch_all(conn).await?,
            Self::Postgres(conn) => sqlx::query_scalar(sql).fetch_all(conn).await?,
        })
    }

    /// Every row of what a log is, as SQLite reads it without an index.
    pub(super) async fn list_rows(&mut self) -> Result<Vec<String>> {
        let Self::Sqlite(conn) = self else { anyhow::bail!("for a file only") };
        let tables = [
            (
                "events",
                "position || stream_id || seq || recorded_at || turn || epoch || kind || version || \
              payload || hex(prev_hash) || hex(hash)",
            ),
            ("blobs", "hex(hash) || size || hex(data)"),
            ("streams", "id || name || head_seq || hex(head_hash)"),
        ];
        let mut rows = Vec::new();
        for (table, columns) in tables {
            let sql = AssertSqlSafe(format!("SELECT {columns} FROM {table} NOT INDEXED"));
            rows.extend(sqlx::query_scalar::<_, String>(sql).fetch_all(&mut *conn).await?);
        }
        rows.sort_unstable();
        Ok(rows)
    }

    fn column_kind(&self, column: &str) -> ColumnKind {
        match column {
            "version" | "turn" | "epoch" | "seq" | "recorded_at" | "head_seq" | "size" => {
                ColumnKind::Integers
            }
            "kind" => ColumnKind::Text,
            "payload" if self.is_sqlite() => ColumnKind::Text,
            _ => ColumnKind::Bytes,
        }
    }

    async fn read_cell(&mut self, table: &str, column: &str, key: &str) -> Result<StoredCell> {
        let holds = self.column_kind(column);
        let shown = match (holds, &*self) {
            (ColumnKind::Text, Self::Sqlite(_)) => format!("CAST({column} AS BLOB)"),
            (ColumnKind::Text, Self::Postgres(_)) => format!("convert_to({column}, 'UTF8')"),
            (ColumnKind::Integers | ColumnKind::Bytes, _) => column.to_owned(),
        };
        let sql = AssertSqlSafe(format!("SELECT {shown} FROM {table} WHERE {key}"));
        Ok(match (self, holds) {
            (Self::Sqlite(conn), ColumnKind::Integers) => {
                StoredCell::Int(sqlx::query(sql).fetch_one(conn).await?.get(0))
            }
            (Self::Sqlite(conn), _) => StoredCell::Bytes(sqlx::query(sql).fetch_one(conn).await?.get(0)),
            (Self::Postgres(conn), ColumnKind::Integers) => {
                StoredCell::Int(sqlx::query(sql).fetch_one(conn).await?.get(0))
            }
            (Self::Postgres(conn), _) => StoredCell::Bytes(sqlx::query(sql).fetch_one(conn).await?.get(0)),
        })
    }

    /// Writes a cell.
    pub(super) async fn write_cell(
        &mut self,
        table: &str,
        column: &str,
        key: &str,
        cell: &StoredCell,
    ) -> Result<()> {
        let value = match (self.column_kind(column), &*self) {
            (ColumnKind::Text, Self::Sqlite(_)) => "CAST($1 AS TEXT)",
            (ColumnKind::Text, Self::Postgres(_)) => "convert_from($1, 'UTF8')",
            (ColumnKind::Integers | ColumnKind::Bytes, _) => "$1",
        };
        let sql = AssertSqlSafe(format!("UPDATE {table} SET {column} = {value} WHERE {key}"));
        let changed = match (self, cell) {
            (Self::Sqlite(conn), StoredCell::Int(n)) => {
                sqlx::query(sql).bind(n).execute(conn).await?.rows_affected()
            }
            (Self::Sqlite(conn), StoredCell::Bytes(b)) => {
                sqlx::query(sql).bind(b).execute(conn).await?.rows_affected()
            }
            (Self::Postgres(conn), StoredCell::Int(n)) => {
                sqlx::query(sql).bind(n).execute(conn).await?.rows_affected()
            }
            (Self::Postgres(conn), StoredCell::Bytes(b)) => {
                sqlx::query(sql).bind(b).execute(conn).await?.rows_affected()
            }
        };
        ensure!(changed == 1, "{changed} rows of {table} where {key}");
        Ok(())
    }

    /// Flips one bit; what stood there, and the condition under which the row is found now.
    pub(super) async fn flip_bit(
        &mut self,
        table: &str,
        column: &str,
        key: &str,
        bit: usize,
    ) -> Result<(StoredCell, String)> {
        let found =
            self.read_cell(table, column, key).await.with_context(|| format!("{table}.{column} {key}"))?;
        let other = flip_cell(&found, bit);
        self.write_cell(table, column, key, &other)
            .await
            .with_context(|| format!("{table}.{column} {key}"))?;
        let key = match (&other, table == "blobs" && column == "hash") {
            (StoredCell::Bytes(hash), true) => self.hash_condition("hash", &to_hex(hash)),
            _ => key.to_owned(),
        };
        Ok((found, key))
    }
}
