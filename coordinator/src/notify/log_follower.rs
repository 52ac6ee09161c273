//! Follows the log and raises notifications. One coordinator does so, under its leader lease; if there were
//! two, the head check of the stream lets only one of them write.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use docket_schema::{
    api::{PAGE_EVENTS_MAX, TaskQuery, TaskStates},
    event::{EVENTS_PER_APPEND_MAX, Envelope},
    ids::{BatchId, Position, RunId, StreamId, TaskId, Timestamp},
    system::{
        BlockKind, NotificationBatch, NotificationContent, NotificationRaised, NotificationSource,
        NotificationTask, NotificationsFold, NotificationsFollowed, SystemEvent,
    },
    task::{DeliveryMode, TaskState},
};
use tokio_util::sync::CancellationToken;

use super::NotifyContext;
use crate::{
    clock::jittered_interval,
    decide::{self, NotificationTrigger},
    error_chain::error_chain,
    store::{Store, StoreError},
    system::{FoldError, ImportedRanges, RestoreTimes, TailedFold},
};

/// How often the log is polled when idle: bounds how late a notification is raised.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after a store failure.
const STORE_RETRY: Duration = Duration::from_secs(2);
/// Events read without recording progress in the stream if none raised a notification: bounds the events read
/// again after a restart.
const UNMARKED_EVENTS_MAX: u64 = 10_000;
/// Notifications per append, and batches checked for it.
const RAISED_MAX: usize = EVENTS_PER_APPEND_MAX / 4;
/// Older events raise no notifications: after a long outage of all coordinators, old news needs no one's
/// attention.
const NEWS_AGE_MAX_MS: u64 = 7 * 24 * 3_600_000;

/// Sets the starting point to the current end of the log if there is none yet. Earlier events raise no
/// notifications.
pub(crate) async fn start_following(
    table: &TailedFold<NotificationsFold>,
    store: &dyn Store,
    now: Timestamp,
) -> Result<(), FoldError> {
    table.catch_up(store).await?;
    if table.with_fold(|known| known.position().is_some()) {
        return Ok(());
    }
    let position = find_log_end(store).await?;
    let decide = |known: &NotificationsFold| {
        let begins = SystemEvent::from(NotificationsFollowed { position });
        Ok::<_, FoldError>(known.position().is_none().then_some(begins))
    };
    table.change(store, now, decide).await.map(drop)
}

/// Finds the position of the last event by bisection, because the log may be long.
async fn find_log_end(store: &dyn Store) -> Result<Position, StoreError> {
    let most = i64::MAX.unsigned_abs();
    // There is an event at `known` and none after `beyond`.
    let (mut known, mut beyond) = (0, 1);
    while let Some(event) = store.read_log(Position(beyond), 1).await?.first() {
        known = event.position.0;
        beyond = known.saturating_mul(2).min(most);
    }
    while known < beyond {
        let middle = known.midpoint(beyond);
        match store.read_log(Position(middle), 1).await?.first() {
            Some(event) => known = event.position.0,
            None => beyond = middle,
        }
    }
    Ok(Position(known))
}

/// Follows the log until `shutdown`.
pub(crate) async fn run_log_follower(desk: NotifyContext, shutdown: CancellationToken) {
    let (imports, restores) = (TailedFold::default(), TailedFold::default());
    let mut follower = LogFollower { context: desk, at: Position(0), unmarked: 0, imports, restores };
    let mut failing = false;
    loop {
        let wait = match follower.follow_page().await {
            Ok(more) => {
                failing = false;
                if more { Duration::ZERO } else { jittered_interval(POLL_INTERVAL) }
            }
            Err(error) => {
                // Logged once per outage: without the store no route works either.
                if !failing {
                    tracing::error!("cannot raise notifications: {}", error_chain(&error));
                }
                failing = true;
                jittered_interval(STORE_RETRY)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct LogFollower {
    context: NotifyContext,
    /// Position this process has read to, if further than recorded in the stream.
    at: Position,
    /// Events read since progress was last recorded in the stream.
    unmarked: u64,
    imports: TailedFold<ImportedRanges>,
    restores: TailedFold<RestoreTimes>,
}

/// Notifications from a page of the log.
#[derive(Default)]
struct PageNotifications {
    raised: Vec<NotificationRaised>,
    /// A notification was triggered that no target subscribes to: it must not go to a target added later.
    has_unwanted: bool,
    /// Position read to.
    position: Position,
    events: u64,
    /// Batches in which an ended task was reopened: their next end is a new one.
    reopened: BTreeSet<BatchId>,
}

impl LogFollower {
    /// Processes a page of the log; returns whether there may be more.
    async fn follow_page(&mut self) -> Result<bool, FoldError> {
        let NotifyContext { store, clock, notifications: table, leader_lease: lead, .. } =
            self.context.clone();
        table.catch_up(&*store).await?;
        if !lead.is_leader() {
            self.at = Position(0);
            return Ok(false);
        }
        let Some(durable) = table.with_fold(NotificationsFold::position) else {
            start_following(&table, &*store, clock.now()).await?;
            return Ok(true);
        };
        self.dead_letter_undeliverable().await?;
        let page = store.read_log(self.at.max(durable), PAGE_EVENTS_MAX).await?;
        if page.is_empty() {
            return Ok(false);
        }
        let found = self.read_page(&page).await?;
        self.unmarked += found.events;
        let PageNotifications { raised, has_unwanted: unwanted, position, .. } = found;
        let events: Vec<SystemEvent> = if !raised.is_empty() {
            raised.into_iter().map(SystemEvent::from).collect()
        } else if unwanted || self.unmarked >= UNMARKED_EVENTS_MAX {
            vec![NotificationsFollowed { position }.into()]
        } else {
            self.at = position;
            return Ok(true);
        };
        // If another coordinator read on meanwhile, it has raised the same notifications.
        let decide = |known: &NotificationsFold| {
            let is_ours = known.position() == Some(durable);
            Ok::<_, FoldError>(if is_ours { events.clone() } else { Vec::new() })
        };
        table.change(&*store, clock.now(), decide).await?;
        (self.at, self.unmarked) = (Position(0), 0);
        Ok(true)
    }

    /// Moves deliveries that can never succeed to the dead letters, so that they do not wait unnoticed.
    async fn dead_letter_undeliverable(&self) -> Result<(), FoldError> {
        let NotifyContext { store, clock, notifications: table, notifier, .. } = &self.context;
        let names: Vec<&str> = notifier.targets().iter().map(|target| target.view.name.as_str()).collect();
        let decide = |known: &NotificationsFold| decide::dead_letter_events(known, &names, RAISED_MAX);
        let given_up = table.with_fold(|known| decide(known).len());
        if given_up > 0 {
            table.change(&**store, clock.now(), |known| Ok::<_, FoldError>(decide(known))).await?;
            tracing::warn!("{given_up} notifications became dead letters without an attempt (docket notify)");
        }
        Ok(())
    }

    /// Collects the notifications of a page, or of its beginning.
    async fn read_page(&mut self, page: &[Envelope]) -> Result<PageNotifications, FoldError> {
        self.imports.catch_up(&*self.context.store).await?;
        self.restores.catch_up(&*self.context.store).await?;
        let oldest = self.context.clock.earliest_shown_within(NEWS_AGE_MAX_MS);
        let mut found = PageNotifications::default();
        let mut ended: BTreeMap<BatchId, &Envelope> = BTreeMap::new();
        for event in page {
            if found.raised.len() + ended.len() >= RAISED_MAX {
                break;
            }
            (found.position, found.events) = (event.position, found.events + 1);
            let seen = match decide::effects_from_event(event) {
                Ok(seen) => seen,
                Err(error) => {
                    tracing::warn!(stream = %event.stream, seq = %event.seq, "an event raises no \
                         notification: {error}");
                    continue;
                }
            };
            let says = seen.trigger.is_some() || seen.ended_task.is_some();
            if !says || event.recorded_at < oldest || self.is_from_elsewhere(event) {
                continue;
            }
            if let Some(tell) = seen.trigger
                && let Some(notice) = self.build_notice(tell).await?
            {
                if let NotificationContent::TaskBlocked { of, block: BlockKind::Delivery, .. } = &notice {
                    found.reopened.extend(of.batch);
                }
                self.raise_notification(&mut found, event, notice);
            }
            let Some(task) = seen.ended_task else { continue };
            let store = &*self.context.store;
            ended.extend(find_task_batch(store, task).await?.map(|batch| (batch, event)));
            // Tasks of other batches may be stranded now, too.
            if decide::can_strand_dependents(event) {
                ended.extend(store.dependent_batches(task).await?.into_iter().map(|batch| (batch, event)));
            }
        }
        for (batch, event) in ended {
            if let Some(notice) = self.batch_end_notice(batch, found.reopened.contains(&batch)).await? {
                self.raise_notification(&mut found, event, notice);
            }
        }
        let position = found.position;
        found.raised.iter_mut().for_each(|raised| raised.position = Some(position));
        Ok(found)
    }

    /// Whether an event was imported or restored from the archive: it has a new position but is not news. The
    /// record of the import or restore was committed with it, so the folds know it once they have caught up.
    fn is_from_elsewhere(&self, event: &Envelope) -> bool {
        let StreamId::Task(task) = event.stream else { return false };
        let restored_at = self.restores.with_fold(|times| times.get(task));
        restored_at.is_some_and(|at| event.recorded_at < at)
            || self.imports.with_fold(|ranges| ranges.contains(task, event))
    }

    fn raise_notification(
        &self,
        found: &mut PageNotifications,
        event: &Envelope,
        notice: NotificationContent,
    ) {
        let source = NotificationSource::from_event(event);
        let wants =
            self.context.notifier.targets().iter().filter(|target| target.view.should_receive(&notice));
        let targets: Vec<String> = wants.map(|target| target.view.name.clone()).collect();
        if targets.is_empty() {
            found.has_unwanted = true;
            return;
        }
        let (id, notice) = (source.notification_id(&notice), notice.with_truncated_texts());
        tracing::info!(%id, kind = %notice.kind(), targets = targets.len(), "raised a notification");
        found.raised.push(NotificationRaised { id, source: Some(source), position: None, notice, targets });
    }

    /// Builds a notification with the details of its task or batch.
    async fn build_notice(
        &self,
        tell: NotificationTrigger,
    ) -> Result<Option<NotificationContent>, StoreError> {
        let store = &*self.context.store;
        Ok(match tell {
            NotificationTrigger::Blocked { task, run, block, question } => {
                let of = notice_task(store, task, run, block == BlockKind::Delivery).await?;
                of.map(|of| NotificationContent::TaskBlocked { of, block, question })
            }
            NotificationTrigger::Failed { task, run, reason, message } => {
                let of = notice_task(store, task, run, false).await?;
                of.map(|of| NotificationContent::TaskFailed { of, reason, message })
            }
            NotificationTrigger::BudgetSpent { batch, budget, message } => {
                let of = notice_batch(store, batch).await?;
                Some(NotificationContent::BudgetSpent { of, budget, message })
            }
        })
    }

    /// Builds the notification of a batch's end, if it has ended and that is news; a report before the batch
    /// was reopened does not count.
    async fn batch_end_notice(
        &self,
        batch: BatchId,
        reopened: bool,
    ) -> Result<Option<NotificationContent>, StoreError> {
        let store = &*self.context.store;
        // Cheap compared with the full view, which counts every task: most task ends do not end a batch.
        let goes_on = |state: &TaskState| !state.is_ended() && *state != TaskState::Pending;
        let state = TaskStates::from_states(TaskState::ALL.into_iter().filter(goes_on));
        let open = TaskQuery { batch: Some(batch), state, limit: Some(1), ..TaskQuery::default() };
        if !store.list_tasks(open).await?.tasks.is_empty() {
            return Ok(None);
        }
        let Some(view) = store.get_batch(batch).await? else { return Ok(None) };
        let Some(tasks) = decide::batch_end_counts(&view) else { return Ok(None) };
        let told = self
            .context
            .notifications
            .with_fold(|known| known.reported_batch_end(batch))
            .filter(|_| !reopened);
        if !decide::is_new_batch_end(&tasks, told) {
            return Ok(None);
        }
        let mut of = notice_batch(store, batch).await?;
        of.name = view.name;
        Ok(Some(NotificationContent::BatchFinished { of, tasks }))
    }
}

/// Returns the task's details; `None` for a failed delivery that was not requested, since no one waits for
/// it.
async fn notice_task(
    store: &dyn Store,
    task: TaskId,
    run: RunId,
    delivers: bool,
) -> Result<Option<NotificationTask>, StoreError> {
    if let Some((record, _)) = store.get_task(task).await? {
        let is_asked = !delivers || record.spec.delivery_mode() != DeliveryMode::Patch;
        return Ok(is_asked.then(|| NotificationTask::from_record(&record, run)));
    }
    // The task was archived before the event was read.
    let stub = store.find_stub(task.0).await?.and_then(|stub| stub.task);
    Ok(stub.map(|kept| NotificationTask {
        task,
        run: Some(run),
        title: kept.title,
        queue: kept.queue,
        batch: kept.batch,
        batch_name: kept.batch_name,
    }))
}

async fn find_task_batch(store: &dyn Store, task: TaskId) -> Result<Option<BatchId>, StoreError> {
    if let Some((record, _)) = store.get_task(task).await? {
        return Ok(record.spec.batch);
    }
    Ok(store.find_stub(task.0).await?.and_then(|stub| stub.task).and_then(|kept| kept.batch))
}

/// Returns the batch's details as its newest task has them.
async fn notice_batch(store: &dyn Store, batch: BatchId) -> Result<NotificationBatch, StoreError> {
    let query = TaskQuery { batch: Some(batch), limit: Some(1), ..TaskQuery::default() };
    let newest = store.list_tasks(query).await?.tasks.into_iter().next();
    Ok(match newest {
        Some(record) => {
            NotificationBatch { batch, name: record.spec.batch_name, queue: Some(record.spec.queue) }
        }
        None => NotificationBatch { batch, name: None, queue: None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::{EventLog as _, sqlite},
        system::write_audit,
    };
    use docket_schema::system::{AdminAct, AdminActed, TopicFold as _};

    #[tokio::test]
    async fn following_starts_once_at_the_end_of_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = sqlite::open(&folder.path().join("docket.db")).await.expect("opens");
        assert_eq!(find_log_end(&store).await.expect("reads"), Position(0));
        let mut last = Position(0);
        for n in 1..=9 {
            let act = AdminAct::CollectGarbage { delete: false };
            let acted = AdminActed { by: "ann".to_owned(), from: None, act };
            write_audit(&store, vec![acted.into()], Timestamp(n)).await.expect("writes");
            let all = store.read_log(Position(0), PAGE_EVENTS_MAX).await.expect("reads");
            last = all.last().expect("an event").position;
            assert_eq!(find_log_end(&store).await.expect("reads"), last);
        }
        let table = TailedFold::<NotificationsFold>::default();
        for at in [10, 11] {
            start_following(&table, &store, Timestamp(at)).await.expect("begins");
        }
        let known = table.with_fold(|known| (known.position(), known.head().0));
        assert_eq!(known, (Some(last), 1));
    }
}
