//! `--tools`: runs recorded calls again in a scratch workspace and reports turn by turn. The log
//! and every workspace of the run stay unchanged; the scratch folder is removed at the end, also
//! after Ctrl-C.

use std::ops::RangeInclusive;

use docket_schema::{
    history::FoldedRun,
    ids::{RunId, Turn},
};
use docket_worker::{
    client::CoordinatorClient,
    clock::new_incarnation,
    replay::{
        CallRerun, CallRerunStatus, GateRerun, RerunError, RerunOptions, RerunProgress, RerunTotals,
        TurnRerun, rerun_calls,
    },
    supervisor::ScratchFolder,
};
use serde::Serialize;

use super::replay_text::{self, ReplayKind};
use crate::history::lineage::started_config;
use crate::{
    context::CliContext,
    history::blobs::RemoteBlobs,
    output::{
        display::{self, TextStyle, sanitize_line},
        error::{CliError, CliResult, ExitKind, FailWith as _},
        signals::StopSignals,
    },
    progress::ProgressDisplay,
};

/// The name of this kind of replay in `--json`.
const REPLAY_KIND: &str = "verify with tools";

/// Which recorded steps are run again.
#[derive(Debug)]
pub(crate) struct RerunChoice {
    pub(crate) turns: RangeInclusive<Turn>,
    /// Whether the final checks are run too.
    pub(crate) gates: bool,
}

/// The last line of `--json`.
#[derive(Serialize)]
struct RerunSummary {
    replay: &'static str,
    run: RunId,
    summary: bool,
    ok: bool,
    turns: u32,
    turns_differ: u32,
    ran: u32,
    not_run: u32,
    contents_differ: u32,
}

/// Runs the calls again and reports the result.
pub(crate) async fn rerun_and_report(
    cx: &CliContext,
    client: &CoordinatorClient,
    run: RunId,
    history: &FoldedRun,
    choice: RerunChoice,
) -> CliResult {
    let pins = started_config(history, run)?;
    // The task has the test command that `run_tests` runs.
    let tests = client.get_task(pins.task).await?.task.spec.tests;
    let stop = StopSignals::listen()?;
    let scratch = ScratchFolder::open(&cx.home.ensure_folder("scratch")?, new_incarnation())
        .fail_as(ExitKind::Failed)?;
    let options = RerunOptions {
        folder: scratch.root().join("workspace"),
        cache: cx.home.ensure_folder("cache")?,
        sandbox: cx.config.sandbox,
        tests,
        gates: if choice.gates { GateRerun::Run } else { GateRerun::Skip },
        turns: choice.turns,
    };
    if !cx.is_json() {
        replay_text::print_head(cx, ReplayKind::VerifyWithTools, run, pins);
    }
    let progress = ProgressDisplay::spinner(cx);
    let mut told = |news: RerunProgress<'_>| match news {
        RerunProgress::Runs { turn, tools } => {
            progress.set_message(sanitize_line(&format!("turn {turn}: {}", tools.join(", "))).into_owned());
        }
        RerunProgress::TurnDone(turn) if cx.is_json() => {
            display::print_json(&turn_json(run, turn));
        }
        RerunProgress::TurnDone(turn) => progress.suspend(|| print_turn(cx, turn)),
    };
    let blobs = RemoteBlobs(client);
    let done = tokio::select! {
        done = rerun_calls(history, &options, &blobs, &mut told) => Some(done),
        () = stop.drain.cancelled() => None,
    };
    drop(progress);
    drop(scratch);
    match done {
        Some(Ok(totals)) => Ok(print_totals(cx, run, totals)),
        Some(Err(error)) => {
            let exit = rerun_exit(&error);
            Err(error).fail_as(exit)
        }
        None => Err(CliError::new(ExitKind::Failed, "interrupted; the log and workspaces are unchanged")),
    }
}

const fn rerun_exit(error: &RerunError) -> ExitKind {
    match error {
        RerunError::NoSandbox => ExitKind::Usage,
        RerunError::Corrupt(_) => ExitKind::Verification,
        RerunError::Start(_) | RerunError::Snapshot(_) | RerunError::Restore(_) => ExitKind::Failed,
    }
}

fn turn_json(run: RunId, turn: &TurnRerun) -> serde_json::Value {
    let mut row = serde_json::to_value(turn).expect("a serialized turn has string keys only");
    row["replay"] = REPLAY_KIND.into();
    row["run"] = run.to_string().into();
    row
}

fn print_turn(cx: &CliContext, turn: &TurnRerun) {
    let names: Vec<&str> = turn.calls.iter().map(|call| call.tool.as_str()).collect();
    let (style, word) = if turn.ok { (TextStyle::Good, "ok     ") } else { (TextStyle::Bad, "differs") };
    let what = if names.is_empty() { "nothing to run".to_owned() } else { names.join(", ") };
    let room = cx.screen.columns().saturating_sub(20);
    let (word, what) =
        (cx.screen.paint(style, word), display::truncate_to_width(&sanitize_line(&what), room));
    display::print_line(&format!("turn {:<4} {word}  {what}", turn.turn));
    for call in &turn.calls {
        print_call(cx, call);
    }
    for tree in &turn.trees {
        let paths: Vec<String> = tree.paths.iter().map(ToString::to_string).collect();
        let text = format!("tree {} in the log, {} now: {}", tree.recorded, tree.again, paths.join(", "));
        display::print_line(&format!("    {}", cx.screen.paint(TextStyle::Bad, &sanitize_line(&text))));
    }
    if turn.git_differs {
        print_note(cx, ".git differs (commits contain times; this does not count)");
    }
}

fn print_call(cx: &CliContext, call: &CallRerun) {
    let id = call.call.as_ref().map_or_else(|| "setup".to_owned(), |id| id.0.clone());
    let name = format!("{id} {}", call.tool.lines().next().unwrap_or_default());
    for difference in &call.differs {
        let text = sanitize_line(&format!("{name}: {difference}")).into_owned();
        display::print_line(&format!("    {}", cx.screen.paint(TextStyle::Bad, &text)));
    }
    match call.ran {
        CallRerunStatus::Again if call.content_differs => {
            print_note(cx, &format!("{name}: the text of its result differs (this does not count)"));
        }
        CallRerunStatus::Again | CallRerunStatus::Skipped => {}
        CallRerunStatus::External => {
            print_note(
                cx,
                &format!(
                    "{name}: not run again because it may have effects outside the workspace; tree from the log"
                ),
            );
        }
        CallRerunStatus::Unknown => {
            print_note(
                cx,
                &format!("{name}: not run again because a crash left its outcome unknown; tree from the log"),
            );
        }
    }
}

fn print_note(cx: &CliContext, text: &str) {
    display::print_line(&format!("    {}", cx.screen.paint(TextStyle::Dim, &sanitize_line(text))));
}

fn print_totals(cx: &CliContext, run: RunId, totals: RerunTotals) -> ExitKind {
    let ok = totals.turns_differ == 0;
    let RerunTotals { turns, turns_differ, ran, not_run, contents_differ } = totals;
    if cx.is_json() {
        display::print_json(&RerunSummary {
            replay: REPLAY_KIND,
            run,
            summary: true,
            ok,
            turns,
            turns_differ,
            ran,
            not_run,
            contents_differ,
        });
    } else {
        let head = if ok {
            cx.screen.paint(TextStyle::Good, "all calls reproduced their results")
        } else {
            cx.screen.paint(TextStyle::Bad, &format!("{turns_differ} of {turns} turns differ"))
        };
        display::print_line(&format!(
            "{head}: {turns} turns, {ran} calls run again, {not_run} not, {contents_differ} results differ in text"
        ));
    }
    if ok { ExitKind::Ok } else { ExitKind::Verification }
}
