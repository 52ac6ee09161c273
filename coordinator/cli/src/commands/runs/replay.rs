//! `docket replay`: a run read again, turn by turn. Three honest kinds, and each says on screen that it is
//! meant: *view* (the log alone), *verify* (decisions derived again, with `--tools` the calls run again too),
//! and *re-sample*, which is a fork and not done here.

mod output;
mod request;

use crate::history::{
    lineage::{read_folded_run, started_config},
    turns::TurnReader,
};
use std::ops::RangeInclusive;

use docket_schema::{
    history::FoldedRun,
    ids::{RunId, Turn},
};
use docket_worker::{client::CoordinatorClient, workspace::ensure_cached_base};

pub(crate) use crate::commands::runs::rerun_tools::{RerunChoice, rerun_and_report};
use crate::{
    commands::runs::{replay_text::ReplayKind, verify},
    connect::{coordinator::Coordinator, resolve},
    context::CliContext,
    history::{blobs::RemoteBlobs, children},
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
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
pub(crate) struct ReplayArgs {
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

impl ReplayArgs {
    /// The turns asked for, of those there are.
    fn turn_range(&self, run: RunId, history: &FoldedRun) -> CliResult<RangeInclusive<Turn>> {
        let last = history.turns().last().map_or(0, |span| span.turn.0);
        let (from, to) = match self.turn {
            Some(turn) => (turn, turn),
            None => (self.from.unwrap_or(0), self.to.map_or(last, |to| to.min(last))),
        };
        if from > to || to > last {
            let message = format!("run {} has no such turn; its turns go from 0 to {last}", run.short());
            return Err(CliError::new(ExitKind::NotFound, message));
        }
        Ok(Turn(from)..=Turn(to))
    }
}

/// Replays it.
pub(crate) async fn run_replay(cx: CliContext, args: ReplayArgs) -> CliResult {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        let message = format!("--from {from} comes after --to {to}; the first turn stands in --from");
        return Err(CliError::new(ExitKind::Usage, message));
    }
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let mut exit = replay_run(&cx, &access.client, run, &args).await?;
    if args.children {
        let ReplayArgs { full, verify, tools, gates, .. } = args;
        let of_child = ReplayArgs { full, verify, tools, gates, ..ReplayArgs::default() };
        for child in children::list_descendants(&access.client, &[run]).await? {
            let Some(run) = child.view.task.last_run.filter(|_| !child.view.runs.is_empty()) else {
                continue;
            };
            if !cx.is_json() {
                display::print_line("");
                let title = format!("what {} gave away: {}", child.call, child.view.task.spec.title);
                display::print_line(
                    &cx.screen.paint(display::TextStyle::Bold, &display::sanitize_line(&title)),
                );
            }
            exit = exit.more_severe(replay_run(&cx, &access.client, run, &of_child).await?);
        }
    }
    access.close().await?;
    Ok(exit)
}

/// The view of all turns, for the demo, which has its coordinator already.
pub(crate) async fn print_all_turns(
    cx: &CliContext,
    client: &CoordinatorClient,
    run: RunId,
) -> CliResult<()> {
    replay_run(cx, client, run, &ReplayArgs::default()).await.map(drop)
}

async fn replay_run(cx: &CliContext, client: &CoordinatorClient, run: RunId, args: &ReplayArgs) -> CliResult {
    if args.verify || args.tools {
        let report =
            verify::verify_run(client, &crate::history::lineage::HistorySource::Client(client.clone()), run)
                .await?;
        verify::print_report(cx, &report);
        let exit = report.exit();
        // Without its engine a run's calls can be run again all the same.
        if !args.tools || exit == ExitKind::Verification {
            return Ok(exit);
        }
        let history = read_folded_run(client, run).await?;
        let choice = RerunChoice { turns: args.turn_range(run, &history)?, gates: args.gates };
        return Ok(exit.more_severe(Box::pin(rerun_and_report(cx, client, run, &history, choice)).await?));
    }
    let history = read_folded_run(client, run).await?;
    let pins = started_config(&history, run)?;
    if let Some(call) = &args.output {
        return output::print_recorded_output(cx, client, run, &history, call).await;
    }
    let range = args.turn_range(run, &history)?;
    if args.request {
        return request::print_request(cx, client, run, &history, *range.start(), args.attempt).await;
    }
    let blobs = RemoteBlobs(client);
    let base = ensure_cached_base(&pins.base, &blobs, &cx.home.ensure_folder("cache")?)
        .await
        .fail_with(ExitKind::Failed, || "the tree that the run started from cannot be read".to_owned())?;
    let turns = TurnReader { client, base: Some(&base), with_diffs: true }
        .read_turns(run, history.history(), &range)
        .await?;
    if cx.is_json() {
        turns.iter().for_each(display::print_json);
        return Ok(ExitKind::Ok);
    }
    let whole = args.full || args.turn.is_some();
    super::replay_text::print_head(cx, ReplayKind::View, run, pins);
    for turn in &turns {
        super::replay_text::print_turn(
            cx,
            turn,
            if whole {
                super::replay_text::TextLength::Full
            } else {
                super::replay_text::TextLength::Excerpt
            },
        );
    }
    Ok(ExitKind::Ok)
}
