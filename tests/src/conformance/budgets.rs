//! Budgets of batches: usage counted from what runs recorded, enforced, raised.

use docket_coordinator::store::{AppendCondition, BudgetReservation, GrantedLease, LogAppend};
use docket_schema::{
    event::TypedEvent as _,
    ids::{BatchId, DecisionHash, Seq, StreamId, SystemTopic, TaskId, Turn},
    message::{CallId, StopReason, TokenUsage},
    run::{BlockedReason, ModelAnswered, RunBlocked, RunEvent, RunOutcome},
    system::{BatchSpending, Budget, BudgetSet, BudgetSpent, MaxCallCost, SystemEvent},
    task::{TaskBlockedReason, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{FakeWorker, task_spec},
};

const BATCH: BatchId = BatchId(uuid::Uuid::from_u128(77));

pub(super) fn batch_spec() -> TaskSpec {
    TaskSpec { batch: Some(BATCH), ..task_spec("of a batch") }
}

async fn append_system_event(world: &StoreFixture, event: SystemEvent) {
    let append = LogAppend {
        stream: StreamId::System(SystemTopic::Budgets),
        condition: AppendCondition::AtHead,
        events: vec![event.encode(Turn(0))],
        blobs: Vec::new(),
        required_blobs: Vec::new(),
        now: world.now(),
    };
    world.store.append(append).await.expect("said");
}

pub(super) async fn set_budget(world: &StoreFixture, tokens: Option<u64>, cost_nusd: Option<u64>) {
    let budget = Budget { tokens, cost_nusd };
    append_system_event(
        world,
        BudgetSet { batch: BATCH, budget, by: "me".to_owned(), of_file: false }.into(),
    )
    .await;
}

/// Records a response to a run's call: this many tokens in each direction, at one nano-dollar each.
pub(super) async fn record_model_usage(world: &StoreFixture, lease: &GrantedLease, tokens: u64) {
    let head = world.store.stream_head(StreamId::Run(lease.run)).await.expect("reads");
    let at = head.map_or(Seq(0), |head| head.seq);
    let usage = TokenUsage { input_tokens: tokens, output_tokens: tokens, ..TokenUsage::default() };
    let event = ModelAnswered {
        call: CallId(format!("t{}", at.0)),
        parts: Vec::new(),
        stop: StopReason::EndTurn,
        usage,
        cost_nusd: 2 * tokens,
        first_byte_ms: 0,
        total_ms: 0,
    };
    let events = vec![RunEvent::from(event).encode(Turn(1))];
    world.append(lease.run, at, lease.record.epoch, events).await.expect("appends");
}

async fn reserve_budget(world: &StoreFixture, lease: &GrantedLease, tokens: u64) -> BudgetReservation {
    let call = MaxCallCost { tokens, cost_nusd: Some(tokens) };
    world.store.reserve_budget((lease.run, lease.record.epoch), call).await.expect("answers")
}

async fn block_run_on_budget(worker: &FakeWorker, lease: &GrantedLease) {
    let head =
        worker.fixture.store.stream_head(StreamId::Run(lease.run)).await.expect("reads").expect("begun");
    let blocked = RunBlocked {
        question: "the budget".into(),
        why: BlockedReason::Budget,
        outages: 0,
        about: None,
        decision: DecisionHash([1; 32]),
    };
    let events = vec![RunEvent::from(blocked).encode(Turn(1))];
    worker.finish_lease(lease, head.seq, events).await.expect("settles");
}

pub(super) async fn batch_spending(world: &StoreFixture) -> BatchSpending {
    while world.store.count_batch_usage(BATCH).await.expect("counts") {}
    world.store.get_batch(BATCH).await.expect("reads").expect("a batch").used
}

/// A batch at its limit gets no more leases or permits until the limit is raised; then everything resumes
/// from its previous state.
pub(super) async fn batch_stops_at_its_budget_and_resumes_when_it_is_raised(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    for _ in 0..3 {
        world.submit(batch_spec()).await;
    }
    let lease = worker.lease_one().await;
    assert_eq!(
        reserve_budget(&world, &lease, 1_000_000).await,
        BudgetReservation::Granted,
        "no budget is set"
    );
    assert!(!world.store.has_budgets().await.expect("reads"));
    // Usage before the budget was set counts.
    record_model_usage(&world, &lease, 100).await;
    set_budget(&world, Some(1000), None).await;
    assert!(world.store.has_budgets().await.expect("reads"));
    assert_eq!(reserve_budget(&world, &lease, 800).await, BudgetReservation::Granted);
    record_model_usage(&world, &lease, 300).await;
    let over = reserve_budget(&world, &lease, 201).await;
    let BudgetReservation::Exceeded { batch, budget, message, is_recorded: false } = over else {
        panic!("{over:?}")
    };
    assert_eq!((batch, budget.tokens), (BATCH, Some(1000)));
    assert!(message.contains("800 of 1000 tokens"), "{message}");
    append_system_event(&world, BudgetSpent { batch, budget, message }.into()).await;
    let over = reserve_budget(&world, &lease, 1).await;
    assert!(matches!(over, BudgetReservation::Exceeded { is_recorded: true, .. }), "whatever fits: {over:?}");
    block_run_on_budget(&worker, &lease).await;
    let task = world.task(lease.record.id).await;
    assert_eq!((task.state, task.blocked_why), (TaskState::Blocked, Some(TaskBlockedReason::Budget)));
    let other = world.submit(task_spec("of none")).await;
    let got: Vec<TaskId> = worker.lease(5).await.iter().map(|lease| lease.record.id).collect();
    assert_eq!(got, [other], "none of its tasks is leased, whatever else is");
    assert_eq!(world.make_due_tasks_available().await, 0, "nothing resumes");
    let view = world.store.get_batch(BATCH).await.expect("reads").expect("a batch");
    assert!(view.budget.spent.is_some() && view.waiting_for_people() == 3, "{view:?}");
    assert_eq!(batch_spending(&world).await, BatchSpending { tokens: 800, cost_nusd: 800 });
    world.check_consistency().await;

    set_budget(&world, Some(2000), None).await;
    assert_eq!(world.make_due_tasks_available().await, 1);
    assert_eq!(world.task(lease.record.id).await.run, Some(lease.run), "where it stood");
    let leases = worker.lease(5).await;
    assert_eq!(leases.len(), 3);
    assert_eq!(reserve_budget(&world, &leases[0], 201).await, BudgetReservation::Granted);
    for lease in &leases {
        worker.end_run(lease, RunOutcome::Succeeded).await;
    }
    // Money works as a budget as well, and without any budget everything is allowed.
    set_budget(&world, None, Some(800)).await;
    world.submit(batch_spec()).await;
    let lease = worker.lease_one().await;
    assert!(matches!(reserve_budget(&world, &lease, 1).await, BudgetReservation::Exceeded { .. }));
    set_budget(&world, None, None).await;
    assert_eq!(reserve_budget(&world, &lease, u64::from(u32::MAX)).await, BudgetReservation::Granted);
    assert!(!world.store.has_budgets().await.expect("reads"));
    world.check_consistency().await;
}

/// The possible usage of calls in flight is reserved until they end or their worker is gone.
pub(super) async fn concurrent_calls_do_not_exceed_the_budget(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let beside = world.open_second_coordinator().await;
    let worker = world.new_worker();
    for _ in 0..2 {
        world.submit(batch_spec()).await;
    }
    set_budget(&world, Some(1000), None).await;
    let leases = worker.lease(2).await;
    let (one, two) = (&leases[0], &leases[1]);
    assert_eq!(reserve_budget(&world, one, 600).await, BudgetReservation::Granted);
    assert_eq!(reserve_budget(&beside, two, 600).await, BudgetReservation::CallInProgress);
    assert_eq!(reserve_budget(&beside, two, 400).await, BudgetReservation::Granted, "there is room for both");
    assert_eq!(
        reserve_budget(&world, one, 600).await,
        BudgetReservation::Granted,
        "asked again, it is the same call"
    );
    record_model_usage(&world, one, 50).await;
    assert_eq!(reserve_budget(&beside, two, 900).await, BudgetReservation::Granted, "it had a hundred");
    assert_eq!(reserve_budget(&world, one, 600).await, BudgetReservation::CallInProgress);
    // A lost worker has no calls in flight.
    world.advance_clock(60_000);
    assert_eq!(world.expire_leases().await, 2);
    let again = worker.lease(2).await;
    let one = again.iter().find(|lease| lease.run == one.run).expect("gone on with");
    assert_eq!(reserve_budget(&world, one, 900).await, BudgetReservation::Granted);
    // Many at once through both coordinators: the permitted calls fit the budget.
    set_budget(&world, Some(5000), None).await;
    for _ in 0..20 {
        world.submit(batch_spec()).await;
    }
    let leases = world.new_worker().lease(20).await;
    let asked = leases.iter().enumerate().map(|(n, lease)| {
        let world = if n % 2 == 0 { &world } else { &beside };
        reserve_budget(world, lease, 400)
    });
    let granted = futures_util::future::join_all(asked).await;
    let granted = granted.iter().filter(|answer| **answer == BudgetReservation::Granted).count();
    assert_eq!(granted, 10, "5000 less the hundred that were used and the 900 that may be, by 400");
    beside.store.close().await;
    world.check_consistency().await;
}

/// Counters are derived from the log: `db rebuild` detects and repairs any wrong value.
pub(super) async fn wrong_budget_counter_is_detected_and_repaired(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    world.submit(batch_spec()).await;
    let lease = worker.lease_one().await;
    set_budget(&world, Some(1000), None).await;
    assert_eq!(reserve_budget(&world, &lease, 800).await, BudgetReservation::Granted);
    record_model_usage(&world, &lease, 300).await;
    assert_eq!(batch_spending(&world).await.tokens, 600);
    let mut raw = world.database.raw_connection().await;
    for sql in [
        "UPDATE run_usage SET tokens = 1",
        "UPDATE batch_budgets SET cost_nusd = 7",
        "UPDATE batch_budgets SET spent = 'so they say'",
        "UPDATE batch_budgets SET tokens_max = 5",
        "DELETE FROM batch_budgets",
    ] {
        raw.execute(sql).await.expect("runs");
        assert_ne!(
            world.store.rebuild_projections(std::sync::Arc::default()).await.expect("rebuilds"),
            Vec::new(),
            "{sql}"
        );
        world.check_consistency().await;
        assert_eq!(batch_spending(&world).await, BatchSpending { tokens: 600, cost_nusd: 600 }, "{sql}");
        let (budget, _) = world.store.batch_budget(BATCH).await.expect("reads");
        assert_eq!((budget.budget.tokens, budget.spent), (Some(1000), None), "{sql}");
    }
}
