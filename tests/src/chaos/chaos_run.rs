//! Runs a chaos test: submits tasks and injects faults by the plan until everything is done, then reads and
//! checks the log.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use docket_schema::{
    api::{ProblemCode, SubmitRequest},
    event::{Envelope, Head},
    ids::{Position, StreamId, TaskId, TreeHash},
    task::TaskSpec,
};
use docket_worker::client::CoordinatorClient;
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinHandle;

use super::{
    acknowledgements::Acknowledged,
    chaos_cluster::ChaosCluster,
    fault_plan::{ChaosFault, FaultPlan, PlannedFault, SeededRandom},
    history_check::{Violation, check_history},
    recorded_log::RecordedLog,
};

/// Interval between checks for due faults and recoveries.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a client waits for a response before it tries another coordinator.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of tasks per submit.
const SUBMIT_BATCH: usize = 20;
/// Minimum number of unfinished tasks while there are more to submit.
const PENDING_TASKS_MIN: usize = 60;
/// Bits of a position that number events within a transaction.
const POSITION_INDEX_BITS: u32 = 16;
/// Maximum number of violations printed in full.
const VIOLATIONS_SHOWN_MAX: usize = 20;

/// A task and the tree that it produces without faults.
#[derive(Debug, Clone)]
pub struct ExpectedTask {
    pub spec: TaskSpec,
    /// The expected tree.
    pub tree: TreeHash,
}

/// The result of a chaos run.
#[derive(Debug, Clone, Default)]
pub struct ChaosOutcome {
    /// Number of injected faults, by name.
    pub injected_faults: BTreeMap<&'static str, usize>,
    /// Number of refused calls, by code.
    pub refusals: BTreeMap<String, usize>,
    /// Number of events, by name.
    pub events: BTreeMap<String, usize>,
    /// Number of acknowledged leases that were compared with the log.
    pub leases: usize,
    /// Number of acknowledged renewals.
    pub renewals: usize,
    /// Number of acknowledged appends.
    pub appends: usize,
}

/// Runs `plan` over `tasks`, for at most `limit`.
///
/// # Errors
/// Returns an error if it does not finish in time or an invariant is violated.
pub async fn run_chaos(
    stage: &mut ChaosCluster,
    tasks: Vec<ExpectedTask>,
    plan: FaultPlan,
    draws: &mut SeededRandom,
    limit: Duration,
) -> Result<ChaosOutcome> {
    let count = tasks.len();
    let clients: Vec<CoordinatorClient> = stage.coordinators().map(|one| one.client().clone()).collect();
    // Templates were cancelled, so they count as ended.
    let before = count_ended_tasks(&clients[0]).await?;
    let trees: Vec<TreeHash> = tasks.iter().map(|task| task.tree).collect();
    let ids: Vec<TaskId> = (0..count as u64).map(|n| generate_task_id(n, draws)).collect();
    let done = Arc::new(AtomicUsize::new(0));
    let _looking = AbortOnDrop(tokio::spawn(watch_ended_tasks(clients.clone(), before, Arc::clone(&done))));
    let batches = tasks.into_iter().map(|task| task.spec).zip(ids.iter().copied()).collect();
    let mut submitting = AbortOnDrop(tokio::spawn(submit_tasks(clients, batches, Arc::clone(&done))));
    let struck = inject_faults(stage, plan, &done, &mut submitting, count, limit).await?;
    stage.stop_workers_and_restart().await?;
    let mut acked = stage.recording().acknowledged()?;
    acked.tasks = ids.iter().copied().collect();
    let log = read_log(stage).await?;
    let trees = ids.into_iter().zip(trees).collect();
    let found = check_history(&log, &acked, &trees);
    ensure!(found.is_empty(), "{} violations: {}", found.len(), format_violations(&log, &found));
    Ok(summarize_outcome(stage, &log, &acked, struck))
}

/// A background task that is aborted when its handle is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn generate_task_id(n: u64, draws: &mut SeededRandom) -> TaskId {
    const SOME_TIME_MS: u64 = 1_700_000_000_000;
    let random = [draws.next_u64().to_le_bytes(), draws.next_u64().to_le_bytes()].concat();
    let mut bytes = [0; 10];
    bytes.copy_from_slice(&random[..10]);
    TaskId(uuid::Builder::from_unix_timestamp_millis(SOME_TIME_MS + n, &bytes).into_uuid())
}

async fn count_ended_tasks(client: &CoordinatorClient) -> Result<usize> {
    let rows = client.get_status().await?.tasks;
    let ended: u64 = rows.iter().filter(|row| row.state.is_ended()).map(|row| row.count).sum();
    Ok(usize::try_from(ended)?)
}

/// Watches how many tasks are done, through any coordinator that responds.
async fn watch_ended_tasks(clients: Vec<CoordinatorClient>, before: usize, done: Arc<AtomicUsize>) {
    loop {
        for client in &clients {
            if let Ok(Ok(now)) = tokio::time::timeout(REQUEST_TIMEOUT, count_ended_tasks(client)).await {
                done.fetch_max(now.saturating_sub(before), Ordering::Relaxed);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Submits all tasks in batches, each until it is acknowledged.
async fn submit_tasks(
    clients: Vec<CoordinatorClient>,
    tasks: VecDeque<(TaskSpec, TaskId)>,
    done: Arc<AtomicUsize>,
) -> Result<()> {
    let (mut tasks, mut sent, mut turn) = (tasks, 0, 0);
    while !tasks.is_empty() {
        while sent >= done.load(Ordering::Relaxed) + PENDING_TASKS_MIN {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let (specs, ids): (Vec<_>, Vec<_>) = tasks.drain(..tasks.len().min(SUBMIT_BATCH)).unzip();
        sent += specs.len();
        let request = SubmitRequest { tasks: specs, ids: Some(ids.clone()) };
        loop {
            turn += 1;
            let client = &clients[turn % clients.len()];
            match tokio::time::timeout(REQUEST_TIMEOUT, client.submit(&request)).await {
                Ok(Ok(answer)) => {
                    ensure!(answer.tasks.iter().map(|task| task.id).eq(ids), "other tasks: {answer:?}");
                    break;
                }
                // Space will be freed.
                Ok(Err(error)) if error.problem_code() == Some(ProblemCode::StorageFull) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Ok(Err(error)) if !error.is_retryable() => bail!("a submit is refused: {error:?}"),
                Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
    Ok(())
}

/// Injects faults and recovers from them until all work is done and every node is back.
async fn inject_faults(
    stage: &mut ChaosCluster,
    plan: FaultPlan,
    done: &AtomicUsize,
    submitting: &mut AbortOnDrop<Result<()>>,
    count: usize,
    limit: Duration,
) -> Result<BTreeMap<&'static str, usize>> {
    let began = Instant::now();
    let mut struck: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut coming: VecDeque<PlannedFault> = plan.faults.into();
    let mut submitted = false;
    loop {
        let now = done.load(Ordering::Relaxed);
        if began.elapsed() > limit {
            bail!(
                "{now} of {count} done in {} s; {}\n{}",
                limit.as_secs(),
                stage.conditions(),
                stage.log_tails()
            );
        }
        stage.recover().await?;
        if !submitted && submitting.0.is_finished() {
            (&mut submitting.0).await?.context("submits")?;
            submitted = true;
        }
        // A fault that kills a run mid-way may have no victim left; all others are injected even when the
        // work is done.
        let is_over = coming.iter().all(|strike| strike.fault == ChaosFault::KillRun);
        if submitted && now >= count && stage.is_healthy() && is_over {
            return Ok(struck);
        }
        // A fault that cannot be injected yet does not delay the others.
        let mut later = VecDeque::new();
        while let Some(strike) = coming.pop_front() {
            if strike.tasks_done > now {
                later.push_back(strike);
            } else if stage.inject(&strike).await? {
                *struck.entry(strike.fault.name()).or_default() += 1;
            } else {
                later.push_back(strike);
            }
        }
        coming = later;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Reads the whole log through a coordinator that has just started.
async fn read_log(stage: &ChaosCluster) -> Result<RecordedLog> {
    let client = stage.coordinator().client();
    let mut feed: Vec<Envelope> = Vec::new();
    loop {
        let after = feed.last().map_or(Position(0), |last| last.position);
        let page = client.list_log_events(after, None).await?;
        let is_last = !page.more;
        feed.extend(page.events);
        if is_last {
            break;
        }
    }
    let mut heads: BTreeMap<StreamId, Head> = BTreeMap::new();
    loop {
        let page = client.list_streams(heads.keys().next_back()).await?;
        let is_last = !page.more || page.streams.is_empty();
        heads.extend(page.streams.into_iter().map(|stream| (stream.stream, stream.head)));
        if is_last {
            break;
        }
    }
    let Some(url) = stage.database_url() else {
        // A single writer commits transactions one after the other.
        return Ok(RecordedLog::new(feed, heads, |position| position.0.cast_signed()));
    };
    let mut server = PgConnection::connect(url).await?;
    let sql = "SELECT xid, (extract(epoch FROM pg_xact_commit_timestamp(xid::text::xid)) * 1000000)::bigint \
               FROM (SELECT DISTINCT position >> 16 AS xid FROM events) AS transactions";
    let rows: Vec<(i64, Option<i64>)> = sqlx::query_as(sql).fetch_all(&mut server).await?;
    let commits: BTreeMap<i64, i64> = rows
        .into_iter()
        .map(|(xid, at)| Some((xid, at?)))
        .collect::<Option<_>>()
        .context("instants of commits")?;
    let unknown = feed.iter().find(|event| !commits.contains_key(&transaction_number(event.position)));
    ensure!(unknown.is_none(), "an event of no transaction: {unknown:?}");
    Ok(RecordedLog::new(feed, heads, |position| commits[&transaction_number(position)]))
}

const fn transaction_number(position: Position) -> i64 {
    (position.0 >> POSITION_INDEX_BITS).cast_signed()
}

/// Formats the first violations, each with the events of its streams.
fn format_violations(log: &RecordedLog, found: &[Violation]) -> String {
    let mut text = String::new();
    for violation in found.iter().take(VIOLATIONS_SHOWN_MAX) {
        let said = format!("{violation:?}");
        text.push_str(&format!("\n{said}"));
        for (stream, events) in &log.streams {
            let id = match stream {
                StreamId::Task(id) => id.to_string(),
                StreamId::Run(id) => id.to_string(),
                StreamId::Queue(_) | StreamId::System(_) => continue,
            };
            if said.contains(&id) {
                text.push_str(&format!("\n  {stream}:"));
                for one in events {
                    let event = &one.event;
                    text.push_str(&format!(
                        " {}:{}/{}@{}",
                        event.seq, event.kind, event.epoch, one.committed_at
                    ));
                }
            }
        }
    }
    text
}

fn summarize_outcome(
    stage: &ChaosCluster,
    log: &RecordedLog,
    acked: &Acknowledged,
    struck: BTreeMap<&'static str, usize>,
) -> ChaosOutcome {
    let mut events: BTreeMap<String, usize> = BTreeMap::new();
    for logged in log.streams.values().flatten() {
        *events.entry(logged.event.kind.clone()).or_default() += 1;
    }
    let Acknowledged { leases, renewals, appends, .. } = acked;
    let (leases, renewals, appends) = (leases.len(), renewals.len(), appends.len());
    ChaosOutcome {
        injected_faults: struck,
        refusals: stage.recording().refusals(),
        events,
        leases,
        renewals,
        appends,
    }
}
