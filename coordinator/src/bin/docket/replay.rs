//! `docket replay`: a run read again, turn by turn. The *view* kind of replay: nothing is asked of a
//! model, nothing is run, no workspace is touched; all of it comes from the log and its blobs.

mod text;
mod turns;

use docket_worker::{client::Lineage, workspace::cached_base};

use crate::{
    access::{Access, Need},
    context::Context,
    delivery::Remote,
    display,
    fail::{Exit, FailWith as _, Failure, Outcome},
    replay::turns::{Reader, Turns},
    resolve, show,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows what the model was told, what it said and called, what came back, and what changed, from the
log alone: offline, without a model, without touching a file. With --json each line is one turn.

Examples:
  docket replay 3f9c01ab
  docket replay 3f9c01ab --turn 4
  docket replay 3f9c01ab --json | jq -r '.tools[].name'"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// Only this turn, and all of it; 0 is what came before the first
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// All of every text, not its first lines
    #[arg(long)]
    full: bool,
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
pub(crate) async fn all_of(
    cx: &Context,
    client: &docket_worker::client::Client,
    run: docket_schema::ids::RunId,
) -> Outcome<()> {
    say(cx, client, run, &Args { id: String::new(), turn: None, full: false }).await
}

async fn say(
    cx: &Context,
    client: &docket_worker::client::Client,
    run: docket_schema::ids::RunId,
    args: &Args,
) -> Outcome<()> {
    let events = client.all_events(run, Lineage::Whole).await?;
    let state = show::fold(client, run).await?;
    let Some(pins) = &state.pins else {
        let message =
            format!("run {} has not started yet; `docket follow {}` waits for it", run.short(), run.short());
        return Err(Failure::new(Exit::Refused, message));
    };
    let blobs = Remote(client);
    let base = cached_base(&pins.base, &blobs, &cx.home.folder("cache")?)
        .await
        .fail_with(Exit::Failed, || "the tree that the run started from cannot be read".to_owned())?;
    let turns = Turns::read(&Reader { client, base: &base }, run, &events).await?;
    let shown: Vec<_> =
        turns.0.iter().filter(|turn| args.turn.is_none_or(|wanted| wanted == turn.turn)).collect();
    if shown.is_empty() {
        let last = turns.0.last().map_or(0, |turn| turn.turn);
        let message = format!("run {} has no such turn; its turns go from 0 to {last}", run.short());
        return Err(Failure::new(Exit::NotFound, message));
    }
    if cx.json() {
        shown.iter().for_each(display::say_json);
        return Ok(());
    }
    let whole = args.full || args.turn.is_some();
    text::head(cx, run, pins);
    for turn in shown {
        text::turn(cx, turn, if whole { text::Length::Whole } else { text::Length::Excerpt });
    }
    Ok(())
}
