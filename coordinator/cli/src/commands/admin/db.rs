//! `docket db`: maintenance of the database.

mod backup;
mod restore;

use std::{sync::Arc, time::Duration};

use docket_coordinator::{clock::Clock, store::Store, system::write_audit};
use docket_schema::system::{AdminAct, AdminActed};

use crate::{
    connect::local_coordinator,
    context::CliContext,
    home::{HomeLock, HomeOwnership},
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
};

/// How often the progress of a rebuild is polled.
const PROGRESS_POLL: Duration = Duration::from_millis(100);

/// Command-line arguments of `docket db`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket db migrate --store postgres://docket@db/docket
  docket db rebuild
  docket db backup /backups/docket.db
  docket db restore /backups/docket.db")]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    command: DbCommand,
}

/// Subcommands of `docket db`.
#[derive(Debug, clap::Subcommand)]
enum DbCommand {
    /// Migrate the schema to this build's version
    #[command(after_help = "Examples:
  docket db migrate
  docket db migrate --store postgres://docket@db/docket")]
    Migrate(DbStoreArgs),
    /// Rebuild every table from the log and report differences
    #[command(after_help = "Examples:
  docket db rebuild
  docket db rebuild --store postgres://docket@db/docket --json")]
    Rebuild(DbStoreArgs),
    /// Back up the embedded database while it is in use
    Backup(backup::DbBackupArgs),
    /// Replace the embedded database with a backup; the old database is kept
    Restore(restore::DbRestoreArgs),
}

/// Selects the database.
#[derive(Debug, clap::Args)]
struct DbStoreArgs {
    /// Store to use instead of this home's
    #[arg(long, value_name = "URL", value_parser = crate::config::values::parse_store_address)]
    store: Option<String>,
}

pub(crate) async fn run_db(mut cx: CliContext, args: DbArgs) -> CliResult {
    match args.command {
        DbCommand::Migrate(args) => {
            cx.config.store = args.store.or(cx.config.store);
            let _lock = lock_embedded_store(&cx)?;
            let store = local_coordinator::open_store(&cx).await?;
            let backend = store.backend();
            let version = env!("CARGO_PKG_VERSION").to_owned();
            record_admin_act(&*store, AdminAct::Migrate { version }).await?;
            store.close().await;
            if cx.is_json() {
                display::print_json(&serde_json::json!({ "store": backend, "migrated": true }));
            } else {
                display::print_line(&format!("the {backend} store is at this build's schema version"));
            }
            Ok(ExitKind::Ok)
        }
        DbCommand::Rebuild(args) => {
            cx.config.store = args.store.or(cx.config.store);
            let _lock = lock_embedded_store(&cx)?;
            rebuild_tables(&cx).await
        }
        DbCommand::Backup(args) => backup::run_db_backup(&cx, args).await,
        DbCommand::Restore(args) => {
            let _lock = lock_home(&cx)?;
            restore::run_db_restore(&cx, args).await
        }
    }
}

async fn rebuild_tables(cx: &CliContext) -> CliResult {
    let store = local_coordinator::open_store(cx).await?;
    let differences = {
        let (seen, progress) = (Arc::default(), ProgressDisplay::bar(cx, 0, "streams"));
        let mut rebuilt = store.rebuild_projections(Arc::clone(&seen));
        loop {
            tokio::select! {
                done = &mut rebuilt => break done.fail_as(ExitKind::Failed)?,
                () = tokio::time::sleep(PROGRESS_POLL) => {
                    let (done, all) = seen.examined_and_total();
                    progress.set_total(all);
                    progress.set_position(done);
                }
            }
        }
    };
    // The rebuild bypasses the API and its outcome matters, so it is recorded afterwards.
    record_admin_act(&*store, AdminAct::Rebuild { differences: differences.len() as u64 }).await?;
    store.close().await;
    if cx.is_json() {
        display::print_json(&serde_json::json!({ "ok": differences.is_empty(), "differences": differences }));
    } else {
        for d in &differences {
            let text =
                format!("{} {} {}: stored {}, expected {}", d.table, d.key, d.column, d.stored, d.derived);
            display::print_line(&display::sanitize_line(&text));
        }
        display::print_line(&match differences.len() {
            0 => "every table matches the log".to_owned(),
            count => format!("{count} differences; every table now matches the log"),
        });
    }
    Ok(if differences.is_empty() { ExitKind::Ok } else { ExitKind::Verification })
}

async fn record_admin_act(store: &dyn Store, act: AdminAct) -> CliResult<()> {
    let acted = AdminActed { by: local_coordinator::local_user_name(), from: None, act };
    write_audit(store, vec![acted.into()], Clock::new().now()).await.fail_as(ExitKind::Failed)
}

/// Locks the embedded store, which must not be in use. A PostgreSQL store may be.
fn lock_embedded_store(cx: &CliContext) -> CliResult<Option<HomeLock>> {
    if cx.config.store.is_some() {
        return Ok(None);
    }
    lock_home(cx).map(Some)
}

/// Takes the home's lock, so that no other docket process serves it.
fn lock_home(cx: &CliContext) -> CliResult<HomeLock> {
    if let Some(lock) = cx.home.lock()? {
        return Ok(lock);
    }
    let who = match cx.home.ownership()? {
        HomeOwnership::Owned(owner) => format!("process {}", owner.pid),
        HomeOwnership::Starting | HomeOwnership::Free => "another docket process".to_owned(),
    };
    Err(CliError::new(
        ExitKind::Refused,
        format!("{who} is using {}; stop it first", cx.home.path().display()),
    ))
}
