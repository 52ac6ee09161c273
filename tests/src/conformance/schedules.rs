//! Schedules: each firing once, whoever fires and wherever they die.

use std::sync::Arc;

use docket_coordinator::{
    store::{Append, Condition},
    system::{FoldError, ScheduleTable},
};
use docket_schema::{
    event::TypedEvent as _,
    ids::{Seq, StreamId, SystemTopic, TaskId, Timestamp, Turn},
    run::RunOutcome,
    system::{
        Fired, Missed, Overlap, Schedule, ScheduleFired, ScheduleName, SchedulePaused, ScheduleRemoved,
        ScheduleSet, SkippedWhy, SystemEvent,
    },
    wire::TaskQuery,
};

use super::{Database, World, world::spec};

const STREAM: StreamId = StreamId::System(SystemTopic::Schedules);
const MINUTE_MS: u64 = 60_000;

fn name() -> ScheduleName {
    "tidy".parse().expect("a name")
}

fn every_minute(missed: Missed, overlap: Overlap) -> Schedule {
    let spec = Box::new(spec("tidy"));
    Schedule { cron: "* * * * *".to_owned(), tz: "Europe/Berlin".to_owned(), spec, missed, overlap }
}

async fn change(world: &World, table: &ScheduleTable, event: impl Into<SystemEvent>) {
    let event = event.into();
    let decide = |_: &_| Ok::<_, FoldError>(Some(event.clone()));
    table.change(&*world.store, world.now(), decide).await.expect("changed");
}

async fn set(world: &World, table: &ScheduleTable, schedule: Schedule) {
    change(world, table, ScheduleSet { name: name(), schedule, by: "me".to_owned() }).await;
}

async fn round(world: &World, table: &ScheduleTable) -> usize {
    table.round(&*world.store, world.now()).await.expect("a round").submitted
}

async fn tasks(world: &World) -> Vec<TaskId> {
    let query = TaskQuery { limit: Some(1000), ..TaskQuery::default() };
    world.store.tasks(query).await.expect("reads").tasks.iter().map(|task| task.id).collect()
}

async fn firings(world: &World) -> Vec<ScheduleFired> {
    let mut all = Vec::new();
    for event in world.stream(STREAM).await {
        let read = SystemEvent::decode(&event.kind, event.version, event.payload.as_str()).expect("decodes");
        if let SystemEvent::ScheduleFired(fired) = read {
            all.push(fired);
        }
    }
    all
}

pub(super) async fn two_coordinators_fire_each_time_once(database: Database) {
    let one = World::open(database).await;
    let two = one.beside().await;
    let tables = [Arc::new(ScheduleTable::default()), Arc::new(ScheduleTable::default())];
    set(&one, &tables[0], every_minute(Missed::Once, Overlap::Allow)).await;
    let mut submitted = 0;
    for _ in 0..20 {
        one.pass(MINUTE_MS);
        // Each as two tasks of its own: four rounds at once.
        let rounds = [(&one, 0), (&two, 1), (&one, 0), (&two, 1)].map(|(world, n)| {
            let (world, table) = (world.clone(), Arc::clone(&tables[n]));
            tokio::spawn(async move { round(&world, &table).await })
        });
        for round in rounds {
            submitted += round.await.expect("ends");
        }
    }
    let (fired, tasks) = (firings(&one).await, tasks(&one).await);
    assert_eq!((fired.len(), tasks.len()), (20, 20), "{submitted} submits");
    assert!(submitted >= 20, "a task may be sent twice, and is accepted once");
    for (n, firing) in fired.iter().enumerate() {
        assert!(matches!(firing.gave, Fired::Task(task) if tasks.contains(&task)), "{firing:?}");
        assert!(n == 0 || firing.at.0 == fired[n - 1].at.0 + 60_000_000, "none is left out: {firing:?}");
    }
    one.check().await;
}

pub(super) async fn a_firing_whose_coordinator_died_gets_its_task_once(database: Database) {
    let world = World::open(database).await;
    let table = ScheduleTable::default();
    set(&world, &table, every_minute(Missed::Once, Overlap::Allow)).await;
    world.pass(MINUTE_MS);
    // As a coordinator does that dies after its record.
    let record = table.fold.with(|known| known.get(&name()).expect("there").clone());
    let at = Timestamp((world.now().0 / 60_000_000) * 60_000_000);
    let task = record.task_at(at);
    let dies = |head| Append {
        stream: STREAM,
        condition: Condition::Expected(head),
        events: vec![
            SystemEvent::from(ScheduleFired { name: name(), at, gave: Fired::Task(task), by: None })
                .encode(Turn(0)),
        ],
        blobs: Vec::new(),
        names: Vec::new(),
        now: world.now(),
    };
    world.store.append(dies(Seq(1))).await.expect("recorded");
    assert!(world.store.head(StreamId::Task(task)).await.expect("reads").is_none());
    // The next one finds it, also one that was there before; and nobody submits it twice.
    let other = ScheduleTable::default();
    assert_eq!((round(&world, &other).await, round(&world, &table).await), (1, 0));
    assert_eq!((tasks(&world).await, firings(&world).await.len()), (vec![task], 1));
    // Another dies, and the schedule is removed before anybody looks: its task comes all the same.
    world.pass(MINUTE_MS);
    let at = Timestamp(at.0 + 60_000_000);
    let late = record.task_at(at);
    let mut append = dies(Seq(2));
    let fired = ScheduleFired { name: name(), at, gave: Fired::Task(late), by: None };
    append.events = vec![SystemEvent::from(fired).encode(Turn(0))];
    world.store.append(append).await.expect("recorded");
    change(&world, &table, ScheduleRemoved { name: name(), by: "me".to_owned() }).await;
    assert_eq!(tasks(&world).await, [late, task]);
    world.pass(10 * MINUTE_MS);
    assert_eq!((round(&world, &table).await, tasks(&world).await.len()), (0, 2), "it is no more");
    world.check().await;
}

pub(super) async fn what_was_missed_or_overlaps_is_as_the_schedule_says(database: Database) {
    let world = World::open(database).await;
    let worker = world.worker();
    let table = ScheduleTable::default();
    set(&world, &table, every_minute(Missed::Once, Overlap::Skip)).await;
    // An hour without a coordinator: once.
    world.pass(60 * MINUTE_MS);
    assert_eq!(round(&world, &table).await, 1);
    // Its task waits still.
    world.pass(MINUTE_MS);
    assert_eq!(round(&world, &table).await, 0);
    let lease = worker.lease_one().await;
    world.pass(MINUTE_MS);
    assert_eq!(round(&world, &table).await, 0);
    worker.end(&lease, RunOutcome::Succeeded).await;
    world.pass(MINUTE_MS);
    assert_eq!(round(&world, &table).await, 1);
    let gave: Vec<Fired> = firings(&world).await.into_iter().map(|fired| fired.gave).collect();
    let skipped = Fired::Skipped(SkippedWhy::Overlap);
    assert!(gave.len() == 4 && gave[1] == skipped && gave[2] == skipped, "{gave:?}");
    // What is due while it rests is not missed.
    let pause = |paused| SchedulePaused { name: name(), paused, by: "me".to_owned() };
    change(&world, &table, pause(true)).await;
    world.pass(10 * MINUTE_MS);
    assert_eq!(round(&world, &table).await, 0);
    change(&world, &table, pause(false)).await;
    assert_eq!((round(&world, &table).await, firings(&world).await.len()), (0, 4));
    // Daily, and not to be made up for.
    let daily = Schedule { cron: "0 3 * * *".to_owned(), ..every_minute(Missed::Skip, Overlap::Allow) };
    set(&world, &table, daily).await;
    world.pass(3 * 24 * 60 * MINUTE_MS);
    assert_eq!(round(&world, &table).await, 0);
    let last = firings(&world).await.pop().expect("a firing");
    assert_eq!(last.gave, Fired::Skipped(SkippedWhy::Missed));
    let next = table.round(&*world.store, world.now()).await.expect("a round").next_at.expect("one");
    assert!(next > last.at);
    world.pass(next.ms_since(world.now()) + 1);
    assert_eq!(round(&world, &table).await, 1);
    world.check().await;
}
