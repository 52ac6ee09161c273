//! `docket archive`: moves tasks that ended long ago out of the store, and brings them back.

use docket_schema::{
    ids::{QueueName, StreamId},
    wire::{ArchiveRequest, ArchiveResponse, FamilyKept},
};
use docket_worker::client::Client;
use indicatif::ProgressBar;

use crate::{
    access::{Access, Need},
    config,
    context::Context,
    display,
    fail::{Exit, Failure, Outcome},
    resolve,
};

/// Tasks that stay and are named to a person, one a line.
const KEPT_SHOWN: usize = 20;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "A task goes with all of its runs and with everything that shares history with them, once all of it ended
that long ago. It is copied to a file, the file is read back and proven, then its events are removed and a
stub is left. `show`, `replay`, `verify`, `export` and others read an archived run as if it were here; to go
on with it, bring it back. No file of the archive is ever deleted by docket. `docket gc --delete` then drops
the blobs that nothing else names.

The archive is the coordinator's setting `archive.to`: file:///FOLDER or s3://BUCKET/PREFIX, whose keys
come in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL. With `archive.after` it
archives by itself.

Examples:
  docket archive --older-than 90d --dry-run
  docket archive --older-than 7d --queue ci --json
  docket archive restore 3f9c01ab"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// How long ago a task must have ended: 36h, 90d
    #[arg(long, value_name = "TIME", value_parser = time, required = true)]
    older_than: Option<u64>,
    /// Only tasks of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
}

/// What else is done.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Bring a task back, with everything that shares its history
    Restore {
        /// A task or run that is archived
        id: String,
    },
}

fn time(text: &str) -> Result<u64, String> {
    config::time(text).ok_or_else(|| "it must be hours or days, as 36h or 90d".to_owned())
}

/// Archives, or restores.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let done = match &args.what {
        Some(What::Restore { id }) => restore(&cx, &access.client, id).await,
        None => archive(&cx, &access.client, &args).await,
    };
    access.close().await?;
    done.map(|()| Exit::Ok)
}

async fn archive(cx: &Context, client: &Client, args: &Args) -> Outcome<()> {
    let Some(older_than_ms) = args.older_than else {
        return Err(Failure::new(Exit::Usage, "say how old: --older-than 90d"));
    };
    let mut all = ArchiveResponse { archived: Vec::new(), kept: Vec::new(), next: None };
    let bar = ProgressBar::new_spinner();
    loop {
        let request = ArchiveRequest {
            older_than_ms,
            queue: args.queue.clone(),
            dry_run: args.dry_run,
            after: all.next,
        };
        let page = client.archive(&request).await?;
        // Where nothing goes, families of two pages are met twice.
        let seen = |task| all.archived.iter().any(|family| family.task == task);
        let new: Vec<_> = page.archived.into_iter().filter(|family| !seen(family.task)).collect();
        all.archived.extend(new);
        all.kept.extend(page.kept);
        let stands_still = page.next == all.next;
        all.next = page.next;
        bar.set_message(format!("{} families", all.archived.len()));
        bar.tick();
        if all.next.is_none() || stands_still {
            break;
        }
    }
    bar.finish_and_clear();
    if cx.json() {
        display::say_json(&serde_json::json!({
            "dry_run": args.dry_run, "archived": all.archived, "kept": all.kept,
        }));
    } else {
        say(&all, args.dry_run);
    }
    Ok(())
}

fn say(all: &ArchiveResponse, dry_run: bool) {
    let sum = |of: fn(&docket_schema::wire::FamilyArchived) -> u64| all.archived.iter().map(of).sum::<u64>();
    let (tasks, runs, events) = (sum(|f| f.tasks), sum(|f| f.runs), sum(|f| f.events));
    let counts = format!("{tasks} tasks with {runs} runs and {events} events");
    display::say(&match (all.archived.is_empty(), dry_run) {
        (true, _) => "nothing is old enough to be archived".to_owned(),
        (false, true) => format!("{counts} would be archived"),
        (false, false) => {
            format!("{counts} are archived in {} files, {} bytes", all.archived.len(), sum(|f| f.bytes))
        }
    });
    for FamilyKept { task, why } in all.kept.iter().take(KEPT_SHOWN) {
        display::say(&display::line(&format!("  task {} stays: {why}", task.short())));
    }
    if all.kept.len() > KEPT_SHOWN {
        display::say(&format!("  and {} more; --json lists all", all.kept.len() - KEPT_SHOWN));
    }
}

async fn restore(cx: &Context, client: &Client, id: &str) -> Outcome<()> {
    let Some(stream) = resolve::archived(client, id).await? else {
        return Err(Failure::new(Exit::NotFound, format!("nothing with an id of `{id}` is archived")));
    };
    let back = client.restore(&stream).await?;
    if cx.json() {
        display::say_json(&back);
    } else {
        let (tasks, runs) = (back.tasks.len(), back.runs.len());
        display::say(&format!("{tasks} tasks with {runs} runs and {} events are back", back.events));
        for task in &back.tasks {
            display::say(&format!("  task {}", task.short()));
        }
    }
    Ok(())
}

/// The short form of an archived stream's id.
pub(crate) fn short(stream: &StreamId) -> String {
    match stream {
        StreamId::Task(id) => format!("task {}", id.short()),
        StreamId::Run(id) => format!("run {}", id.short()),
        StreamId::Queue(_) | StreamId::System(_) => stream.to_string(),
    }
}
