//! `docket demo`: the whole of docket on sample projects, with two kills in mid-turn.
//!
//! The decisions come from scripts; all else is what every other command uses: the store, the
//! coordinator, two supervisors and their run processes as real processes, the sandbox, git. Who is
//! killed when follows from what the log says, never from a clock: the demo kills while a tool call
//! stands in the log with an intent and no result.

mod check;
mod stage;
mod watch;

use std::time::{Duration, Instant};

use docket_worker::client::Client;
use serde::Serialize;

use crate::{
    commands::runs::{replay, verify},
    context::Context,
    home::{Home, OwnerCommand},
    output::{
        display::{self, Cell, Style, Table},
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
    services::serve::{Served, ServerArgs},
};

/// The lease of the demo: short, so that a killed supervisor's work is taken over while one watches.
const LEASE_MS: u64 = 1500;
/// All tasks must have ended by then: some seconds, and many times that beside a build.
const TASKS_TIME_MAX: Duration = Duration::from_mins(10);
/// How long the last worker may take to end in order.
const WORKER_END: Duration = Duration::from_secs(5);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs no model and no key: what the model says comes from scripts, and all else is real. Its state goes
away with it, unless --keep says otherwise.

Examples:
  docket demo
  DOCKET_HOME=/tmp/docket docket demo --keep && DOCKET_HOME=/tmp/docket docket ps"
)]
pub(crate) struct Args {
    /// Keep its state in the home, for `docket ps`, `replay`, `verify` and the rest
    #[arg(long)]
    keep: bool,
}

/// How it went, as `--json` shows it.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    decisions: &'static str,
    tasks: Vec<check::Checked>,
    kills: Vec<watch::Kill>,
    left_out: Vec<String>,
    verify: verify::Report,
    home: Option<String>,
    took_ms: u128,
}

/// Shows it.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    let begun = Instant::now();
    let folder = if args.keep {
        None
    } else {
        let folder = tempfile::Builder::new().prefix("docket-demo-").tempdir()?;
        cx.home = Home::open(Some(folder.path()))?;
        Some(folder)
    };
    cx.config.server.lease_ms = LEASE_MS;
    "127.0.0.1:0".clone_into(&mut cx.config.server.listen);
    cx.config.store = None;
    say(
        &cx,
        "The model's decisions here are scripted. All else is real: log, queue, processes, sandbox, tests, git.",
    );
    let served = Served::start(&mut cx, &ServerArgs::default(), OwnerCommand::Demo).await?;
    let client = Client::new(served.address(), cx.home.token()?)?;
    let report = play(&cx, &client, served.address(), begun).await;
    served.stop().await;
    let mut report = report?;
    report.home = folder.is_none().then(|| cx.home.path().display().to_string());
    conclude(&cx, &report);
    Ok(if report.ok { Exit::Ok } else { Exit::Failed })
}

async fn play(cx: &Context, client: &Client, address: &str, begun: Instant) -> Outcome<Report> {
    let staged = stage::prepare(cx, client).await?;
    let mut workers = stage::Workers::start(cx, address).await?;
    let play = watch::until_ended(cx, client, &staged.tasks, &mut workers);
    let kills = tokio::time::timeout(TASKS_TIME_MAX, play).await.map_err(|_| {
        let message = format!(
            "the tasks did not end within {} s; run with --keep and look at `docket ps`",
            TASKS_TIME_MAX.as_secs()
        );
        Failure::new(Exit::Failed, message)
    });
    workers.end(WORKER_END).await;
    let kills = kills??;
    say(cx, "");
    say(cx, "Each result is made again from the log, and its tests are run in the sandbox:");
    let tasks = check::all(cx, client, &staged.tasks).await?;
    if !cx.json() {
        say_results(cx, &tasks);
        if let Some(kill) = kills.first() {
            say(cx, "");
            replay::all_of(cx, client, kill.run).await?;
        }
        say(cx, "");
    }
    let verified =
        verify::whole_log(cx, client, &crate::history::lineage::Source::Client(client.clone())).await?;
    if !cx.json() {
        verify::say(cx, &verified);
    }
    let ok = verified.ok && kills.len() == watch::KILLS && tasks.iter().all(|task| task.green);
    Ok(Report {
        ok,
        decisions: "scripted",
        tasks,
        kills,
        left_out: staged.left_out,
        verify: verified,
        home: None,
        took_ms: begun.elapsed().as_millis(),
    })
}

/// A line for people.
fn say(cx: &Context, text: &str) {
    if !cx.json() {
        display::say(text);
    }
}

fn say_results(cx: &Context, tasks: &[check::Checked]) {
    let mut table = Table::new(&["PROJECT", "TASK", "STATE", "TESTS", "LEASES", "TURNS", "TITLE"]);
    for task in tasks {
        let (style, word) = if task.green { (Style::Good, "green") } else { (Style::Bad, "red") };
        table.row(vec![
            Cell::new(&task.project),
            Cell::new(&task.name),
            Cell::new(&task.state),
            Cell::styled(word, style),
            Cell::new(task.leases.to_string()),
            Cell::new(task.turns.to_string()),
            Cell::new(&task.title),
        ]);
    }
    display::say(&table.render(cx.screen));
}

fn conclude(cx: &Context, report: &Report) {
    if cx.json() {
        display::say_json(report);
        return;
    }
    let green = report.tasks.iter().filter(|task| task.green).count();
    let text = format!(
        "{green} of {} tasks end with their tests green; {} processes were killed with -9 in mid-turn; {:.1} s",
        report.tasks.len(),
        report.kills.len(),
        Duration::from_millis(u64::try_from(report.took_ms).unwrap_or(u64::MAX)).as_secs_f64()
    );
    let style = if report.ok { Style::Good } else { Style::Bad };
    display::say(&cx.screen.paint(style, &text));
    if let Some(home) = &report.home {
        let home = display::line(home).into_owned();
        display::say(&format!("Kept. Try: docket --home {home} ps, or replay, show, diff, verify"));
    }
}

/// A failure of the demo's own stage.
fn staging<T, E: Into<anyhow::Error>>(result: Result<T, E>, what: &str) -> Outcome<T> {
    result.fail_with(Exit::Failed, || format!("the demo cannot {what}"))
}
