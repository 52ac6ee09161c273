//! SQLite: one file, one writer, any number of readers.

mod backup;
mod checkpoint;
mod file_permissions;
mod open;
mod restore_backup;
mod writer;

pub use backup::{BackupError, BackupProgress, ExistingTarget, back_up_database};
pub use checkpoint::CheckpointMode;
pub use open::{open, open_with_checkpoints, open_with_page_limit};
pub use restore_backup::{RestoreBackupError, RestoreOutcome, restore_backup};
