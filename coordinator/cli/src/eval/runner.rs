//! Runs an evaluation: submits the trials, works on them, waits, checks the results, and adds up the totals.

use crate::history::lineage;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use docket_coordinator::clock::Clock;
use docket_schema::{
    api::{BatchView, ChildView, CostQuery, MetricsQuery},
    eval::{EvalCheck, EvalCheckKind, EvalMetadata, EvalOutcome, EvalReport, EvalResult},
    ids::{BatchId, RunId, TaskId},
    report::{CostSums, Metric, MetricTally, MetricView, Ratio, TaskMetrics, required_artifacts},
    run::{BlockedReason, RunState},
    task::{TaskBlockedReason, TaskRecord, TaskState},
};
use docket_worker::client::CoordinatorClient;
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, future::FusedFuture as _, stream};

use super::{
    checks,
    matrix::{EvalMatrix, EvalTrial},
    setup::{self, EvalBatch},
    suite::{EvalSuite, is_scripted},
};
use crate::{
    context::CliContext,
    history::children,
    home::OwnerCommand,
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
        signals::StopSignals,
        worker_faults,
    },
    progress::ProgressDisplay,
    services::{
        serve::{HomeCoordinator, ServerArgs},
        worker_supervisor,
    },
};

/// How often the batch is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Grace period for the worker to stop after all runs have ended.
const WORKER_STOP_GRACE: Duration = Duration::from_secs(10);

/// Runs the whole evaluation.
pub(super) async fn run_evaluation(
    cx: &mut CliContext,
    suite: &EvalSuite,
    matrix: &EvalMatrix<'_>,
) -> CliResult<EvalReport> {
    let (began, began_at) = (Instant::now(), Clock::new().now());
    let stop = StopSignals::listen()?;
    let batch = EvalBatch::new(&suite.name);
    "127.0.0.1:0".clone_into(&mut cx.config.server.listen);
    cx.config.store = None;
    cx.config.queues = vec![batch.queue.clone()];
    // The user of this command owns the worker, so base URLs from the command line and the suite are trusted.
    cx.config.trusted_base_urls.extend(base_urls(matrix));
    let served = HomeCoordinator::start(cx, &ServerArgs::default(), OwnerCommand::Eval).await?;
    let results = run_with_worker(cx, &served, matrix, &batch, &stop).await;
    served.stop().await;
    let head = EvalMetadata {
        suite: suite.name.clone(),
        about: suite.about.clone(),
        docket: env!("CARGO_PKG_VERSION").to_owned(),
        began_at,
        took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        workers: cx.config.slots,
    };
    Ok(EvalReport::from_results(head, results?, matrix.skipped.clone()))
}

/// Runs it with a worker in this process.
async fn run_with_worker(
    cx: &CliContext,
    served: &HomeCoordinator,
    matrix: &EvalMatrix<'_>,
    batch: &EvalBatch,
    stop: &StopSignals,
) -> CliResult<Vec<EvalResult>> {
    let token = cx.home.load_or_create_token()?;
    let client = CoordinatorClient::new(served.address(), token.clone())?;
    let job = worker_supervisor::WorkerSpec::new(served.address(), token, "eval".to_owned());
    let mut worker = Box::pin(worker_supervisor::start_supervisor(cx, job, stop)?.fuse());
    let mut results = Box::pin(collect_results(cx, &client, matrix, batch, stop));
    let done = loop {
        tokio::select! {
            done = &mut results => break done,
            () = stop.abort.cancelled() => break Err(CliError::new(ExitKind::Failed, "interrupted")),
            ended = &mut worker, if !worker.is_terminated() => {
                // A worker that ends by itself cannot work at all.
                if !stop.drain.is_cancelled() {
                    break ended.and(Err(CliError::new(ExitKind::Failed, "the worker ended early; run with -v")));
                }
            }
        }
    };
    stop.drain.cancel();
    if !worker.is_terminated() {
        // Its result no longer matters: all trials have ended.
        drop(tokio::time::timeout(WORKER_STOP_GRACE, worker).await);
    }
    done
}

async fn collect_results(
    cx: &CliContext,
    client: &CoordinatorClient,
    matrix: &EvalMatrix<'_>,
    batch: &EvalBatch,
    stop: &StopSignals,
) -> CliResult<Vec<EvalResult>> {
    let tries = &matrix.trials;
    let commits = setup::submit_trials(cx, client, tries, batch).await?;
    let progress = ProgressDisplay::bar(cx, tries.len() as u64, "tasks");
    let ids: Vec<TaskId> = tries.iter().map(|one| one.id).collect();
    tokio::select! {
        waited = wait_until_settled(client, batch.id, &progress) => waited?,
        // The rest is reported as unfinished.
        fault = worker_faults::wait_for_standstill(client, batch.id, &ids) => display::print_note(&fault),
        // Ended trials are reported, the others are marked as unfinished.
        () = stop.drain.cancelled() => {}
    }
    drop(progress);
    let numbers = BatchReports::fetch(client, batch.id).await?;
    let progress = ProgressDisplay::bar(cx, tries.len() as u64, "results checked");
    let all = tries.iter().zip(commits).map(|(one, commit)| build_result(cx, client, one, commit, &numbers));
    let results = stream::iter(all).buffered(cx.config.slots as usize);
    results.inspect(|_| progress.advance(1)).try_collect().await
}

/// Waits until every task has ended or is blocked on a person, directly or through a child task.
async fn wait_until_settled(
    client: &CoordinatorClient,
    batch: BatchId,
    progress: &ProgressDisplay,
) -> CliResult<()> {
    let count = |view: &BatchView, is: fn(TaskState) -> bool| -> u64 {
        view.states.iter().filter(|of| is(of.state)).map(|of| of.count).sum()
    };
    loop {
        let view = client.get_batch(batch).await?;
        progress.set_position(count(&view, TaskState::is_ended) + view.waiting_for_people());
        progress.set_message(format!("{} running", count(&view, |state| state == TaskState::Running)));
        if view.is_settled() {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The coordinator's reports on the batch, per task.
struct BatchReports {
    metrics: HashMap<TaskId, TaskMetrics>,
    cost: HashMap<TaskId, CostSums>,
}

impl BatchReports {
    async fn fetch(client: &CoordinatorClient, batch: BatchId) -> CliResult<Self> {
        let (mut metrics, mut cost) = (HashMap::new(), HashMap::<TaskId, CostSums>::new());
        let mut query = MetricsQuery { batch: Some(batch), scripted: true, ..MetricsQuery::default() };
        loop {
            let page = client.get_metrics(&query).await?;
            metrics.extend(page.tasks.into_iter().map(|task| (task.task, task)));
            match page.next {
                None => break,
                next => query.after = next,
            }
        }
        let mut query = CostQuery { batch: Some(batch), ..CostQuery::default() };
        loop {
            let page = client.get_cost(&query).await?;
            for run in page.runs {
                let sums = cost.entry(run.task).or_default();
                *sums = sums.plus(run.total());
            }
            match page.next {
                None => return Ok(Self { metrics, cost }),
                next => query.after = next,
            }
        }
    }

    /// The metrics of a task, including the calls and edits of its children.
    fn task_metrics(&self, task: TaskId, given: &[ChildView]) -> Vec<MetricView> {
        let Some(own) = self.metrics.get(&task) else { return Vec::new() };
        let children = given.iter().filter_map(|child| self.metrics.get(&child.view.task.id));
        let own = MetricTally::from_views(&own.metrics);
        children
            .fold(own, |sum, child| sum.with_delegated(MetricTally::from_views(&child.metrics)))
            .to_views()
    }

    /// The cost of a task and all its descendants.
    fn task_cost(&self, task: TaskId, given: &[ChildView]) -> CostSums {
        let all = std::iter::once(task).chain(given.iter().map(|child| child.view.task.id));
        let spent = all.filter_map(|task| self.cost.get(&task));
        spent.fold(CostSums::default(), |sums, of| sums.plus(*of))
    }
}

/// The message of a child task that is blocked on a person.
fn blocked_child_message(given: &[ChildView]) -> Option<String> {
    let waits = |task: &TaskRecord| {
        task.state == TaskState::Blocked && task.blocked_why != Some(TaskBlockedReason::Child)
    };
    let child = given.iter().map(|child| &child.view.task).find(|task| waits(task))?;
    let says = child.message.as_deref().unwrap_or("no message");
    Some(format!("its child task `{}` is waiting: {says}", child.spec.title))
}

/// Counts the turns of the last runs of a task and all its descendants.
async fn count_turns(
    client: &CoordinatorClient,
    own: Option<&RunState>,
    given: &[ChildView],
) -> CliResult<u64> {
    let mut turns = own.map_or(0, |state| u64::from(state.turn.0));
    for run in given.iter().filter_map(|child| child.view.task.last_run) {
        turns += u64::from(lineage::fold_run(client, run).await?.turn.0);
    }
    Ok(turns)
}

/// Builds the result of one trial.
async fn build_result(
    cx: &CliContext,
    client: &CoordinatorClient,
    one: &EvalTrial<'_>,
    commit: Option<String>,
    numbers: &BatchReports,
) -> CliResult<EvalResult> {
    let view = client.get_task(one.id).await?;
    // Child tasks are part of the trial.
    let mut runs: Vec<RunId> = view.runs.iter().map(|run| run.id).collect();
    let given = children::list_descendants(client, &runs).await?;
    runs.extend(given.iter().flat_map(|child| child.view.runs.iter().map(|run| run.id)));
    let run = view.task.last_run;
    let state = match run {
        Some(run) => Some(lineage::fold_run(client, run).await?),
        None => None,
    };
    let outcome = EvalOutcome::from_task_and_run(view.task.state, state.as_ref());
    let checked = match &state {
        Some(state) if outcome != EvalOutcome::Unfinished => {
            checks::run_checks(cx, client, one, &runs, state).await?
        }
        Some(_) | None => None,
    };
    let accepted = checked.as_ref().is_some_and(|checks| checks.iter().all(|check| check.passed));
    let checks = checked.unwrap_or_default();
    let metrics = numbers.task_metrics(one.id, &given);
    // The child's own question is more informative than "waits for a child".
    let asked = if outcome == EvalOutcome::Blocked(BlockedReason::Child) {
        blocked_child_message(&given)
    } else {
        None
    };
    let message = asked.or(view.task.message);
    let spans = view.runs.iter().filter_map(|run| Some(run.ended_at?.ms_since(run.started_at?)));
    let owed = MetricTally::from_views(&metrics).get(Metric::ArtifactCompleteness);
    // Artifacts required by the engine are counted once, even if the task requires them too.
    let is_owed = |name: &str| owed.all > 0 && required_artifacts(&one.engine.to_string()).contains(&name);
    let counts = |check: &&EvalCheck| match check.what {
        EvalCheckKind::File => true,
        EvalCheckKind::Artifact => !is_owed(&check.name),
        EvalCheckKind::Command
        | EvalCheckKind::Changes
        | EvalCheckKind::Unchanged
        | EvalCheckKind::Unread
        | EvalCheckKind::Denied => false,
    };
    let mut artifacts = owed;
    for check in checks.iter().filter(counts) {
        artifacts = Ratio { of: artifacts.of + u64::from(check.passed), all: artifacts.all + 1 };
    }
    Ok(EvalResult {
        task: one.task.name.clone(),
        kind: one.task.kind,
        title: one.task.title.clone(),
        engine: one.engine.to_string(),
        model: one.model.clone(),
        commit,
        id: one.id,
        run,
        expected: one.task.expected,
        outcome,
        message: message.filter(|_| outcome != EvalOutcome::Succeeded),
        passed: accepted && one.task.expected.is_met_by(outcome),
        accepted,
        checks,
        turns: count_turns(client, state.as_ref(), &given).await?,
        cost: numbers.task_cost(one.id, &given),
        worked_ms: state.as_ref().map_or(0, |state| state.model_attempts.spending(&state.totals).worked_ms),
        wall_ms: spans.sum(),
        artifacts,
        metrics,
    })
}

/// Base URLs of the suite's models. They are trusted, because the user who names them owns the worker.
fn base_urls(matrix: &EvalMatrix<'_>) -> Vec<String> {
    let asked = matrix.trials.iter().flat_map(EvalTrial::models).filter(|model| !is_scripted(model));
    let mut urls: Vec<String> = asked.filter_map(|model| model.base_url.clone()).collect();
    urls.sort();
    urls.dedup();
    urls
}
