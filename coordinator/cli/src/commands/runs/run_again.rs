//! `--tools`: recorded calls run again in a scratch workspace, told turn by turn. The log and every workspace of
//! a run stay untouched; the scratch folder is gone at the end, also after Ctrl-C.

use std::ops::RangeInclusive;

use docket_schema::{
    history::FoldedRun,
    ids::{RunId, Turn},
};
use docket_worker::{
    client::Client,
    clock::new_incarnation,
    replay::{CallRerun, Gates, Ran, RerunError, RerunOptions, RerunTotals, Rerunning, TurnRerun, rerun},
    supervisor::Scratch,
};
use serde::Serialize;

use super::replay_text::{self, Kind};
use crate::history::lineage::started;
use crate::{
    context::Context,
    history::blobs::Remote,
    output::{
        display::{self, Style, line},
        fail::{Exit, FailWith as _, Failure, Outcome},
        signals::Stop,
    },
    progress::Progress,
};

/// How `--json` names this kind of replay.
const KIND: &str = "verify with tools";

/// What is run again.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) turns: RangeInclusive<Turn>,
    /// The final checks too.
    pub(crate) gates: bool,
}

/// The last line of `--json`.
#[derive(Serialize)]
struct Summary {
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

/// Runs them, and says what came of it.
pub(crate) async fn run_again(
    cx: &Context,
    client: &Client,
    run: RunId,
    history: &FoldedRun,
    choice: Choice,
) -> Outcome {
    let pins = started(history, run)?;
    // The line that `run_tests` runs stands with the task.
    let tests = client.task(pins.task).await?.task.spec.tests;
    let stop = Stop::listen()?;
    let scratch = Scratch::open(&cx.home.folder("scratch")?, new_incarnation()).fail_as(Exit::Failed)?;
    let options = RerunOptions {
        folder: scratch.root().join("workspace"),
        cache: cx.home.folder("cache")?,
        sandbox: cx.config.sandbox,
        tests,
        gates: if choice.gates { Gates::Run } else { Gates::Skip },
        turns: choice.turns,
    };
    if !cx.json() {
        replay_text::head(cx, Kind::VerifyWithTools, run, pins);
    }
    let progress = Progress::waiting(cx);
    let mut told = |news: Rerunning<'_>| match news {
        Rerunning::Runs { turn, tools } => {
            progress.say(line(&format!("turn {turn}: {}", tools.join(", "))).into_owned());
        }
        Rerunning::Done(turn) if cx.json() => {
            display::say_json(&row(run, turn));
        }
        Rerunning::Done(turn) => progress.aside(|| say_turn(cx, turn)),
    };
    let blobs = Remote(client);
    let done = tokio::select! {
        done = rerun(history, &options, &blobs, &mut told) => Some(done),
        () = stop.drain.cancelled() => None,
    };
    drop(progress);
    drop(scratch);
    match done {
        Some(Ok(totals)) => Ok(say_totals(cx, run, totals)),
        Some(Err(error)) => {
            let exit = exit_of(&error);
            Err(error).fail_as(exit)
        }
        None => Err(Failure::new(Exit::Failed, "interrupted; log and workspaces are as they were")),
    }
}

const fn exit_of(error: &RerunError) -> Exit {
    match error {
        RerunError::NoWalls => Exit::Usage,
        RerunError::Corrupt(_) => Exit::Verification,
        RerunError::Start(_) | RerunError::Snapshot(_) | RerunError::Restore(_) => Exit::Failed,
    }
}

fn row(run: RunId, turn: &TurnRerun) -> serde_json::Value {
    let mut row = serde_json::to_value(turn).expect("what is shown has string keys only");
    row["replay"] = KIND.into();
    row["run"] = run.to_string().into();
    row
}

fn say_turn(cx: &Context, turn: &TurnRerun) {
    let names: Vec<&str> = turn.calls.iter().map(|call| call.tool.as_str()).collect();
    let (style, word) = if turn.ok { (Style::Good, "ok     ") } else { (Style::Bad, "differs") };
    let what = if names.is_empty() { "nothing to run".to_owned() } else { names.join(", ") };
    let room = cx.screen.columns().saturating_sub(20);
    let (word, what) = (cx.screen.paint(style, word), display::fit(&line(&what), room));
    display::say(&format!("turn {:<4} {word}  {what}", turn.turn));
    for call in &turn.calls {
        say_call(cx, call);
    }
    for tree in &turn.trees {
        let paths: Vec<String> = tree.paths.iter().map(ToString::to_string).collect();
        let text = format!("tree {} in the log, {} now: {}", tree.recorded, tree.again, paths.join(", "));
        display::say(&format!("    {}", cx.screen.paint(Style::Bad, &line(&text))));
    }
    if turn.git_differs {
        note(cx, ".git reads otherwise (commits carry clocks; this does not count)");
    }
}

fn say_call(cx: &Context, call: &CallRerun) {
    let id = call.call.as_ref().map_or_else(|| "setup".to_owned(), |id| id.0.clone());
    let name = format!("{id} {}", call.tool.lines().next().unwrap_or_default());
    for difference in &call.differs {
        let text = line(&format!("{name}: {difference}")).into_owned();
        display::say(&format!("    {}", cx.screen.paint(Style::Bad, &text)));
    }
    match call.ran {
        Ran::Again if call.content_differs => {
            note(cx, &format!("{name}: its result reads otherwise (this does not count)"));
        }
        Ran::Again | Ran::Skipped => {}
        Ran::External => {
            note(cx, &format!("{name}: not run again, it may reach beyond the workspace; tree from the log"));
        }
        Ran::Unknown => {
            note(cx, &format!("{name}: not run again, a crash left its outcome unknown; tree from the log"));
        }
    }
}

fn note(cx: &Context, text: &str) {
    display::say(&format!("    {}", cx.screen.paint(Style::Dim, &line(text))));
}

fn say_totals(cx: &Context, run: RunId, totals: RerunTotals) -> Exit {
    let ok = totals.turns_differ == 0;
    let RerunTotals { turns, turns_differ, ran, not_run, contents_differ } = totals;
    if cx.json() {
        display::say_json(&Summary {
            replay: KIND,
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
            cx.screen.paint(Style::Good, "the calls do again what they did")
        } else {
            cx.screen.paint(Style::Bad, &format!("{turns_differ} of {turns} turns differ"))
        };
        display::say(&format!(
            "{head}: {turns} turns, {ran} calls run again, {not_run} not, {contents_differ} results read otherwise"
        ));
    }
    if ok { Exit::Ok } else { Exit::Verification }
}
