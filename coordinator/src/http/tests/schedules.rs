//! Schedules over HTTP, and the coordinator's own task that fires them.

use docket_schema::{
    event::TypedEvent as _,
    ids::{Seq, StreamId, SystemTopic, Turn},
    system::{Fired, Missed, Overlap, Role, Schedule, ScheduleSet, SystemEvent},
    wire::{ProblemCode, ScheduleView},
};
use serde_json::json;

use super::{
    events::{MANIFEST, spec},
    support::{House, in_time, open_store, serve, token},
};
use crate::{
    clock::Clock,
    store::{Append, Condition, NewBlob},
};

const STREAM: StreamId = StreamId::System(SystemTopic::Schedules);

fn schedule(cron: &str) -> Schedule {
    let spec = Box::new(spec("nightly"));
    Schedule {
        cron: cron.to_owned(),
        tz: "UTC".to_owned(),
        spec,
        missed: Missed::Once,
        overlap: Overlap::Skip,
    }
}

#[tokio::test]
async fn what_was_due_while_nobody_ran_fires_by_itself_once_somebody_does() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open_store(folder.path()).await;
    let now = Clock::new().now();
    let manifest = docket_schema::content::BlobRef::of(MANIFEST);
    let set = ScheduleSet {
        name: "nightly".parse().expect("a name"),
        schedule: schedule("@hourly"),
        by: "me".into(),
    };
    // Set three hours ago, by one that ended then.
    let append = Append {
        stream: STREAM,
        condition: Condition::Expected(Seq(0)),
        events: vec![SystemEvent::from(set).encode(Turn(0))],
        blobs: vec![NewBlob { blob: manifest, bytes: MANIFEST.into() }],
        names: vec![manifest.hash],
        now: docket_schema::ids::Timestamp(now.0 - 3 * 3_600_000_000),
    };
    store.append(append).await.expect("set");
    let one = serve(std::sync::Arc::clone(&store), 30_000).await;
    let two = serve(std::sync::Arc::clone(&store), 30_000).await;
    let came = async {
        loop {
            let (counts, _) = store.status(now).await.expect("reads");
            if let Some(count) = counts.first() {
                return count.count;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(in_time("a task", came).await, 1);
    one.shutdown().await;
    two.shutdown().await;
    assert_eq!(store.read(STREAM, Seq(0), 100).await.expect("reads").len(), 2, "set, and fired once");
}

#[tokio::test]
async fn a_schedule_is_checked_before_it_stands() {
    let house = House::open().await;
    let post = async |schedule: &Schedule, replace: bool| {
        let body = json!({ "schedule": schedule, "replace": replace });
        house.post("/v1/schedules/nightly", token(Role::Submit), &body).await
    };
    let with = |change: fn(&mut Schedule)| {
        let mut schedule = schedule("0 3 * * *");
        change(&mut schedule);
        schedule
    };
    for (schedule, field, words) in [
        (schedule("0 25 * * *"), "schedule.cron", "the hour `25`"),
        (schedule("0 0 30 2 *"), "schedule.cron", "never come"),
        (with(|one| one.tz = "Mars/Olympus".to_owned()), "schedule.tz", "no time zone"),
        (with(|one| one.spec.dedup_key = Some("k".to_owned())), "schedule.spec.dedup_key", "overlap"),
        (with(|one| one.spec.run_at = Some(Clock::new().now())), "schedule.spec.run_at", "says when"),
        (with(|one| one.spec.title = String::new()), "schedule.spec.title", "characters"),
    ] {
        let problem = post(&schedule, false).await.problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some(field)));
        assert!(problem.detail.contains(words), "{}", problem.detail);
    }
    let view: ScheduleView = post(&schedule("0 3 * * *"), false).await.good();
    assert!(view.next_at.is_some() && view.fired.is_none() && view.by == "Submit");
    // The same again is the same; another says that it replaces.
    post(&schedule("0 3 * * *"), false).await.good::<ScheduleView>();
    assert_eq!(post(&schedule("0 4 * * *"), false).await.problem().code, ProblemCode::WrongState);
    post(&schedule("0 4 * * *"), true).await.good::<ScheduleView>();
    let act = async |what: &str, body: serde_json::Value| {
        house.post(&format!("/v1/schedules/nightly/{what}"), token(Role::Submit), &body).await
    };
    let paused: ScheduleView = act("pause", json!({})).await.good();
    assert!(paused.paused && paused.next_at.is_none());
    let task = crate::clock::new_id();
    for _ in 0..2 {
        // By hand while it rests, and once however often it is sent.
        let run: ScheduleView = act("run", json!({ "task": task })).await.good();
        assert!(matches!(run.fired.expect("fired").gave, Fired::Task(given) if given.0 == task));
    }
    assert_eq!(house.store.read(STREAM, Seq(0), 100).await.expect("reads").len(), 4);
    // The id of a task that the schedule did not give: nothing would run, so nothing is answered as done.
    let other = house.submit(spec("of a person")).await;
    let problem = act("run", json!({ "task": other })).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::IdTaken, Some("task")));
    assert!(problem.detail.contains("of a person"), "{}", problem.detail);
    assert_eq!(house.store.read(STREAM, Seq(0), 100).await.expect("reads").len(), 4);
    act("remove", json!({})).await.good::<serde_json::Value>();
    assert_eq!(act("unpause", json!({})).await.problem().code, ProblemCode::NotFound);
    assert_eq!(house.get("/v1/schedules/nightly").await.problem().code, ProblemCode::NotFound);
}
