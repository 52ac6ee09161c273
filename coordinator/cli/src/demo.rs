//! `docket demo`: runs docket on sample projects and kills two processes in mid-turn.
//!
//! The model's decisions come from scripts; everything else is what other commands use: the store, the
//! coordinator, two supervisors and their run processes as real processes, the sandbox, git. The kills are
//! triggered by the log, never by a clock: the demo kills while a tool call has an intent in the log and no
//! result.

mod check;
mod setup;
mod watch;

use std::time::{Duration, Instant};

use docket_worker::client::CoordinatorClient;
use serde::Serialize;

use crate::{
    commands::runs::{replay, verify},
    context::CliContext,
    home::{DocketHome, OwnerCommand},
    output::{
        display::{self, TableCell, TextStyle, TextTable},
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    services::serve::{HomeCoordinator, ServerArgs},
};

/// The lease of the demo: short, so that work of a killed supervisor is taken over while one watches.
const LEASE_MS: u64 = 1500;
/// Time limit of all tasks: normally seconds, but many times that on a busy machine.
const TASKS_TIME_MAX: Duration = Duration::from_mins(10);
/// Grace period for the last worker to shut down.
const WORKER_STOP_GRACE: Duration = Duration::from_secs(5);

/// Arguments of `docket demo`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Needs no model and no API key: the model's replies come from scripts, everything else is real. Its
state is deleted afterwards, unless --keep is given.

Examples:
  docket demo
  DOCKET_HOME=/tmp/docket docket demo --keep && DOCKET_HOME=/tmp/docket docket ps"
)]
pub(crate) struct DemoArgs {
    /// Keep its state in the home, for use with `docket ps`, `replay`, `verify` and other commands
    #[arg(long)]
    keep: bool,
}

/// The result of the demo, as shown by `--json`.
#[derive(Debug, Serialize)]
struct DemoReport {
    ok: bool,
    decisions: &'static str,
    tasks: Vec<check::TaskCheck>,
    kills: Vec<watch::KilledProcess>,
    left_out: Vec<String>,
    verify: verify::VerifyReport,
    home: Option<String>,
    took_ms: u128,
}

/// Runs the demo.
pub(crate) async fn run_demo(mut cx: CliContext, args: DemoArgs) -> CliResult {
    let begun = Instant::now();
    let folder = if args.keep {
        None
    } else {
        let folder = tempfile::Builder::new().prefix("docket-demo-").tempdir()?;
        cx.home = DocketHome::open(Some(folder.path()))?;
        Some(folder)
    };
    cx.config.server.lease_ms = LEASE_MS;
    "127.0.0.1:0".clone_into(&mut cx.config.server.listen);
    cx.config.store = None;
    print_line(
        &cx,
        "The model's decisions are scripted. Everything else is real: log, queue, processes, sandbox, tests, git.",
    );
    let served = HomeCoordinator::start(&mut cx, &ServerArgs::default(), OwnerCommand::Demo).await?;
    let client = CoordinatorClient::new(served.address(), cx.home.load_or_create_token()?)?;
    let report = run_scenario(&cx, &client, served.address(), begun).await;
    served.stop().await;
    let mut report = report?;
    report.home = folder.is_none().then(|| cx.home.path().display().to_string());
    print_report(&cx, &report);
    Ok(if report.ok { ExitKind::Ok } else { ExitKind::Failed })
}

async fn run_scenario(
    cx: &CliContext,
    client: &CoordinatorClient,
    address: &str,
    begun: Instant,
) -> CliResult<DemoReport> {
    let staged = setup::prepare_demo(cx, client).await?;
    let mut workers = setup::DemoWorkers::start(cx, address).await?;
    let play = watch::watch_until_ended(cx, client, &staged.tasks, &mut workers);
    let kills = tokio::time::timeout(TASKS_TIME_MAX, play).await.map_err(|_| {
        let message = format!(
            "the tasks did not end within {} s; run with --keep and check `docket ps`",
            TASKS_TIME_MAX.as_secs()
        );
        CliError::new(ExitKind::Failed, message)
    });
    workers.stop(WORKER_STOP_GRACE).await;
    let kills = kills??;
    print_line(cx, "");
    print_line(cx, "Rebuilding each result from the log and running its tests in the sandbox:");
    let tasks = check::check_tasks(cx, client, &staged.tasks).await?;
    if !cx.is_json() {
        print_results(cx, &tasks);
        if let Some(kill) = kills.first() {
            print_line(cx, "");
            replay::print_all_turns(cx, client, kill.run).await?;
        }
        print_line(cx, "");
    }
    let verified =
        verify::verify_whole_log(cx, client, &crate::history::lineage::HistorySource::Client(client.clone()))
            .await?;
    if !cx.is_json() {
        verify::print_report(cx, &verified);
    }
    let ok = verified.ok && kills.len() == watch::KILL_COUNT && tasks.iter().all(|task| task.green);
    Ok(DemoReport {
        ok,
        decisions: "scripted",
        tasks,
        kills,
        left_out: staged.skipped_projects,
        verify: verified,
        home: None,
        took_ms: begun.elapsed().as_millis(),
    })
}

/// Prints a line for people.
fn print_line(cx: &CliContext, text: &str) {
    if !cx.is_json() {
        display::print_line(text);
    }
}

fn print_results(cx: &CliContext, tasks: &[check::TaskCheck]) {
    let mut table = TextTable::new(&["PROJECT", "TASK", "STATE", "TESTS", "LEASES", "TURNS", "TITLE"]);
    for task in tasks {
        let (style, word) = if task.green { (TextStyle::Good, "green") } else { (TextStyle::Bad, "red") };
        table.add_row(vec![
            TableCell::new(&task.project),
            TableCell::new(&task.name),
            TableCell::new(&task.state),
            TableCell::styled(word, style),
            TableCell::new(task.leases.to_string()),
            TableCell::new(task.turns.to_string()),
            TableCell::new(&task.title),
        ]);
    }
    display::print_line(&table.render(cx.screen));
}

fn print_report(cx: &CliContext, report: &DemoReport) {
    if cx.is_json() {
        display::print_json(report);
        return;
    }
    let green = report.tasks.iter().filter(|task| task.green).count();
    let text = format!(
        "{green} of {} tasks ended with passing tests; {} processes were killed with -9 in mid-turn; {:.1} s",
        report.tasks.len(),
        report.kills.len(),
        Duration::from_millis(u64::try_from(report.took_ms).unwrap_or(u64::MAX)).as_secs_f64()
    );
    let style = if report.ok { TextStyle::Good } else { TextStyle::Bad };
    display::print_line(&cx.screen.paint(style, &text));
    if let Some(home) = &report.home {
        let home = display::sanitize_line(home).into_owned();
        display::print_line(&format!("Kept. Try: docket --home {home} ps, or replay, show, diff, verify"));
    }
}

/// Maps a failure of the demo's own setup.
fn map_setup_error<T, E: Into<anyhow::Error>>(result: Result<T, E>, what: &str) -> CliResult<T> {
    result.fail_with(ExitKind::Failed, || format!("the demo cannot {what}"))
}
