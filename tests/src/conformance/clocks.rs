//! Recovery from a clock that was temporarily ahead: timestamps, terms, leases, waits and schedules are right
//! again once the clock is.

use docket_coordinator::{
    decide,
    store::{DeadlineTrust, PermitOutcome, TermOutcome, TermRequest},
    system::{FoldError, ScheduleTable},
};
use docket_schema::{
    api::TaskQuery,
    ids::{Epoch, RunId, Seq, StreamId, Timestamp},
    system::{MissedFiringPolicy, OverlapPolicy, ProviderLimits, ScheduleName, ScheduleSet, TaskSchedule},
    task::TaskState,
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{LEASE_MS, failed_outcome, note_event, task_spec},
    leases::acquire_term,
};

const DAY_MS: u64 = 24 * 3_600_000;
const HOUR_MS: u64 = 3_600_000;
const MINUTE_MS: u64 = 60_000;

pub(super) async fn stream_timestamps_follow_a_clock_set_back(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let mut at = Seq(0);
    let mut append = async |n| {
        at = world.append(lease.run, at, Epoch(1), vec![note_event(n)]).await.expect("appends").head.seq;
        world.read_stream(StreamId::Run(lease.run)).await.last().expect("an event").recorded_at
    };
    let first = append(1).await;
    // Coordinators' clocks differ by less than this.
    world.set_clock_back(1000);
    assert_eq!(append(2).await, first, "a small difference is hidden");
    world.advance_clock(1000 + DAY_MS);
    assert!(append(3).await.ms_since(first) >= DAY_MS);
    world.set_clock_back(DAY_MS);
    let after = append(4).await;
    assert!(after >= first && after.ms_since(first) < MINUTE_MS, "{first} {after}");
    world.check_consistency().await;
}

pub(super) async fn terms_and_deadlines_are_trusted_for_their_maximum_duration_only(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    world.advance_clock(DAY_MS);
    assert_eq!(acquire_term(&world, "ahead").await, TermOutcome::Acquired { extended_leases: Some(0) });
    world.new_worker().lease_one().await;
    world.set_clock_back(DAY_MS);
    assert_eq!(
        acquire_term(&world, "right").await,
        TermOutcome::HeldByOther,
        "its term is shortened, not taken away"
    );
    world.advance_clock(10_000);
    assert_eq!(acquire_term(&world, "right").await, TermOutcome::Acquired { extended_leases: None });
    let deadline = world.store.get_task(task).await.expect("reads").expect("a task").1.expect("it is leased");
    assert_eq!(deadline.ms_since(world.now()).div_ceil(1000), LEASE_MS / 1000, "from when it was shortened");
    assert_eq!(world.expire_leases().await, 0, "and for its whole time");
    world.advance_clock(LEASE_MS + 1);
    assert_eq!(world.expire_leases().await, 1);
    world.check_consistency().await;
}

pub(super) async fn clock_step_gives_every_lease_its_full_duration(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for n in 0..3 {
        world.submit(task_spec(&format!("task {n}"))).await;
    }
    let grace = async |world: &StoreFixture| {
        let now = world.now();
        let trust = Some(DeadlineTrust { max_gap_ms: None, lease_ms: LEASE_MS });
        let (name, holder, until) = ("maintenance", "one".to_owned(), now.plus_ms(10_000));
        let term = TermRequest { name, holder, until, now, max_term_ms: 10_000, deadline_trust: trust };
        world.store.acquire_term(term).await.expect("answers")
    };
    assert_eq!(acquire_term(&world, "one").await, TermOutcome::Acquired { extended_leases: Some(0) });
    world.new_worker().lease(2).await;
    // Clock ahead: all leases look long expired.
    world.advance_clock(DAY_MS);
    assert_eq!(grace(&world).await, TermOutcome::Acquired { extended_leases: Some(2) });
    assert_eq!(world.expire_leases().await, 0);
    // Clock back: they would be held for a day.
    world.new_worker().lease(1).await;
    world.set_clock_back(DAY_MS);
    assert_eq!(grace(&world).await, TermOutcome::Acquired { extended_leases: Some(3) });
    assert_eq!(world.expire_leases().await, 0);
    world.advance_clock(LEASE_MS + 1);
    assert_eq!(world.expire_leases().await, 3);
    world.check_consistency().await;
}

pub(super) async fn waits_from_a_fast_clock_end_when_it_is_corrected(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.advance_clock(DAY_MS);
    assert_eq!(worker.end_run(&lease, failed_outcome()).await.state, TaskState::Retryable);
    let record = world.task(task).await;
    assert!(!decide::is_backoff_too_long(&record, world.now()), "by the clock that decided it");
    world.set_clock_back(DAY_MS);
    assert_eq!(world.make_due_tasks_available().await, 0);
    assert!(decide::is_backoff_too_long(&record, world.now()));
    let now = world.now();
    let after =
        world.run_command(task, move |record| Ok(decide::make_available(record, now))).await.expect("due");
    assert_eq!(after.state, TaskState::Available);
    world.check_consistency().await;
}

pub(super) async fn rate_limit_from_a_fast_clock_ends_when_it_is_corrected(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let limits =
        ProviderLimits { requests: Some("1/h".parse().expect("a rate")), ..ProviderLimits::default() };
    let cost = limits.permit_cost(1000, 0);
    let permit = async |now: Timestamp| {
        let caller = (RunId(world.next_id()), Epoch(1));
        world.store.request_permit("openai".to_owned(), caller, cost, now, now).await.expect("answers")
    };
    let now = world.now();
    let ahead = now.plus_ms(DAY_MS);
    assert_eq!(permit(ahead).await, PermitOutcome::GrantedAt(ahead));
    let free = now.plus_ms(HOUR_MS);
    assert_eq!(permit(now).await, PermitOutcome::NotBefore(free), "what was left to wait is left");
    let half = now.plus_ms(HOUR_MS / 2);
    assert_eq!(permit(half).await, PermitOutcome::NotBefore(free), "and is waited for once");
    assert_eq!(permit(free).await, PermitOutcome::GrantedAt(free));
    world.check_consistency().await;
}

pub(super) async fn schedules_fire_by_the_corrected_clock(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let table = ScheduleTable::default();
    let name: ScheduleName = "tidy".parse().expect("a name");
    let schedule = TaskSchedule {
        cron: "* * * * *".to_owned(),
        tz: "UTC".to_owned(),
        spec: Box::new(task_spec("tidy")),
        missed: MissedFiringPolicy::Once,
        overlap: OverlapPolicy::Allow,
    };
    let set = ScheduleSet { name, schedule, by: "me".to_owned() };
    let decide = |_: &_| Ok::<_, FoldError>(Some(set.clone().into()));
    table.change(&*world.store, world.now(), decide).await.expect("set");
    let minutes = async |count: u64| {
        let mut submitted = 0;
        for _ in 0..count {
            world.advance_clock(MINUTE_MS);
            submitted += table.fire_due(&*world.store, world.now()).await.expect("a round").submitted;
        }
        submitted
    };
    assert_eq!(minutes(10).await, 10);
    // Past firings are not repeated, and pending ones are not skipped.
    world.set_clock_back(5 * MINUTE_MS);
    assert_eq!(minutes(4).await, 0, "they have fired");
    assert_eq!(minutes(3).await, 2);
    world.advance_clock(DAY_MS);
    assert_eq!(minutes(1).await, 1);
    world.set_clock_back(DAY_MS + MINUTE_MS);
    assert_eq!(minutes(5).await, 5, "it does not rest for a day");
    let query = TaskQuery { limit: Some(1000), ..TaskQuery::default() };
    assert_eq!(world.store.list_tasks(query).await.expect("reads").tasks.len(), 18);
    world.check_consistency().await;
}
