//! The overview page: the same on every store, and bounded.

use docket_coordinator::reports::{self, ReportError};
use docket_schema::{
    api::{CostDaysQuery, OVERVIEW_TASKS_MAX, StateCount},
    event::TypedEvent as _,
    ids::{BatchId, DecisionHash, StreamId, Timestamp, Turn},
    run::{BlockedReason, RunBlocked, RunEvent, RunOutcome},
    task::{TaskBlockedReason, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase, budgets,
    fixture::{failed_outcome, task_spec},
    reports::{run_one_model_call, spec_for_provider},
};

const BATCH: BatchId = BatchId(uuid::Uuid::from_u128(91));
const DAY_MS: u64 = 86_400_000;

fn count_in_state(counts: &[StateCount], state: TaskState) -> u64 {
    counts.iter().find(|one| one.state == state).map_or(0, |one| one.count)
}

fn blocked_event(why: BlockedReason) -> RunEvent {
    let question = "Which colour is the door?".into();
    RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash([1; 32]) }.into()
}

pub(super) async fn overview_lists_tasks_needing_attention_and_counts_the_rest(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let begun_at = world.now();
    let (done, lease) = run_one_model_call(&world, &worker, spec_for_provider("anthropic"), 100).await;
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    world.advance_clock(2 * 3_600_000);
    let since = world.now();
    let (fails, lease) = run_one_model_call(&world, &worker, spec_for_provider("anthropic"), 10).await;
    worker.end_run(&lease, failed_outcome()).await;
    let mut blocked = Vec::new();
    for why in [BlockedReason::Model, BlockedReason::Child] {
        let (task, lease) = run_one_model_call(&world, &worker, spec_for_provider("openai"), 1).await;
        let head = world.store.stream_head(StreamId::Run(lease.run)).await.expect("reads").expect("begun");
        worker
            .finish_lease(&lease, head.seq, vec![blocked_event(why).encode(Turn(1))])
            .await
            .expect("blocks");
        blocked.push(task);
    }
    let (runs, lease) = run_one_model_call(&world, &worker, spec_for_provider("openai"), 1).await;
    let queue: docket_schema::ids::QueueName = "other".parse().expect("a name");
    world.submit(TaskSpec { queue: queue.clone(), batch: Some(BATCH), ..task_spec("waits") }).await;

    let now = world.now();
    let found = world.store.read_overview(now, since, begun_at).await.expect("an overview");
    let ids =
        |tasks: &[docket_schema::api::TaskSummary]| tasks.iter().map(|task| task.id).collect::<Vec<_>>();
    assert_eq!(ids(&found.awaiting_person), [blocked[0]], "who waits for a child waits for no person");
    assert_eq!(found.awaiting_person[0].message.as_deref(), Some("Which colour is the door?"));
    assert_eq!((ids(&found.discarded), found.discarded_count), (vec![fails], 1));
    assert_eq!(found.discarded[0].forked_from, None);
    assert_eq!(ids(&found.running), [runs]);
    assert_eq!((found.running[0].run, found.running[0].worker), (Some(lease.run), Some(worker.incarnation)));
    assert_eq!(ids(&found.recently_ended), [fails], "since then");
    let of_why = |why| found.blocked.iter().find(|one| one.why == why).map_or(0, |one| one.count);
    assert_eq!((of_why(TaskBlockedReason::Person), of_why(TaskBlockedReason::Child)), (1, 1));
    assert_eq!(count_in_state(&found.ended_counts, TaskState::Discarded), 1);
    assert_eq!(count_in_state(&found.ended_counts, TaskState::Completed), 0);
    for (state, many) in [
        (TaskState::Completed, 1),
        (TaskState::Discarded, 1),
        (TaskState::Blocked, 2),
        (TaskState::Running, 1),
        (TaskState::Available, 1),
    ] {
        assert_eq!(count_in_state(&found.tasks, state), many, "{state}");
    }
    assert_eq!(
        found
            .queues
            .iter()
            .find(|view| view.name == queue)
            .map(|view| view.count_in_state(TaskState::Available)),
        Some(1)
    );
    assert_eq!(found.workers.len(), 1);
    // The two ends are two hours apart, both within the week.
    let hours: Vec<_> = found.ended_by_hour.iter().map(|hour| (hour.state, hour.count)).collect();
    assert_eq!(hours, [(TaskState::Completed, 1), (TaskState::Discarded, 1)]);
    assert!(
        found.ended_by_hour[0].at < found.ended_by_hour[1].at
            && found.ended_by_hour[0].at.0 % 3_600_000_000 == 0
    );
    // Ids of this fixture are from the first milliseconds of 1970: six tasks within one hour.
    let early =
        world.store.read_overview(Timestamp(3_600_000_000 * 5), since, begun_at).await.expect("an overview");
    let submitted: Vec<_> = early.submitted_by_hour.iter().map(|hour| (hour.at.0, hour.count)).collect();
    assert_eq!(submitted, [(0, 6)]);
    assert!(
        found.submitted_by_hour.is_empty(),
        "that hour is not of this week: {:?}",
        found.submitted_by_hour
    );
    let all = world.store.read_overview(now, begun_at, begun_at).await.expect("an overview");
    assert_eq!(ids(&all.recently_ended), [fails, done]);
    world.advance_clock(8 * DAY_MS);
    let later = world.store.read_overview(world.now(), world.now(), world.now()).await.expect("an overview");
    assert!(later.ended_by_hour.is_empty() && later.recently_ended.is_empty());
    assert_eq!((ids(&later.discarded), later.discarded_count), (vec![fails], 1), "it failed still");
    assert_eq!(count_in_state(&later.ended_counts, TaskState::Discarded), 0, "and not just now");
    assert_eq!(ids(&later.awaiting_person), [blocked[0]], "it waits still");
    check_costs_by_day(&world, begun_at).await;
    world.check_consistency().await;
}

async fn check_costs_by_day(world: &StoreFixture, begun_at: Timestamp) {
    let ask = |after, limit| CostDaysQuery { from: Some(begun_at), until: None, after, limit: Some(limit) };
    let whole = reports::cost_by_day(&*world.store, &ask(None, 100)).await.expect("a page");
    let sum =
        |page: &docket_schema::api::CostDaysPage| page.days.iter().map(|day| day.sums.cost_nusd).sum::<u64>();
    assert_eq!((sum(&whole), whole.runs, whole.next.as_deref()), (1000 + 100 + 30, 5, None));
    assert!(whole.days.iter().all(|day| day.at.0 % 86_400_000_000 == 0));
    let (mut after, mut paged, mut runs) = (None, 0, 0);
    loop {
        let page = reports::cost_by_day(&*world.store, &ask(after, 1)).await.expect("a page");
        (paged, runs) = (paged + sum(&page), runs + page.runs);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!((paged, runs), (1130, 5), "a page at a time as all at once");
    let lacking = reports::cost_by_day(&*world.store, &CostDaysQuery::default()).await;
    assert!(matches!(lacking, Err(ReportError::Query { field: "from", .. })), "{lacking:?}");
}

/// Reported once a fifth of it is left, while a task of the batch has not ended.
pub(super) async fn overview_reports_nearly_spent_budgets(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let near = async || {
        let now = world.now();
        let found = world.store.read_overview(now, now, now).await.expect("an overview");
        found
            .budgets_near_limit
            .iter()
            .map(|near| (near.used.tokens, near.budget.spent.is_some()))
            .collect::<Vec<_>>()
    };
    world.submit(budgets::batch_spec()).await;
    let lease = world.new_worker().lease_one().await;
    budgets::set_budget(&world, Some(100), None).await;
    budgets::record_model_usage(&world, &lease, 39).await;
    assert_eq!(budgets::batch_spending(&world).await.tokens, 78);
    assert_eq!(near().await, [], "more than a fifth is left");
    budgets::record_model_usage(&world, &lease, 1).await;
    assert_eq!(budgets::batch_spending(&world).await.tokens, 80);
    assert_eq!(near().await, [(80, false)]);
    world.new_worker().end_run(&lease, RunOutcome::Succeeded).await;
    assert_eq!(near().await, [], "nothing of the batch is left to pay for");
    world.check_consistency().await;
}

pub(super) async fn overview_is_bounded(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let most = OVERVIEW_TASKS_MAX as usize;
    for n in 0..most + 3 {
        let titled = TaskSpec { title: format!("task {n}"), ..spec_for_provider("openai") };
        let (_, lease) = run_one_model_call(&world, &worker, titled, 1).await;
        let head = world.store.stream_head(StreamId::Run(lease.run)).await.expect("reads").expect("begun");
        worker
            .finish_lease(&lease, head.seq, vec![blocked_event(BlockedReason::Model).encode(Turn(1))])
            .await
            .expect("blocks");
    }
    let found = world.store.read_overview(world.now(), world.now(), world.now()).await.expect("an overview");
    assert_eq!(
        (found.awaiting_person.len(), found.awaiting_person[0].title.as_str()),
        (most, format!("task {}", most + 2).as_str())
    );
    assert_eq!(found.blocked.iter().map(|one| one.count).sum::<u64>(), most as u64 + 3);
    for n in 0..most + 2 {
        let titled = TaskSpec { title: format!("lost {n}"), ..spec_for_provider("openai") };
        let (_, lease) = run_one_model_call(&world, &worker, titled, 1).await;
        worker.end_run(&lease, failed_outcome()).await;
        world.advance_clock(1000);
    }
    world.advance_clock(2 * DAY_MS);
    let later = world.store.read_overview(world.now(), world.now(), world.now()).await.expect("an overview");
    assert_eq!(
        (later.discarded.len(), later.discarded_count, later.discarded[0].title.as_str()),
        (most, most as u64 + 2, format!("lost {}", most + 1).as_str()),
        "however long ago, the last first, and counted beyond what is listed"
    );
    assert!(later.recently_ended.is_empty());
    world.check_consistency().await;
}
