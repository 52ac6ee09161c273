//! An administrator's change of a task's policy, and all that a submitter may ask for afterwards: it holds in each.

use docket_schema::{
    history::FoldedRun,
    ids::RunId,
    policy::{Policy, Ruling},
    run::{FailureKind, RunOutcome},
    wire::{EventPage, ForkRequest, ForkResponse, Lease, ResumeResponse, Sibling, TaskView},
};
use serde_json::{Value, json};

use super::events::{answered, asked, ended, spec, started};
use super::support::{House, lease_request, token};
use crate::{clock, http::Role};

async fn set(house: &House, run: RunId, default: &str) {
    let body = json!({ "policy": { "default": default } });
    let _: Value = house.admin(&format!("/v1/runs/{run}/policy"), &body).await.good();
}

fn default_of(lease: &Lease) -> Option<Ruling> {
    lease.spec.policy.as_ref().map(|policy: &Policy| policy.default)
}

/// A run with two turns, in which an administrator forbids all after the first.
async fn forbidden(house: &House) -> Lease {
    let mut spec = spec("a task");
    spec.policy = Some(Policy::default());
    house.submit(spec).await;
    let lease = house.lease(&lease_request(0)).await.remove(0);
    assert_eq!(default_of(&lease), Some(Ruling::Allow));
    house.appended(&lease, 0, vec![started(lease.task, lease.run), asked(1), answered(1)]).await;
    set(house, lease.run, "deny").await;
    house.appended(&lease, 4, vec![asked(2), answered(2)]).await;
    lease
}

/// What holds beside the worker's policy in a run, as its worker folds it.
async fn in_run(house: &House, run: RunId) -> Option<Ruling> {
    let page: EventPage = house.get(&format!("/v1/runs/{run}/events?lineage=true")).await.good();
    let history = FoldedRun::read(page.events).expect("folds");
    history.state().policies.get(1).map(|policy| policy.default)
}

#[tokio::test]
async fn it_holds_in_a_second_attempt_and_in_a_retry() {
    let house = House::open().await;
    let first = forbidden(&house).await;
    let failed = || RunOutcome::Failed { why: FailureKind::Model, message: "no answer".to_owned() };
    house.appended(&first, 6, vec![ended(failed(), 2)]).await;
    let second = house.lease(&lease_request(20_000)).await.remove(0);
    assert_eq!((second.attempt, default_of(&second)), (2, Some(Ruling::Deny)));
    house.appended(&second, 0, vec![started(second.task, second.run)]).await;
    // The latest holds, and what an earlier run was told does not come back.
    set(&house, second.run, "ask").await;
    house.appended(&second, 2, vec![ended(RunOutcome::Succeeded, 1)]).await;
    let retry = format!("/v1/tasks/{}/retry", first.task);
    let _: Value = house.post(&retry, token(Role::Submit), &json!({})).await.good();
    let third = house.lease(&lease_request(0)).await.remove(0);
    assert_eq!((third.attempt, default_of(&third)), (3, Some(Ruling::Ask)));
    // Also where that run dies before it began: its next worker is told the same.
    let _: Value =
        house.admin(&format!("/v1/runs/{}/tell", third.run), &json!({ "text": "hi" })).await.good();
    let release = json!({ "epoch": third.epoch, "why": "drained" });
    let _: Value =
        house.post(&format!("/v1/tasks/{}/release", third.task), token(Role::Worker), &release).await.good();
    let again = house.lease(&lease_request(0)).await.remove(0);
    assert_eq!((again.run, default_of(&again)), (third.run, Some(Ruling::Ask)));
}

#[tokio::test]
async fn it_holds_in_a_run_that_goes_on_from_before_it_and_in_forks() {
    let house = House::open().await;
    let first = forbidden(&house).await;
    house.appended(&first, 6, vec![ended(RunOutcome::Succeeded, 2)]).await;
    for (turn, events) in [(0, "before"), (1, "before"), (2, "after")] {
        let fork = ForkRequest {
            turn: Some(turn),
            siblings: vec![Sibling {
                task: docket_schema::ids::TaskId(clock::new_id()),
                run: RunId(clock::new_id()),
            }],
            engine: None,
            models: None,
            script: None,
            hint: None,
            edit: None,
        };
        let path = format!("/v1/runs/{}/fork", first.run);
        let made: ForkResponse = house.post(&path, token(Role::Submit), &fork).await.good();
        let run = made.siblings[0].run;
        assert_eq!(in_run(&house, run).await, Some(Ruling::Deny), "a fork at turn {turn}, {events} it");
        let view: TaskView = house.get(&format!("/v1/tasks/{}", made.siblings[0].task)).await.good();
        assert_eq!(view.task.spec.policy.map(|policy| policy.default), Some(Ruling::Deny));
        // And in what goes on from the fork's own beginning.
        let path = format!("/v1/runs/{run}/resume");
        let resumed: ResumeResponse =
            house.post(&path, token(Role::Submit), &json!({ "turn": 0 })).await.good();
        assert_eq!(in_run(&house, resumed.run).await, Some(Ruling::Deny), "of a fork at turn {turn}");
    }
    let path = format!("/v1/runs/{}/resume", first.run);
    for turn in [0, 1, 2] {
        let resumed: ResumeResponse =
            house.post(&path, token(Role::Submit), &json!({ "turn": turn })).await.good();
        assert_eq!(in_run(&house, resumed.run).await, Some(Ruling::Deny), "resumed at turn {turn}");
    }
    // Where it was changed in a later run than the one that is gone on from.
    let later: ResumeResponse = house.post(&path, token(Role::Submit), &json!({ "turn": 2 })).await.good();
    set(&house, later.run, "ask").await;
    let resumed: ResumeResponse = house.post(&path, token(Role::Submit), &json!({ "turn": 2 })).await.good();
    assert_eq!(in_run(&house, resumed.run).await, Some(Ruling::Ask));
}
