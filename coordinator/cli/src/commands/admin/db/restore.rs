//! `docket db restore`: a backup in the place of the embedded database.
//!
//! Not a copy over a file: what a coordinator that died left beside its database belongs to that one, and would be
//! read into any other that stands there.

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

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing may have the database open: end `docket up` and `docket serve` first, and workers of other machines. The
copy is looked through before anything is changed; the database that stood there is kept beside it, under a name
that is told. What was submitted or done after the backup is not in it; what workers still hold of that, they lose.

Examples:
  docket db restore /backups/docket.db && docket verify"
)]
pub(super) struct DbRestoreArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Puts it there. The caller holds the home's lock.
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
        let message = format!("there is no backup {file}; `docket db backup {file}` makes one");
        return Err(CliError::new(ExitKind::NotFound, message));
    }
    let stamp: String =
        Clock::new().now().to_string().chars().filter(|c| c.is_ascii_alphanumeric()).take(21).collect();
    let (from, to) = (args.file.clone(), at.clone());
    let progress = ProgressDisplay::spinner(cx);
    progress.set_message("the backup is looked through, and copied");
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
        display::print_line(&display::sanitize_line(&format!("{at} is {of} now; `docket verify` proves it")));
        if let Some(kept) = kept {
            display::print_line(&display::sanitize_line(&format!(
                "what stood there is kept as {}",
                kept.display()
            )));
        }
    }
    Ok(ExitKind::Ok)
}

/// What is said on PostgreSQL.
const POSTGRES_MESSAGE: &str =
    "PostgreSQL is restored with its own tools (pg_restore, pgBackRest), while no coordinator runs";
