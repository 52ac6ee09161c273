//! A schema for measurements: docket's tables in it are apart from those that others have in the same database.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::{
    clock,
    store::{
        StoreError,
        db::{SqlDialect, store_error},
    },
};

/// A schema of its own in a database. It stays until [`ScratchSchema::remove`].
#[derive(Debug)]
pub struct ScratchSchema {
    server: String,
    name: String,
}

impl ScratchSchema {
    /// Creates one in the database at `server`, whose user needs the right to.
    ///
    /// # Errors
    /// [`StoreError`]: the server does not answer, or refuses.
    pub async fn create(server: &str) -> Result<Self, StoreError> {
        let name = format!("docket_scratch_{}", clock::new_id().simple());
        let schema = Self { server: server.to_owned(), name };
        schema.execute("creating a schema", format!("CREATE SCHEMA {}", schema.name)).await?;
        Ok(schema)
    }

    /// The name, for a person who has to remove it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The database's address with the schema as search path.
    pub fn url(&self) -> String {
        let mark = if self.server.contains('?') { '&' } else { '?' };
        format!("{}{mark}options=-c%20search_path%3D{}", self.server, self.name)
    }

    /// Removes it with all that is in it.
    ///
    /// # Errors
    /// [`StoreError`]: it is still there.
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
