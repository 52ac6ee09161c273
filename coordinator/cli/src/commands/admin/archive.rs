//! `docket archive`: moves tasks that ended long ago out of the store, and brings them back.

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

/// Tasks that stay and are named to a person, one a line.
const KEPT_LISTED_MAX: usize = 20;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "A task goes with all of its runs and with everything that shares history with them, once all of it ended
that long ago. It is copied to a file, the file is read back and proven, then its events are removed and a
stub is left. `show`, `replay`, `verify`, `export` and others read an archived run as if it were here; to go
on with it, bring it back. Archived tasks still count in their batches, and an import of the same file submits
none of them again. No file of the archive is ever deleted, or written over, by docket. `docket gc --delete`
then drops the blobs that nothing else names.

An archive may be moved: files are looked for in `archive.to` first, then where they were put. The archive is the coordinator's setting `archive.to`: file:///FOLDER or s3://BUCKET/PREFIX, whose keys
come in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL. With `archive.after` it
archives by itself.

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
    /// How long ago a task must have ended: 30m, 36h, 90d
    #[arg(long, value_name = "TIME", value_parser = parse_age, required = true)]
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
enum ArchiveCommand {
    /// List archived tasks, newest first
    List(ArchiveListArgs),
    /// Bring tasks back, each with everything that shares its history; their age counts from then
    Restore(ArchiveRestoreArgs),
}

/// What is brought back.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket archive restore 3f9c01ab 8e780b78
  docket archive restore --batch todo")]
struct ArchiveRestoreArgs {
    /// Tasks or runs that are archived
    #[arg(value_name = "ID", required_unless_present = "batch")]
    ids: Vec<String>,
    /// All archived tasks of this batch: its name, or its id
    #[arg(long, value_name = "BATCH", conflicts_with = "ids")]
    batch: Option<String>,
}

/// Which archived tasks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket archive list
  docket archive list --title '*rounding*' --queue ci")]
struct ArchiveListArgs {
    /// Only tasks of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
    /// Only tasks of this batch: its name, or its id
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Only tasks whose title is like this: `*` is any text, `?` any character
    #[arg(long, value_name = "PATTERN")]
    title: Option<String>,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
}

fn parse_age(text: &str) -> Result<u64, String> {
    config::parse_age_ms(text).ok_or_else(|| "it must be a time, as 30m, 36h or 90d".to_owned())
}

/// Archives, or restores.
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
        return Err(CliError::new(ExitKind::Usage, "say how old: --older-than 90d"));
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
        // Where nothing goes, families of two pages are met twice.
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
        (true, _) => "nothing is old enough to be archived".to_owned(),
        (false, true) => format!("{counts} would be archived"),
        (false, false) => {
            format!("{counts} are archived in {} files, {} bytes", all.archived.len(), sum(|f| f.bytes))
        }
    };
    display::print_line(&cx.screen.wrap_prose(&said));
    for RetainedGroup { task, why } in all.kept.iter().take(KEPT_LISTED_MAX) {
        let said = format!("  task {} stays: {why}", task.short());
        display::print_line(&cx.screen.wrap_prose(&display::sanitize_line(&said)));
    }
    if all.kept.len() > KEPT_LISTED_MAX {
        display::print_line(&format!("  and {} more; --json lists all", all.kept.len() - KEPT_LISTED_MAX));
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
        display::print_note("no such task is archived");
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
        display::print_note("there are more; -n shows them");
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
            // All of them are looked up before any comes back.
            let mut streams = Vec::new();
            for id in &args.ids {
                let absent = || {
                    CliError::new(
                        ExitKind::NotFound,
                        format!(
                            "nothing with an id of `{id}` is archived; `docket archive list` shows what is"
                        ),
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
            // Somebody else was faster.
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

/// The archived tasks of a batch.
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
            format!("no task of batch `{batch}` is archived; `docket archive list` shows what is"),
        ));
    }
    Ok(streams)
}

/// Tasks that are back and named to a person, one a line.
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
        "{count} with {runs} and {} {are} back",
        display::format_count(events, "event")
    ));
    for task in tasks.iter().take(RESTORED_LISTED_MAX) {
        display::print_line(&format!("  task {}", task.short()));
    }
    if let Some(more) = tasks.len().checked_sub(RESTORED_LISTED_MAX).filter(|more| *more > 0) {
        display::print_line(&format!("  and {more} more"));
    }
}
