//! Which database, and where its SQL differs from the other's.

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SqlDialect {
    Sqlite,
    Postgres,
}

impl SqlDialect {
    /// Its name in errors and in `Status`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// `column` is in the list that is argument `n`, an [`Arg::Blobs`].
    pub(crate) fn any_blob_sql(self, column: &str, n: u8) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT unhex(value) FROM json_each(${n}))"),
            Self::Postgres => format!("{column} = ANY(${n})"),
        }
    }

    /// `column` is in the list that is argument `n`, an [`Arg::Texts`].
    pub(crate) fn any_text_sql(self, column: &str, n: u8) -> String {
        match self {
            Self::Sqlite => format!("{column} IN (SELECT value FROM json_each(${n}))"),
            Self::Postgres => format!("{column} = ANY(${n})"),
        }
    }

    /// Locks the rows that a decision reads, until the commit. SQLite has one writer and needs no lock.
    pub(crate) const fn lock_rows_sql(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE",
        }
    }

    /// Like [`Self::lock_rows`], but without the rows that another transaction holds.
    pub(crate) const fn lock_free_rows_sql(self) -> &'static str {
        match self {
            Self::Sqlite => "",
            Self::Postgres => " FOR UPDATE SKIP LOCKED",
        }
    }
}
