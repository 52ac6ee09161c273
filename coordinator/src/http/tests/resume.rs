//! Going on from a turn's end as a new run, and what the new run's token reads.

use docket_schema::{
    run::{FailureKind, Forked, RunOutcome},
    task::TaskState,
    wire::{ProblemCode, ResumeResponse, RunView, TaskView},
};
use serde_json::{Value, json};

use super::events::{answered, asked, ended, phase, started};
use super::support::{House, lease_request, token};
use crate::http::Role;

#[tokio::test]
async fn a_run_is_gone_on_with_from_a_turns_end() {
    let house = House::open().await;
    let lease = house.leased().await;
    let (task, parent) = (lease.task, lease.run);
    let resume = format!("/v1/runs/{parent}/resume");
    let problem = house.admin(&resume, &json!({})).await.problem();
    assert_eq!(problem.code, ProblemCode::WrongState, "{}", problem.detail);

    // 1 started · 2 asked · 3 answered · 4 phase · 5 asked · 6 answered · 7 ended
    let events = vec![started(task, parent), asked(1), answered(1), phase(1), asked(2), answered(2)];
    house.appended(&lease, 0, events).await;
    house.appended(&lease, 6, vec![ended(RunOutcome::Succeeded, 2)]).await;
    let problem = house.admin(&resume, &json!({ "turn": 3 })).await.problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::NotFound, Some("turn")));
    assert_eq!(problem.detail, "there is no turn 3: the run's turns go from 0 to 2");

    let answer: ResumeResponse = house.post(&resume, token(Role::Submit), &json!({ "turn": 1 })).await.good();
    assert_eq!((answer.task, answer.parent.run, answer.parent.seq.0, answer.turn), (task, parent, 4, 1));
    let view: RunView = house.get(&format!("/v1/runs/{}", answer.run)).await.good();
    assert_eq!(view.parent, Some(answer.parent));
    let child = house.lease(&lease_request(0)).await.remove(0);
    assert_eq!((child.run, child.forked, child.head.seq.0), (answer.run, true, 1));

    let read = |run, query: &str| {
        let path = format!("/v1/runs/{run}/events{query}");
        let (house, token) = (&house, child.token.clone());
        async move { house.send("GET", &path, &token, Vec::new(), None).await }
    };
    let kinds = |page: &Value| -> Vec<String> {
        let events = page["events"].as_array().expect("events");
        events.iter().map(|event| event["kind"].as_str().expect("kind").to_owned()).collect()
    };
    let own: Value = read(child.run, "?lineage=true").await.good();
    assert_eq!(kinds(&own), ["RunStarted", "ModelRequested", "ModelAnswered", "PhaseChanged", "Forked"]);
    assert_eq!(own["events"][4]["prev_hash"], own["events"][3]["hash"], "the chain goes on");
    let forked: Forked = serde_json::from_value(own["events"][4]["payload"].clone()).expect("forked");
    assert_eq!((forked.run, forked.parent, forked.turn.0), (child.run, parent, 1));

    // Of its parent it reads the shared part and not one event more.
    let shared: Value = read(parent, "").await.good();
    assert_eq!((kinds(&shared).len(), shared["more"].as_bool()), (4, Some(false)));
    let none: Value = read(parent, "?after=4").await.good();
    assert_eq!((kinds(&none).len(), none["more"].as_bool()), (0, Some(false)));
    let shared: Value = read(parent, "?lineage=true").await.good();
    assert_eq!(kinds(&shared).len(), 4);
    // And the parent's token reads nothing of the child, nor anything: the parent has ended.
    let path = format!("/v1/runs/{}/events", child.run);
    assert_eq!(house.send("GET", &path, &lease.token, Vec::new(), None).await.status, 409);
}

#[tokio::test]
async fn resuming_takes_a_running_runs_place_and_a_childs_early_turn_is_its_parents() {
    let house = House::open().await;
    let lease = house.leased().await;
    let events = vec![started(lease.task, lease.run), asked(1), answered(1), asked(2)];
    house.appended(&lease, 0, events).await;
    let first: ResumeResponse =
        house.admin(&format!("/v1/runs/{}/resume", lease.run), &json!({})).await.good();
    assert_eq!((first.parent.seq.0, first.turn), (3, 1), "turn 2 has not ended");
    let problem = house.append(&lease, 4, vec![answered(2)]).await.problem();
    assert!(matches!(problem.code, ProblemCode::Ended | ProblemCode::WrongSeq), "{problem:?}");
    let view: RunView = house.get(&format!("/v1/runs/{}", lease.run)).await.good();
    assert_eq!(view.status, "superseded");

    let second: ResumeResponse =
        house.admin(&format!("/v1/runs/{}/resume", first.run), &json!({ "turn": 0 })).await.good();
    assert_eq!((second.parent.run, second.parent.seq.0, second.turn), (lease.run, 1, 0));
}

/// Otherwise one refusal of a provider drops a person's words and all that was done so far.
#[tokio::test]
async fn a_rejected_run_that_fails_is_tried_again_from_the_same_place_with_the_same_words() {
    let house = House::open().await;
    let lease = house.leased().await;
    let (task, root) = (lease.task, lease.run);
    let events = vec![started(task, root), asked(1), answered(1), asked(2), answered(2)];
    house.appended(&lease, 0, events).await;
    house.appended(&lease, 5, vec![ended(RunOutcome::Succeeded, 2)]).await;
    let comment = json!({ "comment": "the flag is named otherwise" });
    let rejected: ResumeResponse = house.admin(&format!("/v1/runs/{root}/reject"), &comment).await.good();
    let opening = |run| {
        let (house, path) = (&house, format!("/v1/runs/{run}/events"));
        async move {
            let page: Value = house.get(&path).await.good();
            let forked: Forked =
                serde_json::from_value(page["events"][0]["payload"].clone()).expect("forked");
            (forked, page["events"][0]["prev_hash"].clone())
        }
    };
    let (first, follows) = opening(rejected.run).await;
    let mut before = rejected.run;
    for tried in 1..3_u32 {
        // The wait between tries is the scheduler's.
        let child = house.lease(&lease_request(20_000)).await.remove(0);
        assert_eq!((child.run, child.forked), (before, true));
        let failed = RunOutcome::Failed { why: FailureKind::Model, message: "overloaded".to_owned() };
        house.appended(&child, 1, vec![ended(failed, 2)]).await;
        let view: TaskView = house.get(&format!("/v1/tasks/{task}")).await.good();
        let next = view.task.run.expect("the next try is there");
        assert!(matches!(view.task.state, TaskState::Retryable | TaskState::Available), "{:?}", view.task);
        assert_eq!(view.task.failures, tried);
        assert_eq!((view.task.runs, view.runs.len()), (tried + 2, tried as usize + 2));
        let (again, prev) = opening(next).await;
        assert_eq!(again, Forked { run: next, ..first.clone() }, "it stands where the one that failed stood");
        assert_eq!(prev, follows);
        assert!(again.hint.is_some());
        before = next;
    }
}
