//! Delegation over the API: access, inherited values, and what a run may read of its children.

use docket_schema::{
    api::{ChildList, DelegateRequest, DelegateResponse, EventPage, Lease, ProblemCode},
    content::BlobRef,
    ids::{Epoch, Seq, TreeHash, Turn},
    message::CallId,
    policy::{NetworkPolicy, Policy, RuleVerdict},
    run::RunOutcome,
    task::{ConcurrencyLimit, LeaseConditions, SettingsPatch, TaskSpec},
    tool::ToolSet,
};

use super::event_fixtures::{run_ended, run_started, task_spec};
use super::support::{TestServer, lease_request, token_for};
use crate::http::TokenRole;

fn delegate_request(lease: &Lease, nth: usize) -> DelegateRequest {
    DelegateRequest {
        epoch: lease.epoch,
        after: Seq(1),
        call: CallId::for_tool(Turn(1), nth),
        title: "a piece".to_owned(),
        text: "do it".to_owned(),
        writes: true,
        tests: None,
        requires: Vec::new(),
        denied_tools: Vec::new(),
        engine: None,
        model: None,
        settings: SettingsPatch { delegation_depth_max: Some(0), ..SettingsPatch::default() },
        tree: TreeHash::ZERO,
        start: None,
        blobs: Vec::new(),
    }
}

async fn lease_and_start(house: &TestServer, spec: TaskSpec) -> Lease {
    house.submit_spec(spec).await;
    let lease = house.lease_with(&lease_request(0)).await.remove(0);
    house.append_ok(&lease, 0, vec![run_started(lease.task, lease.run)]).await;
    lease
}

#[tokio::test]
async fn child_inherits_parent_constraints_and_is_readable_by_parent_only() {
    let house = TestServer::start().await;
    let concurrency = Some(ConcurrencyLimit { key: "branch".to_owned(), max: 3 });
    let conditions = LeaseConditions { concurrency, ..LeaseConditions::default() };
    let keyed = TaskSpec {
        priority: 7,
        conditions,
        branch: Some("result".to_owned()),
        dedup_key: Some("once".to_owned()),
        tests: Some("make".to_owned()),
        settings: SettingsPatch {
            turns_max: Some(6),
            tool_set: Some(ToolSet::Wide),
            delegation_depth_max: Some(1),
            ..SettingsPatch::default()
        },
        ..task_spec("keyed")
    };
    let lease = lease_and_start(&house, keyed.clone()).await;
    let path = format!("/v1/runs/{}/delegate", lease.run);
    for stranger in [token_for(TokenRole::Admin), token_for(TokenRole::Worker), token_for(TokenRole::Submit)]
    {
        assert_eq!(house.post(&path, stranger, &delegate_request(&lease, 0)).await.status, 403);
    }
    let stale = DelegateRequest { epoch: Epoch(lease.epoch.0 + 1), ..delegate_request(&lease, 0) };
    assert_eq!(house.post(&path, &lease.token, &stale).await.status, 403);
    let unknown =
        DelegateRequest { start: Some(BlobRef::for_bytes(b"never stored")), ..delegate_request(&lease, 0) };
    let problem = house.post(&path, &lease.token, &unknown).await.parse_problem();
    assert_eq!(problem.code, ProblemCode::BlobMissing, "nothing of it is there");
    let untitled = DelegateRequest { title: String::new(), ..delegate_request(&lease, 0) };
    let problem = house.post(&path, &lease.token, &untitled).await.parse_problem();
    assert_eq!((problem.code, problem.field.as_deref()), (ProblemCode::InvalidRequest, Some("child.title")));

    let made: DelegateResponse =
        house.post(&path, &lease.token, &delegate_request(&lease, 0)).await.parse_success();
    let kinds: Vec<&str> = made.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["Delegated"]);
    let again: DelegateResponse =
        house.post(&path, &lease.token, &delegate_request(&lease, 0)).await.parse_success();
    assert_eq!(again, made, "a repeated request is answered as the first");
    // Different work under the same call would be lost if it got the response of the first.
    for other in [
        DelegateRequest { title: "another piece".to_owned(), ..delegate_request(&lease, 0) },
        DelegateRequest { text: "do something else".to_owned(), ..delegate_request(&lease, 0) },
        DelegateRequest { writes: false, ..delegate_request(&lease, 0) },
    ] {
        let problem = house.post(&path, &lease.token, &other).await.parse_problem();
        assert_eq!(problem.code, ProblemCode::IdTaken, "{}", problem.detail);
    }
    // Values from the parent's record may have changed since.
    let body = serde_json::json!({ "act": { "reprioritize": 9 }, "tasks": [lease.task] });
    house.post_as_admin("/v1/tasks/bulk", &body).await.parse_success::<serde_json::Value>();
    let again: DelegateResponse =
        house.post(&path, &lease.token, &delegate_request(&lease, 0)).await.parse_success();
    assert_eq!(again, made, "a repeated request is answered as the first");

    let children = format!("/v1/runs/{}/children", lease.run);
    let list: ChildList = house.get(&children).await.parse_success();
    let [child] = &list.children[..] else { panic!("{list:?}") };
    let task = &child.view.task;
    assert_eq!((task.id, &task.spec.conditions), (made.child, &keyed.conditions));
    assert_eq!((task.spec.priority, &task.spec.queue, &task.spec.model), (7, &keyed.queue, &keyed.model));
    let bound = &task.spec.settings;
    assert_eq!((bound.turns_max, bound.tool_set), (Some(6), Some(ToolSet::Wide)), "its parent's settings");
    assert_eq!(bound.delegation_depth_max, Some(0), "and what the call says before them");
    assert_eq!((&task.spec.branch, &task.spec.dedup_key, &task.spec.tests), (&None, &None, &None));
    assert_eq!(task.delegated_by.as_ref().map(|by| (by.task, by.run)), Some((lease.task, lease.run)));

    let below = house.lease_with(&lease_request(0)).await.remove(0);
    assert_eq!((below.task, below.delegated_by.is_some()), (made.child, true));
    house.append_ok(&below, 0, vec![run_started(below.task, below.run)]).await;
    let other = lease_and_start(&house, task_spec("a task")).await;
    let read = async |run, token: &str| {
        house.send("GET", &format!("/v1/runs/{run}/events"), token, Vec::new(), None).await
    };
    let page: EventPage = read(below.run, &lease.token).await.parse_success();
    assert_eq!(page.events.len(), 1);
    assert_eq!(read(lease.run, &below.token).await.status, 403, "a child does not read its parent");
    assert_eq!(read(below.run, &other.token).await.status, 403, "nor does anybody else's run");
    assert_eq!(house.send("GET", &children, &other.token, Vec::new(), None).await.status, 403);
    assert_eq!(house.send("GET", &children, &lease.token, Vec::new(), None).await.status, 200);

    house.append_ok(&below, 1, vec![run_ended(RunOutcome::Succeeded, 1)]).await;
    let page: EventPage = read(lease.run, &lease.token).await.parse_success();
    assert_eq!(page.events.last().map(|event| event.kind.as_str()), Some("ChildAnswered"));
}

/// Tools denied by the parent are denied in the child's own policy, in addition to the parent's
/// rules, and in that of the child's children.
#[tokio::test]
async fn tools_denied_to_a_child_are_rules_of_its_policy() {
    let house = TestServer::start().await;
    let network = Some(NetworkPolicy { hosts: vec!["crates.io".to_owned()], ..NetworkPolicy::default() });
    let of_parent = Policy { default: RuleVerdict::Ask, network, ..Policy::default() };
    let lease =
        lease_and_start(&house, TaskSpec { policy: Some(of_parent.clone()), ..task_spec("a task") }).await;
    let give = async |lease: &Lease, nth: usize, denied: &[&str]| {
        let denied_tools = denied.iter().map(|name| (*name).to_owned()).collect();
        let request = DelegateRequest { denied_tools, ..delegate_request(lease, nth) };
        let path = format!("/v1/runs/{}/delegate", lease.run);
        let made: DelegateResponse = house.post(&path, &lease.token, &request).await.parse_success();
        let list: ChildList = house.get(&format!("/v1/runs/{}/children", lease.run)).await.parse_success();
        let child = list.children.into_iter().find(|child| child.view.task.id == made.child).expect("made");
        child.view.task.spec.policy
    };
    assert_eq!(give(&lease, 0, &[]).await, Some(of_parent), "as its parent has it");
    // The next leased task is this one.
    let child = house.lease_with(&lease_request(0)).await.remove(0);
    house.append_ok(&child, 0, vec![run_started(child.task, child.run)]).await;
    let told = |policy: &Option<Policy>| -> Vec<(String, RuleVerdict, Vec<String>)> {
        let rules = policy.iter().flat_map(|policy| &policy.rules);
        rules.map(|rule| (rule.id.clone(), rule.verdict, rule.tools.clone())).collect()
    };
    let rule = |id: &str, tools: &[&str]| {
        (id.to_owned(), RuleVerdict::Deny, tools.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    };
    let bound = give(&child, 0, &["run_command", "mcp__*"]).await;
    assert_eq!(told(&bound), [rule("given", &["run_command", "mcp__*"])]);
    let bound = bound.expect("a policy");
    assert_eq!(
        (bound.default, bound.network),
        (RuleVerdict::Ask, None),
        "and what reaches the network is gone"
    );
    let below = house.lease_with(&lease_request(0)).await.remove(0);
    house.append_ok(&below, 0, vec![run_started(below.task, below.run)]).await;
    let first = rule("given", &["run_command", "mcp__*"]);
    assert_eq!(told(&give(&below, 0, &[]).await), std::slice::from_ref(&first));
    assert_eq!(told(&give(&below, 1, &["run_command", "mcp__*"]).await), std::slice::from_ref(&first));
    assert_eq!(told(&give(&below, 2, &["edit_file"]).await), [first, rule("given-2", &["edit_file"])]);
    let path = format!("/v1/runs/{}/delegate", below.run);
    let blank = DelegateRequest { denied_tools: vec![" ".to_owned()], ..delegate_request(&below, 3) };
    assert_eq!(house.post(&path, &below.token, &blank).await.status, 400, "an invalid name is rejected");
}

#[tokio::test]
async fn pausing_a_waiting_parent_pauses_its_children() {
    let house = TestServer::start().await;
    let lease = lease_and_start(&house, task_spec("a task")).await;
    let path = format!("/v1/runs/{}/delegate", lease.run);
    let made: DelegateResponse =
        house.post(&path, &lease.token, &delegate_request(&lease, 0)).await.parse_success();
    let act = async |verb: &str| {
        let path = format!("/v1/tasks/{}/{verb}", lease.task);
        assert_eq!(house.post_as_admin(&path, &serde_json::json!({})).await.status, 200);
        house.task_state(made.child).await
    };
    assert_eq!(act("pause").await, "blocked");
    assert!(house.lease_with(&lease_request(0)).await.is_empty());
    assert_eq!(act("unpause").await, "available");
    let cancel = format!("/v1/tasks/{}/cancel", lease.task);
    assert_eq!(house.post_as_admin(&cancel, &serde_json::json!({})).await.status, 200);
    assert_eq!(house.task_state(made.child).await, "cancelled");
}
