//! `docket logs`: prints the events as recorded in the log.

use docket_schema::{
    event::Envelope,
    ids::{Seq, StreamId},
};
use docket_worker::client::{CoordinatorClient, HistoryScope};

use crate::{
    connect::{
        coordinator::Coordinator,
        resolve::{self, ResolvedId},
    },
    context::CliContext,
    history::children,
    output::{
        display::{self, TextStyle},
        error::{CliResult, ExitKind, FailWith as _},
        event_format,
    },
};

/// Command-line arguments of `docket logs`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --json, each line is one event with its payload and hashes, as read by `docket verify`.

Examples:
  docket logs 3f9c01ab
  docket logs system/audit
  docket logs 3f9c01ab --json | jq -r .kind | sort | uniq -c"
)]
pub(crate) struct LogsArgs {
    /// Task, run or stream: system/audit, system/tokens, system/imports
    id: String,
    /// For a forked or resumed run: print the shared history first
    #[arg(long)]
    lineage: bool,
    /// Also print the events of delegated runs, each child after its parent
    #[arg(long)]
    children: bool,
}

async fn read_stream(client: &CoordinatorClient, stream: &StreamId) -> CliResult<Vec<Envelope>> {
    let mut all: Vec<Envelope> = Vec::new();
    loop {
        let after = all.last().map_or(Seq(0), |last| last.seq);
        let page = client.list_stream_events(stream, after, None).await?;
        let more = page.more && !page.events.is_empty();
        all.extend(page.events);
        if !more {
            return Ok(all);
        }
    }
}

pub(crate) async fn run_logs(cx: CliContext, args: LogsArgs) -> CliResult {
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    let stream =
        args.id.contains('/').then(|| args.id.parse::<StreamId>().fail_as(ExitKind::Usage)).transpose()?;
    let mut given_by = Vec::new();
    let events = match stream {
        Some(stream) => read_stream(&access.client, &stream).await?,
        None => match resolve::resolve_id(&access.client, &args.id).await? {
            ResolvedId::Run(run) => {
                given_by.push(run);
                let lineage = if args.lineage { HistoryScope::WithAncestors } else { HistoryScope::Own };
                access.client.all_events(run, lineage).await?
            }
            ResolvedId::Task(task) => {
                if args.children {
                    let runs = access.client.get_task(task).await?.runs;
                    given_by.extend(runs.into_iter().map(|run| run.id));
                }
                read_stream(&access.client, &StreamId::Task(task)).await?
            }
        },
    };
    print_events(&cx, &events);
    if args.children {
        for child in children::list_descendants(&access.client, &given_by).await? {
            for run in &child.view.runs {
                let by = child.view.task.delegated_by.as_ref();
                let call = by.map_or_else(String::new, |by| format!(", {} of run {}", by.call, by.run));
                if !cx.is_json() {
                    let title = format!("task {}{call}: {}", child.view.task.id, child.view.task.spec.title);
                    display::print_line("");
                    display::print_line(&cx.screen.paint(TextStyle::Bold, &display::sanitize_line(&title)));
                }
                print_events(&cx, &access.client.all_events(run.id, HistoryScope::Own).await?);
            }
        }
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

fn print_events(cx: &CliContext, events: &[Envelope]) {
    for event in events {
        if cx.is_json() {
            display::print_json(event);
            continue;
        }
        let place = format!(
            "{:>5} {} t{:<3} e{:<2}",
            event.seq,
            event_format::format_time_of_day(event.recorded_at),
            event.turn,
            event.epoch
        );
        let text = event_format::format_event(event);
        let room = cx.screen.columns().saturating_sub(place.len() + 1);
        display::print_line(&format!(
            "{} {}",
            cx.screen.paint(TextStyle::Dim, &place),
            display::truncate_to_width(&text, room)
        ));
    }
}
