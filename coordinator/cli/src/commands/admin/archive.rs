//! `docket archive`: moves long-finished tasks out of the store into archive files, and restores
//! them.

use crate::connect::batch_lookup;
use docket_schema::{
    api::{
        ArchiveRequest, ArchiveResponse, ArchivedTaskQuery, ArchivedTaskView, ProblemCode, RestoreResponse,
        RetainedGroup,
    },
    ids::{QueueName, StreamId},
    system::ArchivedTask,
};
use docket_worker::client::CoordinatorClient;

use crate::{
    config,
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind},
    },
    progress::ProgressDisplay,
};

/// Maximum number of retained tasks listed in text output.
const KEPT_LISTED_MAX: usize = 20;

/// Command-line arguments of `docket archive`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "A task is archived together with all of its runs and everything that shares history with them,
once all of it ended at least that long ago. docket writes a file, reads it back to verify it,
then replaces the events in the store with a stub. `show`, `replay`, `verify`, `export` and other
commands read archived runs as usual; to resume or fork one, restore it first. Archived tasks
still count towards their batches, and importing the same file again does not resubmit them.
docket never deletes or overwrites an archive file. `docket gc --delete` then removes the blobs
that are no longer referenced.

The coordinator setting `archive.to` selects the destination: file:///FOLDER or
s3://BUCKET/PREFIX, with credentials from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and
AWS_ENDPOINT_URL. With `archive.after` the coordinator archives automatically. You can move an
archive: files are looked up in `archive.to` first, then at their original location.

Examples:
  docket archive --older-than 90d --dry-run
  docket archive --older-than 7d --queue ci --json
  docket archive list --title '*rounding*'
  docket archive restore 3f9c01ab 8e780b78
  docket archive restore --batch todo"
)]
pub(crate) struct ArchiveArgs {
    #[command(subcommand)]
    command: Option<ArchiveCommand>,
    /// Minimum time since the task ended, e.g. 30m, 36h or 90d
    #[arg(long, value_name = "TIME", value_parser = parse_age, required = true)]
    older_than: Option<u64>,
    /// Only tasks in this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
    /// Show what would be archived without archiving it
    #[arg(long)]
    dry_run: bool,
}

/// Subcommands of `docket archive`.
#[derive(Debug, clap::Subcommand)]
enum ArchiveCommand {
    /// List archived tasks, newest first
    List(ArchiveListArgs),
    /// Restore tasks together with everything that shares their history; retention counts from the
    /// restore
    Restore(ArchiveRestoreArgs),
}

/// Command-line arguments of `docket archive restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket archive restore 3f9c01ab 8e780b78
  docket archive restore --batch todo")]
struct ArchiveRestoreArgs {
    /// IDs of archived tasks or runs
    #[arg(value_name = "ID", required_unless_present = "batch")]
    ids: Vec<String>,
    /// All archived tasks in this batch (name or ID)
    #[arg(long, value_name = "BATCH", conflicts_with = "ids")]
    batch: Option<String>,
}

/// Command-line arguments of `docket archive list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket archive list
  docket archive list --title '*rounding*' --queue ci")]
struct ArchiveListArgs {
    /// Only tasks in this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
    /// Only tasks in this batch (name or ID)
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Only tasks whose title matches this pattern: `*` matches any text, `?` any character
    #[arg(long, value_name = "PATTERN")]
    title: Option<String>,
    /// Maximum number of rows to show
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

fn parse_age(text: &str) -> Result<u64, String> {
    config::parse_age_ms(text).ok_or_else(|| "expected a duration such as 30m, 36h or 90d".to_owned())
}

pub(crate) async fn run_archive(cx: CliContext, args: ArchiveArgs) -> CliResult {
    let need = match args.command {
        Some(ArchiveCommand::List(_)) => AccessMode::Read,
        Some(ArchiveCommand::Restore(_)) | None => AccessMode::Write,
    };
    let access = Coordinator::connect(&cx, need).await?;
    let done = match &args.command {
        Some(ArchiveCommand::List(args)) => list_archived(&cx, &access.client, args).await,
        Some(ArchiveCommand::Restore(args)) => restore_archived(&cx, &access.client, args).await,
        None => archive_tasks(&cx, &access.client, &args).await,
    };
    access.close().await?;
    done.map(|()| ExitKind::Ok)
}

async fn archive_tasks(cx: &CliContext, client: &CoordinatorClient, args: &ArchiveArgs) -> CliResult<()> {
    let Some(older_than_ms) = args.older_than else {
        return Err(CliError::new(ExitKind::Usage, "specify a minimum age, for example --older-than 90d"));
    };
    let mut all = ArchiveResponse { archived: Vec::new(), kept: Vec::new(), next: None };
    let progress = ProgressDisplay::counter(cx, "tasks");
    loop {
        let request = ArchiveRequest {
            older_than_ms,
            queue: args.queue.clone(),
            dry_run: args.dry_run,
            after: all.next,
        };
        let page = client.archive(&request).await?;
        // A dry run moves nothing, so two pages can return the same lineage group.
        let seen = |task| all.archived.iter().any(|family| family.task == task);
        let new: Vec<_> = page.archived.into_iter().filter(|family| !seen(family.task)).collect();
        all.archived.extend(new);
        all.kept.extend(page.kept);
        let stands_still = page.next == all.next;
        all.next = page.next;
        progress.set_position(all.archived.iter().map(|family| family.tasks).sum());
        if all.next.is_none() || stands_still {
            break;
        }
    }
    drop(progress);
    if cx.is_json() {
        display::print_json(&serde_json::json!({
            "dry_run": args.dry_run, "archived": all.archived, "kept": all.kept,
        }));
    } else {
        print_archived(cx, &all, args.dry_run);
    }
    Ok(())
}

fn print_archived(cx: &CliContext, all: &ArchiveResponse, dry_run: bool) {
    let sum = |of: fn(&docket_schema::api::ArchivedGroup) -> u64| all.archived.iter().map(of).sum::<u64>();
    let (tasks, runs, events) = (sum(|f| f.tasks), sum(|f| f.runs), sum(|f| f.events));
    let counts = format!("{tasks} tasks with {runs} runs and {events} events");
    let said = match (all.archived.is_empty(), dry_run) {
        (true, _) => "no tasks are old enough to archive".to_owned(),
        (false, true) => format!("would archive {counts}"),
        (false, false) => {
            format!("archived {counts} in {} files, {} bytes", all.archived.len(), sum(|f| f.bytes))
        }
    };
    display::print_line(&cx.screen.wrap_prose(&said));
    for RetainedGroup { task, why } in all.kept.iter().take(KEPT_LISTED_MAX) {
        let said = format!("  task {} not archived: {why}", task.short());
        display::print_line(&cx.screen.wrap_prose(&display::sanitize_line(&said)));
    }
    if all.kept.len() > KEPT_LISTED_MAX {
        display::print_line(&format!(
            "  and {} more; use --json to list all",
            all.kept.len() - KEPT_LISTED_MAX
        ));
    }
}

async fn list_archived(cx: &CliContext, client: &CoordinatorClient, args: &ArchiveListArgs) -> CliResult<()> {
    let batch = match &args.batch {
        Some(batch) => Some(batch_lookup::resolve_batch(client, batch).await?),
        None => None,
    };
    let mut query = ArchivedTaskQuery {
        queue: args.queue.clone(),
        batch,
        title: args.title.clone(),
        before: None,
        limit: None,
    };
    let (mut tasks, all): (Vec<ArchivedTaskView>, _) = (Vec::new(), args.limit as usize);
    let more = loop {
        query.limit = u32::try_from(all - tasks.len()).ok();
        let page = client.list_archived_tasks(&query).await?;
        tasks.extend(page.tasks);
        query.before = page.next;
        if query.before.is_none() || tasks.len() >= all {
            break query.before.is_some();
        }
    };
    if cx.is_json() {
        tasks.iter().for_each(display::print_json);
        return Ok(());
    }
    if tasks.is_empty() {
        display::print_note("no matching archived tasks");
        return Ok(());
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table = TextTable::new(&["TASK", "STATE", "QUEUE", "BATCH", "ENDED", "TITLE"]);
    for ArchivedTaskView { id, task, .. } in &tasks {
        let known =
            |of: fn(&ArchivedTask) -> String| TableCell::new(task.as_deref().map_or("-".to_owned(), of));
        let batch = |task: &ArchivedTask| match (&task.batch_name, task.batch) {
            (Some(name), _) => name.clone(),
            (None, Some(id)) => id.short().to_string(),
            (None, None) => "-".to_owned(),
        };
        let ended = task.as_deref().map(|task| display::format_duration(now.ms_since(task.ended_at)));
        table.add_row(vec![
            TableCell::new(id.short()),
            known(|task| task.state.to_string()),
            known(|task| task.queue.to_string()),
            known(batch),
            TableCell::new(ended.map_or("-".to_owned(), |ago| format!("{ago} ago"))),
            known(|task| task.title.clone()),
        ]);
    }
    display::print_line(&table.render(cx.screen));
    if more {
        display::print_note("more tasks match; use -n to show more");
    }
    Ok(())
}

async fn restore_archived(
    cx: &CliContext,
    client: &CoordinatorClient,
    args: &ArchiveRestoreArgs,
) -> CliResult<()> {
    let streams = match &args.batch {
        Some(batch) => archived_in_batch(client, batch).await?,
        None => {
            // Look up every ID before restoring anything.
            let mut streams = Vec::new();
            for id in &args.ids {
                let absent = || {
                    CliError::new(
                        ExitKind::NotFound,
                        format!("no archived task or run matches `{id}`; see `docket archive list`"),
                    )
                };
                streams.push(resolve::resolve_archived(client, id).await?.ok_or_else(absent)?);
            }
            streams
        }
    };
    let progress = ProgressDisplay::bar(cx, streams.len() as u64, "tasks");
    let mut all: Vec<RestoreResponse> = Vec::new();
    for stream in &streams {
        progress.advance(1);
        let came_along = all.iter().any(|back| match stream {
            StreamId::Task(task) => back.tasks.contains(task),
            StreamId::Run(run) => back.runs.contains(run),
            StreamId::Queue(_) | StreamId::System(_) => false,
        });
        if came_along {
            continue;
        }
        match client.restore_archived(stream).await {
            Ok(back) => all.push(back),
            // Another process restored it first.
            Err(error) if args.batch.is_some() && error.problem_code() == Some(ProblemCode::NotFound) => {}
            Err(error) => {
                drop(progress);
                print_restored(cx, &all);
                return Err(error.into());
            }
        }
    }
    drop(progress);
    print_restored(cx, &all);
    Ok(())
}

/// Returns the archived tasks of a batch.
async fn archived_in_batch(client: &CoordinatorClient, batch: &str) -> CliResult<Vec<StreamId>> {
    let id = batch_lookup::resolve_batch(client, batch).await?;
    let mut query =
        ArchivedTaskQuery { queue: None, batch: Some(id), title: None, before: None, limit: None };
    let mut streams = Vec::new();
    loop {
        let page = client.list_archived_tasks(&query).await?;
        streams.extend(page.tasks.iter().map(|task| StreamId::Task(task.id)));
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    if streams.is_empty() {
        return Err(CliError::new(
            ExitKind::NotFound,
            format!("batch `{batch}` has no archived tasks; see `docket archive list`"),
        ));
    }
    Ok(streams)
}

/// Maximum number of restored tasks listed in text output.
const RESTORED_LISTED_MAX: usize = 20;

fn print_restored(cx: &CliContext, all: &[RestoreResponse]) {
    if cx.is_json() {
        return all.iter().for_each(display::print_json);
    }
    let tasks: Vec<_> = all.iter().flat_map(|back| &back.tasks).collect();
    let runs: usize = all.iter().map(|back| back.runs.len()).sum();
    let events: u64 = all.iter().map(|back| back.events).sum();
    let (count, runs) =
        (display::format_count(tasks.len() as u64, "task"), display::format_count(runs as u64, "run"));
    let are = if tasks.len() == 1 { "is" } else { "are" };
    display::print_line(&format!(
        "{count} with {runs} and {} {are} restored",
        display::format_count(events, "event")
    ));
    for task in tasks.iter().take(RESTORED_LISTED_MAX) {
        display::print_line(&format!("  task {}", task.short()));
    }
    if let Some(more) = tasks.len().checked_sub(RESTORED_LISTED_MAX).filter(|more| *more > 0) {
        display::print_line(&format!("  and {more} more"));
    }
}
