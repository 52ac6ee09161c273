//! Database schema migrations. A released step is never edited: the store compares the hashes of the applied
//! steps with these and refuses a database that does not match.

/// A migration step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// Its number, starting at 1 without gaps.
    pub version: u32,
    /// What it does; part of its file name.
    pub name: &'static str,
    /// The SQL statements.
    pub sql: &'static str,
}

macro_rules! migrations {
    ($folder:literal: $($version:literal $number:literal $name:literal,)*) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../migrations/", $folder, "/", $number, "_", $name, ".sql")),
        },)*]
    };
}

/// Migrations of SQLite.
pub const SQLITE: &[Migration] = migrations!("sqlite":
    1 "0001" "log",
    2 "0002" "queue",
    3 "0003" "lineage",
    4 "0004" "provider",
    5 "0005" "completed",
    6 "0006" "outage",
    7 "0007" "flow",
    8 "0008" "archive",
    9 "0009" "inbox",
    10 "0010" "limits",
    11 "0011" "tables",
    12 "0012" "stubs",
    13 "0013" "budgets",
    14 "0014" "checks",
    15 "0015" "overview",
    16 "0016" "unverified",
);

/// Migrations of PostgreSQL.
pub const POSTGRES: &[Migration] = migrations!("postgres":
    1 "0001" "log",
    2 "0002" "queue",
    3 "0003" "lineage",
    4 "0004" "provider",
    5 "0005" "completed",
    6 "0006" "outage",
    7 "0007" "flow",
    8 "0008" "archive",
    9 "0009" "inbox",
    10 "0010" "limits",
    11 "0011" "tables",
    12 "0012" "stubs",
    13 "0013" "budgets",
    14 "0014" "checks",
    15 "0015" "overview",
    16 "0016" "unverified",
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::TaskState;

    #[test]
    fn both_databases_have_the_same_numbered_migrations() {
        let steps = |all: &[Migration]| all.iter().map(|m| (m.version, m.name)).collect::<Vec<_>>();
        assert_eq!(steps(SQLITE), steps(POSTGRES));
        assert!(SQLITE.iter().zip(1..).all(|(m, n)| m.version == n));
    }

    #[test]
    fn sql_uses_the_same_state_names_as_the_types() {
        let words: Vec<String> = TaskState::ALL.iter().map(|state| format!("'{state}'")).collect();
        for migration in [SQLITE[1], POSTGRES[1]] {
            let flat = migration.sql.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(&format!("state IN ({})", words.join(", "))), "{}", migration.name);
        }
    }
}
