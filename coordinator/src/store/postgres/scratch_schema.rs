//! A scratch schema for benchmarks, which separates docket's tables from others in the same database.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::{
    clock,
    store::{
        StoreError,
        db::{SqlDialect, store_error},
    },
};

/// A separate schema in a database. It exists until [`ScratchSchema::drop_schema`].
#[derive(Debug)]
pub struct ScratchSchema {
    server: String,
    name: String,
}

impl ScratchSchema {
    /// Creates a schema in the database at `server`, whose user needs that privilege.
    ///
    /// # Errors
    /// [`StoreError`] if the server does not reply or refuses.
    pub async fn create(server: &str) -> Result<Self, StoreError> {
        let name = format!("docket_scratch_{}", clock::new_id().simple());
        let schema = Self { server: server.to_owned(), name };
        schema.execute("creating a schema", format!("CREATE SCHEMA {}", schema.name)).await?;
        Ok(schema)
    }

    /// Returns the name, for a person who has to remove the schema.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the database URL with the schema as search path.
    pub fn url(&self) -> String {
        let mark = if self.server.contains('?') { '&' } else { '?' };
        format!("{}{mark}options=-c%20search_path%3D{}", self.server, self.name)
    }

    /// Drops the schema with everything in it.
    ///
    /// # Errors
    /// [`StoreError`] if the schema could not be dropped and still exists.
    pub async fn drop_schema(&self) -> Result<(), StoreError> {
        self.execute("removing a schema", format!("DROP SCHEMA {} CASCADE", self.name)).await
    }

    async fn execute(&self, doing: &'static str, sql: String) -> Result<(), StoreError> {
        let executed = async {
            let mut conn = PgConnection::connect(&self.server).await?;
            sqlx::query(AssertSqlSafe(sql)).execute(&mut conn).await?;
            conn.close().await
        };
        executed.await.map_err(|source| store_error(SqlDialect::Postgres, doing, source))
    }
}
