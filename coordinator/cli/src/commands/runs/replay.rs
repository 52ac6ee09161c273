//! `docket replay`: a run read again, turn by turn. Three honest kinds, and each says on screen that it is
//! meant: *view* (the log alone), *verify* (decisions derived again, with `--tools` the calls run again too),
//! and *re-sample*, which is a fork and not done here.

mod output;
mod request;

use crate::history::{
    lineage::{history, started},
    turns::Reader,
};
use std::ops::RangeInclusive;

use docket_schema::{
    history::FoldedRun,
    ids::{RunId, Turn},
};
use docket_worker::{client::Client, workspace::cached_base};

pub(crate) use crate::commands::runs::run_again::{Choice, run_again};
use crate::{
    commands::runs::{replay_text::Kind, verify},
    connect::{access::Access, resolve},
    context::Context,
    history::{blobs::Remote, children},
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
};

/// Flags.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Three kinds of replay; the first line says which one ran:
  view       what the model was told, what it said and called, what came back and what changed, from
             the log alone: offline, without a model, without touching a file. The default.
  verify     --verify derives every decision and request again and names the first field that
             differs. --tools then runs the recorded tool calls again, sandboxed, in a scratch
             workspace, and compares results and trees turn by turn.
  re-sample  asks a model again from a turn on; that is `docket fork RUN --turn N`.

With --tools, how a call ended, the facts that decisions depend on, and trees count. Texts of
results may differ (tools print times): that is told and does not count. Calls that may reach beyond
the workspace are not run; their tree is taken from the log.

--request and --output write exact bytes, and say on standard error what they are. With --json each
line is a turn; --verify gives one report, --tools adds a line for each turn and one for their sum.

Examples:
  docket replay 3f9c01ab
  docket replay 3f9c01ab --turn 4
  docket replay 3f9c01ab --from 10 --to 20
  docket replay 3f9c01ab --turn 4 --request | jq .messages
  docket replay 3f9c01ab --output t4-0 > whole-output.txt
  docket replay 3f9c01ab --verify
  docket replay 3f9c01ab --tools --from 3")]
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
    /// The exact model request of --turn, made again from the log and proven by its recorded hash
    #[arg(long, requires = "turn", conflicts_with_all = ["full", "output", "verify", "tools"])]
    request: bool,
    /// Which of a turn's requests: it has several where an attempt failed [default: the last]
    #[arg(long, value_name = "K", requires = "request")]
    attempt: Option<u32>,
    /// The whole recorded output of a tool call or gate, by its id, however much of it was shown
    #[arg(long, value_name = "CALL", conflicts_with_all = ["full", "verify", "tools"])]
    output: Option<String>,
    /// Derive every decision and request again, and compare
    #[arg(long, conflicts_with = "full")]
    verify: bool,
    /// Run the recorded tool calls again in a scratch workspace, and compare; verifies first
    #[arg(long, conflicts_with = "full")]
    tools: bool,
    /// With --tools: run the final checks too
    #[arg(long, requires = "tools")]
    gates: bool,
    /// What the run gave away, too: the last run of each child, behind its parent's
    #[arg(long, conflicts_with_all = ["request", "output", "turn"])]
    children: bool,
}

impl Args {
    /// The turns asked for, of those there are.
    fn range(&self, run: RunId, history: &FoldedRun) -> Outcome<RangeInclusive<Turn>> {
        let last = history.turns().last().map_or(0, |span| span.turn.0);
        let (from, to) = match self.turn {
            Some(turn) => (turn, turn),
            None => (self.from.unwrap_or(0), self.to.map_or(last, |to| to.min(last))),
        };
        if from > to || to > last {
            let message = format!("run {} has no such turn; its turns go from 0 to {last}", run.short());
            return Err(Failure::new(Exit::NotFound, message));
        }
        Ok(Turn(from)..=Turn(to))
    }
}

/// Replays it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        let message = format!("--from {from} comes after --to {to}; the first turn stands in --from");
        return Err(Failure::new(Exit::Usage, message));
    }
    let access = Access::to_read(&cx, &args.id).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let mut exit = say(&cx, &access.client, run, &args).await?;
    if args.children {
        let Args { full, verify, tools, gates, .. } = args;
        let of_child = Args { full, verify, tools, gates, ..Args::default() };
        for child in children::below(&access.client, &[run]).await? {
            let Some(run) = child.view.task.last_run.filter(|_| !child.view.runs.is_empty()) else {
                continue;
            };
            if !cx.json() {
                display::say("");
                let title = format!("what {} gave away: {}", child.call, child.view.task.spec.title);
                display::say(&cx.screen.paint(display::Style::Bold, &display::line(&title)));
            }
            exit = exit.worse(say(&cx, &access.client, run, &of_child).await?);
        }
    }
    access.close().await?;
    Ok(exit)
}

/// The view of all turns, for the demo, which has its coordinator already.
pub(crate) async fn all_of(cx: &Context, client: &Client, run: RunId) -> Outcome<()> {
    say(cx, client, run, &Args::default()).await.map(drop)
}

async fn say(cx: &Context, client: &Client, run: RunId, args: &Args) -> Outcome {
    if args.verify || args.tools {
        let report =
            verify::of_run(client, &crate::history::lineage::Source::Client(client.clone()), run).await?;
        verify::say(cx, &report);
        let exit = report.exit();
        // Without its engine a run's calls can be run again all the same.
        if !args.tools || exit == Exit::Verification {
            return Ok(exit);
        }
        let history = history(client, run).await?;
        let choice = Choice { turns: args.range(run, &history)?, gates: args.gates };
        return Ok(exit.worse(Box::pin(run_again(cx, client, run, &history, choice)).await?));
    }
    let history = history(client, run).await?;
    let pins = started(&history, run)?;
    if let Some(call) = &args.output {
        return output::say(cx, client, run, &history, call).await;
    }
    let range = args.range(run, &history)?;
    if args.request {
        return request::say(cx, client, run, &history, *range.start(), args.attempt).await;
    }
    let blobs = Remote(client);
    let base = cached_base(&pins.base, &blobs, &cx.home.folder("cache")?)
        .await
        .fail_with(Exit::Failed, || "the tree that the run started from cannot be read".to_owned())?;
    let turns =
        Reader { client, base: Some(&base), with_diffs: true }.turns(run, history.history(), &range).await?;
    if cx.json() {
        turns.iter().for_each(display::say_json);
        return Ok(Exit::Ok);
    }
    let whole = args.full || args.turn.is_some();
    super::replay_text::head(cx, Kind::View, run, pins);
    for turn in &turns {
        super::replay_text::turn(
            cx,
            turn,
            if whole { super::replay_text::Length::Whole } else { super::replay_text::Length::Excerpt },
        );
    }
    Ok(Exit::Ok)
}
