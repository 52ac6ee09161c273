//! Rows of one kind and the statement that writes them: on PostgreSQL many kinds share a statement, on SQLite
//! each row has its own.

use std::borrow::Cow;

use crate::store::db::{SqlArg, sqlite_driver};

/// Placeholder for the rows in a statement.
pub(crate) const ROWS_PLACEHOLDER: &str = "{rows}";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Int,
    Text,
    Blob,
    /// Text on SQLite, bytes on PostgreSQL.
    Payload,
}

/// Rows of one kind, and the statement that writes them. On SQLite each row is a separate execution: there a
/// statement is cheap, while one over many rows first fills a table in memory.
#[derive(Debug)]
pub(crate) struct RowWrite {
    /// Contains `{rows}` in place of the rows.
    pub(crate) sql: &'static str,
    /// For SQLite, if it is not `sql` with one row of `VALUES`.
    sqlite_sql: Option<&'static str>,
    pub(crate) columns: &'static [ColumnKind],
    /// The cells of all rows, row by row.
    pub(crate) cells: Vec<SqlArg>,
    /// If a row changes nothing, the row that the decision was based on is gone.
    must_change: bool,
    /// PostgreSQL only: the first column counts from the transaction's first position.
    pub(crate) has_position_column: bool,
    /// PostgreSQL only: writes it may share a statement with.
    sharing: StatementSharing,
}

/// Which writes may share a statement on PostgreSQL. None of them sees the changes of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementSharing {
    /// None.
    Nothing,
    /// Writes to tables other than this.
    OtherTables(&'static str),
    /// Also writes to this table that declare the same: their rows are distinct.
    OtherRows(&'static str),
}

impl StatementSharing {
    fn can_share(self, other: Self) -> bool {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => false,
            (Self::OtherRows(one), Self::OtherRows(two)) if one == two => true,
            (
                Self::OtherTables(one) | Self::OtherRows(one),
                Self::OtherTables(two) | Self::OtherRows(two),
            ) => one != two,
        }
    }
}

impl RowWrite {
    /// Creates an insert or upsert.
    pub(crate) const fn insert(sql: &'static str, columns: &'static [ColumnKind]) -> Self {
        Self {
            sql,
            sqlite_sql: None,
            columns,
            cells: Vec::new(),
            must_change: false,
            has_position_column: false,
            sharing: StatementSharing::Nothing,
        }
    }

    /// Creates an update, for PostgreSQL and for one row on SQLite.
    pub(crate) fn update(sql: &'static str, one: &'static str, columns: &'static [ColumnKind]) -> Self {
        Self { sqlite_sql: Some(one), ..Self::insert(sql, columns) }
    }

    /// Requires that each row exists.
    pub(crate) fn with_required_change(self) -> Self {
        Self { must_change: true, ..self }
    }

    /// Allows it to share a statement with writes to other tables.
    pub(crate) fn sharing_across_tables(self, table: &'static str) -> Self {
        Self { sharing: StatementSharing::OtherTables(table), ..self }
    }

    /// Allows it to share a statement also with writes to the same table whose rows are distinct.
    pub(crate) fn sharing_within_table(self, table: &'static str) -> Self {
        Self { sharing: StatementSharing::OtherRows(table), ..self }
    }

    /// PostgreSQL only: whether `self` may share a statement with all of these.
    pub(crate) fn can_join(&self, others: &[Self]) -> bool {
        others.iter().all(|other| self.sharing.can_share(other.sharing))
    }

    /// PostgreSQL only: whether it shares a statement with no other.
    pub(crate) fn has_own_statement(&self) -> bool {
        self.sharing == StatementSharing::Nothing
    }

    /// Returns the number of rows.
    pub(crate) fn row_count(&self) -> usize {
        self.cells.len() / self.columns.len()
    }

    /// SQLite only: writes row by row. Returns `false` if a required row is missing.
    pub(crate) fn execute_on_sqlite(&self, conn: &rusqlite::Connection) -> Result<bool, sqlx::Error> {
        let sql = match self.sqlite_sql {
            Some(sql) => Cow::Borrowed(sql),
            None => {
                let places = vec!["?"; self.columns.len()].join(",");
                Cow::Owned(self.sql.replace(ROWS_PLACEHOLDER, &format!("VALUES ({places})")))
            }
        };
        let all = sqlite_driver::execute_each(conn, &sql, self.columns.len(), &self.cells)?;
        Ok(all || !self.must_change)
    }
}
