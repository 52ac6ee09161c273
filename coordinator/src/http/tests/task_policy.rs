//! A task policy changed by an administrator applies to everything a submitter can request
//! afterwards.

use docket_schema::{
    api::{EventPage, ForkRequest, ForkResponse, ForkSibling, Lease, ResumeResponse, TaskView},
    history::FoldedRun,
    ids::RunId,
    policy::{Policy, RuleVerdict},
    run::{FailureKind, RunOutcome},
};
use serde_json::{Value, json};

use super::event_fixtures::{model_answered, model_called, run_ended, run_started, task_spec};
use super::support::{TestServer, lease_request, token_for};
use crate::{clock, http::TokenRole};

async fn set_policy(house: &TestServer, run: RunId, default: &str) {
    let body = json!({ "policy": { "default": default } });
    let _: Value = house.post_as_admin(&format!("/v1/runs/{run}/policy"), &body).await.parse_success();
}

fn default_ruling(lease: &Lease) -> Option<RuleVerdict> {
    lease.spec.policy.as_ref().map(|policy: &Policy| policy.default)
}

/// A run with two turns, in which an administrator denies everything after the first.
async fn lease_with_deny_policy(house: &TestServer) -> Lease {
    let mut spec = task_spec("a task");
    spec.policy = Some(Policy::default());
    house.submit_spec(spec).await;
    let lease = house.lease_with(&lease_request(0)).await.remove(0);
    assert_eq!(default_ruling(&lease), Some(RuleVerdict::Allow));
    house
        .append_ok(&lease, 0, vec![run_started(lease.task, lease.run), model_called(1), model_answered(1)])
        .await;
    set_policy(house, lease.run, "deny").await;
    house.append_ok(&lease, 4, vec![model_called(2), model_answered(2)]).await;
    lease
}

/// The policy of a run in addition to the worker's, as its worker folds it.
async fn ruling_in_run(house: &TestServer, run: RunId) -> Option<RuleVerdict> {
    let page: EventPage = house.get(&format!("/v1/runs/{run}/events?lineage=true")).await.parse_success();
    let history = FoldedRun::from_events(page.events).expect("folds");
    history.state().policies.get(1).map(|policy| policy.default)
}

#[tokio::test]
async fn changed_policy_holds_in_later_attempts_and_retries() {
    let house = TestServer::start().await;
    let first = lease_with_deny_policy(&house).await;
    let failed = || RunOutcome::Failed { why: FailureKind::Model, message: "no answer".to_owned() };
    house.append_ok(&first, 6, vec![run_ended(failed(), 2)]).await;
    let second = house.lease_with(&lease_request(20_000)).await.remove(0);
    assert_eq!((second.attempt, default_ruling(&second)), (2, Some(RuleVerdict::Deny)));
    house.append_ok(&second, 0, vec![run_started(second.task, second.run)]).await;
    // The latest change applies, and the policy of an earlier run does not return.
    set_policy(&house, second.run, "ask").await;
    house.append_ok(&second, 2, vec![run_ended(RunOutcome::Succeeded, 1)]).await;
    let retry = format!("/v1/tasks/{}/retry", first.task);
    let _: Value = house.post(&retry, token_for(TokenRole::Submit), &json!({})).await.parse_success();
    let third = house.lease_with(&lease_request(0)).await.remove(0);
    assert_eq!((third.attempt, default_ruling(&third)), (3, Some(RuleVerdict::Ask)));
    // Also if the run dies before it starts: its next worker gets the same policy.
    let _: Value = house
        .post_as_admin(&format!("/v1/runs/{}/tell", third.run), &json!({ "text": "hi" }))
        .await
        .parse_success();
    let release = json!({ "epoch": third.epoch, "why": "drained" });
    let _: Value = house
        .post(&format!("/v1/tasks/{}/release", third.task), token_for(TokenRole::Worker), &release)
        .await
        .parse_success();
    let again = house.lease_with(&lease_request(0)).await.remove(0);
    assert_eq!((again.run, default_ruling(&again)), (third.run, Some(RuleVerdict::Ask)));
}

#[tokio::test]
async fn changed_policy_holds_in_resumed_and_forked_runs() {
    let house = TestServer::start().await;
    let first = lease_with_deny_policy(&house).await;
    house.append_ok(&first, 6, vec![run_ended(RunOutcome::Succeeded, 2)]).await;
    for (turn, events) in [(0, "before"), (1, "before"), (2, "after")] {
        let fork = ForkRequest {
            turn: Some(turn),
            siblings: vec![ForkSibling {
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
        let made: ForkResponse = house.post(&path, token_for(TokenRole::Submit), &fork).await.parse_success();
        let run = made.siblings[0].run;
        assert_eq!(
            ruling_in_run(&house, run).await,
            Some(RuleVerdict::Deny),
            "a fork at turn {turn}, {events} it"
        );
        let view: TaskView = house.get(&format!("/v1/tasks/{}", made.siblings[0].task)).await.parse_success();
        assert_eq!(view.task.spec.policy.map(|policy| policy.default), Some(RuleVerdict::Deny));
        // Also in a run that continues from the start of the fork.
        let path = format!("/v1/runs/{run}/resume");
        let resumed: ResumeResponse =
            house.post(&path, token_for(TokenRole::Submit), &json!({ "turn": 0 })).await.parse_success();
        assert_eq!(
            ruling_in_run(&house, resumed.run).await,
            Some(RuleVerdict::Deny),
            "of a fork at turn {turn}"
        );
    }
    let path = format!("/v1/runs/{}/resume", first.run);
    for turn in [0, 1, 2] {
        let resumed: ResumeResponse =
            house.post(&path, token_for(TokenRole::Submit), &json!({ "turn": turn })).await.parse_success();
        assert_eq!(
            ruling_in_run(&house, resumed.run).await,
            Some(RuleVerdict::Deny),
            "resumed at turn {turn}"
        );
    }
    // Changed in a later run than the one that is continued.
    let later: ResumeResponse =
        house.post(&path, token_for(TokenRole::Submit), &json!({ "turn": 2 })).await.parse_success();
    set_policy(&house, later.run, "ask").await;
    let resumed: ResumeResponse =
        house.post(&path, token_for(TokenRole::Submit), &json!({ "turn": 2 })).await.parse_success();
    assert_eq!(ruling_in_run(&house, resumed.run).await, Some(RuleVerdict::Ask));
}
