//! The timeline of a run: complete, and only the changes since a known event.

use docket_schema::{
    api::{EventPage, ForkRequest, ForkResponse, ForkSibling, RunTimeline},
    history::{FoldedRun, TimelineRows, build_timeline},
    ids::{RunId, TaskId},
    run::RunOutcome,
};

use super::event_fixtures::{model_answered, model_called, phase_changed, run_ended, run_started};
use super::support::TestServer;
use crate::clock;

/// Builds the timeline from the complete log.
async fn timeline_from_log(house: &TestServer, run: RunId, served: &RunTimeline) -> RunTimeline {
    let page: EventPage = house.get(&format!("/v1/runs/{run}/events?lineage=true")).await.parse_success();
    let folded = FoldedRun::from_events(page.events).expect("folds");
    let mut rows = TimelineRows::default();
    rows.update(&folded);
    build_timeline(run, served.task, served.head, &folded, rows.rows_since(&folded, 0).to_vec())
}

#[tokio::test]
async fn timeline_pages_after_an_event_complete_the_earlier_page() {
    let house = TestServer::start().await;
    let lease = house.submit_and_lease().await;
    let path = format!("/v1/runs/{}/timeline", lease.run);
    let empty: RunTimeline = house.get(&path).await.parse_success();
    assert_eq!((empty.head.0, empty.turns.len(), empty.standing.as_str()), (0, 0, "not ended"));
    let mut known = vec![empty];
    let mut head = 0;
    for events in [
        vec![run_started(lease.task, lease.run)],
        vec![model_called(1)],
        vec![model_answered(1), phase_changed(1)],
        vec![model_called(2), model_answered(2)],
        vec![run_ended(RunOutcome::Succeeded, 2)],
    ] {
        let count = events.len() as u64;
        house.append_ok(&lease, head, events).await;
        head += count;
        let whole: RunTimeline = house.get(&path).await.parse_success();
        assert_eq!(whole.head.0, head);
        assert_eq!(timeline_from_log(&house, lease.run, &whole).await, whole);
        for before in &known {
            let news: RunTimeline = house.get(&format!("{path}?after={}", before.head)).await.parse_success();
            let first = news.turns[0].turn;
            let mut turns = before.turns.clone();
            turns.retain(|row| row.turn < first);
            turns.extend(news.turns.iter().cloned());
            assert_eq!(RunTimeline { turns, ..news }, whole, "after {}", before.head);
        }
        known.push(whole);
    }
    let turns = async |after: u64| {
        let answer: RunTimeline = house.get(&format!("{path}?after={after}")).await.parse_success();
        answer.turns.iter().map(|row| row.turn).collect::<Vec<_>>()
    };
    assert_eq!(turns(0).await, [0, 1, 2]);
    assert_eq!(turns(2).await, [1, 2], "the turn that holds the event, and those after it");
    assert_eq!(turns(head).await, [2]);
    assert_eq!(turns(head + 7).await, [2], "another coordinator may know more");
    assert_eq!(house.get(&format!("{path}?after=x")).await.status, 400);
    assert_eq!(house.get(&format!("/v1/runs/{}/timeline", clock::new_id())).await.status, 404);

    // A fork starts with the turns that it shares; its own events are counted from 1.
    let siblings = vec![ForkSibling { task: TaskId(clock::new_id()), run: RunId(clock::new_id()) }];
    let request = ForkRequest {
        turn: Some(1),
        siblings,
        engine: None,
        models: None,
        script: None,
        hint: None,
        edit: None,
    };
    let made: ForkResponse =
        house.post_as_admin(&format!("/v1/runs/{}/fork", lease.run), &request).await.parse_success();
    let fork = made.siblings[0].run;
    let whole: RunTimeline = house.get(&format!("/v1/runs/{fork}/timeline")).await.parse_success();
    assert_eq!((whole.head.0, whole.turns.len()), (1, 2));
    assert_eq!(timeline_from_log(&house, fork, &whole).await, whole);
    let news: RunTimeline = house.get(&format!("/v1/runs/{fork}/timeline?after=1")).await.parse_success();
    assert_eq!(news.turns, whole.turns[1..]);
}
