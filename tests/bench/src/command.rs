//! The subcommand: which groups run, how much effort each takes, and what is printed.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::{Map, json};

use super::{
    appends, checkpoints, crash, drain, edit,
    effort::Effort,
    engine, finished, fold, followers,
    group::Group,
    http, latency, listing, long, overview,
    places::{PgSchema, Place, Served, empty, sqlite_in},
    raw::Raw,
    remote,
    report::{LEFT_OUT, Report},
    sandbox, search, snapshots, storage, turns,
};
use crate::{
    context::Context,
    display,
    fail::{Exit, Failure, Outcome},
};

/// A group that takes longer than this hangs: the rest is still worth having.
const GROUP_TIMEOUT: Duration = Duration::from_secs(60);

/// So much longer for each finished run that was asked for.
const FILL_TIMEOUT: Duration = Duration::from_millis(50);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes some two minutes on an otherwise idle machine; what else runs on it shows in every figure. All that
is written goes into a new folder, which is removed at the end; on PostgreSQL into a schema of its own. With --strict
it ends with 8 where a target is missed; a figure that was not measured misses none.

Examples:
  docket bench
  docket bench --json | jq .turn_overhead_ms_p50
  docket bench --only sqlite --only http --store-dir /mnt/fast
  docket bench --postgres postgres://localhost/docket --only postgres
  docket bench --only finished --finished-runs 100000
  docket bench --only followers
  docket bench --postgres postgres://localhost/docket --only drain-postgres --hold-seconds 600"
)]
pub(crate) struct Args {
    /// Where the measured databases lie: figures are this file system's [default: the temporary folder]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// A PostgreSQL server to measure
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    postgres: Option<String>,
    /// Fewer and shorter samples: some 20 seconds, and figures to match
    #[arg(long)]
    quick: bool,
    /// The least that gives every figure a value, to see that each is measured; the values say little
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,
    /// List the groups with the figures that each owns, and measure nothing
    #[arg(long, conflicts_with_all = ["quick", "smoke", "strict"])]
    list: bool,
    /// End with exit code 8 where a target is missed
    #[arg(long)]
    strict: bool,
    /// Finished runs, of a hundred events each, that a store is filled with [default: 1000; 100 with --quick]
    #[arg(long, value_name = "N")]
    finished_runs: Option<u32>,
    /// Hold the snapshot beside which leases are measured at PostgreSQL for so long at least
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    hold_seconds: u32,
    /// Measure this group only; may be given several times
    #[arg(long, value_enum, value_name = "GROUP")]
    only: Vec<Group>,
}

impl Args {
    const fn effort(&self) -> Effort {
        match (self.quick, self.smoke) {
            (true, _) => Effort::Quick,
            (false, true) => Effort::Smoke,
            (false, false) => Effort::Full,
        }
    }

    /// The PostgreSQL server. A variable that is empty names none.
    fn server(&self) -> Option<&str> {
        self.postgres.as_deref().filter(|url| !url.trim().is_empty())
    }

    /// Why a group cannot be measured with these flags, if so.
    fn lacks(&self, group: Group) -> Option<&'static str> {
        let lacks = group.wants_postgres() && self.server().is_none();
        lacks.then_some("no server; name one with --postgres or DATABASE_URL")
    }

    fn hold(&self) -> Duration {
        Duration::from_secs(self.hold_seconds.into())
    }
}

/// What the whole took, and of it what came after the last figure.
struct Took {
    groups: Vec<(Group, Duration)>,
    cleanup: Duration,
    whole: Duration,
}

/// Measures, and prints. A missed target is no failure unless asked for; a group that breaks off is, and so is a figure
/// that a measured group owes.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    if args.list {
        listing::say(&cx, &args.only);
        return Ok(Exit::Ok);
    }
    if let Some((group, why)) = args.only.iter().find_map(|group| Some((group, args.lacks(*group)?))) {
        return Err(Failure::new(Exit::Usage, format!("--only {}: {why}", group.name())));
    }
    if cfg!(debug_assertions) {
        display::note("this is a debug build: figures are those of a release build many times over");
    }
    let started = Instant::now();
    let effort = args.effort();
    let parent = args.store_dir.clone().unwrap_or_else(std::env::temp_dir);
    let place = Place::new(&parent).map_err(|error| Failure { exit: Exit::Usage, error })?;
    let (mut report, mut groups) = (Report::default(), Vec::new());
    let mut removal = None;
    for group in Group::ALL {
        if !args.only.is_empty() && !args.only.contains(&group) {
            report.lacks_rest_of(group, LEFT_OUT);
            continue;
        }
        if let Some(why) = args.lacks(group) {
            report.lacks_rest_of(group, why);
            continue;
        }
        if !group.is_timed() {
            let root = place.path().to_owned();
            removal = Some(tokio::task::spawn_blocking(move || empty(&root, &[group.name()])));
        }
        display::note(&format!("measuring: {}", group.name()));
        let began = Instant::now();
        let measured = Box::pin(measure(group, &args, effort, &place, &mut report));
        let timeout = timeout(group, &args);
        let broke = match tokio::time::timeout(timeout, measured).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(_) => Some(format!("it was not done after {} s", timeout.as_secs())),
        };
        if let Some(reason) = broke {
            display::note(&format!("error: {} broke off: {}", group.name(), display::line(&reason)));
            report.broke(group, &reason);
        }
        for fault in report.check(group) {
            display::note(&display::line(&format!("error: {}: {fault}", group.name())));
        }
        groups.push((group, began.elapsed()));
    }
    let measured = Instant::now();
    clean_up(place, removal).await;
    let took = Took { groups, cleanup: measured.elapsed(), whole: started.elapsed() };
    print(&cx, &args, &report, &took);
    Ok(exit_of(&report, args.strict))
}

fn timeout(group: Group, args: &Args) -> Duration {
    match group {
        Group::Finished | Group::FinishedPostgres => {
            GROUP_TIMEOUT + FILL_TIMEOUT * args.finished_runs.unwrap_or(0)
        }
        Group::DrainPostgres => GROUP_TIMEOUT + args.hold(),
        // A lease ends in the one; in the others runs append at their own pace, or have many turns.
        Group::Workers | Group::Followers | Group::FollowersPostgres | Group::Turns | Group::Storage => {
            GROUP_TIMEOUT * 2
        }
        Group::Latency
        | Group::Sandbox
        | Group::Snapshots
        | Group::Sqlite
        | Group::Postgres
        | Group::Http
        | Group::Drain
        | Group::Overview
        | Group::OverviewPostgres
        | Group::Fold
        | Group::Edit
        | Group::Engine
        | Group::Search => GROUP_TIMEOUT,
    }
}

fn exit_of(report: &Report, strict: bool) -> Exit {
    match (report.failed(), strict && !report.missed().is_empty()) {
        (true, _) => Exit::Failed,
        (false, true) => Exit::TargetMissed,
        (false, false) => Exit::Ok,
    }
}

/// Removes what is left; `removal` is under way already.
async fn clean_up(place: Place, removal: Option<tokio::task::JoinHandle<std::io::Result<()>>>) {
    let path = place.path().to_owned();
    if let Some(removal) = removal {
        // What it could not remove, the next one tells.
        drop(removal.await);
    }
    let removed = tokio::task::spawn_blocking(move || place.remove()).await;
    if let Err(error) = removed.unwrap_or_else(|broke| Err(std::io::Error::other(broke))) {
        display::note(&format!("{} is not removed ({error}); remove it by hand", path.display()));
    }
}

async fn measure(
    group: Group,
    args: &Args,
    effort: Effort,
    place: &Place,
    report: &mut Report,
) -> anyhow::Result<()> {
    let folder = place.part(group.name())?;
    let url = || args.server().context("a group of PostgreSQL begins with a server alone");
    match group {
        Group::Sqlite => {
            let (store, mut raw) = (sqlite_in(&folder).await?, Raw::sqlite(&folder)?);
            let measured = appends::measure(&store, &mut raw, &appends::SQLITE, effort, report).await;
            raw.close().await;
            store.close().await;
            measured?;
            checkpoints::measure(&folder, effort, report).await
        }
        Group::Postgres => postgres(url()?, effort, report).await,
        Group::Http => {
            let (served, mut raw) = (Served::start(&folder).await?, Raw::sqlite(&folder)?);
            let mut measured = http::measure(&served.running, &mut raw, effort, report).await;
            if measured.is_ok() {
                measured = remote::measure(&served, &mut raw, effort, report).await;
            }
            raw.close().await;
            served.end().await;
            measured
        }
        Group::Latency => {
            let served = Served::start(&folder).await?;
            let measured =
                latency::measure(&served.running, &served.token, &latency::SQLITE, effort, report).await;
            served.end().await;
            measured
        }
        Group::Drain => {
            let store = sqlite_in(&folder).await?;
            let measured = drain::measure(&store, &drain::SQLITE, effort, report).await;
            store.close().await;
            measured
        }
        Group::DrainPostgres => drain_postgres(url()?, args.hold(), effort, report).await,
        Group::Finished => {
            let runs = args.finished_runs.unwrap_or(effort.finished_runs()) as usize;
            let (empty, full) = (place.part("finished/empty")?, place.part("finished/full")?);
            let (empty, full) = (sqlite_in(&empty).await?, sqlite_in(&full).await?);
            let measured = finished::measure(&empty, &full, runs, &finished::SQLITE, effort, report).await;
            empty.close().await;
            full.close().await;
            measured
        }
        Group::FinishedPostgres => {
            let runs = args.finished_runs.unwrap_or(effort.finished_runs()) as usize;
            finished_postgres(url()?, runs, effort, report).await
        }
        Group::Overview => overview::at_sqlite(&folder, effort, report).await,
        Group::OverviewPostgres => overview::at_postgres(&folder, url()?, effort, report).await,
        Group::Followers => Box::pin(followers::at_sqlite(&folder, effort, report)).await,
        Group::FollowersPostgres => Box::pin(followers::at_postgres(&folder, url()?, effort, report)).await,
        Group::Fold => {
            let store = sqlite_in(&folder).await?;
            let measured = fold::measure(&store, effort, report).await;
            store.close().await;
            measured?;
            long::measure(&place.part("long")?, effort, report).await
        }
        Group::Turns => Box::pin(turns::measure(&folder, effort, report)).await,
        Group::Workers => Box::pin(crash::of_a_worker(&folder, effort, report)).await,
        Group::Sandbox => sandbox::measure(&folder, effort, report).await,
        Group::Snapshots => Box::pin(snapshots::measure(&folder, effort, report)).await,
        Group::Storage => Box::pin(storage::measure(&folder, effort, report)).await,
        Group::Edit => edit::measure(effort, report).await,
        Group::Engine => engine::measure(effort, report).await,
        Group::Search => search::measure(&folder, effort, report).await,
    }
}

async fn postgres(url: &str, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let schema = PgSchema::new(url).await?;
    let measured = async {
        let store = super::places::postgres_at(&schema.url()).await?;
        let mut raw = Raw::postgres(&schema.url()).await?;
        let measured = appends::measure(&store, &mut raw, &appends::POSTGRES, effort, report).await;
        raw.close().await;
        store.close().await;
        measured
    };
    let measured = measured.await;
    schema.end().await.context("after measuring")?;
    measured
}

async fn drain_postgres(
    url: &str,
    hold: Duration,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let schema = PgSchema::new(url).await?;
    let measured = async {
        let store = super::places::postgres_at(&schema.url()).await?;
        let mut raw = Raw::postgres(&schema.url()).await?;
        let mut measured = drain::measure(&store, &drain::POSTGRES, effort, report).await;
        if measured.is_ok() {
            measured = drain::beside_a_held_snapshot(&store, &mut raw, hold, effort, report).await;
        }
        raw.close().await;
        if measured.is_ok() {
            let served = Served::over(store).await?;
            measured =
                latency::measure(&served.running, &served.token, &latency::POSTGRES, effort, report).await;
            served.end().await;
        } else {
            store.close().await;
        }
        measured
    };
    let measured = measured.await;
    schema.end().await.context("after measuring")?;
    measured
}

async fn finished_postgres(
    url: &str,
    runs: usize,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let (empty, full) = (PgSchema::new(url).await?, PgSchema::new(url).await?);
    let measured = async {
        let without = super::places::postgres_at(&empty.url()).await?;
        let with = super::places::postgres_at(&full.url()).await?;
        let measured = finished::measure(&without, &with, runs, &finished::POSTGRES, effort, report).await;
        without.close().await;
        with.close().await;
        measured
    };
    let measured = measured.await;
    empty.end().await.context("after measuring")?;
    full.end().await.context("after measuring")?;
    measured
}

fn print(cx: &Context, args: &Args, report: &Report, took: &Took) {
    let seconds = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cx.json() {
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
        about.insert("took_s".to_owned(), json!(seconds(took.whole)));
        display::say_json(&report.json(about));
    } else {
        display::say(report.table().trim_end());
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        let (whole, cleanup) = (seconds(took.whole), seconds(took.cleanup));
        display::say(&format!(
            "{cpus} processors, {build} build, {whole} s, of which cleaning up {cleanup} s"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_is_an_exit_code_of_its_own_where_that_is_asked_for() {
        let mut report = Report::default();
        report.set("cold_start_ms", 99.0);
        assert_eq!(exit_of(&report, true), Exit::Ok);
        report.set("run_30_turns_ms", 601.0);
        assert_eq!(report.missed(), ["run_30_turns_ms"]);
        assert_eq!(exit_of(&report, false), Exit::Ok);
        assert_eq!((exit_of(&report, true), Exit::TargetMissed.code()), (Exit::TargetMissed, 8));
        report.broke(Group::Fold, "no room");
        assert_eq!(exit_of(&report, true), Exit::Failed);
    }
}
