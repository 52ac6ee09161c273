//! `docket db restore`: a backup in the place of the embedded database.
//!
//! Not a copy over a file: what a coordinator that died left beside its database belongs to that one, and would be
//! read into any other that stands there.

use std::path::{Path, PathBuf};

use docket_coordinator::{
    clock::Clock,
    store::sqlite::{self, ReplaceError, Replaced},
};

use crate::{
    context::Context,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
    progress::Progress,
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
pub(super) struct Args {
    /// The backup
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Puts it there. The caller holds the home's lock.
pub(super) async fn run(cx: &Context, args: Args) -> Outcome {
    let at = match cx.config.store.as_deref() {
        None => cx.home.database(),
        Some(address) => match address.strip_prefix("sqlite:") {
            Some(path) => Path::new(path.trim_start_matches("//")).to_owned(),
            None => return Err(Failure::new(Exit::Refused, POSTGRES)),
        },
    };
    if !args.file.is_file() {
        let file = args.file.display();
        let message = format!("there is no backup {file}; `docket db backup {file}` makes one");
        return Err(Failure::new(Exit::NotFound, message));
    }
    let stamp: String =
        Clock::new().now().to_string().chars().filter(|c| c.is_ascii_alphanumeric()).take(21).collect();
    let (from, to) = (args.file.clone(), at.clone());
    let progress = Progress::waiting(cx);
    progress.say("the backup is looked through, and copied");
    let replaced = tokio::task::spawn_blocking(move || sqlite::replace(&from, &to, &stamp)).await;
    drop(progress);
    let Replaced { bytes, kept } = match replaced.fail_as(Exit::Failed)? {
        Ok(replaced) => replaced,
        Err(error @ (ReplaceError::Itself(_) | ReplaceError::InUse(_))) => {
            return Err(error).fail_as(Exit::Refused);
        }
        Err(error @ (ReplaceError::NoBackup { .. } | ReplaceError::NotDockets(_))) => {
            return Err(error).fail_as(Exit::Verification);
        }
        Err(error @ ReplaceError::OtherBuild(_)) => return Err(error).fail_as(Exit::EngineMissing),
        Err(error @ ReplaceError::Files { .. }) => return Err(error).fail_as(Exit::Failed),
    };
    if cx.json() {
        display::say_json(&serde_json::json!({
            "database": at, "of": args.file, "bytes": bytes, "kept": kept,
        }));
    } else {
        let (at, of) = (at.display(), args.file.display());
        display::say(&display::line(&format!("{at} is {of} now; `docket verify` proves it")));
        if let Some(kept) = kept {
            display::say(&display::line(&format!("what stood there is kept as {}", kept.display())));
        }
    }
    Ok(Exit::Ok)
}

/// What is said on PostgreSQL.
const POSTGRES: &str =
    "PostgreSQL is restored with its own tools (pg_restore, pgBackRest), while no coordinator runs";
