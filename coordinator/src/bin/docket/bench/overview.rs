//! What a person looks at first, over a full store: half of its tasks wait in ten queues, half ended within the week.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::Context as _;
use docket_coordinator::{
    clock::{self, Clock},
    decide,
    store::{CommandBlobs, Decide, NewTask, Store},
};
use docket_schema::{
    ids::{TaskId, Timestamp},
    task::TaskSpec,
};
use futures_util::future::try_join_all;

use super::{
    backlog,
    command::Effort,
    group::Group,
    places::{PgSchema, postgres_at, sqlite_in},
    report::Report,
    stats::Samples,
    stream::empty_base,
};

/// Tasks of one submit, and commands that wait at once.
const AT_ONCE: usize = 500;
const QUEUES: usize = 10;
/// Tasks for each finished run of the other groups: a hundred thousand of them, where nobody is in a hurry.
const TASKS_A_RUN: usize = 100;
const DAY_US: i64 = 86_400_000_000;

pub(super) async fn at_sqlite(folder: &Path, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let store = sqlite_in(folder).await?;
    let measured = measure(&store, effort, report, ["overview_tasks", "overview_ms_p95"]).await;
    store.close().await;
    measured
}

pub(super) async fn at_postgres(
    url: Option<&str>,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let Some(url) = url else {
        let why = "no server; name one with --postgres or DATABASE_URL";
        report.lacks_rest_of(Group::OverviewPostgres, why);
        return Ok(());
    };
    let schema = PgSchema::new(url).await?;
    let measured = async {
        let store = postgres_at(&schema.url()).await?;
        let names = ["overview_tasks_postgres", "overview_ms_p95_postgres"];
        let measured = measure(&store, effort, report, names).await;
        store.close().await;
        measured
    };
    let measured = measured.await;
    schema.end().await.context("after measuring")?;
    measured
}

async fn measure(
    store: &Arc<dyn Store>,
    effort: Effort,
    report: &mut Report,
    [tasks, p95]: [&'static str; 2],
) -> anyhow::Result<()> {
    let clock = Clock::new();
    backlog::put_blob(store, &clock, empty_base().1).await?;
    let many = effort.finished_runs() as usize * TASKS_A_RUN;
    for n in 0..many / AT_ONCE {
        fill(store, &clock, n).await?;
    }
    let now = clock.now();
    let since = Timestamp(now.0 - DAY_US);
    let mut samples = Samples::default();
    for _ in 0..effort.latency_samples() {
        let began = Instant::now();
        store.overview(clock.now(), since, since).await.context("no overview")?;
        samples.push_ms(began.elapsed());
    }
    report.set(tasks, many as f64);
    report.set_percentile(p95, &samples, 95);
    Ok(())
}

/// The n-th page of tasks; every other one ends at once.
async fn fill(store: &Arc<dyn Store>, clock: &Clock, n: usize) -> anyhow::Result<()> {
    let queue = format!("queue-{}", n % QUEUES).parse().context("a queue's name")?;
    let spec = TaskSpec { queue, ..backlog::task(backlog::no_model()) };
    let ids: Vec<TaskId> = (0..AT_ONCE).map(|_| TaskId(clock::new_id())).collect();
    let tasks = ids.iter().map(|id| NewTask { id: *id, spec: spec.clone(), fork: None }).collect();
    store.submit(tasks, "bench".to_owned(), clock.now()).await.context("the store does not take tasks")?;
    if n.is_multiple_of(2) {
        return Ok(());
    }
    let ends = ids.into_iter().map(|id| {
        let decide: Decide = Box::new(|record| decide::cancel(record, "bench", ""));
        store.command(id, decide, CommandBlobs::default(), clock.now())
    });
    try_join_all(ends).await.context("a task cannot be cancelled")?;
    Ok(())
}
