//! Reads the log on and raises what is to be told. One coordinator does, by its term; were there two, the stream's
//! own order lets one of them write.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use docket_schema::{
    event::{EVENTS_PER_APPEND_MAX, Envelope},
    ids::{BatchId, Position, RunId, StreamId, TaskId, Timestamp},
    system::{
        BlockKind, Notice, NoticeBatch, NoticeSource, NoticeTask, NotificationRaised, Notifications,
        NotificationsFollowed, SystemEvent,
    },
    task::{Delivery, TaskState},
    wire::{PAGE_EVENTS_MAX, TaskQuery, TaskStates},
};
use tokio_util::sync::CancellationToken;

use super::Desk;
use crate::{
    clock::jittered,
    decide::{self, Tell},
    error_chain::error_chain,
    store::{Store, StoreError},
    system::{FoldError, ImportedRanges, RestoreTimes, TailedFold},
};

/// How often the log is looked at when it had nothing new: how late somebody may be told.
const POLL: Duration = Duration::from_secs(1);
/// Wait after the store failed.
const STORE_RETRY: Duration = Duration::from_secs(2);
/// Events that are read without a mark in the stream, when nothing of them was told: what is read again after a restart.
const UNMARKED_MAX: u64 = 10_000;
/// Notifications of one append, and batches that are looked at for it.
const RAISED_MAX: usize = EVENTS_PER_APPEND_MAX / 4;
/// What is older is told to nobody: where no coordinator told anybody for long, news of long ago need no person now.
const NEWS_AGE_MAX_MS: u64 = 7 * 24 * 3_600_000;

/// Says where telling begins, if it has not begun: at the end of the log as it is now. What was before is told to nobody.
pub(crate) async fn begin(
    table: &TailedFold<Notifications>,
    store: &dyn Store,
    now: Timestamp,
) -> Result<(), FoldError> {
    table.catch_up(store).await?;
    if table.with(|known| known.position().is_some()) {
        return Ok(());
    }
    let position = end_of_log(store).await?;
    let decide = |known: &Notifications| {
        let begins = SystemEvent::from(NotificationsFollowed { position });
        Ok::<_, FoldError>(known.position().is_none().then_some(begins))
    };
    table.change(store, now, decide).await.map(drop)
}

/// The place of the last event, found by halving: the log may be long.
async fn end_of_log(store: &dyn Store) -> Result<Position, StoreError> {
    let most = i64::MAX.unsigned_abs();
    // There is an event at `known`, and none after `beyond`.
    let (mut known, mut beyond) = (0, 1);
    while let Some(event) = store.feed(Position(beyond), 1).await?.first() {
        known = event.position.0;
        beyond = known.saturating_mul(2).min(most);
    }
    while known < beyond {
        let middle = known.midpoint(beyond);
        match store.feed(Position(middle), 1).await?.first() {
            Some(event) => known = event.position.0,
            None => beyond = middle,
        }
    }
    Ok(Position(known))
}

/// Runs until `shutdown`.
pub(crate) async fn follow(desk: Desk, shutdown: CancellationToken) {
    let (imports, restores) = (TailedFold::default(), TailedFold::default());
    let mut follower = Follower { desk, at: Position(0), unmarked: 0, imports, restores };
    let mut failing = false;
    loop {
        let wait = match follower.round().await {
            Ok(more) => {
                failing = false;
                if more { Duration::ZERO } else { jittered(POLL) }
            }
            Err(error) => {
                // Once, not each time: without the store no route does anything either.
                if !failing {
                    tracing::error!("nobody is told of anything for now: {}", error_chain(&error));
                }
                failing = true;
                jittered(STORE_RETRY)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct Follower {
    desk: Desk,
    /// Up to where this process has read, where that is further than the stream says.
    at: Position,
    /// Events read since the stream's last mark.
    unmarked: u64,
    imports: TailedFold<ImportedRanges>,
    restores: TailedFold<RestoreTimes>,
}

/// What a part of the log gives.
#[derive(Default)]
struct Found {
    raised: Vec<NotificationRaised>,
    /// Something was to be told, and no target wants it: it must not be told to one that is added later.
    unwanted: bool,
    /// Up to where it was read.
    position: Position,
    events: u64,
    /// Batches of which a task had ended and has not after all: the end that comes is another than the one told.
    reopened: BTreeSet<BatchId>,
}

impl Follower {
    /// A page of the log. Whether there may be more.
    async fn round(&mut self) -> Result<bool, FoldError> {
        let Desk { store, clock, table, lead, .. } = self.desk.clone();
        table.catch_up(&*store).await?;
        if !lead.is_ours() {
            self.at = Position(0);
            return Ok(false);
        }
        let Some(durable) = table.with(Notifications::position) else {
            begin(&table, &*store, clock.now()).await?;
            return Ok(true);
        };
        self.give_up().await?;
        let page = store.feed(self.at.max(durable), PAGE_EVENTS_MAX).await?;
        if page.is_empty() {
            return Ok(false);
        }
        let found = self.read(&page).await?;
        self.unmarked += found.events;
        let Found { raised, unwanted, position, .. } = found;
        let events: Vec<SystemEvent> = if !raised.is_empty() {
            raised.into_iter().map(SystemEvent::from).collect()
        } else if unwanted || self.unmarked >= UNMARKED_MAX {
            vec![NotificationsFollowed { position }.into()]
        } else {
            self.at = position;
            return Ok(true);
        };
        // Whoever else read on meanwhile has raised the same.
        let decide = |known: &Notifications| {
            let is_ours = known.position() == Some(durable);
            Ok::<_, FoldError>(if is_ours { events.clone() } else { Vec::new() })
        };
        table.change(&*store, clock.now(), decide).await?;
        (self.at, self.unmarked) = (Position(0), 0);
        Ok(true)
    }

    /// Ends the waiting of what would never be told: nobody would hear of it otherwise.
    async fn give_up(&self) -> Result<(), FoldError> {
        let Desk { store, clock, table, notifier, .. } = &self.desk;
        let names: Vec<&str> = notifier.targets().iter().map(|target| target.view.name.as_str()).collect();
        let decide = |known: &Notifications| decide::given_up(known, &names, RAISED_MAX);
        let given_up = table.with(|known| decide(known).len());
        if given_up > 0 {
            table.change(&**store, clock.now(), |known| Ok::<_, FoldError>(decide(known))).await?;
            tracing::warn!("{given_up} notifications are dead letters without an attempt (docket notify)");
        }
        Ok(())
    }

    /// What a page gives, or its beginning.
    async fn read(&mut self, page: &[Envelope]) -> Result<Found, FoldError> {
        self.imports.catch_up(&*self.desk.store).await?;
        self.restores.catch_up(&*self.desk.store).await?;
        let oldest = self.desk.clock.ago(NEWS_AGE_MAX_MS);
        let mut found = Found::default();
        let mut ended: BTreeMap<BatchId, &Envelope> = BTreeMap::new();
        for event in page {
            if found.raised.len() + ended.len() >= RAISED_MAX {
                break;
            }
            (found.position, found.events) = (event.position, found.events + 1);
            let seen = match decide::seen(event) {
                Ok(seen) => seen,
                Err(error) => {
                    tracing::warn!(stream = %event.stream, seq = %event.seq, "nobody is told of an event: {error}");
                    continue;
                }
            };
            let says = seen.tell.is_some() || seen.ended.is_some();
            if !says || event.recorded_at < oldest || self.is_from_elsewhere(event) {
                continue;
            }
            if let Some(tell) = seen.tell
                && let Some(notice) = self.notice(tell).await?
            {
                if let Notice::TaskBlocked { of, block: BlockKind::Delivery, .. } = &notice {
                    found.reopened.extend(of.batch);
                }
                self.raise(&mut found, event, notice);
            }
            let Some(task) = seen.ended else { continue };
            let store = &*self.desk.store;
            ended.extend(batch_of(store, task).await?.map(|batch| (batch, event)));
            // Nothing of another batch may go on now either.
            if decide::holds_others(event) {
                ended.extend(store.batches_behind(task).await?.into_iter().map(|batch| (batch, event)));
            }
        }
        for (batch, event) in ended {
            if let Some(notice) = self.finished(batch, found.reopened.contains(&batch)).await? {
                self.raise(&mut found, event, notice);
            }
        }
        let position = found.position;
        found.raised.iter_mut().for_each(|raised| raised.position = Some(position));
        Ok(found)
    }

    /// Whether an event was imported, or came back from the archive: it has a new place in the log, and is no news. What
    /// brought it was committed with it, so that the folds know of it once they are read after it.
    fn is_from_elsewhere(&self, event: &Envelope) -> bool {
        let StreamId::Task(task) = event.stream else { return false };
        let restored_at = self.restores.with(|times| times.get(task));
        restored_at.is_some_and(|at| event.recorded_at < at)
            || self.imports.with(|ranges| ranges.contains(task, event))
    }

    fn raise(&self, found: &mut Found, event: &Envelope, notice: Notice) {
        let source = NoticeSource::of(event);
        let wants = self.desk.notifier.targets().iter().filter(|target| target.view.wants(&notice));
        let targets: Vec<String> = wants.map(|target| target.view.name.clone()).collect();
        if targets.is_empty() {
            found.unwanted = true;
            return;
        }
        let (id, notice) = (source.id(&notice), notice.bounded());
        tracing::info!(%id, kind = %notice.kind(), targets = targets.len(), "somebody is to be told");
        found.raised.push(NotificationRaised { id, source: Some(source), position: None, notice, targets });
    }

    /// What is told, with what is known of its task or batch.
    async fn notice(&self, tell: Tell) -> Result<Option<Notice>, StoreError> {
        let store = &*self.desk.store;
        Ok(match tell {
            Tell::Blocked { task, run, block, question } => {
                let of = of_task(store, task, run, block == BlockKind::Delivery).await?;
                of.map(|of| Notice::TaskBlocked { of, block, question })
            }
            Tell::Failed { task, run, reason, message } => {
                let of = of_task(store, task, run, false).await?;
                of.map(|of| Notice::TaskFailed { of, reason, message })
            }
            Tell::Spent { batch, budget, message } => {
                let of = of_batch(store, batch).await?;
                Some(Notice::BudgetSpent { of, budget, message })
            }
        })
    }

    /// That a batch has ended, where that is so and news; whatever was told of one that was reopened since is not of
    /// this end.
    async fn finished(&self, batch: BatchId, reopened: bool) -> Result<Option<Notice>, StoreError> {
        let store = &*self.desk.store;
        // Cheap beside the whole view, which counts every task: most ends of a task are not its batch's.
        let goes_on = |state: &TaskState| !state.is_ended() && *state != TaskState::Pending;
        let state = TaskStates::of(TaskState::ALL.into_iter().filter(goes_on));
        let open = TaskQuery { batch: Some(batch), state, limit: Some(1), ..TaskQuery::default() };
        if !store.tasks(open).await?.tasks.is_empty() {
            return Ok(None);
        }
        let Some(view) = store.batch(batch).await? else { return Ok(None) };
        let Some(tasks) = decide::ends(&view) else { return Ok(None) };
        let told = self.desk.table.with(|known| known.told_of(batch)).filter(|_| !reopened);
        if !decide::is_news(&tasks, told) {
            return Ok(None);
        }
        let mut of = of_batch(store, batch).await?;
        of.name = view.name;
        Ok(Some(Notice::BatchFinished { of, tasks }))
    }
}

/// A task as it is told of; none where a delivery failed that nobody had asked for, for nobody waits for that one.
async fn of_task(
    store: &dyn Store,
    task: TaskId,
    run: RunId,
    delivers: bool,
) -> Result<Option<NoticeTask>, StoreError> {
    if let Some((record, _)) = store.task(task).await? {
        let is_asked = !delivers || record.spec.delivery() != Delivery::Patch;
        return Ok(is_asked.then(|| NoticeTask::of(&record, run)));
    }
    // It was archived before anybody read of it.
    let stub = store.stub(task.0).await?.and_then(|stub| stub.task);
    Ok(stub.map(|kept| NoticeTask {
        task,
        run: Some(run),
        title: kept.title,
        queue: kept.queue,
        batch: kept.batch,
        batch_name: kept.batch_name,
    }))
}

async fn batch_of(store: &dyn Store, task: TaskId) -> Result<Option<BatchId>, StoreError> {
    if let Some((record, _)) = store.task(task).await? {
        return Ok(record.spec.batch);
    }
    Ok(store.stub(task.0).await?.and_then(|stub| stub.task).and_then(|kept| kept.batch))
}

/// A batch as its newest task has it.
async fn of_batch(store: &dyn Store, batch: BatchId) -> Result<NoticeBatch, StoreError> {
    let query = TaskQuery { batch: Some(batch), limit: Some(1), ..TaskQuery::default() };
    let newest = store.tasks(query).await?.tasks.into_iter().next();
    Ok(match newest {
        Some(record) => NoticeBatch { batch, name: record.spec.batch_name, queue: Some(record.spec.queue) },
        None => NoticeBatch { batch, name: None, queue: None },
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
    async fn telling_begins_at_the_last_event_and_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = sqlite::open(&folder.path().join("docket.db")).await.expect("opens");
        assert_eq!(end_of_log(&store).await.expect("reads"), Position(0));
        let mut last = Position(0);
        for n in 1..=9 {
            let act = AdminAct::CollectGarbage { delete: false };
            let acted = AdminActed { by: "ann".to_owned(), from: None, act };
            write_audit(&store, vec![acted.into()], Timestamp(n)).await.expect("writes");
            let all = store.feed(Position(0), PAGE_EVENTS_MAX).await.expect("reads");
            last = all.last().expect("an event").position;
            assert_eq!(end_of_log(&store).await.expect("reads"), last);
        }
        let table = TailedFold::<Notifications>::default();
        for at in [10, 11] {
            begin(&table, &store, Timestamp(at)).await.expect("begins");
        }
        let known = table.with(|known| (known.position(), known.head().0));
        assert_eq!(known, (Some(last), 1));
    }
}
