//! What a person looks at first, asked of a coordinator over HTTP, over a full store: half of its tasks wait in ten
//! queues, a quarter was cancelled, and a quarter had runs, of which most are done, some failed, some ask, some go on;
//! batches with budgets; workers.

use std::{sync::Arc, time::Instant};

use anyhow::Context as _;
use docket_coordinator::{
    clock::{self, Clock},
    decide,
    store::{CommandBlobs, Decide, NewTask, Store, sqlite},
};
use docket_schema::{
    event::TypedEvent as _,
    ids::{BatchId, DecisionHash, TaskId, Turn},
    run::{BlockedWhy, FailureKind, RunBlocked, RunEnded, RunEvent, RunOutcome},
    system::Budget,
    task::TaskSpec,
    wire::SetBudget,
};
use docket_worker::client::Client;
use futures_util::future::try_join_all;

use crate::{
    harness::{
        backlog::{self, Hand, Held},
        coordinator_process::{self, CoordinatorProcess},
        docket_binary::Site,
        places::{in_schema, postgres_at},
        stream::empty_base,
    },
    report::{Effort, Report, Samples},
};

/// Tasks of one submit, and commands that wait at once.
const AT_ONCE: usize = 500;
const QUEUES: usize = 10;
const BATCHES: usize = 20;
const WORKERS: usize = 20;
/// Tasks that each worker has.
const SLOTS: u32 = 4;
/// Tasks for each finished run of the other groups: a hundred thousand of them, where nobody is in a hurry.
const TASKS_A_RUN: usize = 100;
/// Of so many tasks with a run one failed, and one asks something.
const ONE_OF: usize = 20;

pub(crate) async fn at_sqlite(site: &Site, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let database = coordinator_process::home_in(&site.folder)?.join("docket.db");
    let store: Arc<dyn Store> = Arc::new(sqlite::open(&database).await?);
    let filled = fill(&store, effort).await;
    store.close().await;
    let batches = filled?;
    measure(site, None, &batches, effort, report, ["overview_tasks", "overview_ms_p95"]).await
}

pub(crate) async fn at_postgres(
    site: &Site,
    url: &str,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    in_schema(url, async |url| {
        let store = postgres_at(&url).await?;
        let filled = fill(&store, effort).await;
        store.close().await;
        let names = ["overview_tasks_postgres", "overview_ms_p95_postgres"];
        measure(site, Some(&url), &filled?, effort, report, names).await
    })
    .await
}

async fn measure(
    site: &Site,
    store: Option<&str>,
    batches: &[BatchId],
    effort: Effort,
    report: &mut Report,
    names: [&'static str; 2],
) -> anyhow::Result<()> {
    let server = CoordinatorProcess::start(site, store).await?;
    let measured = ask(&server.client()?, batches, effort, report, names).await;
    let told = measured.with_context(|| format!("the coordinator said: {}", server.last_words()));
    server.end().await?;
    told
}

async fn ask(
    client: &Client,
    batches: &[BatchId],
    effort: Effort,
    report: &mut Report,
    [tasks, p95]: [&'static str; 2],
) -> anyhow::Result<()> {
    for batch in batches {
        let budget = Budget { tokens: Some(1_000_000_000), cost_nusd: None };
        client.set_budget(*batch, budget, SetBudget::All).await?;
    }
    for _ in 0..WORKERS {
        client.lease(&Hand::new().request(SLOTS, 0)).await?;
    }
    let mut samples = Samples::default();
    for _ in 0..effort.latency_samples() {
        let began = Instant::now();
        let overview = client.overview().await?;
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
    let many: u64 = client.overview().await?.tasks.iter().map(|of| of.count).sum();
    report.set(tasks, many as f64);
    report.set_percentile(p95, &samples, 95);
    Ok(())
}

/// Fills it, and says which batches there are.
async fn fill(store: &Arc<dyn Store>, effort: Effort) -> anyhow::Result<Vec<BatchId>> {
    let clock = Clock::new();
    backlog::put_blob(store, &clock, empty_base().1).await?;
    let batches: Vec<BatchId> = (0..BATCHES).map(|_| BatchId(clock::new_id())).collect();
    let pages = effort.finished_runs() as usize * TASKS_A_RUN / AT_ONCE;
    // One worker had all that ended: it is told of beside those that work now, for as long as it counts as there.
    let mut hand = Hand::new();
    // Those with runs first: who leases takes what waits longest.
    for n in 0..pages.div_ceil(4) {
        submit(store, &clock, n, batches.get(n % BATCHES).copied()).await?;
        let request = u32::try_from(AT_ONCE)?;
        let held = backlog::lease(store, &clock, &mut hand, request).await?;
        let ends = held.into_iter().enumerate().map(|(nth, held)| end(store, &clock, held, nth));
        try_join_all(ends).await?;
    }
    for n in 0..pages / 4 {
        let ids = submit(store, &clock, n, batches.get(n % BATCHES).copied()).await?;
        let ends = ids.into_iter().map(|id| {
            let decide: Decide = Box::new(|record| decide::cancel(record, "bench", ""));
            store.command(id, decide, CommandBlobs::default(), clock.now())
        });
        try_join_all(ends).await.context("a task cannot be cancelled")?;
    }
    for n in 0..pages / 2 {
        submit(store, &clock, n, None).await?;
    }
    Ok(batches)
}

/// A page of tasks.
async fn submit(
    store: &Arc<dyn Store>,
    clock: &Clock,
    n: usize,
    batch: Option<BatchId>,
) -> anyhow::Result<Vec<TaskId>> {
    let queue = format!("queue-{}", n % QUEUES).parse().context("a queue's name")?;
    let spec = TaskSpec { queue, batch, ..backlog::task(backlog::no_model()) };
    let ids: Vec<TaskId> = (0..AT_ONCE).map(|_| TaskId(clock::new_id())).collect();
    let tasks = ids.iter().map(|id| NewTask { id: *id, spec: spec.clone(), fork: None }).collect();
    store.submit(tasks, "bench".to_owned(), clock.now()).await.context("the store does not take tasks")?;
    Ok(ids)
}

/// Ends the n-th run of a page.
async fn end(store: &Arc<dyn Store>, clock: &Clock, held: Held, nth: usize) -> anyhow::Result<()> {
    let event = match nth % ONE_OF {
        0 => {
            let result =
                RunOutcome::Failed { why: FailureKind::TurnLimit, message: "no turn is left".to_owned() };
            RunEvent::from(RunEnded { result, summary: None, tree: None, unverified: None, decision: None })
        }
        1 => {
            let (question, why) = ("Which colour?".into(), BlockedWhy::Model);
            RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO }.into()
        }
        _ => return backlog::end_run(store, clock, held, backlog::run_end(Turn(0))).await,
    };
    backlog::end_run(store, clock, held, event.encode(Turn(0))).await
}
