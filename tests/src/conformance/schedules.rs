//! Schedules: each firing happens once, whichever coordinator fires and wherever it dies.

use std::sync::Arc;

use docket_coordinator::{
    store::{AppendCondition, LogAppend},
    system::{FoldError, ScheduleTable},
};
use docket_schema::{
    api::TaskQuery,
    event::TypedEvent as _,
    ids::{Seq, StreamId, SystemTopic, TaskId, Timestamp, Turn},
    run::RunOutcome,
    system::{
        FiringResult, MissedFiringPolicy, OverlapPolicy, ScheduleFired, ScheduleName, SchedulePaused,
        ScheduleRemoved, ScheduleSet, SkipReason, SystemEvent, TaskSchedule,
    },
};

use super::{StoreFixture, TestDatabase, fixture::task_spec};

const STREAM: StreamId = StreamId::System(SystemTopic::Schedules);
const MINUTE_MS: u64 = 60_000;

fn schedule_name() -> ScheduleName {
    "tidy".parse().expect("a name")
}

fn every_minute(missed: MissedFiringPolicy, overlap: OverlapPolicy) -> TaskSchedule {
    let spec = Box::new(task_spec("tidy"));
    TaskSchedule { cron: "* * * * *".to_owned(), tz: "Europe/Berlin".to_owned(), spec, missed, overlap }
}

async fn append_change(world: &StoreFixture, table: &ScheduleTable, event: impl Into<SystemEvent>) {
    let event = event.into();
    let decide = |_: &_| Ok::<_, FoldError>(Some(event.clone()));
    table.change(&*world.store, world.now(), decide).await.expect("changed");
}

async fn set_schedule(world: &StoreFixture, table: &ScheduleTable, schedule: TaskSchedule) {
    append_change(world, table, ScheduleSet { name: schedule_name(), schedule, by: "me".to_owned() }).await;
}

async fn fire_due_schedules(world: &StoreFixture, table: &ScheduleTable) -> usize {
    table.fire_due(&*world.store, world.now()).await.expect("a round").submitted
}

async fn list_tasks(world: &StoreFixture) -> Vec<TaskId> {
    let query = TaskQuery { limit: Some(1000), ..TaskQuery::default() };
    world.store.list_tasks(query).await.expect("reads").tasks.iter().map(|task| task.id).collect()
}

async fn list_firings(world: &StoreFixture) -> Vec<ScheduleFired> {
    let mut all = Vec::new();
    for event in world.read_stream(STREAM).await {
        let read = SystemEvent::decode(&event.kind, event.version, event.payload.as_str()).expect("decodes");
        if let SystemEvent::ScheduleFired(fired) = read {
            all.push(fired);
        }
    }
    all
}

pub(super) async fn two_coordinators_fire_each_time_only_once(database: TestDatabase) {
    let one = StoreFixture::open(database).await;
    let two = one.open_second_coordinator().await;
    let tables = [Arc::new(ScheduleTable::default()), Arc::new(ScheduleTable::default())];
    set_schedule(&one, &tables[0], every_minute(MissedFiringPolicy::Once, OverlapPolicy::Allow)).await;
    let mut submitted = 0;
    for _ in 0..20 {
        one.advance_clock(MINUTE_MS);
        // Each as two separate tasks: four passes at once.
        let rounds = [(&one, 0), (&two, 1), (&one, 0), (&two, 1)].map(|(world, n)| {
            let (world, table) = (world.clone(), Arc::clone(&tables[n]));
            tokio::spawn(async move { fire_due_schedules(&world, &table).await })
        });
        for round in rounds {
            submitted += round.await.expect("ends");
        }
    }
    let (fired, tasks) = (list_firings(&one).await, list_tasks(&one).await);
    assert_eq!((fired.len(), tasks.len()), (20, 20), "{submitted} submits");
    assert!(submitted >= 20, "a task may be sent twice, and is accepted once");
    for (n, firing) in fired.iter().enumerate() {
        assert!(matches!(firing.gave, FiringResult::Task(task) if tasks.contains(&task)), "{firing:?}");
        assert!(n == 0 || firing.at.0 == fired[n - 1].at.0 + 60_000_000, "none is left out: {firing:?}");
    }
    one.check_consistency().await;
}

pub(super) async fn firing_of_a_crashed_coordinator_submits_its_task_once(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let table = ScheduleTable::default();
    set_schedule(&world, &table, every_minute(MissedFiringPolicy::Once, OverlapPolicy::Allow)).await;
    world.advance_clock(MINUTE_MS);
    // Like a coordinator that dies after its record.
    let record = table.fold.with_fold(|known| known.get(&schedule_name()).expect("there").clone());
    let at = Timestamp((world.now().0 / 60_000_000) * 60_000_000);
    let task = record.task_id_at(at);
    let dies = |head| LogAppend {
        stream: STREAM,
        condition: AppendCondition::ExpectedSeq(head),
        events: vec![
            SystemEvent::from(ScheduleFired {
                name: schedule_name(),
                at,
                gave: FiringResult::Task(task),
                by: None,
            })
            .encode(Turn(0)),
        ],
        blobs: Vec::new(),
        required_blobs: Vec::new(),
        now: world.now(),
    };
    world.store.append(dies(Seq(1))).await.expect("recorded");
    assert!(world.store.stream_head(StreamId::Task(task)).await.expect("reads").is_none());
    // The next coordinator finds it, even one that already existed, and it is not submitted twice.
    let other = ScheduleTable::default();
    assert_eq!((fire_due_schedules(&world, &other).await, fire_due_schedules(&world, &table).await), (1, 0));
    assert_eq!((list_tasks(&world).await, list_firings(&world).await.len()), (vec![task], 1));
    // Another one dies, and the schedule is removed before any coordinator looks: its task is still
    // submitted.
    world.advance_clock(MINUTE_MS);
    let at = Timestamp(at.0 + 60_000_000);
    let late = record.task_id_at(at);
    let mut append = dies(Seq(2));
    let fired = ScheduleFired { name: schedule_name(), at, gave: FiringResult::Task(late), by: None };
    append.events = vec![SystemEvent::from(fired).encode(Turn(0))];
    world.store.append(append).await.expect("recorded");
    append_change(&world, &table, ScheduleRemoved { name: schedule_name(), by: "me".to_owned() }).await;
    assert_eq!(list_tasks(&world).await, [late, task]);
    world.advance_clock(10 * MINUTE_MS);
    assert_eq!(
        (fire_due_schedules(&world, &table).await, list_tasks(&world).await.len()),
        (0, 2),
        "it is no more"
    );
    world.check_consistency().await;
}

pub(super) async fn missed_and_overlapping_firings_follow_the_schedule(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let table = ScheduleTable::default();
    set_schedule(&world, &table, every_minute(MissedFiringPolicy::Once, OverlapPolicy::Skip)).await;
    // An hour without a coordinator: one firing.
    world.advance_clock(60 * MINUTE_MS);
    assert_eq!(fire_due_schedules(&world, &table).await, 1);
    // Its task is still waiting.
    world.advance_clock(MINUTE_MS);
    assert_eq!(fire_due_schedules(&world, &table).await, 0);
    let lease = worker.lease_one().await;
    world.advance_clock(MINUTE_MS);
    assert_eq!(fire_due_schedules(&world, &table).await, 0);
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    world.advance_clock(MINUTE_MS);
    assert_eq!(fire_due_schedules(&world, &table).await, 1);
    let gave: Vec<FiringResult> = list_firings(&world).await.into_iter().map(|fired| fired.gave).collect();
    let skipped = FiringResult::Skipped(SkipReason::Overlap);
    assert!(gave.len() == 4 && gave[1] == skipped && gave[2] == skipped, "{gave:?}");
    // A firing due during a pause is not missed.
    let pause = |paused| SchedulePaused { name: schedule_name(), paused, by: "me".to_owned() };
    append_change(&world, &table, pause(true)).await;
    world.advance_clock(10 * MINUTE_MS);
    assert_eq!(fire_due_schedules(&world, &table).await, 0);
    append_change(&world, &table, pause(false)).await;
    assert_eq!((fire_due_schedules(&world, &table).await, list_firings(&world).await.len()), (0, 4));
    // Daily, without catch-up.
    let daily = TaskSchedule {
        cron: "0 3 * * *".to_owned(),
        ..every_minute(MissedFiringPolicy::Skip, OverlapPolicy::Allow)
    };
    set_schedule(&world, &table, daily).await;
    world.advance_clock(3 * 24 * 60 * MINUTE_MS);
    assert_eq!(fire_due_schedules(&world, &table).await, 0);
    let last = list_firings(&world).await.pop().expect("a firing");
    assert_eq!(last.gave, FiringResult::Skipped(SkipReason::Missed));
    let next = table.fire_due(&*world.store, world.now()).await.expect("a round").next_at.expect("one");
    assert!(next > last.at);
    world.advance_clock(next.ms_since(world.now()) + 1);
    assert_eq!(fire_due_schedules(&world, &table).await, 1);
    world.check_consistency().await;
}
