//! `docket logs`: the events as the log holds them.

use docket_schema::ids::{Seq, StreamId};
use docket_worker::client::Lineage;

use crate::{
    access::{Access, Need},
    context::Context,
    display::{self, Style},
    events,
    fail::{Exit, Outcome},
    resolve::{self, Named},
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --json each line is one event with its payload and hashes, as `docket verify` reads it.

Examples:
  docket logs 3f9c01ab
  docket logs 3f9c01ab --json | jq -r .kind | sort | uniq -c"
)]
pub(crate) struct Args {
    /// A task or a run
    id: String,
    /// For a run that stands on another's history: that history first
    #[arg(long)]
    lineage: bool,
}

/// Prints the events.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Read).await?;
    let events = match resolve::named(&access.client, &args.id).await? {
        Named::Run(run) => {
            let lineage = if args.lineage { Lineage::Whole } else { Lineage::Own };
            access.client.all_events(run, lineage).await?
        }
        Named::Task(task) => {
            let mut all = Vec::new();
            let mut after = Seq(0);
            loop {
                let page = access.client.stream_events(&StreamId::Task(task), after, None).await?;
                let more = page.more && !page.events.is_empty();
                all.extend(page.events);
                match all.last() {
                    Some(last) if more => after = last.seq,
                    Some(_) | None => break all,
                }
            }
        }
    };
    access.close().await?;
    for event in &events {
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
    Ok(Exit::Ok)
}
