//! Rows of one kind on their way into the database, and how they are written: on PostgreSQL many kinds share a statement,
//! on SQLite each row has its own.

use std::borrow::Cow;

use crate::store::db::{SqlArg, sqlite_driver};

/// The place of the rows in a statement.
pub(crate) const ROWS_PLACEHOLDER: &str = "{rows}";

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Int,
    Text,
    Blob,
    /// Text on SQLite, bytes on PostgreSQL.
    Payload,
}

/// Rows of one kind, and the statement that writes them. On SQLite each row has a statement: there a statement costs
/// little, but one over many rows fills a table in memory first.
#[derive(Debug)]
pub(crate) struct RowWrite {
    /// With `{rows}` in place of the rows.
    pub(crate) sql: &'static str,
    /// For SQLite, where it is not `sql` with one row of `VALUES`.
    sqlite_sql: Option<&'static str>,
    pub(crate) columns: &'static [ColumnKind],
    /// Row after row.
    pub(crate) cells: Vec<SqlArg>,
    /// A row that changes nothing shows that the row which was decided upon is gone.
    must_change: bool,
    /// For PostgreSQL: the first column counts from the transaction's first position.
    pub(crate) has_position_column: bool,
    /// For PostgreSQL: the writes it may share a statement with.
    sharing: StatementSharing,
}

/// For PostgreSQL: which writes may share a statement. None sees the changes of the others in its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementSharing {
    /// It has a statement of its own.
    Nothing,
    /// Writes to other tables than this.
    OtherTables(&'static str),
    /// Also writes to this table that say the same: their rows are different ones.
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
    /// An insert, or an upsert.
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

    /// An update, for PostgreSQL and for one row on SQLite.
    pub(crate) fn update(sql: &'static str, one: &'static str, columns: &'static [ColumnKind]) -> Self {
        Self { sqlite_sql: Some(one), ..Self::insert(sql, columns) }
    }

    /// Each row must be there.
    pub(crate) fn with_required_change(self) -> Self {
        Self { must_change: true, ..self }
    }

    /// May share a statement with writes to other tables.
    pub(crate) fn sharing_across_tables(self, table: &'static str) -> Self {
        Self { sharing: StatementSharing::OtherTables(table), ..self }
    }

    /// May share a statement also with writes to the same table, whose rows are different ones.
    pub(crate) fn sharing_within_table(self, table: &'static str) -> Self {
        Self { sharing: StatementSharing::OtherRows(table), ..self }
    }

    /// For PostgreSQL: whether `self` may share a statement with all of these.
    pub(crate) fn can_join(&self, others: &[Self]) -> bool {
        others.iter().all(|other| self.sharing.can_share(other.sharing))
    }

    /// For PostgreSQL: it shares a statement with no other.
    pub(crate) fn has_own_statement(&self) -> bool {
        self.sharing == StatementSharing::Nothing
    }

    /// How many rows.
    pub(crate) fn row_count(&self) -> usize {
        self.cells.len() / self.columns.len()
    }

    /// For SQLite: writes row after row. `false` = a row that must be there is not.
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
