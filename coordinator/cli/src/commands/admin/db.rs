//! `docket db`: the database itself.

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

/// How often it is looked how far a rebuild has come.
const PROGRESS_POLL: Duration = Duration::from_millis(100);

/// Flags.
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

/// What is done to it.
#[derive(Debug, clap::Subcommand)]
enum DbCommand {
    /// Bring the schema up to this build's
    #[command(after_help = "Examples:
  docket db migrate
  docket db migrate --store postgres://docket@db/docket")]
    Migrate(DbStoreArgs),
    /// Derive every table from the log again, and say what differed
    #[command(after_help = "Examples:
  docket db rebuild
  docket db rebuild --store postgres://docket@db/docket --json")]
    Rebuild(DbStoreArgs),
    /// Copy the embedded database while it is in use
    Backup(backup::DbBackupArgs),
    /// Put a backup in the place of the embedded database, which is kept
    Restore(restore::DbRestoreArgs),
}

/// Which database.
#[derive(Debug, clap::Args)]
struct DbStoreArgs {
    /// Another store than this home's
    #[arg(long, value_name = "URL", value_parser = crate::config::values::parse_store_address)]
    store: Option<String>,
}

/// Does it.
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
                display::print_line(&format!("the {backend} store has this build's schema"));
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
    // Past the API, and its outcome is what matters: told after.
    record_admin_act(&*store, AdminAct::Rebuild { differences: differences.len() as u64 }).await?;
    store.close().await;
    if cx.is_json() {
        display::print_json(&serde_json::json!({ "ok": differences.is_empty(), "differences": differences }));
    } else {
        for d in &differences {
            let text =
                format!("{} {} {}: stood {}, the log says {}", d.table, d.key, d.column, d.stored, d.derived);
            display::print_line(&display::sanitize_line(&text));
        }
        display::print_line(&match differences.len() {
            0 => "every table is what the log says".to_owned(),
            count => format!("{count} differences; every table is what the log says now"),
        });
    }
    Ok(if differences.is_empty() { ExitKind::Ok } else { ExitKind::Verification })
}

async fn record_admin_act(store: &dyn Store, act: AdminAct) -> CliResult<()> {
    let acted = AdminActed { by: local_coordinator::local_user_name(), from: None, act };
    write_audit(store, vec![acted.into()], Clock::new().now()).await.fail_as(ExitKind::Failed)
}

/// The embedded store must not be in use; a PostgreSQL one may be.
fn lock_embedded_store(cx: &CliContext) -> CliResult<Option<HomeLock>> {
    if cx.config.store.is_some() {
        return Ok(None);
    }
    lock_home(cx).map(Some)
}

/// The home's lock: no other docket serves it.
fn lock_home(cx: &CliContext) -> CliResult<HomeLock> {
    if let Some(lock) = cx.home.lock()? {
        return Ok(lock);
    }
    let who = match cx.home.ownership()? {
        HomeOwnership::Owned(owner) => format!("process {}", owner.pid),
        HomeOwnership::Starting | HomeOwnership::Free => "another docket".to_owned(),
    };
    Err(CliError::new(
        ExitKind::Refused,
        format!("{who} has {} open; end it first", cx.home.path().display()),
    ))
}
