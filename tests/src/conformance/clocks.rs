//! What a clock wrote that was ahead for a while: times, terms, leases, waits and firings are right again with the clock.

use docket_coordinator::{
    decide,
    store::{Permitted, Taken, Term, Trust},
    system::{FoldError, ScheduleTable},
};
use docket_schema::{
    ids::{Epoch, RunId, Seq, StreamId, Timestamp},
    system::{Missed, Overlap, ProviderLimits, Schedule, ScheduleName, ScheduleSet},
    task::TaskState,
    wire::TaskQuery,
};

use super::{
    Database, World,
    leases::take_term,
    world::{LEASE_MS, failure, note, spec},
};

const A_DAY_MS: u64 = 24 * 3_600_000;
const AN_HOUR_MS: u64 = 3_600_000;
const A_MINUTE_MS: u64 = 60_000;

pub(super) async fn times_of_a_stream_go_back_with_the_clock(database: Database) {
    let world = World::open(database).await;
    world.submit(spec("a")).await;
    let lease = world.worker().lease_one().await;
    let mut at = Seq(0);
    let mut append = async |n| {
        at = world.append(lease.run, at, Epoch(1), vec![note(n)]).await.expect("appends").head.seq;
        world.stream(StreamId::Run(lease.run)).await.last().expect("an event").recorded_at
    };
    let first = append(1).await;
    // Coordinators differ by less than this.
    world.set_back(1000);
    assert_eq!(append(2).await, first, "a small difference is hidden");
    world.pass(1000 + A_DAY_MS);
    assert!(append(3).await.ms_since(first) >= A_DAY_MS);
    world.set_back(A_DAY_MS);
    let after = append(4).await;
    assert!(after >= first && after.ms_since(first) < A_MINUTE_MS, "{first} {after}");
    world.check().await;
}

pub(super) async fn terms_and_deadlines_are_believed_for_their_longest_time_only(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("a")).await;
    world.pass(A_DAY_MS);
    assert_eq!(take_term(&world, "ahead").await, Taken::Ours { graced: Some(0) });
    world.worker().lease_one().await;
    world.set_back(A_DAY_MS);
    assert_eq!(take_term(&world, "right").await, Taken::ByAnother, "its term is shortened, not taken away");
    world.pass(10_000);
    assert_eq!(take_term(&world, "right").await, Taken::Ours { graced: None });
    let deadline = world.store.task(task).await.expect("reads").expect("a task").1.expect("it is leased");
    assert_eq!(deadline.ms_since(world.now()).div_ceil(1000), LEASE_MS / 1000, "from when it was shortened");
    assert_eq!(world.expire().await, 0, "and for its whole time");
    world.pass(LEASE_MS + 1);
    assert_eq!(world.expire().await, 1);
    world.check().await;
}

pub(super) async fn followed_step_gives_every_lease_its_whole_time(database: Database) {
    let world = World::open(database).await;
    for n in 0..3 {
        world.submit(spec(&format!("task {n}"))).await;
    }
    let grace = async |world: &World| {
        let now = world.now();
        let trust = Some(Trust { window_ms: None, lease_ms: LEASE_MS });
        let (name, holder, until) = ("maintenance", "one".to_owned(), now.plus_ms(10_000));
        let term = Term { name, holder, until, now, longest_ms: 10_000, trust };
        world.store.take_term(term).await.expect("answers")
    };
    assert_eq!(take_term(&world, "one").await, Taken::Ours { graced: Some(0) });
    world.worker().lease(2).await;
    // Ahead: they all look long lost.
    world.pass(A_DAY_MS);
    assert_eq!(grace(&world).await, Taken::Ours { graced: Some(2) });
    assert_eq!(world.expire().await, 0);
    // Back: they would be held for a day.
    world.worker().lease(1).await;
    world.set_back(A_DAY_MS);
    assert_eq!(grace(&world).await, Taken::Ours { graced: Some(3) });
    assert_eq!(world.expire().await, 0);
    world.pass(LEASE_MS + 1);
    assert_eq!(world.expire().await, 3);
    world.check().await;
}

pub(super) async fn waits_of_a_clock_that_was_ahead_are_over(database: Database) {
    let world = World::open(database).await;
    let task = world.submit(spec("a")).await;
    let worker = world.worker();
    let lease = worker.lease_one().await;
    world.pass(A_DAY_MS);
    assert_eq!(worker.end(&lease, failure()).await.state, TaskState::Retryable);
    let record = world.task(task).await;
    assert!(!decide::waits_too_long(&record, world.now()), "by the clock that decided it");
    world.set_back(A_DAY_MS);
    assert_eq!(world.due().await, 0);
    assert!(decide::waits_too_long(&record, world.now()));
    let now = world.now();
    let after = world.act(task, move |record| Ok(decide::make_available(record, now))).await.expect("due");
    assert_eq!(after.state, TaskState::Available);
    world.check().await;
}

pub(super) async fn provider_is_asked_when_the_limit_of_a_clock_ahead_is_over(database: Database) {
    let world = World::open(database).await;
    let limits =
        ProviderLimits { requests: Some("1/h".parse().expect("a rate")), ..ProviderLimits::default() };
    let cost = limits.cost(1000, 0);
    let permit = async |now: Timestamp| {
        let caller = (RunId(world.id()), Epoch(1));
        world.store.permit("openai".to_owned(), caller, cost, now, now).await.expect("answers")
    };
    let now = world.now();
    let ahead = now.plus_ms(A_DAY_MS);
    assert_eq!(permit(ahead).await, Permitted::At(ahead));
    let free = now.plus_ms(AN_HOUR_MS);
    assert_eq!(permit(now).await, Permitted::NotBefore(free), "what was left to wait is left");
    let half = now.plus_ms(AN_HOUR_MS / 2);
    assert_eq!(permit(half).await, Permitted::NotBefore(free), "and is waited for once");
    assert_eq!(permit(free).await, Permitted::At(free));
    world.check().await;
}

pub(super) async fn schedules_fire_by_the_clock_that_is_right_again(database: Database) {
    let world = World::open(database).await;
    let table = ScheduleTable::default();
    let name: ScheduleName = "tidy".parse().expect("a name");
    let schedule = Schedule {
        cron: "* * * * *".to_owned(),
        tz: "UTC".to_owned(),
        spec: Box::new(spec("tidy")),
        missed: Missed::Once,
        overlap: Overlap::Allow,
    };
    let set = ScheduleSet { name, schedule, by: "me".to_owned() };
    let decide = |_: &_| Ok::<_, FoldError>(Some(set.clone().into()));
    table.change(&*world.store, world.now(), decide).await.expect("set");
    let minutes = async |count: u64| {
        let mut submitted = 0;
        for _ in 0..count {
            world.pass(A_MINUTE_MS);
            submitted += table.round(&*world.store, world.now()).await.expect("a round").submitted;
        }
        submitted
    };
    assert_eq!(minutes(10).await, 10);
    // What fired is not doubled, and what had not fired is not passed over.
    world.set_back(5 * A_MINUTE_MS);
    assert_eq!(minutes(4).await, 0, "they have fired");
    assert_eq!(minutes(3).await, 2);
    world.pass(A_DAY_MS);
    assert_eq!(minutes(1).await, 1);
    world.set_back(A_DAY_MS + A_MINUTE_MS);
    assert_eq!(minutes(5).await, 5, "it does not rest for a day");
    let query = TaskQuery { limit: Some(1000), ..TaskQuery::default() };
    assert_eq!(world.store.tasks(query).await.expect("reads").tasks.len(), 18);
    world.check().await;
}
