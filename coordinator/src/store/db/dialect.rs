//! SQL differences between the two databases.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SqlDialect {
    Sqlite,
    Postgres,
}

impl SqlDialect {
    /// Returns the name used in errors and in `Status`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// Returns SQL for: `column` is in the list given as argument `n`, an
    /// [`SqlArg::Blobs`](super::values::SqlArg).
    pub(crate) fn any_blob_sql(self, column: &str, n: u8) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT unhex(value) FROM json_each(${n}))"),
            Self::Postgres => format!("{column} = ANY(${n})"),
        }
    }

    /// Returns SQL for: `column` is in the list given as argument `n`, an
    /// [`SqlArg::Texts`](super::values::SqlArg).
    pub(crate) fn any_text_sql(self, column: &str, n: u8) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT value FROM json_each(${n}))"),
            Self::Postgres => format!("{column} = ANY(${n})"),
        }
    }

    /// Locks the rows that a decision reads until the commit. SQLite has one writer and needs no lock.
    pub(crate) const fn lock_rows_sql(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// Like [`Self::lock_rows_sql`], skipping rows that another transaction holds.
    pub(crate) const fn lock_free_rows_sql(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }
}
