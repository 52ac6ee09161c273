//! Schedules over HTTP, and the background job that fires them.

use docket_schema::{
    api::{ProblemCode, ScheduleView},
    event::TypedEvent as _,
    ids::{Seq, StreamId, SystemTopic, Turn},
    system::{
        FiringResult, MissedFiringPolicy, OverlapPolicy, ScheduleSet, SystemEvent, TaskSchedule, TokenRole,
    },
};
use serde_json::json;

use super::{
    event_fixtures::{MANIFEST, task_spec},
    support::{TestServer, open_store, serve, token_for, within_time},
};
use crate::{
    clock::Clock,
    store::{AppendCondition, LogAppend, NewBlob},
};

const SCHEDULES_STREAM: StreamId = StreamId::System(SystemTopic::Schedules);

fn test_schedule(cron: &str) -> TaskSchedule {
    let spec = Box::new(task_spec("nightly"));
    TaskSchedule {
        cron: cron.to_owned(),
        tz: "UTC".to_owned(),
        spec,
        missed: MissedFiringPolicy::Once,
        overlap: OverlapPolicy::Skip,
    }
}

#[tokio::test]
async fn schedules_due_during_downtime_fire_once_after_start() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open_store(folder.path()).await;
    let now = Clock::new().now();
    let manifest = docket_schema::content::BlobRef::for_bytes(MANIFEST);
    let set = ScheduleSet {
        name: "nightly".parse().expect("a name"),
        schedule: test_schedule("@hourly"),
        by: "me".into(),
    };
    // Set three hours ago by a coordinator that ended then.
    let append = LogAppend {
        stream: SCHEDULES_STREAM,
        condition: AppendCondition::ExpectedSeq(Seq(0)),
        events: vec![SystemEvent::from(set).encode(Turn(0))],
        blobs: vec![NewBlob { blob: manifest, bytes: MANIFEST.into() }],
        required_blobs: vec![manifest.hash],
        now: docket_schema::ids::Timestamp(now.0 - 3 * 3_600_000_000),
    };
    store.append(append).await.expect("set");
    let one = serve(std::sync::Arc::clone(&store), 30_000).await;
    let two = serve(std::sync::Arc::clone(&store), 30_000).await;
    let came = async {
        loop {
            let (counts, _) = store.read_status(now).await.expect("reads");
            if let Some(count) = counts.first() {
                return count.count;
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(within_time("a task", came).await, 1);
    one.shutdown().await;
    two.shutdown().await;
    assert_eq!(
        store.read_events(SCHEDULES_STREAM, Seq(0), 100).await.expect("reads").len(),
        2,
        "set, and fired once"
    );
}

#[tokio::test]
async fn invalid_schedules_are_rejected() {
    let house = TestServer::start().await;
    let post = async |schedule: &TaskSchedule, replace: bool| {
        let body = json!({ "schedule": schedule, "replace": replace });
        house.post("/v1/schedules/nightly", token_for(TokenRole::Submit), &body).await
    };
    let with = |change: fn(&mut TaskSchedule)| {
        let mut schedule = test_schedule("0 3 * * *");
        change(&mut schedule);
        schedule
    };
    for (schedule, field, words) in [
        (test_schedule("0 25 * * *"), "schedule.cron", "the hour `25`"),
        (test_schedule("0 0 30 2 *"), "schedule.cron", "never fires"),
        (with(|one| one.tz = "Mars/Olympus".to_owned()), "schedule.tz", "not a time zone"),
        (with(|one| one.spec.dedup_key = Some("k".to_owned())), "schedule.spec.dedup_key", "overlap"),
        (with(|one| one.spec.run_at = Some(Clock::new().now())), "schedule.spec.run_at", "sets the time"),
        (with(|one| one.spec.title = String::new()), "schedule.spec.title", "characters"),
    ] {
        let problem = post(&schedule, false).await.parse_problem();
        assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some(field)));
        assert!(problem.detail.contains(words), "{}", problem.detail);
    }
    let view: ScheduleView = post(&test_schedule("0 3 * * *"), false).await.parse_success();
    assert!(view.next_at.is_some() && view.fired.is_none() && view.by == "Submit");
    // The same request again changes nothing; a different one must replace explicitly.
    post(&test_schedule("0 3 * * *"), false).await.parse_success::<ScheduleView>();
    assert_eq!(post(&test_schedule("0 4 * * *"), false).await.parse_problem().code, ProblemCode::WrongState);
    post(&test_schedule("0 4 * * *"), true).await.parse_success::<ScheduleView>();
    let act = async |what: &str, body: serde_json::Value| {
        house.post(&format!("/v1/schedules/nightly/{what}"), token_for(TokenRole::Submit), &body).await
    };
    let paused: ScheduleView = act("pause", json!({})).await.parse_success();
    assert!(paused.paused && paused.next_at.is_none());
    let task = crate::clock::new_id();
    for _ in 0..2 {
        // Run manually while paused, and once however often it is sent.
        let run: ScheduleView = act("run", json!({ "task": task })).await.parse_success();
        assert!(matches!(run.fired.expect("fired").gave, FiringResult::Task(given) if given.0 == task));
    }
    assert_eq!(house.store.read_events(SCHEDULES_STREAM, Seq(0), 100).await.expect("reads").len(), 4);
    // The ID of a task that is not the schedule's: nothing would run, so the request must not succeed.
    let other = house.submit_spec(task_spec("of a person")).await;
    let problem = act("run", json!({ "task": other })).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::IdTaken, Some("task")));
    assert!(problem.detail.contains("of a person"), "{}", problem.detail);
    assert_eq!(house.store.read_events(SCHEDULES_STREAM, Seq(0), 100).await.expect("reads").len(), 4);
    act("remove", json!({})).await.parse_success::<serde_json::Value>();
    assert_eq!(act("unpause", json!({})).await.parse_problem().code, ProblemCode::NotFound);
    assert_eq!(house.get("/v1/schedules/nightly").await.parse_problem().code, ProblemCode::NotFound);
}
