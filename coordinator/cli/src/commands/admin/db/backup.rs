//! `docket db backup`: copies the embedded database while coordinators write to it.
//!
//! The copy is read from the database file directly, not through the process that owns it. SQLite
//! allows a second reader, so nothing is sent and written twice, and a database that no installed
//! build can open can still be backed up.

use std::path::{Path, PathBuf};

use docket_coordinator::store::sqlite::{self, BackupError, BackupProgress, ExistingTarget};

use crate::{
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
};

/// SQLite page size of docket databases; used only for the progress bar.
const PAGE_BYTES: u64 = 4096;

/// Command-line arguments of `docket db backup`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Coordinators and workers keep running; the copy is the database as of the start of the command. It
is a regular docket database: verify it with `docket verify --store sqlite:FILE`, and restore it
with `docket db restore FILE`. It does not contain archived tasks or blobs stored outside the
database (`blobs.to`): copy those folders after the backup, not before.

On PostgreSQL, use the server's own tools: pg_dump, or pgBackRest for continuous archiving.

Examples:
  docket db backup /backups/docket-$(date +%F).db
  docket db backup nightly.db --replace && docket verify --store sqlite:nightly.db"
)]
pub(super) struct DbBackupArgs {
    /// Destination file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    replace: bool,
}

pub(super) async fn run_db_backup(cx: &CliContext, args: DbBackupArgs) -> CliResult {
    let from = backup_source(cx)?;
    let existing = if args.replace { ExistingTarget::Replace } else { ExistingTarget::Keep };
    let progress = ProgressDisplay::byte_bar(cx, 0);
    let (to, shown, of) = (args.file.clone(), progress.share(), from.clone());
    let copied = tokio::task::spawn_blocking(move || {
        sqlite::back_up_database(
            &of,
            &to,
            existing,
            |BackupProgress { pages_copied: pages, pages_total: of }| {
                shown.set_total(of * PAGE_BYTES);
                shown.set_position(pages * PAGE_BYTES);
            },
        )
    });
    let copied = copied.await.fail_as(ExitKind::Failed)?;
    drop(progress);
    let bytes = match copied {
        Ok(bytes) => bytes,
        Err(error @ BackupError::TargetIsDatabase(_)) => return Err(error).fail_as(ExitKind::Refused),
        Err(error @ BackupError::TargetExists(_)) => {
            return Err(error).fail_with(ExitKind::Refused, || {
                format!("{} already exists; use --replace to overwrite it", args.file.display())
            });
        }
        Err(error @ (BackupError::Source { .. } | BackupError::Target { .. })) => {
            return Err(error).fail_as(ExitKind::Failed);
        }
    };
    if cx.is_json() {
        display::print_json(&serde_json::json!({ "file": args.file, "bytes": bytes, "of": from }));
    } else {
        let file = args.file.display();
        display::print_line(&display::sanitize_line(&format!(
            "backed up {} to {file}, {bytes} bytes; check it with `docket verify --store sqlite:{file}`",
            from.display()
        )));
    }
    Ok(ExitKind::Ok)
}

/// Returns the database file to copy.
fn backup_source(cx: &CliContext) -> CliResult<PathBuf> {
    if let Some(url) = &cx.url {
        let message = format!(
            "a backup reads the database file directly; run it on the machine that serves {url}, with its --home"
        );
        return Err(CliError::new(ExitKind::Refused, message));
    }
    let path = match cx.config.store.as_deref() {
        None => cx.home.database_path(),
        Some(address) => match address.strip_prefix("sqlite:") {
            Some(path) => Path::new(path.trim_start_matches("//")).to_owned(),
            None => return Err(CliError::new(ExitKind::Refused, POSTGRES_MESSAGE)),
        },
    };
    if !path.is_file() {
        let message = format!(
            "there is no database at {}; set --home or DATABASE_URL to select another",
            path.display()
        );
        return Err(CliError::new(ExitKind::NotFound, message));
    }
    Ok(path)
}

/// Message for PostgreSQL stores.
const POSTGRES_MESSAGE: &str = "back up PostgreSQL with its own tools: `pg_dump -Fc DATABASE` (one snapshot of all tables; never dump \
     tables one by one, because events, streams and blobs belong together) or, for large and busy databases, \
     pgBackRest or another tool that ships the write-ahead log; copy the archive's folder or bucket afterwards";
