//! The subcommand: which groups run, how much effort each takes, and what is printed.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::{Map, json};

use super::{
    appends, drain, edit, fold,
    group::Group,
    http, latency, long,
    places::{PgSchema, Place, Served, sqlite_in},
    raw::Raw,
    report::Report,
    sandbox, snapshots, storage, turns,
};
use crate::{
    context::Context,
    display,
    fail::{Exit, Failure, Outcome},
};

/// A group that takes longer than this hangs: the rest is still worth having.
const GROUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes some 40 seconds on an otherwise idle machine; what else runs on it shows in every figure. All that
is written goes into a new folder, which is removed at the end; on PostgreSQL into a schema of its own.

Examples:
  docket bench
  docket bench --json | jq .turn_overhead_ms_p50
  docket bench --only sqlite --only http --store-dir /mnt/fast
  docket bench --postgres postgres://localhost/docket --only postgres"
)]
pub(crate) struct Args {
    /// Where the measured databases lie: figures are this file system's [default: the temporary folder]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// A PostgreSQL server to measure
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    postgres: Option<String>,
    /// Fewer and shorter samples: some 10 seconds, and figures to match
    #[arg(long)]
    quick: bool,
    /// Measure this group only; may be given several times
    #[arg(long, value_enum, value_name = "GROUP")]
    only: Vec<Group>,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// Enough for medians to repeat.
    Full,
    /// Enough to see that it works.
    Quick,
}

impl Effort {
    const fn pick<T: Copy>(self, full: T, quick: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
        }
    }

    /// Rounds in which what is compared takes turns.
    pub(super) const fn rounds(self) -> usize {
        self.pick(5, 2)
    }

    /// Length of one turn of a round.
    pub(super) const fn slice(self) -> Duration {
        self.pick(Duration::from_millis(200), Duration::from_millis(100))
    }

    /// Folds of one log, the fastest of which counts.
    pub(super) const fn folds(self) -> usize {
        self.pick(20, 5)
    }

    /// Submits whose start is timed.
    pub(super) const fn latency_samples(self) -> usize {
        self.pick(200, 50)
    }

    /// Bulk submits of the drain.
    pub(super) const fn bulks(self) -> usize {
        self.pick(12, 3)
    }

    /// Runs of 30 turns.
    pub(super) const fn runs(self) -> usize {
        self.pick(5, 2)
    }

    /// Runs one by one on an idle queue.
    pub(super) const fn lone_runs(self) -> usize {
        self.pick(30, 8)
    }

    /// Tasks of the drain with run processes.
    pub(super) const fn isolated_tasks(self) -> usize {
        self.pick(60, 12)
    }

    /// Run processes that are killed.
    pub(super) const fn crashes(self) -> usize {
        self.pick(5, 2)
    }

    /// Files of the repository that is captured.
    pub(super) const fn tree_files(self) -> usize {
        self.pick(snapshots::FILES, snapshots::FILES / 10)
    }

    /// Snapshots of each kind.
    pub(super) const fn walks(self) -> usize {
        self.pick(31, 9)
    }

    /// Usual edits.
    pub(super) const fn edits(self) -> usize {
        self.pick(2000, 200)
    }

    /// Edits of a large file.
    pub(super) const fn large_edits(self) -> usize {
        self.pick(15, 3)
    }

    /// Processes started bare and sandboxed.
    pub(super) const fn spawns(self) -> usize {
        self.pick(40, 10)
    }
}

/// Measures, and prints. A missed target is no failure; a group that breaks off is.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    if cfg!(debug_assertions) {
        display::note("this is a debug build: figures are those of a release build many times over");
    }
    let started = Instant::now();
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let parent = args.store_dir.clone().unwrap_or_else(std::env::temp_dir);
    let place = Place::new(&parent).map_err(|error| Failure { exit: Exit::Usage, error })?;
    let mut report = Report::default();
    for group in Group::ALL {
        if !args.only.is_empty() && !args.only.contains(&group) {
            report.lacks_rest_of(group, "left out by --only");
            continue;
        }
        display::note(&format!("measuring: {}", group.name()));
        let measured = Box::pin(measure(group, &args, effort, &place, &mut report));
        let broke = match tokio::time::timeout(GROUP_TIMEOUT, measured).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(_) => Some(format!("it was not done after {} s", GROUP_TIMEOUT.as_secs())),
        };
        if let Some(reason) = broke {
            display::note(&format!("error: {} broke off: {}", group.name(), display::line(&reason)));
            report.broke(group, &reason);
        }
    }
    print(&cx, &args, &report, started.elapsed());
    Ok(if report.failed() { Exit::Failed } else { Exit::Ok })
}

async fn measure(
    group: Group,
    args: &Args,
    effort: Effort,
    place: &Place,
    report: &mut Report,
) -> anyhow::Result<()> {
    let folder = place.part(group.name())?;
    match group {
        Group::Sqlite => {
            let (store, mut raw) = (sqlite_in(&folder).await?, Raw::sqlite(&folder)?);
            let measured = appends::measure(&store, &mut raw, &appends::SQLITE, effort, report).await;
            raw.close().await;
            store.close().await;
            measured
        }
        Group::Postgres => match &args.postgres {
            Some(url) => postgres(url, effort, report).await,
            None => {
                report.lacks_rest_of(group, "no server; name one with --postgres or DATABASE_URL");
                Ok(())
            }
        },
        Group::Http => {
            let (served, mut raw) = (Served::start(&folder).await?, Raw::sqlite(&folder)?);
            let measured = http::measure(&served.running, &mut raw, effort, report).await;
            raw.close().await;
            served.end().await;
            measured
        }
        Group::Latency => {
            let served = Served::start(&folder).await?;
            let measured = latency::measure(&served.running, &served.token, effort, report).await;
            served.end().await;
            measured
        }
        Group::Drain => {
            let store = sqlite_in(&folder).await?;
            let measured = drain::measure(&store, effort, report).await;
            store.close().await;
            measured
        }
        Group::Fold => {
            let store = sqlite_in(&folder).await?;
            let measured = fold::measure(&store, effort, report).await;
            store.close().await;
            measured?;
            long::measure(&place.part("long")?, effort, report).await
        }
        Group::Turns => Box::pin(turns::measure(&folder, effort, report)).await,
        Group::Sandbox => sandbox::measure(&folder, effort, report).await,
        Group::Snapshots => Box::pin(snapshots::measure(&folder, effort, report)).await,
        Group::Storage => Box::pin(storage::measure(&folder, effort, report)).await,
        Group::Edit => edit::measure(effort, report).await,
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

fn print(cx: &Context, args: &Args, report: &Report, took: Duration) {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cx.json() {
        let mut about = Map::new();
        about.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        about.insert("debug_build".to_owned(), json!(cfg!(debug_assertions)));
        about.insert("quick".to_owned(), json!(args.quick));
        about.insert("cpus".to_owned(), json!(cpus));
        about.insert("took_s".to_owned(), json!((took.as_secs_f64() * 10.0).round() / 10.0));
        display::say_json(&report.json(about));
    } else {
        display::say(report.table().trim_end());
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        display::say(&format!("{cpus} processors, {build} build, {:.0} s", took.as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_is_less_of_everything() {
        let all = |effort: Effort| {
            [
                effort.rounds(),
                effort.latency_samples(),
                effort.bulks(),
                effort.runs(),
                effort.lone_runs(),
                effort.isolated_tasks(),
                effort.crashes(),
                effort.spawns(),
                effort.tree_files(),
                effort.walks(),
                effort.edits(),
                effort.large_edits(),
            ]
        };
        for (full, quick) in all(Effort::Full).into_iter().zip(all(Effort::Quick)) {
            assert!(quick < full && quick > 0);
        }
        assert!(Effort::Quick.slice() < Effort::Full.slice());
    }
}
