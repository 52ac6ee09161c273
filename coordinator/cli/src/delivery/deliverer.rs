//! Delivers results as tasks complete, while `docket up` runs on the machine that has the source repositories.
//!
//! Follows the log's feed from a saved cursor (`cursor.rs`), so tasks that completed while this process was
//! down are delivered at the next start. Delivery is idempotent and exclusive, so a cursor that was not saved
//! costs nothing. Several deliveries run at once, those of one task in order. A failed delivery is retried with
//! increasing delays and holds the cursor back; after a few failures it is also recorded in the log, so the
//! task is shown as undelivered with the reason until an attempt succeeds. What only a person can resolve is
//! recorded at once. Invariant: a requested result is delivered, being attempted, or its task is undelivered.

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    time::Duration,
};

use docket_schema::{
    api::DeliveryStep,
    event::{Envelope, TypedEvent as _},
    ids::{RunId, StreamId, TaskId},
    task::{DeliveryBlockedReason, DeliveryMode, TaskEvent, TaskRecord, TaskState},
};
use docket_worker::client::{ClientError, CoordinatorClient};
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    connect::cursor::{LogCursor, LogMark},
    context::CliContext,
    delivery::{self, DeliveryClaimant, DeliveryFailure, DeliveryRequest},
};

/// File in the home with the delivery cursor.
const CURSOR_FILE: &str = "delivered.position";

/// How often an empty feed is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Concurrent deliveries: a slow hook or an unresponsive remote must not delay unrelated deliveries, and each
/// delivery is one or two git processes.
const CONCURRENT_DELIVERIES_MAX: usize = 8;

/// Delay after the first failure; doubled each time, up to the maximum.
const RETRY_DELAY: Duration = Duration::from_secs(10);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30 * 60);
/// Failed attempts before the failure is recorded in the log: about a minute, longer than a lock or a restart
/// lasts.
const REPORT_AFTER_TRIES: u32 = 3;
/// Attempts before it is left to a person: about five hours, longer than most outages of a remote.
const TRIES_MAX: u32 = 18;
/// Maximum number of runs of a failing hook: over about two minutes, longer than most network outages.
const HOOK_RUNS_MAX: usize = 4;

/// How often to check whether a missing repository is back or another process's delivery has ended.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How long a repository may be missing before the log says that the result is not delivered: covers a remount
/// or a move.
const REPOSITORY_MISSING_MAX: Duration = Duration::from_secs(600);

/// Maximum number of running and waiting deliveries. Above it the feed is not read until there is room, so
/// memory stays bounded and nothing is lost.
const WAITING_MAX: usize = 10_000;

/// A delivery to be made.
#[derive(Debug, Clone)]
struct DeliveryJob {
    task: TaskId,
    run: RunId,
    /// The cursor position before the event that requested it.
    before_event: LogMark,
    /// Failed attempts.
    tries: u32,
    due: Instant,
    /// Since when its repository has been missing.
    missing_since: Option<Instant>,
}

/// The outcome of an attempt.
enum DeliveryOutcome {
    /// Delivered, nothing to deliver, or left to a person.
    Finished,
    /// Failed for this reason, but may work later.
    Failed(DeliveryBlockedReason, String),
    /// Delivered, but the user's hook failed.
    HookFailed,
    /// Its repository is not on this machine.
    RepositoryMissing(Box<TaskRecord>, String),
    /// Another process is delivering it.
    ClaimedElsewhere,
}

/// Delivers until cancelled, then stops at once; aborted work is safe to repeat.
pub(crate) async fn run_deliverer(cx: &CliContext, client: &CoordinatorClient, stop: CancellationToken) {
    let claims = DeliveryClaimant::for_home(cx.home.path());
    let deliverer = ResultDeliverer { cx, client, claims: &claims };
    stop.run_until_cancelled(deliverer.run_loop()).await;
}

struct ResultDeliverer<'a> {
    cx: &'a CliContext,
    client: &'a CoordinatorClient,
    claims: &'a DeliveryClaimant,
}

/// Pending and running deliveries.
#[derive(Default)]
struct DeliveryQueue {
    waiting: VecDeque<DeliveryJob>,
    running: BTreeSet<TaskId>,
    started_marks: Vec<LogMark>,
}

impl DeliveryQueue {
    fn is_full(&self) -> bool {
        self.waiting.len() + self.running.len() >= WAITING_MAX
    }

    /// Takes a delivery that is due and whose task is not being delivered here.
    fn next_due(&mut self, now: Instant) -> Option<DeliveryJob> {
        if self.running.len() >= CONCURRENT_DELIVERIES_MAX {
            return None;
        }
        let place =
            self.waiting.iter().position(|job| job.due <= now && !self.running.contains(&job.task))?;
        let job = self.waiting.remove(place)?;
        self.running.insert(job.task);
        self.started_marks.push(job.before_event);
        Some(job)
    }

    fn finish(&mut self, job: &DeliveryJob) {
        self.running.remove(&job.task);
        if let Some(place) = self.started_marks.iter().position(|mark| *mark == job.before_event) {
            self.started_marks.swap_remove(place);
        }
    }

    /// The mark up to which everything is delivered, given that the feed was read up to `read`.
    fn safe_mark(&self, read: LogMark) -> LogMark {
        let left = self.waiting.iter().map(|job| job.before_event).chain(self.started_marks.iter().copied());
        left.chain([read]).min_by_key(|mark| mark.position).unwrap_or(read)
    }
}

impl ResultDeliverer<'_> {
    async fn run_loop(&self) {
        let mut cursor = LogCursor::open(self.cx.home.path(), CURSOR_FILE, "deliveries");
        let mut read: Option<LogMark> = None;
        let mut agenda = DeliveryQueue::default();
        let mut under_way: FuturesUnordered<
            BoxFuture<'_, (DeliveryJob, Result<DeliveryOutcome, ClientError>)>,
        > = FuturesUnordered::new();
        loop {
            let mut idle = true;
            match self.read_feed(&cursor, &mut read, &mut agenda).await {
                Ok(more) => idle = !more,
                Err(error) => {
                    tracing::debug!(%error, "the feed cannot be read; retrying");
                    // The store may have a different log when it answers again.
                    read = None;
                }
            }
            while let Some(job) = agenda.next_due(Instant::now()) {
                under_way.push(Box::pin(async move {
                    let tried = self.try_deliver(&job).await;
                    (job, tried)
                }));
            }
            if let Some(read) = read {
                cursor.save(agenda.safe_mark(read));
            }
            let pause = if idle || agenda.is_full() { POLL_INTERVAL } else { Duration::ZERO };
            tokio::select! {
                Some((job, tried)) = under_way.next(), if !under_way.is_empty() => {
                    agenda.finish(&job);
                    agenda.waiting.extend(self.reschedule(job, tried).await);
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reads more of the feed; returns whether there was any. Pending deliveries are kept when the log has to
    /// be read from another position; handling their events again is harmless.
    async fn read_feed(
        &self,
        cursor: &LogCursor,
        read: &mut Option<LogMark>,
        agenda: &mut DeliveryQueue,
    ) -> Result<bool, ClientError> {
        let at = match *read {
            Some(at) => at,
            None => *read.insert(cursor.verified_mark(self.client).await?),
        };
        if agenda.is_full() {
            return Ok(false);
        }
        let page = self.client.list_log_events(at.position, None).await?;
        let mut at = at;
        for event in &page.events {
            if let Some((task, run)) = completed_run(event) {
                let is_known = |job: &DeliveryJob| (job.task, job.run) == (task, run);
                if !agenda.waiting.iter().any(is_known) {
                    let due = Instant::now();
                    agenda.waiting.push_back(DeliveryJob {
                        task,
                        run,
                        before_event: at,
                        tries: 0,
                        due,
                        missing_since: None,
                    });
                }
            }
            at = LogMark::from_event(event);
        }
        *read = Some(at);
        Ok(!page.events.is_empty())
    }

    /// Decides what remains to be done after an attempt.
    async fn reschedule(
        &self,
        mut job: DeliveryJob,
        tried: Result<DeliveryOutcome, ClientError>,
    ) -> Option<DeliveryJob> {
        let now = Instant::now();
        match tried {
            Ok(DeliveryOutcome::Finished) => return None,
            // The coordinator is unavailable, so nothing was attempted.
            Err(error) => {
                tracing::debug!(%error, task = %job.task, "not delivered yet");
                job.due = now + RECHECK_INTERVAL;
            }
            Ok(DeliveryOutcome::ClaimedElsewhere) => job.due = now + RECHECK_INTERVAL,
            Ok(DeliveryOutcome::HookFailed) => {
                job.tries += 1;
                job.due = now + retry_delay(job.tries);
            }
            Ok(DeliveryOutcome::RepositoryMissing(task, source)) => {
                if job.missing_since.is_none() {
                    tracing::info!(task = %task.id, %source, "not delivered: its repository is not here; checking again later");
                }
                let since = *job.missing_since.get_or_insert(now);
                job.due = now + RECHECK_INTERVAL;
                if since.elapsed() > REPOSITORY_MISSING_MAX {
                    let id = task.id.short();
                    let message = format!(
                        "its repository {source} is not on the machine that runs `docket up`: run `docket apply {id}` where it \
                         is (--repo DIR), or `docket accept {id}`"
                    );
                    return (!self.record_blocked(&job, DeliveryBlockedReason::Repository, message).await)
                        .then_some(job);
                }
            }
            Ok(DeliveryOutcome::Failed(why, what)) => {
                job.missing_since = None;
                job.tries += 1;
                job.due = now + retry_delay(job.tries);
                let id = job.task.short();
                if job.tries >= TRIES_MAX {
                    let message =
                        format!("{what}; it is not retried automatically, `docket apply {id}` retries it");
                    let message = if why == DeliveryBlockedReason::Remote {
                        message.replace("docket apply", "docket push")
                    } else {
                        message
                    };
                    return (!self.record_blocked(&job, why, message).await).then_some(job);
                }
                if job.tries >= REPORT_AFTER_TRIES {
                    let message =
                        format!("{what}; it is retried automatically, `docket apply {id}` retries it now");
                    self.record_blocked(&job, why, message).await;
                }
            }
        }
        Some(job)
    }

    /// Records in the log that the task is undelivered, and why; returns whether that is recorded or need not
    /// be.
    async fn record_blocked(&self, job: &DeliveryJob, why: DeliveryBlockedReason, message: String) -> bool {
        let told = async {
            let task = self.client.get_task(job.task).await?.task;
            let Ok(found) = delivery::fetch_deliveries(self.client, job.task).await else { return Ok(false) };
            let is_same = found.blocked.as_ref().is_some_and(|blocked| {
                (blocked.run, blocked.why, blocked.message.as_str()) == (job.run, why, message.as_str())
            });
            if is_same
                || !is_current_result(&task, job.run)
                || found.is_settled(job.run, task.spec.delivery_mode())
            {
                return Ok(true);
            }
            if found.claim.as_ref().is_some_and(|claim| self.claims.is_held_by_other(job.task, claim)) {
                return Ok(false);
            }
            let branch = task.spec.result_branch(task.id);
            tracing::warn!(task = %task.id, %branch, %message, "not delivered");
            let step = DeliveryStep::Blocked { branch, why, paths: Vec::new(), kept: None, message };
            self.client.record_delivery(job.task, job.run, step).await.map(|_| true)
        };
        told.await.unwrap_or_else(|error: ClientError| {
            tracing::warn!(task = %job.task, %error, "not delivered, and that is not recorded in the log yet");
            false
        })
    }

    async fn try_deliver(&self, job: &DeliveryJob) -> Result<DeliveryOutcome, ClientError> {
        let (cx, client, run) = (self.cx, self.client, job.run);
        let task = client.get_task(job.task).await?.task;
        let push = match task.spec.delivery_mode() {
            _ if !is_current_result(&task, run) => return Ok(DeliveryOutcome::Finished),
            DeliveryMode::Patch => return Ok(DeliveryOutcome::Finished),
            DeliveryMode::Branch => None,
            DeliveryMode::Push => Some(cx.config.delivery.remote.as_str()),
        };
        if self.is_delivered(&task, run).await {
            return Ok(DeliveryOutcome::Finished);
        }
        let Some(repository): Option<PathBuf> = delivery::local_source_folder(&task) else {
            let source = task.spec.base.git.as_ref().map(|git| git.source.clone());
            // Without a branch name there is no branch to create; submit rejects that.
            return Ok(source.map_or(DeliveryOutcome::Finished, |source| {
                DeliveryOutcome::RepositoryMissing(Box::new(task), source)
            }));
        };
        let ask = DeliveryRequest { push, ..DeliveryRequest::new(&task, run, &repository) };
        let id = task.id;
        match delivery::deliver(cx, client, self.claims, &ask).await {
            Ok(done) => {
                let text = done.describe();
                tracing::info!(task = %id, "{text}");
                let Some(hook) = done.hook.filter(|hook| hook.exit_status != Some(0)) else {
                    return Ok(DeliveryOutcome::Finished);
                };
                tracing::warn!(task = %id, exit = ?hook.exit_status, output = %last_line(&hook.output), "delivered, but the hook failed");
                Ok(DeliveryOutcome::HookFailed)
            }
            Err(DeliveryFailure::ClaimedElsewhere(who)) => {
                tracing::debug!(task = %id, %who, "another process is delivering it");
                Ok(DeliveryOutcome::ClaimedElsewhere)
            }
            Err(DeliveryFailure::Blocked(failure)) => {
                tracing::warn!(task = %id, branch = %ask.branch, error = %failure.error, "not delivered; the task stays undelivered until a person resolves it");
                Ok(DeliveryOutcome::Finished)
            }
            Err(DeliveryFailure::Retryable(why, failure)) => {
                let what = failure
                    .format_message(crate::output::error::CauseDisplay::Shown)
                    .replace("\n  because: ", ": ");
                tracing::warn!(task = %id, branch = %ask.branch, error = %what, "not delivered; it will be retried");
                Ok(DeliveryOutcome::Failed(why, what))
            }
        }
    }

    /// Whether the log says that the run is delivered. A branch that was deleted since, for example after a
    /// merge, is not created again, and a hook that was not set at the time of delivery is not run.
    async fn is_delivered(&self, task: &TaskRecord, run: RunId) -> bool {
        let Ok(found) = delivery::fetch_deliveries(self.client, task.id).await else { return false };
        if !found.is_settled(run, task.spec.delivery_mode()) {
            return false;
        }
        let is_owed = self.cx.config.delivery.hook.is_some() && found.hooks_owed.contains(&run);
        let Some(last) = found.last_hook_run().filter(|hook| hook.run == run) else { return !is_owed };
        let runs = found.hooks.iter().filter(|hook| hook.commit == last.commit).count();
        !is_owed && (last.exit == Some(0) || runs >= HOOK_RUNS_MAX || self.cx.config.delivery.hook.is_none())
    }
}

/// Whether the run's result is still the task's. A task that was rejected or restarted since delivers the
/// result of its next run.
fn is_current_result(task: &TaskRecord, run: RunId) -> bool {
    (task.state == TaskState::Completed || task.is_undelivered()) && task.last_run == Some(run)
}

fn retry_delay(tries: u32) -> Duration {
    RETRY_DELAY.saturating_mul(1 << tries.saturating_sub(1).min(12)).min(RETRY_DELAY_MAX)
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default()
}

/// Returns the task and run of an event that says that the task completed.
fn completed_run(event: &Envelope) -> Option<(TaskId, RunId)> {
    let (StreamId::Task(task), "TaskCompleted") = (&event.stream, event.kind.as_str()) else { return None };
    match TaskEvent::decode(&event.kind, event.version, event.payload.as_str()) {
        Ok(TaskEvent::TaskCompleted(done)) => Some((*task, done.run)),
        Ok(_) | Err(_) => None,
    }
}
