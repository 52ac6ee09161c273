//! Implements `docket bench`: measures each part, prints a table or JSON, and reports missing
//! figures.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use docket_worker::bootstrap::SandboxChoice;
use serde_json::json;

use super::{
    report::{
        BenchReport, FILES_PART, POSTGRES_PART, RUN_MEMORY, RUNS_PART, SANDBOX_PART, STORE_PART,
        TURN_OVERHEAD,
    },
    runs, store,
};
use crate::{
    context::CliContext,
    home::DocketHome,
    output::{
        display,
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Command-line arguments of `docket bench`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes about 20 seconds on an otherwise idle machine; other load affects every figure. All data is
written to a new folder, which is removed at the end; on PostgreSQL, to a separate schema.

Examples:
  docket bench
  docket bench --json | jq .turn_overhead_ms_p50
  docket bench --quick --store-dir /mnt/fast
  docket bench --postgres postgres://localhost/docket"
)]
pub(crate) struct BenchArgs {
    /// Folder for databases and workspaces; its file system is what gets measured [default: the
    /// temporary folder]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// PostgreSQL server to measure as well
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    postgres: Option<String>,
    /// Take fewer and shorter samples: about 5 seconds, with more variance
    #[arg(long)]
    quick: bool,
}

/// How many samples each part takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BenchEffort {
    /// Rounds that alternate raw commits and appends, and the length of each.
    pub(super) rounds: usize,
    pub(super) slice_time: Duration,
    /// Submits of 1,000 tasks each.
    pub(super) submits: usize,
    /// Runs executed one at a time, and tasks drained with run processes.
    pub(super) single_runs: usize,
    pub(super) drained_runs: usize,
    /// Commands started and snapshots taken.
    pub(super) samples: usize,
}

impl BenchArgs {
    const fn effort(&self) -> BenchEffort {
        if self.quick {
            let slice = Duration::from_millis(100);
            return BenchEffort {
                rounds: 2,
                slice_time: slice,
                submits: 2,
                single_runs: 5,
                drained_runs: 8,
                samples: 7,
            };
        }
        let slice = Duration::from_millis(200);
        BenchEffort {
            rounds: 5,
            slice_time: slice,
            submits: 8,
            single_runs: 25,
            drained_runs: 60,
            samples: 25,
        }
    }
}

pub(crate) async fn run_bench(mut cx: CliContext, args: BenchArgs) -> CliResult {
    if cfg!(debug_assertions) {
        display::print_note(
            "this is a debug build; its figures are many times worse than those of a release build",
        );
    }
    let started = Instant::now();
    let parent = args.store_dir.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new().prefix("docket-bench-").tempdir_in(&parent);
    let folder = folder.fail_with(ExitKind::Usage, || {
        format!("cannot create a folder in {}; choose another with --store-dir", parent.display())
    })?;
    cx.home = DocketHome::open(Some(&folder.path().join("home")))?;
    let (effort, mut report) = (args.effort(), BenchReport::default());
    report.measure_part(STORE_PART, store::measure_sqlite(folder.path(), effort)).await;
    // An empty variable means no server.
    match args.postgres.as_deref().filter(|url| !url.trim().is_empty()) {
        Some(server) => report.measure_part(POSTGRES_PART, store::measure_postgres(server, effort)).await,
        None => report.skip_part(POSTGRES_PART, "no server; specify one with --postgres"),
    }
    report.measure_part(RUNS_PART, runs::measure_runs(&cx, folder.path(), effort)).await;
    match cx.config.sandbox {
        SandboxChoice::None => report.skip_part(SANDBOX_PART, "the sandbox is disabled in the settings"),
        SandboxChoice::Auto | SandboxChoice::Bubblewrap | SandboxChoice::Namespaces => {
            report.measure_part(SANDBOX_PART, runs::measure_sandbox(&cx, effort)).await;
        }
    }
    report.measure_part(FILES_PART, runs::measure_files(folder.path(), effort)).await;
    let path = folder.path().to_owned();
    if let Err(error) = folder.close() {
        display::print_note(&format!("cannot remove {} ({error}); remove it manually", path.display()));
    }
    print_report(&cx, &args, &report, started.elapsed());
    for (name, reason) in report.missing_figures() {
        display::print_note(&display::sanitize_line(&format!(
            "error: figure {name} was not measured: {reason}"
        )));
    }
    Ok(if report.missing_figures().next().is_none() { ExitKind::Ok } else { ExitKind::Failed })
}

fn print_report(cx: &CliContext, args: &BenchArgs, report: &BenchReport, took: Duration) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cx.is_json() {
        display::print_json(&report.to_json(json!({
            "version": env!("CARGO_PKG_VERSION"),
            "debug_build": cfg!(debug_assertions),
            "quick": args.quick,
            "cpus": cpus,
            "took_s": (took.as_secs_f64() * 10.0).round() / 10.0,
        })));
        return;
    }
    display::print_line(&display::sanitize_text(&report.format_table()));
    if let (Some(memory), Some(overhead)) = (report.value(RUN_MEMORY), report.value(TURN_OVERHEAD)) {
        display::print_line(&cx.screen.wrap_prose(&format!(
            "Slots: divide the memory you can spare by {memory:.0} MB plus what a task's own builds and tests need; \
             docket adds {overhead:.1} ms to a turn, while a model takes seconds."
        )));
    }
    display::print_line(&format!("{cpus} processors, {:.1} s", took.as_secs_f64()));
}
