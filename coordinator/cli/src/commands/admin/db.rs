//! `docket db`: the database itself.

mod backup;
mod restore;

use std::{sync::Arc, time::Duration};

use docket_coordinator::{clock::Clock, store::Store, system::write_audit};
use docket_schema::system::{AdminAct, AdminActed};

use crate::{
    connect::local,
    context::Context,
    home::{Lock, Ownership},
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
    progress::Progress,
};

/// How often it is looked how far a rebuild has come.
const LOOK: Duration = Duration::from_millis(100);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket db migrate --store postgres://docket@db/docket
  docket db rebuild
  docket db backup /backups/docket.db
  docket db restore /backups/docket.db")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

/// What is done to it.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Bring the schema up to this build's
    #[command(after_help = "Examples:
  docket db migrate
  docket db migrate --store postgres://docket@db/docket")]
    Migrate(StoreArgs),
    /// Derive every table from the log again, and say what differed
    #[command(after_help = "Examples:
  docket db rebuild
  docket db rebuild --store postgres://docket@db/docket --json")]
    Rebuild(StoreArgs),
    /// Copy the embedded database while it is in use
    Backup(backup::Args),
    /// Put a backup in the place of the embedded database, which is kept
    Restore(restore::Args),
}

/// Which database.
#[derive(Debug, clap::Args)]
struct StoreArgs {
    /// Another store than this home's
    #[arg(long, value_name = "URL", value_parser = crate::config::values::store)]
    store: Option<String>,
}

/// Does it.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    match args.what {
        What::Migrate(args) => {
            cx.config.store = args.store.or(cx.config.store);
            let _lock = alone(&cx)?;
            let store = local::open_store(&cx).await?;
            let backend = store.backend();
            let version = env!("CARGO_PKG_VERSION").to_owned();
            noted(&*store, AdminAct::Migrate { version }).await?;
            store.close().await;
            if cx.json() {
                display::say_json(&serde_json::json!({ "store": backend, "migrated": true }));
            } else {
                display::say(&format!("the {backend} store has this build's schema"));
            }
            Ok(Exit::Ok)
        }
        What::Rebuild(args) => {
            cx.config.store = args.store.or(cx.config.store);
            let _lock = alone(&cx)?;
            rebuild(&cx).await
        }
        What::Backup(args) => backup::run(&cx, args).await,
        What::Restore(args) => {
            let _lock = owned(&cx)?;
            restore::run(&cx, args).await
        }
    }
}

async fn rebuild(cx: &Context) -> Outcome {
    let store = local::open_store(cx).await?;
    let differences = {
        let (seen, progress) = (Arc::default(), Progress::of(cx, 0, "streams"));
        let mut rebuilt = store.rebuild(Arc::clone(&seen));
        loop {
            tokio::select! {
                done = &mut rebuilt => break done.fail_as(Exit::Failed)?,
                () = tokio::time::sleep(LOOK) => {
                    let (done, all) = seen.seen();
                    progress.total(all);
                    progress.at(done);
                }
            }
        }
    };
    // Past the API, and its outcome is what matters: told after.
    noted(&*store, AdminAct::Rebuild { differences: differences.len() as u64 }).await?;
    store.close().await;
    if cx.json() {
        display::say_json(&serde_json::json!({ "ok": differences.is_empty(), "differences": differences }));
    } else {
        for d in &differences {
            let text =
                format!("{} {} {}: stood {}, the log says {}", d.table, d.key, d.column, d.stored, d.derived);
            display::say(&display::line(&text));
        }
        display::say(&match differences.len() {
            0 => "every table is what the log says".to_owned(),
            count => format!("{count} differences; every table is what the log says now"),
        });
    }
    Ok(if differences.is_empty() { Exit::Ok } else { Exit::Verification })
}

async fn noted(store: &dyn Store, act: AdminAct) -> Outcome<()> {
    let acted = AdminActed { by: local::user(), from: None, act };
    write_audit(store, vec![acted.into()], Clock::new().now()).await.fail_as(Exit::Failed)
}

/// The embedded store must not be in use; a PostgreSQL one may be.
fn alone(cx: &Context) -> Outcome<Option<Lock>> {
    if cx.config.store.is_some() {
        return Ok(None);
    }
    owned(cx).map(Some)
}

/// The home's lock: no other docket serves it.
fn owned(cx: &Context) -> Outcome<Lock> {
    if let Some(lock) = cx.home.lock()? {
        return Ok(lock);
    }
    let who = match cx.home.ownership()? {
        Ownership::Owned(owner) => format!("process {}", owner.pid),
        Ownership::Starting | Ownership::Free => "another docket".to_owned(),
    };
    Err(Failure::new(Exit::Refused, format!("{who} has {} open; end it first", cx.home.path().display())))
}
