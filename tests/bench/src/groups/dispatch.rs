//! Which group is measured how: its stores, coordinators and raw commits are made here and ended after it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;

use super::{
    coordinator::{followers, http, latency, overview, remote, resume},
    parts::{edit, engine, sandbox, search, snapshots},
    runs::{crash, storage, turns},
    stores::{appends, checkpoints, drain, finished, fold},
};
use crate::{
    harness::{
        docket_binary::Site,
        places::{Place, Served, in_schema, postgres_at, sqlite_in},
        raw_commits::RawCommits,
    },
    report::{Effort, Group, Report},
};

/// What all groups are measured with.
pub(crate) struct Setup {
    pub(crate) docket: PathBuf,
    pub(crate) place: Place,
    /// A PostgreSQL server.
    pub(crate) server: Option<String>,
    pub(crate) effort: Effort,
    /// Finished runs in a full store.
    pub(crate) finished_runs: usize,
    /// How long a snapshot is held at least.
    pub(crate) hold: Duration,
}

/// Measures a group.
pub(crate) async fn measure(group: Group, setup: &Setup, report: &mut Report) -> anyhow::Result<()> {
    let effort = setup.effort;
    let folder = setup.place.part(group.name())?;
    let site = Site { docket: setup.docket.clone(), folder: folder.clone() };
    let server = || setup.server.as_deref().context("a group of PostgreSQL begins with a server alone");
    match group {
        Group::Sqlite => sqlite(&folder, effort, report).await,
        Group::Postgres => postgres(server()?, effort, report).await,
        Group::Http => over_http(&folder, effort, report).await,
        Group::Latency => {
            let served = Served::start(&folder).await?;
            let measured = latency::measure(&served, &latency::SQLITE, effort, report).await;
            served.end().await;
            measured
        }
        Group::Drain => {
            let store = sqlite_in(&folder).await?;
            let measured = drain::measure(&store, &drain::SQLITE, effort, report).await;
            store.close().await;
            measured
        }
        Group::DrainPostgres => drain_postgres(server()?, setup.hold, effort, report).await,
        Group::Finished => finished(setup, report).await,
        Group::FinishedPostgres => finished_postgres(server()?, setup, report).await,
        Group::Overview => overview::at_sqlite(&site, effort, report).await,
        Group::OverviewPostgres => overview::at_postgres(&site, server()?, effort, report).await,
        Group::Followers => Box::pin(followers::at_sqlite(&site, effort, report)).await,
        Group::FollowersPostgres => Box::pin(followers::at_postgres(&site, server()?, effort, report)).await,
        Group::Fold => {
            let store = sqlite_in(&folder).await?;
            let measured = fold::measure(&store, effort, report).await;
            store.close().await;
            measured?;
            resume::measure(&site.below("long")?, effort, report).await
        }
        Group::Turns => Box::pin(turns::measure(&site, effort, report)).await,
        Group::Workers => Box::pin(crash::measure_worker_loss(&site, effort, report)).await,
        Group::Sandbox => sandbox::measure(&folder, effort, report).await,
        Group::Snapshots => Box::pin(snapshots::measure(&folder, effort, report)).await,
        Group::Storage => Box::pin(storage::measure(&site, effort, report)).await,
        Group::Edit => edit::measure(effort, report).await,
        Group::Engine => engine::measure(effort, report).await,
        Group::Search => search::measure(&folder, effort, report).await,
    }
}

async fn sqlite(folder: &Path, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let (store, mut raw) = (sqlite_in(folder).await?, RawCommits::sqlite(folder)?);
    let measured = appends::measure(&store, &mut raw, &appends::SQLITE, effort, report).await;
    raw.close().await;
    store.close().await;
    measured?;
    checkpoints::measure(folder, effort, report).await
}

async fn postgres(server: &str, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    in_schema(server, async |url| {
        let (store, mut raw) = (postgres_at(&url).await?, RawCommits::postgres(&url).await?);
        let measured = appends::measure(&store, &mut raw, &appends::POSTGRES, effort, report).await;
        raw.close().await;
        store.close().await;
        measured
    })
    .await
}

async fn over_http(folder: &Path, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let (served, mut raw) = (Served::start(folder).await?, RawCommits::sqlite(folder)?);
    let mut measured = http::measure(&served.running, &mut raw, effort, report).await;
    if measured.is_ok() {
        measured = remote::measure(&served, &mut raw, effort, report).await;
    }
    raw.close().await;
    served.end().await;
    measured
}

async fn drain_postgres(
    server: &str,
    hold: Duration,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    in_schema(server, async |url| {
        let (store, mut raw) = (postgres_at(&url).await?, RawCommits::postgres(&url).await?);
        let mut measured = drain::measure(&store, &drain::POSTGRES, effort, report).await;
        if measured.is_ok() {
            measured = drain::beside_a_held_snapshot(&store, &mut raw, hold, effort, report).await;
        }
        raw.close().await;
        if measured.is_ok() {
            let served = Served::over(store).await?;
            measured = latency::measure(&served, &latency::POSTGRES, effort, report).await;
            served.end().await;
        } else {
            store.close().await;
        }
        measured
    })
    .await
}

async fn finished(setup: &Setup, report: &mut Report) -> anyhow::Result<()> {
    let (empty, full) = (setup.place.part("finished/empty")?, setup.place.part("finished/full")?);
    let (empty, full) = (sqlite_in(&empty).await?, sqlite_in(&full).await?);
    let (runs, effort) = (setup.finished_runs, setup.effort);
    let measured = finished::measure(&empty, &full, runs, &finished::SQLITE, effort, report).await;
    empty.close().await;
    full.close().await;
    measured
}

async fn finished_postgres(server: &str, setup: &Setup, report: &mut Report) -> anyhow::Result<()> {
    let (runs, effort) = (setup.finished_runs, setup.effort);
    in_schema(server, async |empty| {
        in_schema(server, async |full| {
            let (without, with) = (postgres_at(&empty).await?, postgres_at(&full).await?);
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
