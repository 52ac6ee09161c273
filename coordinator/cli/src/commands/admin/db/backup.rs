//! `docket db backup`: a copy of the embedded database while coordinators write to it.
//!
//! Read from the file itself, beside whoever owns it, and not through the owner: SQLite lets a second process
//! read, so nothing has to be sent and written twice, and a backup can be made of a database that no build
//! at hand can open.

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

/// Bytes of a page of SQLite, as docket makes databases: for the bar alone.
const PAGE_BYTES: u64 = 4096;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Coordinators and workers go on meanwhile; the copy is the database as it stood when the command
began. It is a database like the other: `docket verify --store sqlite:FILE` proves it, and `docket db restore
FILE` makes it the store again. It holds everything but what was archived before, and blobs that are kept outside
of it (`blobs.to`): copy those folders after it, not before.

On PostgreSQL use the server's own tools: pg_dump, or pgBackRest for continuous archiving.

Examples:
  docket db backup /backups/docket-$(date +%F).db
  docket db backup nightly.db --replace && docket verify --store sqlite:nightly.db"
)]
pub(super) struct DbBackupArgs {
    /// Where the copy goes
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Take the place of a file that is there already
    #[arg(long)]
    replace: bool,
}

/// Copies.
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
                format!("{} is there already; --replace takes its place", args.file.display())
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
            "{file} is a copy of {}, {bytes} bytes; `docket verify --store sqlite:{file}` proves it",
            from.display()
        )));
    }
    Ok(ExitKind::Ok)
}

/// The file to copy.
fn backup_source(cx: &CliContext) -> CliResult<PathBuf> {
    if let Some(url) = &cx.url {
        let message = format!(
            "a backup is read from the database's own file; run it on the machine of {url}, with its --home"
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
            "there is no database {}; --home names another home, DATABASE_URL another database",
            path.display()
        );
        return Err(CliError::new(ExitKind::NotFound, message));
    }
    Ok(path)
}

/// What is said on PostgreSQL.
const POSTGRES_MESSAGE: &str = "PostgreSQL is backed up with its own tools: `pg_dump -Fc DATABASE` (one snapshot of every table, as \
     it must be: never dump tables one by one, events, streams and blobs belong together) or, for large and busy \
     ones, pgBackRest or another that ships the write-ahead log; copy the archive's folder or bucket after it";
