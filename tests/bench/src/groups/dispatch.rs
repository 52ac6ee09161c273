//! Runs each group: creates its stores, coordinators and raw commits, and removes them afterwards.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use super::{
    coordinator::{followers, http_appends, http_drain, lease_latency, overview, resume_latency},
    parts::{edit, engine, sandbox, search, snapshots},
    runs::{crash, storage, turns},
    stores::{appends, checkpoints, drain, finished, fold},
};
use crate::{
    harness::{
        bench_folder::{BenchFolder, ServedCoordinator, open_postgres, open_sqlite, with_schema},
        docket_binary::GroupSite,
        raw_commits::RawCommits,
    },
    report::{BenchReport, EffortLevel, FigureGroup},
};

/// The setup that all groups share.
pub(crate) struct BenchSetup {
    pub(crate) docket: PathBuf,
    pub(crate) place: BenchFolder,
    /// URL of a PostgreSQL server.
    pub(crate) postgres_server: Option<String>,
    pub(crate) effort: EffortLevel,
    /// Number of finished runs in a full store.
    pub(crate) finished_runs: usize,
    /// Minimum time for which a snapshot is held.
    pub(crate) snapshot_hold: Duration,
}

/// Measures a group.
pub(crate) async fn measure_group(
    group: FigureGroup,
    setup: &BenchSetup,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let effort = setup.effort;
    let folder = setup.place.create_subfolder(group.name())?;
    let site = GroupSite { docket: setup.docket.clone(), folder: folder.clone() };
    let server =
        || setup.postgres_server.as_deref().context("a group of PostgreSQL begins with a server alone");
    match group {
        FigureGroup::Sqlite => measure_sqlite(&folder, effort, report).await,
        FigureGroup::Postgres => measure_postgres(server()?, effort, report).await,
        FigureGroup::Http => measure_http(&folder, effort, report).await,
        FigureGroup::Latency => {
            let served = ServedCoordinator::start(&folder).await?;
            let measured = lease_latency::measure(&served, &lease_latency::SQLITE, effort, report).await;
            served.shut_down().await;
            measured
        }
        FigureGroup::Drain => {
            let store = open_sqlite(&folder).await?;
            let measured = drain::measure(&store, &drain::SQLITE, effort, report).await;
            store.close().await;
            measured
        }
        FigureGroup::DrainPostgres => {
            measure_drain_postgres(server()?, setup.snapshot_hold, effort, report).await
        }
        FigureGroup::Finished => measure_finished(setup, report).await,
        FigureGroup::FinishedPostgres => measure_finished_postgres(server()?, setup, report).await,
        FigureGroup::Overview => overview::measure_sqlite(&site, effort, report).await,
        FigureGroup::OverviewPostgres => overview::measure_postgres(&site, server()?, effort, report).await,
        FigureGroup::Followers => Box::pin(followers::measure_sqlite(&site, effort, report)).await,
        FigureGroup::FollowersPostgres => {
            Box::pin(followers::measure_postgres(&site, server()?, effort, report)).await
        }
        FigureGroup::Fold => {
            let store = open_sqlite(&folder).await?;
            let measured = fold::measure(&store, effort, report).await;
            store.close().await;
            measured?;
            resume_latency::measure(&site.create_subsite("long")?, effort, report).await
        }
        FigureGroup::Turns => Box::pin(turns::measure(&site, effort, report)).await,
        FigureGroup::Workers => Box::pin(crash::measure_worker_loss(&site, effort, report)).await,
        FigureGroup::Sandbox => sandbox::measure(&folder, effort, report).await,
        FigureGroup::Snapshots => Box::pin(snapshots::measure(&folder, effort, report)).await,
        FigureGroup::Storage => Box::pin(storage::measure(&site, effort, report)).await,
        FigureGroup::Edit => edit::measure(effort, report).await,
        FigureGroup::Engine => engine::measure(effort, report).await,
        FigureGroup::Search => search::measure(&folder, effort, report).await,
    }
}

async fn measure_sqlite(folder: &Path, effort: EffortLevel, report: &mut BenchReport) -> anyhow::Result<()> {
    let (store, mut raw) = (open_sqlite(folder).await?, RawCommits::open_sqlite(folder)?);
    let measured = appends::measure(&store, &mut raw, &appends::SQLITE, effort, report).await;
    raw.close().await;
    store.close().await;
    measured?;
    checkpoints::measure(folder, effort, report).await
}

async fn measure_postgres(server: &str, effort: EffortLevel, report: &mut BenchReport) -> anyhow::Result<()> {
    with_schema(server, async |url| {
        let (store, mut raw) = (open_postgres(&url).await?, RawCommits::open_postgres(&url).await?);
        let measured = appends::measure(&store, &mut raw, &appends::POSTGRES, effort, report).await;
        raw.close().await;
        store.close().await;
        measured
    })
    .await
}

async fn measure_http(folder: &Path, effort: EffortLevel, report: &mut BenchReport) -> anyhow::Result<()> {
    let (served, mut raw) = (ServedCoordinator::start(folder).await?, RawCommits::open_sqlite(folder)?);
    let mut measured = http_appends::measure(&served.running, &mut raw, effort, report).await;
    if measured.is_ok() {
        measured = http_drain::measure(&served, &mut raw, effort, report).await;
    }
    raw.close().await;
    served.shut_down().await;
    measured
}

async fn measure_drain_postgres(
    server: &str,
    hold: Duration,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    with_schema(server, async |url| {
        let (store, mut raw) = (open_postgres(&url).await?, RawCommits::open_postgres(&url).await?);
        let mut measured = drain::measure(&store, &drain::POSTGRES, effort, report).await;
        if measured.is_ok() {
            measured = drain::measure_with_held_snapshot(&store, &mut raw, hold, effort, report).await;
        }
        raw.close().await;
        if measured.is_ok() {
            let served = ServedCoordinator::start_with_store(store).await?;
            measured = lease_latency::measure(&served, &lease_latency::POSTGRES, effort, report).await;
            served.shut_down().await;
        } else {
            store.close().await;
        }
        measured
    })
    .await
}

async fn measure_finished(setup: &BenchSetup, report: &mut BenchReport) -> anyhow::Result<()> {
    let (empty, full) =
        (setup.place.create_subfolder("finished/empty")?, setup.place.create_subfolder("finished/full")?);
    let (empty, full) = (open_sqlite(&empty).await?, open_sqlite(&full).await?);
    let (runs, effort) = (setup.finished_runs, setup.effort);
    let measured = finished::measure(&empty, &full, runs, &finished::SQLITE, effort, report).await;
    empty.close().await;
    full.close().await;
    measured
}

async fn measure_finished_postgres(
    server: &str,
    setup: &BenchSetup,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let (runs, effort) = (setup.finished_runs, setup.effort);
    with_schema(server, async |empty| {
        with_schema(server, async |full| {
            let (without, with) = (open_postgres(&empty).await?, open_postgres(&full).await?);
            let measured =
                finished::measure(&without, &with, runs, &finished::POSTGRES, effort, report).await;
            without.close().await;
            with.close().await;
            measured
        })
        .await
    })
    .await
}
