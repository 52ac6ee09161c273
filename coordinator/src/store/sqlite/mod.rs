//! SQLite: one file, one writer, any number of readers.

mod backup;
mod checkpoint;
mod open;
mod private;
mod replace;
mod writer;

pub use backup::{BackupError, Copied, Existing, backup};
pub use checkpoint::Checkpoints;
pub use open::{open, open_limited, open_with};
pub use replace::{ReplaceError, Replaced, replace};
