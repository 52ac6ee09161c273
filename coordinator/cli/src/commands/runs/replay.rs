//! `docket replay`: shows a run again, turn by turn. There are three kinds of replay, and the
//! output names which one it is: *view* (from the log alone), *verify* (derives decisions again;
//! with `--tools` also runs the calls again), and *re-sample*, which is `docket fork`.

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

/// Command-line arguments of `docket replay`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Three kinds of replay; the first line of output says which one it is:
  view       prompts, replies, tool calls, results and changes from the log alone: offline, without
             a model, without touching a file. The default.
  verify     --verify derives every decision and request again and names the first field that
             differs. --tools also runs the recorded tool calls again, sandboxed, in a scratch
             workspace, and compares results and trees turn by turn.
  re-sample  calls a model again from a turn on; use `docket fork RUN --turn N`.

With --tools, the outcome of each call, the facts that decisions depend on, and the trees must
match. Texts of results may differ (tools print times): this is reported but does not count. Calls
that may have effects outside the workspace are not run; their tree is taken from the log.

--request and --output write exact bytes, and describe them on standard error. With --json, each
line is a turn; --verify prints one report, and --tools adds a line for each turn and one for the
total.

Examples:
  docket replay 3f9c01ab
  docket replay 3f9c01ab --turn 4
  docket replay 3f9c01ab --from 10 --to 20
  docket replay 3f9c01ab --turn 4 --request | jq .messages
  docket replay 3f9c01ab --output t4-0 > whole-output.txt
  docket replay 3f9c01ab --verify
  docket replay 3f9c01ab --tools --from 3")]
pub(crate) struct ReplayArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Show only this turn, in full; 0 is the setup before the first turn
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    turn: Option<u32>,
    /// First turn to show [default: 0]
    #[arg(long, value_name = "A")]
    from: Option<u32>,
    /// Last turn to show [default: the newest]
    #[arg(long, value_name = "B")]
    to: Option<u32>,
    /// Show full texts instead of their first lines
    #[arg(long)]
    full: bool,
    /// Print the exact model request of --turn, rebuilt from the log and verified against its recorded
    /// hash
    #[arg(long, requires = "turn", conflicts_with_all = ["full", "output", "verify", "tools"])]
    request: bool,
    /// Request to print, if the turn has several because attempts failed [default: the last]
    #[arg(long, value_name = "K", requires = "request")]
    attempt: Option<u32>,
    /// Print the full recorded output of a tool call or check, by its ID
    #[arg(long, value_name = "CALL", conflicts_with_all = ["full", "verify", "tools"])]
    output: Option<String>,
    /// Derive every decision and request again, and compare
    #[arg(long, conflicts_with = "full")]
    verify: bool,
    /// Verify, then run the recorded tool calls again in a scratch workspace, and compare
    #[arg(long, conflicts_with = "full")]
    tools: bool,
    /// With --tools: also run the final checks
    #[arg(long, requires = "tools")]
    gates: bool,
    /// Include delegated runs: the last run of each child, after its parent
    #[arg(long, conflicts_with_all = ["request", "output", "turn"])]
    children: bool,
}

impl ReplayArgs {
    /// Returns the requested turns that exist.
    fn turn_range(&self, run: RunId, history: &FoldedRun) -> CliResult<RangeInclusive<Turn>> {
        let last = history.turns().last().map_or(0, |span| span.turn.0);
        let (from, to) = match self.turn {
            Some(turn) => (turn, turn),
            None => (self.from.unwrap_or(0), self.to.map_or(last, |to| to.min(last))),
        };
        if from > to || to > last {
            let message = format!("run {} has no such turn; it has turns 0 to {last}", run.short());
            return Err(CliError::new(ExitKind::NotFound, message));
        }
        Ok(Turn(from)..=Turn(to))
    }
}

/// Replays the run.
pub(crate) async fn run_replay(cx: CliContext, args: ReplayArgs) -> CliResult {
    if let (Some(from), Some(to)) = (args.from, args.to)
        && from > to
    {
        let message = format!("--from {from} is after --to {to}; --from is the first turn");
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
                let title = format!("delegated by {}: {}", child.call, child.view.task.spec.title);
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

/// Prints all turns, for the demo, which already has a coordinator.
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
        // The calls can be run again even if this build lacks the run's engine.
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
        .fail_with(ExitKind::Failed, || "cannot read the tree that the run started from".to_owned())?;
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
