//! What a person looks at first: the same on every store, and bounded.

use docket_coordinator::reports::{self, ReportError};
use docket_schema::{
    event::TypedEvent as _,
    ids::{BatchId, DecisionHash, StreamId, Timestamp, Turn},
    run::{BlockedWhy, RunBlocked, RunEvent, RunOutcome},
    task::{TaskBlockedWhy, TaskSpec, TaskState},
    wire::{CostDaysQuery, OVERVIEW_TASKS_MAX, StateCount},
};

use super::{
    Database, World, budgets,
    reports::{of, worked},
    world::{failure, spec},
};

const BATCH: BatchId = BatchId(uuid::Uuid::from_u128(91));
const DAY_MS: u64 = 86_400_000;

fn count(counts: &[StateCount], state: TaskState) -> u64 {
    counts.iter().find(|one| one.state == state).map_or(0, |one| one.count)
}

fn asks(why: BlockedWhy) -> RunEvent {
    let question = "Which colour is the door?".into();
    RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash([1; 32]) }.into()
}

pub(super) async fn the_overview_tells_what_needs_a_person_and_counts_the_rest(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let begun_at = world.now();
    let (done, lease) = worked(&world, &worker, of("anthropic"), 100).await;
    worker.end(&lease, RunOutcome::Succeeded).await;
    world.pass(2 * 3_600_000);
    let since = world.now();
    let (fails, lease) = worked(&world, &worker, of("anthropic"), 10).await;
    worker.end(&lease, failure()).await;
    let mut blocked = Vec::new();
    for why in [BlockedWhy::Model, BlockedWhy::Child] {
        let (task, lease) = worked(&world, &worker, of("openai"), 1).await;
        let head = world.store.head(StreamId::Run(lease.run)).await.expect("reads").expect("begun");
        worker.settle(&lease, head.seq, vec![asks(why).encode(Turn(1))]).await.expect("blocks");
        blocked.push(task);
    }
    let (runs, lease) = worked(&world, &worker, of("openai"), 1).await;
    let queue: docket_schema::ids::QueueName = "other".parse().expect("a name");
    world.submit(TaskSpec { queue: queue.clone(), batch: Some(BATCH), ..spec("waits") }).await;

    let now = world.now();
    let found = world.store.overview(now, since, begun_at).await.expect("an overview");
    let ids = |tasks: &[docket_schema::wire::TaskBrief]| tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    assert_eq!(ids(&found.asks), [blocked[0]], "who waits for a child waits for no person");
    assert_eq!(found.asks[0].message.as_deref(), Some("Which colour is the door?"));
    assert_eq!((ids(&found.discarded), found.discarded_count), (vec![fails], 1));
    assert_eq!(found.discarded[0].forked_from, None);
    assert_eq!(ids(&found.running), [runs]);
    assert_eq!((found.running[0].run, found.running[0].worker), (Some(lease.run), Some(worker.incarnation)));
    assert_eq!(ids(&found.ended), [fails], "since then");
    let of_why = |why| found.blocked.iter().find(|one| one.why == why).map_or(0, |one| one.count);
    assert_eq!((of_why(TaskBlockedWhy::Person), of_why(TaskBlockedWhy::Child)), (1, 1));
    assert_eq!(count(&found.ended_counts, TaskState::Discarded), 1);
    assert_eq!(count(&found.ended_counts, TaskState::Completed), 0);
    for (state, many) in [
        (TaskState::Completed, 1),
        (TaskState::Discarded, 1),
        (TaskState::Blocked, 2),
        (TaskState::Running, 1),
        (TaskState::Available, 1),
    ] {
        assert_eq!(count(&found.tasks, state), many, "{state}");
    }
    assert_eq!(
        found.queues.iter().find(|view| view.name == queue).map(|view| view.count(TaskState::Available)),
        Some(1)
    );
    assert_eq!(found.workers.len(), 1);
    // Two hours lie between the two ends; both within the week.
    let hours: Vec<_> = found.hours.iter().map(|hour| (hour.state, hour.count)).collect();
    assert_eq!(hours, [(TaskState::Completed, 1), (TaskState::Discarded, 1)]);
    assert!(found.hours[0].at < found.hours[1].at && found.hours[0].at.0 % 3_600_000_000 == 0);
    // Ids of this world are of the first milliseconds of 1970: six tasks within one hour.
    let early =
        world.store.overview(Timestamp(3_600_000_000 * 5), since, begun_at).await.expect("an overview");
    let submitted: Vec<_> = early.submitted.iter().map(|hour| (hour.at.0, hour.count)).collect();
    assert_eq!(submitted, [(0, 6)]);
    assert!(found.submitted.is_empty(), "that hour is not of this week: {:?}", found.submitted);
    let all = world.store.overview(now, begun_at, begun_at).await.expect("an overview");
    assert_eq!(ids(&all.ended), [fails, done]);
    world.pass(8 * DAY_MS);
    let later = world.store.overview(world.now(), world.now(), world.now()).await.expect("an overview");
    assert!(later.hours.is_empty() && later.ended.is_empty());
    assert_eq!((ids(&later.discarded), later.discarded_count), (vec![fails], 1), "it failed still");
    assert_eq!(count(&later.ended_counts, TaskState::Discarded), 0, "and not just now");
    assert_eq!(ids(&later.asks), [blocked[0]], "it waits still");
    costs_by_day(&world, begun_at).await;
    world.check().await;
}

async fn costs_by_day(world: &World, begun_at: Timestamp) {
    let ask = |after, limit| CostDaysQuery { from: Some(begun_at), until: None, after, limit: Some(limit) };
    let whole = reports::cost_days(&*world.store, &ask(None, 100)).await.expect("a page");
    let sum = |page: &docket_schema::wire::CostDaysPage| {
        page.days.iter().map(|day| day.sums.cost_nusd).sum::<u64>()
    };
    assert_eq!((sum(&whole), whole.runs, whole.next.as_deref()), (1000 + 100 + 30, 5, None));
    assert!(whole.days.iter().all(|day| day.at.0 % 86_400_000_000 == 0));
    let (mut after, mut paged, mut runs) = (None, 0, 0);
    loop {
        let page = reports::cost_days(&*world.store, &ask(after, 1)).await.expect("a page");
        (paged, runs) = (paged + sum(&page), runs + page.runs);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!((paged, runs), (1130, 5), "a page at a time as all at once");
    let lacking = reports::cost_days(&*world.store, &CostDaysQuery::default()).await;
    assert!(matches!(lacking, Err(ReportError::Query { field: "from", .. })), "{lacking:?}");
}

/// Told once a fifth of it is left, and while a task of the batch has not ended.
pub(super) async fn the_overview_tells_of_budgets_that_are_nearly_spent(database: Database) {
    let world = World::open(database).await;
    let near = async || {
        let now = world.now();
        let found = world.store.overview(now, now, now).await.expect("an overview");
        found.budgets.iter().map(|near| (near.used.tokens, near.budget.spent.is_some())).collect::<Vec<_>>()
    };
    world.submit(budgets::of_batch()).await;
    let lease = world.worker().lease_one().await;
    budgets::set(&world, Some(100), None).await;
    budgets::answered(&world, &lease, 39).await;
    assert_eq!(budgets::used(&world).await.tokens, 78);
    assert_eq!(near().await, [], "more than a fifth is left");
    budgets::answered(&world, &lease, 1).await;
    assert_eq!(budgets::used(&world).await.tokens, 80);
    assert_eq!(near().await, [(80, false)]);
    world.worker().end(&lease, RunOutcome::Succeeded).await;
    assert_eq!(near().await, [], "nothing of the batch is left to pay for");
    world.check().await;
}

pub(super) async fn the_overview_has_bounds(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let most = OVERVIEW_TASKS_MAX as usize;
    for n in 0..most + 3 {
        let titled = TaskSpec { title: format!("task {n}"), ..of("openai") };
        let (_, lease) = worked(&world, &worker, titled, 1).await;
        let head = world.store.head(StreamId::Run(lease.run)).await.expect("reads").expect("begun");
        worker.settle(&lease, head.seq, vec![asks(BlockedWhy::Model).encode(Turn(1))]).await.expect("blocks");
    }
    let found = world.store.overview(world.now(), world.now(), world.now()).await.expect("an overview");
    assert_eq!(
        (found.asks.len(), found.asks[0].title.as_str()),
        (most, format!("task {}", most + 2).as_str())
    );
    assert_eq!(found.blocked.iter().map(|one| one.count).sum::<u64>(), most as u64 + 3);
    for n in 0..most + 2 {
        let titled = TaskSpec { title: format!("lost {n}"), ..of("openai") };
        let (_, lease) = worked(&world, &worker, titled, 1).await;
        worker.end(&lease, failure()).await;
        world.pass(1000);
    }
    world.pass(2 * DAY_MS);
    let later = world.store.overview(world.now(), world.now(), world.now()).await.expect("an overview");
    assert_eq!(
        (later.discarded.len(), later.discarded_count, later.discarded[0].title.as_str()),
        (most, most as u64 + 2, format!("lost {}", most + 1).as_str()),
        "however long ago, the last first, and counted beyond what is listed"
    );
    assert!(later.ended.is_empty());
    world.check().await;
}
