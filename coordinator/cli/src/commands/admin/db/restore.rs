//! `docket db restore`: replaces the embedded database with a backup.
//!
//! This is more than a file copy: SQLite would replay a journal left by a crashed coordinator into
//! whatever database file has that name.

use std::path::{Path, PathBuf};

use docket_coordinator::{
    clock::Clock,
    store::sqlite::{self, RestoreBackupError, RestoreOutcome},
};

use crate::{
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
};

/// Command-line arguments of `docket db restore`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing may have the database open: stop `docket up` and `docket serve` first, and workers on
other machines. The backup is checked before anything changes. The old database is kept under
another name, which is printed. Anything submitted or done after the backup is not in it; workers
lose the leases they hold on such tasks.

Examples:
  docket db restore /backups/docket.db && docket verify"
)]
pub(super) struct DbRestoreArgs {
    /// Backup file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Replaces the database. The caller holds the home's lock.
pub(super) async fn run_db_restore(cx: &CliContext, args: DbRestoreArgs) -> CliResult {
    let at = match cx.config.store.as_deref() {
        None => cx.home.database_path(),
        Some(address) => match address.strip_prefix("sqlite:") {
            Some(path) => Path::new(path.trim_start_matches("//")).to_owned(),
            None => return Err(CliError::new(ExitKind::Refused, POSTGRES_MESSAGE)),
        },
    };
    if !args.file.is_file() {
        let file = args.file.display();
        let message = format!("there is no backup {file}; create one with `docket db backup {file}`");
        return Err(CliError::new(ExitKind::NotFound, message));
    }
    let stamp: String =
        Clock::new().now().to_string().chars().filter(|c| c.is_ascii_alphanumeric()).take(21).collect();
    let (from, to) = (args.file.clone(), at.clone());
    let progress = ProgressDisplay::spinner(cx);
    progress.set_message("checking and copying the backup");
    let replaced = tokio::task::spawn_blocking(move || sqlite::restore_backup(&from, &to, &stamp)).await;
    drop(progress);
    let RestoreOutcome { bytes, previous: kept } = match replaced.fail_as(ExitKind::Failed)? {
        Ok(replaced) => replaced,
        Err(error @ (RestoreBackupError::BackupIsDatabase(_) | RestoreBackupError::InUse(_))) => {
            return Err(error).fail_as(ExitKind::Refused);
        }
        Err(error @ (RestoreBackupError::InvalidBackup { .. } | RestoreBackupError::ForeignDatabase(_))) => {
            return Err(error).fail_as(ExitKind::Verification);
        }
        Err(error @ RestoreBackupError::SchemaMismatch(_)) => {
            return Err(error).fail_as(ExitKind::EngineMissing);
        }
        Err(error @ RestoreBackupError::Files { .. }) => return Err(error).fail_as(ExitKind::Failed),
    };
    if cx.is_json() {
        display::print_json(&serde_json::json!({
            "database": at, "of": args.file, "bytes": bytes, "kept": kept,
        }));
    } else {
        let (at, of) = (at.display(), args.file.display());
        display::print_line(&display::sanitize_line(&format!(
            "restored {at} from {of}; check it with `docket verify`"
        )));
        if let Some(kept) = kept {
            display::print_line(&display::sanitize_line(&format!(
                "the old database is kept as {}",
                kept.display()
            )));
        }
    }
    Ok(ExitKind::Ok)
}

/// Message for PostgreSQL stores.
const POSTGRES_MESSAGE: &str =
    "restore PostgreSQL with its own tools (pg_restore, pgBackRest) while no coordinator is running";
