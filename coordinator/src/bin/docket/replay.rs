//! `docket replay`: a run read again, turn by turn. The *view* kind of replay: nothing is asked of a
//! model, nothing is run, no workspace is touched; all of it comes from the log and its blobs.

mod sketch;
mod text;
mod turns;

use std::ops::RangeInclusive;

use docket_schema::{
    ids::{RunId, Turn},
    run::History,
};
use docket_worker::{
    client::{Client, Lineage},
    workspace::cached_base,
};

use crate::{
    access::{Access, Need},
    context::Context,
    delivery::Remote,
    display,
    fail::{Exit, FailWith as _, Failure, Outcome},
    replay::turns::Reader,
    resolve,
};

/// Flags.
#[derive(Debug, Default, clap::Args)]
#[command(
    after_help = "Shows what the model was told, what it said and called, what came back, and what changed, from the
log alone: offline, without a model, without touching a file. With --json each line is one turn.

Examples:
  docket replay 3f9c01ab
  docket replay 3f9c01ab --turn 4
  docket replay 3f9c01ab --from 10 --to 20
  docket replay 3f9c01ab --json | jq -r '.tools[].name'"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// Only this turn, and all of it; 0 is what came before the first
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    turn: Option<u32>,
    /// The first turn to show [default: 0]
    #[arg(long, value_name = "A")]
    from: Option<u32>,
    /// The last turn to show [default: the newest]
    #[arg(long, value_name = "B")]
    to: Option<u32>,
    /// All of every text, not its first lines
    #[arg(long)]
    full: bool,
}

impl Args {
    /// The turns asked for, of those there are.
    fn range(&self, run: RunId, history: &History) -> Outcome<RangeInclusive<Turn>> {
        let last = history.turns().last().map_or(0, |span| span.turn.0);
        let (from, to) = match self.turn {
            Some(turn) => (turn, turn),
            None => (self.from.unwrap_or(0), self.to.map_or(last, |to| to.min(last))),
        };
        if from > to || from > last {
            let message = format!("run {} has no such turn; its turns go from 0 to {last}", run.short());
            return Err(Failure::new(Exit::NotFound, message));
        }
        Ok(Turn(from)..=Turn(to))
    }
}

/// Replays it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Read).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    say(&cx, &access.client, run, &args).await?;
    access.close().await?;
    Ok(Exit::Ok)
}

/// The same for the demo, which has its coordinator already.
pub(crate) async fn all_of(cx: &Context, client: &Client, run: RunId) -> Outcome<()> {
    say(cx, client, run, &Args::default()).await
}

/// A run's whole history, cut into turns.
pub(crate) async fn history(client: &Client, run: RunId) -> Outcome<History> {
    History::read(client.all_events(run, Lineage::Whole).await?).fail_with(Exit::Verification, || {
        format!("the log of run {} cannot be folded; `docket verify {run}` says more", run.short())
    })
}

async fn say(cx: &Context, client: &Client, run: RunId, args: &Args) -> Outcome<()> {
    let history = history(client, run).await?;
    let Some(pins) = history.state().pins.clone() else {
        let message =
            format!("run {} has not started yet; `docket follow {}` waits for it", run.short(), run.short());
        return Err(Failure::new(Exit::Refused, message));
    };
    let range = args.range(run, &history)?;
    let blobs = Remote(client);
    let base = cached_base(&pins.base, &blobs, &cx.home.folder("cache")?)
        .await
        .fail_with(Exit::Failed, || "the tree that the run started from cannot be read".to_owned())?;
    let turns = Reader { client, base: &base }.turns(run, &history, &range).await?;
    if cx.json() {
        turns.iter().for_each(display::say_json);
        return Ok(());
    }
    let whole = args.full || args.turn.is_some();
    text::head(cx, run, &pins);
    for turn in &turns {
        text::turn(cx, turn, if whole { text::Length::Whole } else { text::Length::Excerpt });
    }
    Ok(())
}
