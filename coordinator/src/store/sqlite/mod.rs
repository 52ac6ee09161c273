//! SQLite: one file, one writer, any number of readers.

mod backup;
mod checkpoint;
pub(in crate::store) mod direct;
mod open;
mod private;
mod replace;
mod scan;
mod writer;

pub use backup::{BackupError, Copied, Existing, backup};
pub use checkpoint::Checkpoints;
pub use open::{open, open_limited, open_with};
pub use replace::{ReplaceError, Replaced, replace};
pub(in crate::store) use scan::{Range, Scans};

/// How long SQLite itself waits for another process's lock; the writer then asks again.
const BUSY_MS: u64 = 5_000;

/// Pages kept in memory by each connection, as SQLite counts them: 32 MiB.
const CACHE: &str = "-32768";
