//! Results delivered as tasks complete, while `docket up` runs on the machine that has their sources.
//!
//! Follows the log's feed from where it last stood (`cursor.rs`): what completed while nobody was here is made
//! good at the next start. Delivery is idempotent and one deliverer's at a time, so a cursor that was not written costs
//! nothing. Several are under way at once, each task's one after another. What fails is tried again, less and less
//! often, and holds the cursor back; soon it is also told in the log, so that the task is undelivered and says why until
//! a try succeeds. What only a person can settle is told at once. Invariant: a result that is wanted is delivered, is
//! being tried, or its task is undelivered.

use std::{
    collections::{BTreeSet, VecDeque},
    path::PathBuf,
    time::Duration,
};

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{RunId, StreamId, TaskId},
    task::{Delivery, DeliveryBlockedWhy, TaskEvent, TaskRecord, TaskState},
    wire::DeliveryStep,
};
use docket_worker::client::{Client, ClientError};
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    connect::cursor::{Cursor, Mark},
    context::Context,
    delivery::{self, Ask, Claims, Undone},
};

/// File in the home that says up to where results are delivered.
const CURSOR: &str = "delivered.position";

/// How often the feed is asked for more when it had none.
const POLL: Duration = Duration::from_millis(500);

/// Deliveries under way at once: a slow hook or a silent remote must not keep back what has nothing to do with it, and
/// each is a git or two.
const AT_ONCE: usize = 8;

/// How long after a failure it is tried again: twice as long each time, up to the longest.
const AGAIN: Duration = Duration::from_secs(10);
const AGAIN_MAX: Duration = Duration::from_secs(30 * 60);
/// Tries that fail before the log says so: about a minute, longer than a lock or a restart lasts.
const TOLD_AT: u32 = 3;
/// Tries before it is left to a person: about five hours, longer than most outages of a remote.
const TRIES_MAX: u32 = 18;
/// How often a hook runs that does not end well: over about two minutes, longer than most outages of a network.
const HOOK_RUNS_MAX: usize = 4;

/// How often it is looked whether a repository that was not there is back, or somebody else's delivery over.
const LOOKED_AGAIN: Duration = Duration::from_secs(5);
/// How long a repository may be away before the log says that the result is not delivered: a remount, a move.
const AWAY_MAX: Duration = Duration::from_secs(600);

/// Deliveries that are begun or wait; with more the feed is not followed until there is room, so that memory stays
/// bounded and none is lost.
const WAITING_MAX: usize = 10_000;

/// A delivery that is to be made.
#[derive(Debug, Clone)]
struct Job {
    task: TaskId,
    run: RunId,
    /// Before the event that asks for it.
    after: Mark,
    /// Tries that failed.
    tries: u32,
    due: Instant,
    /// Since when its repository was not there.
    away: Option<Instant>,
}

/// What a try came to.
enum Tried {
    /// Done, or nothing to do, or a person's now.
    Over,
    /// It may work later. What was wrong.
    Failed(DeliveryBlockedWhy, String),
    /// It is delivered, and the user's hook did not end well.
    Hook,
    /// Its repository is not here.
    Away(Box<TaskRecord>, String),
    /// Somebody else is at it.
    Elsewhere,
}

/// Delivers until cancelled, and then at once no more: what was broken off is safe to repeat.
pub(crate) async fn run(cx: &Context, client: &Client, stop: CancellationToken) {
    let claims = Claims::of_home(cx.home.path());
    let deliverer = Deliverer { cx, client, claims: &claims };
    stop.run_until_cancelled(deliverer.deliver_on()).await;
}

struct Deliverer<'a> {
    cx: &'a Context,
    client: &'a Client,
    claims: &'a Claims,
}

/// What is to be done, and what is under way.
#[derive(Default)]
struct Agenda {
    waiting: VecDeque<Job>,
    under_way: BTreeSet<TaskId>,
    begun: Vec<Mark>,
}

impl Agenda {
    fn is_full(&self) -> bool {
        self.waiting.len() + self.under_way.len() >= WAITING_MAX
    }

    /// One that is due, whose task nobody here is at.
    fn next(&mut self, now: Instant) -> Option<Job> {
        if self.under_way.len() >= AT_ONCE {
            return None;
        }
        let place =
            self.waiting.iter().position(|job| job.due <= now && !self.under_way.contains(&job.task))?;
        let job = self.waiting.remove(place)?;
        self.under_way.insert(job.task);
        self.begun.push(job.after);
        Some(job)
    }

    fn ended(&mut self, job: &Job) {
        self.under_way.remove(&job.task);
        if let Some(place) = self.begun.iter().position(|mark| *mark == job.after) {
            self.begun.swap_remove(place);
        }
    }

    /// Up to where all is delivered, of what was read up to `read`.
    fn safe(&self, read: Mark) -> Mark {
        let left = self.waiting.iter().map(|job| job.after).chain(self.begun.iter().copied());
        left.chain([read]).min_by_key(|mark| mark.position).unwrap_or(read)
    }
}

impl Deliverer<'_> {
    async fn deliver_on(&self) {
        let mut cursor = Cursor::open(self.cx.home.path(), CURSOR, "deliveries");
        let mut read: Option<Mark> = None;
        let mut agenda = Agenda::default();
        let mut under_way: FuturesUnordered<BoxFuture<'_, (Job, Result<Tried, ClientError>)>> =
            FuturesUnordered::new();
        loop {
            let mut idle = true;
            match self.follow(&cursor, &mut read, &mut agenda).await {
                Ok(more) => idle = !more,
                Err(error) => {
                    tracing::debug!(%error, "the feed cannot be read; it is asked again");
                    // Another log may stand there when it answers again.
                    read = None;
                }
            }
            while let Some(job) = agenda.next(Instant::now()) {
                under_way.push(Box::pin(async move {
                    let tried = self.deliver(&job).await;
                    (job, tried)
                }));
            }
            if let Some(read) = read {
                cursor.keep(agenda.safe(read));
            }
            let pause = if idle || agenda.is_full() { POLL } else { Duration::ZERO };
            tokio::select! {
                Some((job, tried)) = under_way.next(), if !under_way.is_empty() => {
                    agenda.ended(&job);
                    agenda.waiting.extend(self.judged(job, tried).await);
                }
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Reads on; whether there was something. What is at hand is kept when the log has to be read from another place:
    /// it is looked at again then, which costs nothing.
    async fn follow(
        &self,
        cursor: &Cursor,
        read: &mut Option<Mark>,
        agenda: &mut Agenda,
    ) -> Result<bool, ClientError> {
        let at = match *read {
            Some(at) => at,
            None => *read.insert(cursor.proven(self.client).await?),
        };
        if agenda.is_full() {
            return Ok(false);
        }
        let page = self.client.feed(at.position, None).await?;
        let mut at = at;
        for event in &page.events {
            if let Some((task, run)) = completed(event) {
                let is_known = |job: &Job| (job.task, job.run) == (task, run);
                if !agenda.waiting.iter().any(is_known) {
                    let due = Instant::now();
                    agenda.waiting.push_back(Job { task, run, after: at, tries: 0, due, away: None });
                }
            }
            at = Mark::of(event);
        }
        *read = Some(at);
        Ok(!page.events.is_empty())
    }

    /// What is to be done of it still.
    async fn judged(&self, mut job: Job, tried: Result<Tried, ClientError>) -> Option<Job> {
        let now = Instant::now();
        match tried {
            Ok(Tried::Over) => return None,
            // The coordinator is away: nothing was tried.
            Err(error) => {
                tracing::debug!(%error, task = %job.task, "not delivered yet");
                job.due = now + LOOKED_AGAIN;
            }
            Ok(Tried::Elsewhere) => job.due = now + LOOKED_AGAIN,
            Ok(Tried::Hook) => {
                job.tries += 1;
                job.due = now + again_in(job.tries);
            }
            Ok(Tried::Away(task, source)) => {
                if job.away.is_none() {
                    tracing::info!(task = %task.id, %source, "not delivered: its repository is not here; it is looked for again");
                }
                let since = *job.away.get_or_insert(now);
                job.due = now + LOOKED_AGAIN;
                if since.elapsed() > AWAY_MAX {
                    let id = task.id.short();
                    let message = format!(
                        "its repository {source} is not on the machine of `docket up`: `docket apply {id}` where it \
                         is (--repo DIR), or `docket accept {id}`"
                    );
                    return (!self.told(&job, DeliveryBlockedWhy::Repository, message).await).then_some(job);
                }
            }
            Ok(Tried::Failed(why, what)) => {
                job.away = None;
                job.tries += 1;
                job.due = now + again_in(job.tries);
                let id = job.task.short();
                if job.tries >= TRIES_MAX {
                    let message = format!("{what}; it is not tried again, `docket apply {id}` does");
                    let message = if why == DeliveryBlockedWhy::Remote {
                        message.replace("docket apply", "docket push")
                    } else {
                        message
                    };
                    return (!self.told(&job, why, message).await).then_some(job);
                }
                if job.tries >= TOLD_AT {
                    let message =
                        format!("{what}; it is tried again by itself, `docket apply {id}` does so at once");
                    self.told(&job, why, message).await;
                }
            }
        }
        Some(job)
    }

    /// Says in the log that the task is undelivered, and why; whether it says so, or need not.
    async fn told(&self, job: &Job, why: DeliveryBlockedWhy, message: String) -> bool {
        let told = async {
            let task = self.client.task(job.task).await?.task;
            let Ok(found) = delivery::deliveries(self.client, job.task).await else { return Ok(false) };
            let is_same = found.blocked.as_ref().is_some_and(|blocked| {
                (blocked.run, blocked.why, blocked.message.as_str()) == (job.run, why, message.as_str())
            });
            if is_same || !is_wanted(&task, job.run) || found.is_over(job.run, task.spec.delivery()) {
                return Ok(true);
            }
            if found.claim.as_ref().is_some_and(|claim| self.claims.is_anothers(job.task, claim)) {
                return Ok(false);
            }
            let branch = task.spec.branch_of(task.id);
            tracing::warn!(task = %task.id, %branch, %message, "not delivered");
            let step = DeliveryStep::Blocked { branch, why, paths: Vec::new(), kept: None, message };
            self.client.delivery(job.task, job.run, step).await.map(|_| true)
        };
        told.await.unwrap_or_else(|error: ClientError| {
            tracing::warn!(task = %job.task, %error, "not delivered, and the log does not say so yet");
            false
        })
    }

    async fn deliver(&self, job: &Job) -> Result<Tried, ClientError> {
        let (cx, client, run) = (self.cx, self.client, job.run);
        let task = client.task(job.task).await?.task;
        let push = match task.spec.delivery() {
            _ if !is_wanted(&task, run) => return Ok(Tried::Over),
            Delivery::Patch => return Ok(Tried::Over),
            Delivery::Branch => None,
            Delivery::Push => Some(cx.config.delivery.remote.as_str()),
        };
        if self.is_delivered(&task, run).await {
            return Ok(Tried::Over);
        }
        let Some(repository): Option<PathBuf> = delivery::source_of(&task) else {
            let source = task.spec.base.git.as_ref().map(|git| git.source.clone());
            // Without one there is no branch to make; the submit refuses that.
            return Ok(source.map_or(Tried::Over, |source| Tried::Away(Box::new(task), source)));
        };
        let ask = Ask { push, ..Ask::of(&task, run, &repository) };
        let id = task.id;
        match delivery::deliver(cx, client, self.claims, &ask).await {
            Ok(done) => {
                let text = done.text();
                tracing::info!(task = %id, "{text}");
                let Some(hook) = done.hook.filter(|hook| hook.exit != Some(0)) else {
                    return Ok(Tried::Over);
                };
                tracing::warn!(task = %id, exit = ?hook.exit, output = %last_line(&hook.output), "delivered, and the hook did not end well");
                Ok(Tried::Hook)
            }
            Err(Undone::Elsewhere(who)) => {
                tracing::debug!(task = %id, %who, "somebody else delivers it");
                Ok(Tried::Elsewhere)
            }
            Err(Undone::Blocked(failure)) => {
                tracing::warn!(task = %id, branch = %ask.branch, error = %failure.error, "not delivered; the task is undelivered until a person settles it");
                Ok(Tried::Over)
            }
            Err(Undone::Failed(why, failure)) => {
                let what = failure.text(crate::output::fail::Chain::Shown).replace("\n  because: ", ": ");
                tracing::warn!(task = %id, branch = %ask.branch, error = %what, "not delivered; it is tried again");
                Ok(Tried::Failed(why, what))
            }
        }
    }

    /// Whether the log says so. A branch that was deleted since, as one that was merged, is not made again; a hook that
    /// nobody had set when it was delivered is not run.
    async fn is_delivered(&self, task: &TaskRecord, run: RunId) -> bool {
        let Ok(found) = delivery::deliveries(self.client, task.id).await else { return false };
        if !found.is_over(run, task.spec.delivery()) {
            return false;
        }
        let is_owed = self.cx.config.delivery.hook.is_some() && found.hooks_owed.contains(&run);
        let Some(last) = found.hook().filter(|hook| hook.run == run) else { return !is_owed };
        let runs = found.hooks.iter().filter(|hook| hook.commit == last.commit).count();
        !is_owed && (last.exit == Some(0) || runs >= HOOK_RUNS_MAX || self.cx.config.delivery.hook.is_none())
    }
}

/// One that was rejected or begun anew since gives what its next run comes to.
fn is_wanted(task: &TaskRecord, run: RunId) -> bool {
    (task.state == TaskState::Completed || task.is_undelivered()) && task.last_run == Some(run)
}

fn again_in(tries: u32) -> Duration {
    AGAIN.saturating_mul(1 << tries.saturating_sub(1).min(12)).min(AGAIN_MAX)
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default()
}

/// The task and the run, of the event that says that it is done.
fn completed(event: &Envelope) -> Option<(TaskId, RunId)> {
    let (StreamId::Task(task), "TaskCompleted") = (&event.stream, event.kind.as_str()) else { return None };
    match TaskEvent::decode(&event.kind, event.version, event.payload.as_str()) {
        Ok(TaskEvent::TaskCompleted(done)) => Some((*task, done.run)),
        Ok(_) | Err(_) => None,
    }
}
