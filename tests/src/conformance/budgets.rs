//! What the runs of a batch may use together: counted from what they recorded, kept to, raised.

use docket_coordinator::store::{Append, Condition, Granted, Reserved};
use docket_schema::{
    event::TypedEvent as _,
    ids::{BatchId, DecisionHash, Seq, StreamId, SystemTopic, TaskId, Turn},
    message::{CallId, StopReason, Usage},
    run::{BlockedWhy, ModelAnswered, RunBlocked, RunEvent, RunOutcome},
    system::{Budget, BudgetSet, BudgetSpent, CallCost, Spending, SystemEvent},
    task::{TaskBlockedWhy, TaskSpec, TaskState},
};

use super::{
    Database, World,
    world::{Worker, spec},
};

const BATCH: BatchId = BatchId(uuid::Uuid::from_u128(77));

pub(super) fn of_batch() -> TaskSpec {
    TaskSpec { batch: Some(BATCH), ..spec("of a batch") }
}

async fn say(world: &World, event: SystemEvent) {
    let append = Append {
        stream: StreamId::System(SystemTopic::Budgets),
        condition: Condition::AtHead,
        events: vec![event.encode(Turn(0))],
        blobs: Vec::new(),
        names: Vec::new(),
        now: world.now(),
    };
    world.store.append(append).await.expect("said");
}

pub(super) async fn set(world: &World, tokens: Option<u64>, cost_nusd: Option<u64>) {
    let budget = Budget { tokens, cost_nusd };
    say(world, BudgetSet { batch: BATCH, budget, by: "me".to_owned(), of_file: false }.into()).await;
}

/// A run's call was answered: so many tokens of either, and a nano-dollar each.
pub(super) async fn answered(world: &World, lease: &Granted, tokens: u64) {
    let head = world.store.head(StreamId::Run(lease.run)).await.expect("reads");
    let at = head.map_or(Seq(0), |head| head.seq);
    let usage = Usage { input_tokens: tokens, output_tokens: tokens, ..Usage::default() };
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

async fn asks(world: &World, lease: &Granted, tokens: u64) -> Reserved {
    let call = CallCost { tokens, cost_nusd: Some(tokens) };
    world.store.reserve((lease.run, lease.record.epoch), call).await.expect("answers")
}

async fn rests(worker: &Worker, lease: &Granted) {
    let head = worker.world.store.head(StreamId::Run(lease.run)).await.expect("reads").expect("begun");
    let blocked = RunBlocked {
        question: "the budget".into(),
        why: BlockedWhy::Budget,
        outages: 0,
        about: None,
        decision: DecisionHash([1; 32]),
    };
    let events = vec![RunEvent::from(blocked).encode(Turn(1))];
    worker.settle(lease, head.seq, events).await.expect("settles");
}

pub(super) async fn used(world: &World) -> Spending {
    while world.store.count_batch(BATCH).await.expect("counts") {}
    world.store.batch(BATCH).await.expect("reads").expect("a batch").used
}

/// Nothing more of it is leased or asked for until it may use more; then all of it goes on where it stood.
pub(super) async fn a_batch_rests_where_its_budget_ends_and_goes_on_when_it_is_raised(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    for _ in 0..3 {
        world.submit(of_batch()).await;
    }
    let lease = worker.lease_one().await;
    assert_eq!(asks(&world, &lease, 1_000_000).await, Reserved::Granted, "nobody set anything");
    assert!(!world.store.has_budgets().await.expect("reads"));
    // What was used before there was a budget is used.
    answered(&world, &lease, 100).await;
    set(&world, Some(1000), None).await;
    assert!(world.store.has_budgets().await.expect("reads"));
    assert_eq!(asks(&world, &lease, 800).await, Reserved::Granted);
    answered(&world, &lease, 300).await;
    let over = asks(&world, &lease, 201).await;
    let Reserved::Over { batch, budget, message, known: false } = over else { panic!("{over:?}") };
    assert_eq!((batch, budget.tokens), (BATCH, Some(1000)));
    assert!(message.contains("800 of 1000 tokens"), "{message}");
    say(&world, BudgetSpent { batch, budget, message }.into()).await;
    let over = asks(&world, &lease, 1).await;
    assert!(matches!(over, Reserved::Over { known: true, .. }), "whatever fits: {over:?}");
    rests(&worker, &lease).await;
    let task = world.task(lease.record.id).await;
    assert_eq!((task.state, task.blocked_why), (TaskState::Blocked, Some(TaskBlockedWhy::Budget)));
    let other = world.submit(spec("of none")).await;
    let got: Vec<TaskId> = worker.lease(5).await.iter().map(|lease| lease.record.id).collect();
    assert_eq!(got, [other], "none of its tasks is leased, whatever else is");
    assert_eq!(world.due().await, 0, "nothing goes on");
    let view = world.store.batch(BATCH).await.expect("reads").expect("a batch");
    assert!(view.budget.spent.is_some() && view.waiting_for_people() == 3, "{view:?}");
    assert_eq!(used(&world).await, Spending { tokens: 800, cost_nusd: 800 });
    world.check().await;

    set(&world, Some(2000), None).await;
    assert_eq!(world.due().await, 1);
    assert_eq!(world.task(lease.record.id).await.run, Some(lease.run), "where it stood");
    let leases = worker.lease(5).await;
    assert_eq!(leases.len(), 3);
    assert_eq!(asks(&world, &leases[0], 201).await, Reserved::Granted);
    for lease in &leases {
        worker.end(lease, RunOutcome::Succeeded).await;
    }
    // Money is a budget likewise, and none at all pays for everything.
    set(&world, None, Some(800)).await;
    world.submit(of_batch()).await;
    let lease = worker.lease_one().await;
    assert!(matches!(asks(&world, &lease, 1).await, Reserved::Over { .. }));
    set(&world, None, None).await;
    assert_eq!(asks(&world, &lease, u64::from(u32::MAX)).await, Reserved::Granted);
    assert!(!world.store.has_budgets().await.expect("reads"));
    world.check().await;
}

/// What calls under way may use is set aside until they have ended, or whoever made them is gone.
pub(super) async fn calls_let_through_together_do_not_overdraw_a_budget(database: Database) {
    let world = World::open(database).await;
    let beside = world.beside().await;
    let worker = world.worker();
    for _ in 0..2 {
        world.submit(of_batch()).await;
    }
    set(&world, Some(1000), None).await;
    let leases = worker.lease(2).await;
    let (one, two) = (&leases[0], &leases[1]);
    assert_eq!(asks(&world, one, 600).await, Reserved::Granted);
    assert_eq!(asks(&beside, two, 600).await, Reserved::Crowded);
    assert_eq!(asks(&beside, two, 400).await, Reserved::Granted, "beside it there is room for that");
    assert_eq!(asks(&world, one, 600).await, Reserved::Granted, "asked again, it is the same call");
    answered(&world, one, 50).await;
    assert_eq!(asks(&beside, two, 900).await, Reserved::Granted, "it had a hundred");
    assert_eq!(asks(&world, one, 600).await, Reserved::Crowded);
    // A worker that is gone has no call under way.
    world.pass(60_000);
    assert_eq!(world.expire().await, 2);
    let again = worker.lease(2).await;
    let one = again.iter().find(|lease| lease.run == one.run).expect("gone on with");
    assert_eq!(asks(&world, one, 900).await, Reserved::Granted);
    // Many at once, through both: what is let through fits.
    set(&world, Some(5000), None).await;
    for _ in 0..20 {
        world.submit(of_batch()).await;
    }
    let leases = world.worker().lease(20).await;
    let asked = leases.iter().enumerate().map(|(n, lease)| {
        let world = if n % 2 == 0 { &world } else { &beside };
        asks(world, lease, 400)
    });
    let granted = futures_util::future::join_all(asked).await;
    let granted = granted.iter().filter(|answer| **answer == Reserved::Granted).count();
    assert_eq!(granted, 10, "5000 less the hundred that were used and the 900 that may be, by 400");
    beside.store.close().await;
    world.check().await;
}

/// Counters are derived from the log: whatever stands there, `db rebuild` finds and mends it.
pub(super) async fn a_counter_that_is_wrong_is_found_and_mended(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    world.submit(of_batch()).await;
    let lease = worker.lease_one().await;
    set(&world, Some(1000), None).await;
    assert_eq!(asks(&world, &lease, 800).await, Reserved::Granted);
    answered(&world, &lease, 300).await;
    assert_eq!(used(&world).await.tokens, 600);
    let mut raw = world.database.raw().await;
    for sql in [
        "UPDATE run_usage SET tokens = 1",
        "UPDATE batch_budgets SET cost_nusd = 7",
        "UPDATE batch_budgets SET spent = 'so they say'",
        "UPDATE batch_budgets SET tokens_max = 5",
        "DELETE FROM batch_budgets",
    ] {
        raw.run(sql).await.expect("runs");
        assert_ne!(
            world.store.rebuild(std::sync::Arc::default()).await.expect("rebuilds"),
            Vec::new(),
            "{sql}"
        );
        world.check().await;
        assert_eq!(used(&world).await, Spending { tokens: 600, cost_nusd: 600 }, "{sql}");
        let (budget, _) = world.store.budget(BATCH).await.expect("reads");
        assert_eq!((budget.budget.tokens, budget.spent), (Some(1000), None), "{sql}");
    }
}
