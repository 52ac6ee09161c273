//! The timeline of a run: read whole, and only what changed since an event that is known.

use docket_schema::{
    history::{FoldedRun, TimelineRows, timeline},
    ids::{RunId, TaskId},
    run::RunOutcome,
    wire::{EventPage, ForkRequest, ForkResponse, Sibling, Timeline},
};

use super::events::{answered, asked, ended, phase, started};
use super::support::House;
use crate::clock;

/// The timeline as it is made of the whole log at once.
async fn from_log(house: &House, run: RunId, served: &Timeline) -> Timeline {
    let page: EventPage = house.get(&format!("/v1/runs/{run}/events?lineage=true")).await.good();
    let folded = FoldedRun::read(page.events).expect("folds");
    let mut rows = TimelineRows::default();
    rows.update(&folded);
    timeline(run, served.task, served.head, &folded, rows.since(&folded, 0).to_vec())
}

#[tokio::test]
async fn what_changed_after_an_event_completes_what_was_known_then() {
    let house = House::open().await;
    let lease = house.leased().await;
    let path = format!("/v1/runs/{}/timeline", lease.run);
    let empty: Timeline = house.get(&path).await.good();
    assert_eq!((empty.head.0, empty.turns.len(), empty.standing.as_str()), (0, 0, "not ended"));
    let mut known = vec![empty];
    let mut head = 0;
    for events in [
        vec![started(lease.task, lease.run)],
        vec![asked(1)],
        vec![answered(1), phase(1)],
        vec![asked(2), answered(2)],
        vec![ended(RunOutcome::Succeeded, 2)],
    ] {
        let count = events.len() as u64;
        house.appended(&lease, head, events).await;
        head += count;
        let whole: Timeline = house.get(&path).await.good();
        assert_eq!(whole.head.0, head);
        assert_eq!(from_log(&house, lease.run, &whole).await, whole);
        for before in &known {
            let news: Timeline = house.get(&format!("{path}?after={}", before.head)).await.good();
            let first = news.turns[0].turn;
            let mut turns = before.turns.clone();
            turns.retain(|row| row.turn < first);
            turns.extend(news.turns.iter().cloned());
            assert_eq!(Timeline { turns, ..news }, whole, "after {}", before.head);
        }
        known.push(whole);
    }
    let turns = async |after: u64| {
        let answer: Timeline = house.get(&format!("{path}?after={after}")).await.good();
        answer.turns.iter().map(|row| row.turn).collect::<Vec<_>>()
    };
    assert_eq!(turns(0).await, [0, 1, 2]);
    assert_eq!(turns(2).await, [1, 2], "the turn that holds the event, and those after it");
    assert_eq!(turns(head).await, [2]);
    assert_eq!(turns(head + 7).await, [2], "another coordinator may know more");
    assert_eq!(house.get(&format!("{path}?after=x")).await.status, 400);
    assert_eq!(house.get(&format!("/v1/runs/{}/timeline", clock::new_id())).await.status, 404);

    // A fork begins with the turns that it shares; its own events are counted from 1.
    let siblings = vec![Sibling { task: TaskId(clock::new_id()), run: RunId(clock::new_id()) }];
    let request = ForkRequest {
        turn: Some(1),
        siblings,
        engine: None,
        models: None,
        script: None,
        hint: None,
        edit: None,
    };
    let made: ForkResponse = house.admin(&format!("/v1/runs/{}/fork", lease.run), &request).await.good();
    let fork = made.siblings[0].run;
    let whole: Timeline = house.get(&format!("/v1/runs/{fork}/timeline")).await.good();
    assert_eq!((whole.head.0, whole.turns.len()), (1, 2));
    assert_eq!(from_log(&house, fork, &whole).await, whole);
    let news: Timeline = house.get(&format!("/v1/runs/{fork}/timeline?after=1")).await.good();
    assert_eq!(news.turns, whole.turns[1..]);
}
