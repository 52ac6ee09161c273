//! The overview page over HTTP, with a full store: half of its tasks wait in ten queues, a quarter was
//! cancelled, and a quarter had runs, most of which are completed, while some failed, some wait for an answer
//! and some are running; batches with budgets; workers.

use std::{sync::Arc, time::Instant};

use anyhow::Context as _;
use docket_coordinator::{
    clock::{self, Clock},
    decide,
    store::{CommandBlobs, DecideFn, NewTask, Store, sqlite},
};
use docket_schema::{
    api::BudgetUpdateMode,
    event::TypedEvent as _,
    ids::{BatchId, DecisionHash, TaskId, Turn},
    run::{BlockedReason, FailureKind, RunBlocked, RunEnded, RunEvent, RunOutcome},
    system::Budget,
    task::TaskSpec,
};
use docket_worker::client::CoordinatorClient;
use futures_util::future::try_join_all;

use crate::{
    harness::{
        backlog::{self, BenchWorker, LeasedRun},
        bench_folder::{open_postgres, with_schema},
        coordinator_process::{self, CoordinatorProcess},
        docket_binary::GroupSite,
        synthetic_events::empty_base,
    },
    report::{BenchReport, EffortLevel, Samples},
};

/// Tasks per submit, and number of concurrent commands.
const TASKS_PER_SUBMIT: usize = 500;
const QUEUES: usize = 10;
const BATCHES: usize = 20;
const WORKERS: usize = 20;
/// Tasks per worker.
const TASKS_PER_WORKER: u32 = 4;
/// Tasks for each finished run of the other groups: a hundred thousand with full effort.
const TASKS_PER_RUN: usize = 100;
/// One in this many tasks with a run failed, and one asks a question.
const FAILED_EVERY: usize = 20;

pub(crate) async fn measure_sqlite(
    site: &GroupSite,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let database = coordinator_process::create_home(&site.folder)?.join("docket.db");
    let store: Arc<dyn Store> = Arc::new(sqlite::open(&database).await?);
    let filled = fill_store(&store, effort).await;
    store.close().await;
    let batches = filled?;
    measure_store(site, None, &batches, effort, report, ["overview_tasks", "overview_ms_p95"]).await
}

pub(crate) async fn measure_postgres(
    site: &GroupSite,
    url: &str,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    with_schema(url, async |url| {
        let store = open_postgres(&url).await?;
        let filled = fill_store(&store, effort).await;
        store.close().await;
        let names = ["overview_tasks_postgres", "overview_ms_p95_postgres"];
        measure_store(site, Some(&url), &filled?, effort, report, names).await
    })
    .await
}

async fn measure_store(
    site: &GroupSite,
    store: Option<&str>,
    batches: &[BatchId],
    effort: EffortLevel,
    report: &mut BenchReport,
    names: [&'static str; 2],
) -> anyhow::Result<()> {
    let server = CoordinatorProcess::start(site, store).await?;
    let measured = time_requests(&server.client()?, batches, effort, report, names).await;
    let told = measured.with_context(|| format!("the coordinator said: {}", server.log_tail()));
    server.shut_down().await?;
    told
}

async fn time_requests(
    client: &CoordinatorClient,
    batches: &[BatchId],
    effort: EffortLevel,
    report: &mut BenchReport,
    [tasks, p95]: [&'static str; 2],
) -> anyhow::Result<()> {
    for batch in batches {
        let budget = Budget { tokens: Some(1_000_000_000), cost_nusd: None };
        client.set_budget(*batch, budget, BudgetUpdateMode::All).await?;
    }
    for _ in 0..WORKERS {
        client.lease(&BenchWorker::new().next_lease_request(TASKS_PER_WORKER, 0)).await?;
    }
    let mut samples = Samples::default();
    for _ in 0..effort.latency_samples() {
        let began = Instant::now();
        let overview = client.get_overview().await?;
        samples.push_ms(began.elapsed());
        anyhow::ensure!(
            (WORKERS..=WORKERS + 1).contains(&overview.workers.len())
                && !overview.asks.is_empty()
                && !overview.running.is_empty(),
            "the store is not as it was filled: {} of {WORKERS} workers, {} that ask, {} that run",
            overview.workers.len(),
            overview.asks.len(),
            overview.running.len()
        );
    }
    let many: u64 = client.get_overview().await?.tasks.iter().map(|of| of.count).sum();
    report.set(tasks, many as f64);
    report.set_percentile(p95, &samples, 95);
    Ok(())
}

/// Fills the store and returns its batches.
async fn fill_store(store: &Arc<dyn Store>, effort: EffortLevel) -> anyhow::Result<Vec<BatchId>> {
    let clock = Clock::new();
    backlog::put_blob(store, &clock, empty_base().1).await?;
    let batches: Vec<BatchId> = (0..BATCHES).map(|_| BatchId(clock::new_id())).collect();
    let pages = effort.finished_runs() as usize * TASKS_PER_RUN / TASKS_PER_SUBMIT;
    // One worker had all ended runs: it is listed with the active workers as long as it counts as connected.
    let mut hand = BenchWorker::new();
    // Those with runs first, because a lease request gets the oldest tasks.
    for n in 0..pages.div_ceil(4) {
        submit_page(store, &clock, n, batches.get(n % BATCHES).copied()).await?;
        let request = u32::try_from(TASKS_PER_SUBMIT)?;
        let held = backlog::lease_tasks(store, &clock, &mut hand, request).await?;
        let ends = held.into_iter().enumerate().map(|(nth, held)| end_run(store, &clock, held, nth));
        try_join_all(ends).await?;
    }
    for n in 0..pages / 4 {
        let ids = submit_page(store, &clock, n, batches.get(n % BATCHES).copied()).await?;
        let ends = ids.into_iter().map(|id| {
            let decide: DecideFn = Box::new(|record| decide::cancel(record, "bench", ""));
            store.execute_command(id, decide, CommandBlobs::default(), clock.now())
        });
        try_join_all(ends).await.context("a task cannot be cancelled")?;
    }
    for n in 0..pages / 2 {
        submit_page(store, &clock, n, None).await?;
    }
    Ok(batches)
}

/// Submits a page of tasks.
async fn submit_page(
    store: &Arc<dyn Store>,
    clock: &Clock,
    n: usize,
    batch: Option<BatchId>,
) -> anyhow::Result<Vec<TaskId>> {
    let queue = format!("queue-{}", n % QUEUES).parse().context("a queue's name")?;
    let spec = TaskSpec { queue, batch, ..backlog::idle_task(backlog::unused_model()) };
    let ids: Vec<TaskId> = (0..TASKS_PER_SUBMIT).map(|_| TaskId(clock::new_id())).collect();
    let tasks = ids.iter().map(|id| NewTask { id: *id, spec: spec.clone(), fork: None }).collect();
    store.submit(tasks, "bench".to_owned(), clock.now()).await.context("the store does not take tasks")?;
    Ok(ids)
}

/// Ends the n-th run of a page.
async fn end_run(store: &Arc<dyn Store>, clock: &Clock, held: LeasedRun, nth: usize) -> anyhow::Result<()> {
    let event = match nth % FAILED_EVERY {
        0 => {
            let result =
                RunOutcome::Failed { why: FailureKind::TurnLimit, message: "no turn is left".to_owned() };
            RunEvent::from(RunEnded { result, summary: None, tree: None, unverified: None, decision: None })
        }
        1 => {
            let (question, why) = ("Which colour?".into(), BlockedReason::Model);
            RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO }.into()
        }
        _ => return backlog::end_run(store, clock, held, backlog::run_ended_event(Turn(0))).await,
    };
    backlog::end_run(store, clock, held, event.encode(Turn(0))).await
}
