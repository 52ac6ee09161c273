//! The command line: which groups run, how much effort each takes, and what is printed.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Map, json};

use crate::{
    groups::{BenchSetup, measure_group},
    harness::{
        bench_folder::{BenchFolder, remove_contents},
        docket_binary,
    },
    output::{OutputFormat, print_line, print_progress},
    report::{BenchReport, EffortLevel, FigureGroup, LEFT_OUT, list_figures},
};

/// Exit codes. Scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchExitCode {
    /// Every measured figure has a value.
    Ok,
    /// A group failed, or a figure is missing.
    Failed,
    /// The command line is invalid, or names something that does not exist.
    Usage,
    /// With `--strict`: a target was missed.
    TargetMissed,
}

impl BenchExitCode {
    /// Returns the exit code. Codes shared with `docket` have the same number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::TargetMissed => 8,
        }
    }
}

/// A group that takes longer than this has hung; the others still run.
const GROUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Additional time for each requested finished run.
const FILL_TIMEOUT: Duration = Duration::from_millis(50);

/// Benchmarks docket on this machine, figure by figure, with targets
#[derive(Debug, clap::Parser)]
#[command(
    name = "docket-bench",
    version,
    after_help = "Takes about two minutes on an otherwise idle machine; any other load distorts every figure. All data is written
to a new folder, which is removed at the end, and on PostgreSQL to a separate schema. With --strict the exit code is
8 if a target is missed; a figure that was not measured does not count as missed. `docket bench` has the few figures
with which a user sizes a machine.

Examples:
  cargo build --release -p docket-cli -p docket-bench
  docket-bench
  docket-bench --json | jq .turn_overhead_ms_p50
  docket-bench --only sqlite --only http --store-dir /mnt/fast
  docket-bench --postgres postgres://localhost/docket --only postgres
  docket-bench --only finished --finished-runs 100000
  docket-bench --only followers
  docket-bench --postgres postgres://localhost/docket --only drain-postgres --hold-seconds 600"
)]
pub(crate) struct BenchArgs {
    /// The docket binary to measure [default: `docket` next to this program]
    #[arg(long, value_name = "PATH")]
    docket: Option<PathBuf>,
    /// Print one JSON object, or one per line with --list
    #[arg(long)]
    json: bool,
    /// Folder for the measured databases; figures depend on its file system [default: the temporary
    /// folder]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// URL of a PostgreSQL server to measure
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    postgres: Option<String>,
    /// Take fewer and shorter samples: about 20 seconds, with less precise figures
    #[arg(long)]
    quick: bool,
    /// Do the minimum that gives every figure a value, to check that each is measured; the values
    /// mean little
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,
    /// List the groups and their figures without measuring
    #[arg(long, conflicts_with_all = ["quick", "smoke", "strict"])]
    list: bool,
    /// Exit with code 8 if a target is missed
    #[arg(long)]
    strict: bool,
    /// Number of finished runs, of a hundred events each, that fill a store [default: 1000; 100 with --quick]
    #[arg(long, value_name = "N")]
    finished_runs: Option<u32>,
    /// Minimum time to hold the snapshot while leases are measured on PostgreSQL
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    hold_seconds: u32,
    /// Measure only this group; may be repeated
    #[arg(long, value_enum, value_name = "GROUP")]
    only: Vec<FigureGroup>,
}

impl BenchArgs {
    const fn effort_level(&self) -> EffortLevel {
        match (self.quick, self.smoke) {
            (true, _) => EffortLevel::Quick,
            (false, true) => EffortLevel::Smoke,
            (false, false) => EffortLevel::Full,
        }
    }

    /// Returns the PostgreSQL server. An empty variable counts as unset.
    fn postgres_server(&self) -> Option<&str> {
        self.postgres.as_deref().filter(|url| !url.trim().is_empty())
    }

    /// Returns why a group cannot be measured with these flags.
    fn missing_requirement(&self, group: FigureGroup) -> Option<&'static str> {
        let lacks = group.needs_postgres() && self.postgres_server().is_none();
        lacks.then_some("no server; set one with --postgres or DATABASE_URL")
    }

    const fn output_format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { OutputFormat::Text }
    }

    /// Finds the binary and creates the folder.
    fn prepare_setup(&self) -> anyhow::Result<BenchSetup> {
        if let Some((group, why)) =
            self.only.iter().find_map(|group| Some((group, self.missing_requirement(*group)?)))
        {
            anyhow::bail!("--only {}: {why}", group.name());
        }
        let parent = self.store_dir.clone().unwrap_or_else(std::env::temp_dir);
        Ok(BenchSetup {
            docket: docket_binary::find_docket(self.docket.as_deref())?,
            place: BenchFolder::new(&parent)?,
            postgres_server: self.postgres_server().map(str::to_owned),
            effort: self.effort_level(),
            finished_runs: self.finished_runs.unwrap_or(self.effort_level().finished_runs()) as usize,
            snapshot_hold: Duration::from_secs(self.hold_seconds.into()),
        })
    }
}

/// Total time, and the part of it after the last figure.
struct ElapsedTimes {
    groups: Vec<(FigureGroup, Duration)>,
    cleanup: Duration,
    total: Duration,
}

/// Measures and prints. A missed target is a failure only with `--strict`; a failed group always is, and so
/// is a missing figure of a measured group.
pub(crate) async fn run_bench(args: BenchArgs) -> anyhow::Result<BenchExitCode> {
    if args.list {
        list_figures(args.output_format(), &args.only)?;
        return Ok(BenchExitCode::Ok);
    }
    let started = Instant::now();
    let setup = match args.prepare_setup() {
        Ok(setup) => setup,
        Err(error) => {
            print_progress(&format!("error: {error:#}"));
            return Ok(BenchExitCode::Usage);
        }
    };
    if cfg!(debug_assertions) {
        print_progress("this is a debug build: it is many times slower than a release build");
    }
    let (mut report, mut groups) = (BenchReport::default(), Vec::new());
    let mut removal = None;
    for group in FigureGroup::ALL {
        let left_out = (!args.only.is_empty() && !args.only.contains(&group)).then_some(LEFT_OUT);
        if let Some(why) = left_out.or_else(|| args.missing_requirement(group)) {
            report.set_rest_missing(group, why);
            continue;
        }
        if !group.is_timed() {
            let root = setup.place.path().to_owned();
            removal = Some(tokio::task::spawn_blocking(move || remove_contents(&root, &[group.name()])));
        }
        groups.push((group, run_group(group, &args, &setup, &mut report).await));
    }
    let measured = Instant::now();
    clean_up(setup.place, removal).await;
    let took = ElapsedTimes { groups, cleanup: measured.elapsed(), total: started.elapsed() };
    print_report(&args, &report, &took)?;
    Ok(exit_code(&report, args.strict))
}

/// Measures a group and reports its missing figures; returns how long that took.
async fn run_group(
    group: FigureGroup,
    args: &BenchArgs,
    setup: &BenchSetup,
    report: &mut BenchReport,
) -> Duration {
    print_progress(&format!("measuring: {}", group.name()));
    let began = Instant::now();
    let timeout = group_timeout(group, args);
    let broke = match tokio::time::timeout(timeout, Box::pin(measure_group(group, setup, report))).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(format!("{error:#}")),
        Err(_) => Some(format!("it did not finish within {} s", timeout.as_secs())),
    };
    if let Some(reason) = broke {
        print_progress(&format!("error: {} failed: {reason}", group.name()));
        report.fail_group(group, &reason);
    }
    for fault in report.check_complete(group) {
        print_progress(&format!("error: {}: {fault}", group.name()));
    }
    began.elapsed()
}

fn group_timeout(group: FigureGroup, args: &BenchArgs) -> Duration {
    match group {
        FigureGroup::Finished | FigureGroup::FinishedPostgres => {
            GROUP_TIMEOUT + FILL_TIMEOUT * args.finished_runs.unwrap_or(0)
        }
        FigureGroup::DrainPostgres => GROUP_TIMEOUT + Duration::from_secs(args.hold_seconds.into()),
        // In one of these a lease expires; in the others, runs append at a fixed rate or have many
        // turns.
        FigureGroup::Workers
        | FigureGroup::Followers
        | FigureGroup::FollowersPostgres
        | FigureGroup::Turns
        | FigureGroup::Storage => GROUP_TIMEOUT * 2,
        FigureGroup::Latency
        | FigureGroup::Sandbox
        | FigureGroup::Snapshots
        | FigureGroup::Sqlite
        | FigureGroup::Postgres
        | FigureGroup::Http
        | FigureGroup::Drain
        | FigureGroup::Overview
        | FigureGroup::OverviewPostgres
        | FigureGroup::Fold
        | FigureGroup::Edit
        | FigureGroup::Engine
        | FigureGroup::Search => GROUP_TIMEOUT,
    }
}

fn exit_code(report: &BenchReport, strict: bool) -> BenchExitCode {
    match (report.has_failed(), strict && !report.missed_targets().is_empty()) {
        (true, _) => BenchExitCode::Failed,
        (false, true) => BenchExitCode::TargetMissed,
        (false, false) => BenchExitCode::Ok,
    }
}

/// Removes the remaining files; `removal` is already in progress.
async fn clean_up(place: BenchFolder, removal: Option<tokio::task::JoinHandle<std::io::Result<()>>>) {
    let path = place.path().to_owned();
    if let Some(removal) = removal {
        // Failures are reported by the next removal.
        drop(removal.await);
    }
    let removed = tokio::task::spawn_blocking(move || place.remove()).await;
    if let Err(error) = removed.unwrap_or_else(|broke| Err(std::io::Error::other(broke))) {
        print_progress(&format!("cannot remove {} ({error}); remove it manually", path.display()));
    }
}

fn print_report(args: &BenchArgs, report: &BenchReport, took: &ElapsedTimes) -> std::io::Result<()> {
    let seconds = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if args.output_format() == OutputFormat::Json {
        let mut about = Map::new();
        about.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        about.insert("debug_build".to_owned(), json!(cfg!(debug_assertions)));
        about.insert("quick".to_owned(), json!(args.quick));
        about.insert("smoke".to_owned(), json!(args.smoke));
        about.insert("cpus".to_owned(), json!(cpus));
        for (group, time) in &took.groups {
            about.insert(format!("took_{}_s", group.name()), json!(seconds(*time)));
        }
        about.insert("took_cleanup_s".to_owned(), json!(seconds(took.cleanup)));
        about.insert("took_s".to_owned(), json!(seconds(took.total)));
        print_line(&report.to_json(about).to_string())
    } else {
        print_line(report.to_table().trim_end())?;
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        let (whole, cleanup) = (seconds(took.total), seconds(took.cleanup));
        print_line(&format!("{cpus} processors, {build} build, {whole} s, including {cleanup} s of cleanup"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_target_has_its_own_exit_code_when_strict() {
        let mut report = BenchReport::default();
        report.set("cold_start_ms", 99.0);
        assert_eq!(exit_code(&report, true), BenchExitCode::Ok);
        report.set("run_30_turns_ms", 601.0);
        assert_eq!(report.missed_targets(), ["run_30_turns_ms"]);
        assert_eq!(exit_code(&report, false), BenchExitCode::Ok);
        assert_eq!(
            (exit_code(&report, true), BenchExitCode::TargetMissed.code()),
            (BenchExitCode::TargetMissed, 8)
        );
        report.fail_group(FigureGroup::Fold, "no room");
        assert_eq!(exit_code(&report, true), BenchExitCode::Failed);
    }
}
