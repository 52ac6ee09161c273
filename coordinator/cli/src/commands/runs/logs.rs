//! `docket logs`: the events as the log holds them.

use docket_schema::{
    event::Envelope,
    ids::{Seq, StreamId},
};
use docket_worker::client::{Client, Lineage};

use crate::{
    connect::{
        access::Access,
        resolve::{self, Named},
    },
    context::Context,
    history::children,
    output::{
        display::{self, Style},
        events,
        fail::{Exit, FailWith as _, Outcome},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --json each line is one event with its payload and hashes, as `docket verify` reads it.

Examples:
  docket logs 3f9c01ab
  docket logs system/audit
  docket logs 3f9c01ab --json | jq -r .kind | sort | uniq -c"
)]
pub(crate) struct Args {
    /// A task, a run, or a stream: system/audit, system/tokens, system/imports
    id: String,
    /// For a run that stands on another's history: that history first
    #[arg(long)]
    lineage: bool,
    /// The events of what the run gave away, too, each child's behind its parent's
    #[arg(long)]
    children: bool,
}

async fn whole(client: &Client, stream: &StreamId) -> Outcome<Vec<Envelope>> {
    let mut all: Vec<Envelope> = Vec::new();
    loop {
        let after = all.last().map_or(Seq(0), |last| last.seq);
        let page = client.stream_events(stream, after, None).await?;
        let more = page.more && !page.events.is_empty();
        all.extend(page.events);
        if !more {
            return Ok(all);
        }
    }
}

/// Prints the events.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::to_read(&cx, &args.id).await?;
    let stream =
        args.id.contains('/').then(|| args.id.parse::<StreamId>().fail_as(Exit::Usage)).transpose()?;
    let mut given_by = Vec::new();
    let events = match stream {
        Some(stream) => whole(&access.client, &stream).await?,
        None => match resolve::named(&access.client, &args.id).await? {
            Named::Run(run) => {
                given_by.push(run);
                let lineage = if args.lineage { Lineage::Whole } else { Lineage::Own };
                access.client.all_events(run, lineage).await?
            }
            Named::Task(task) => {
                if args.children {
                    let runs = access.client.task(task).await?.runs;
                    given_by.extend(runs.into_iter().map(|run| run.id));
                }
                whole(&access.client, &StreamId::Task(task)).await?
            }
        },
    };
    tell(&cx, &events);
    if args.children {
        for child in children::below(&access.client, &given_by).await? {
            for run in &child.view.runs {
                let by = child.view.task.delegated_by.as_ref();
                let call = by.map_or_else(String::new, |by| format!(", {} of run {}", by.call, by.run));
                if !cx.json() {
                    let title = format!("task {}{call}: {}", child.view.task.id, child.view.task.spec.title);
                    display::say("");
                    display::say(&cx.screen.paint(Style::Bold, &display::line(&title)));
                }
                tell(&cx, &access.client.all_events(run.id, Lineage::Own).await?);
            }
        }
    }
    access.close().await?;
    Ok(Exit::Ok)
}

fn tell(cx: &Context, events: &[Envelope]) {
    for event in events {
        if cx.json() {
            display::say_json(event);
            continue;
        }
        let place = format!(
            "{:>5} {} t{:<3} e{:<2}",
            event.seq,
            events::clock(event.recorded_at),
            event.turn,
            event.epoch
        );
        let text = events::summary(event);
        let room = cx.screen.columns().saturating_sub(place.len() + 1);
        display::say(&format!("{} {}", cx.screen.paint(Style::Dim, &place), display::fit(&text, room)));
    }
}
