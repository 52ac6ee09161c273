//! Routes of delegation: a run delegates work to a child task and checks its state.
//!
//! A child inherits queue, batch, key, priority, policy and base from the parent's record, not from
//! the request, so that a run cannot escape its task's restrictions by delegating. A request can
//! only add restrictions.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{ChildList, ChildView, DelegateRequest, DelegateResponse, PAGE_EVENTS_MAX, ProblemCode, TaskView},
    event::TypedEvent as _,
    ids::{RunId, Seq, StreamId, TaskId},
    policy::{Policy, PolicyRule, RuleVerdict},
    run::{Delegated, RunEvent},
    task::{DelegatedBy, DeliveryMode, LeaseConditions, TaskSpec, TaskSubmitted, child_task_id},
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        auth::Caller,
        failpoint,
        request::{ApiRequest, json_response},
    },
    routes::{
        commands,
        runs::{
            append::verify_blob_uploads,
            run_views::{find_run_view, foreign_run_error},
            task_policy,
        },
    },
};
use crate::{store::CommandBlobs, task_check::check_and_redact_spec};

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn delegate_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    ApiState::require_run_token(&call.caller, run)?;
    api.check_epoch_in_force(&call.caller).await?;
    let mut request: DelegateRequest = call.json()?;
    ApiState::require_run_epoch(&call.caller, run, request.epoch)?;
    let (after, epoch) = (request.after, request.epoch);
    let child = child_task_id(run, &request.call);
    let task = find_run_view(&api, run).await?.task;
    let Some((parent, _)) = api.store.get_task(task).await? else {
        return Err(ApiError::new(ProblemCode::NotFound, format!("there is no task {task}")));
    };
    let blobs = verify_blob_uploads(std::mem::take(&mut request.blobs)).await?;
    let names = request.start.iter().map(|start| start.hash).collect();
    let delegated_by = DelegatedBy {
        task,
        run,
        call: request.call.clone(),
        writes: request.writes,
        tree: request.tree,
        start: request.start,
    };
    let policy = task_policy::effective_policy(
        task_policy::last_policy_change(&api, task).await?,
        parent.spec.policy.clone(),
    );
    let policy = deny_tools(policy, std::mem::take(&mut request.denied_tools));
    let spec = TaskSpec { policy, ..child_spec(parent.spec, request) };
    let spec =
        check_and_redact_spec(spec, &api.redactor).map_err(|unsound| unsound.into_error_at("child"))?;
    let by = format!("run {run}");
    let submitted = TaskSubmitted { spec, by, forked_from: None, delegated_by: Some(delegated_by) };
    let decide = commands::delegate(epoch, child, submitted);
    let blobs = CommandBlobs { blobs, required_blobs: names };
    let (_, done) = api.store.execute_command(task, decide, blobs, api.clock.now()).await?;
    if let Some(done) = done {
        failpoint::die_before_reply(&api.lost_replies, epoch, done.head.seq, 1);
        api.wakeups.notify_append(run);
        api.wakeups.notify_task_available();
    }
    let events = api.store.read_events(StreamId::Run(run), after, PAGE_EVENTS_MAX).await?;
    json_response(&DelegateResponse { child, events })
}

/// ID of the rule that denies a child what its parent denied, and the reason shown to its model.
const DENY_RULE_ID: &str = "given";
const DENY_REASON: &str = "whoever gave this piece of work away may not do that either";

/// Adds a rule that denies these tools, and removes the network, which only commands and servers
/// use.
fn deny_tools(policy: Option<Policy>, tools: Vec<String>) -> Option<Policy> {
    if tools.is_empty() {
        return policy;
    }
    let mut policy = Policy { network: None, ..policy.unwrap_or_default() };
    let rule = |id: String| PolicyRule {
        id,
        verdict: RuleVerdict::Deny,
        tools: tools.clone(),
        commands: Vec::new(),
        paths: Vec::new(),
        labels: Vec::new(),
        reason: DENY_REASON.to_owned(),
        matches: Vec::new(),
        misses: Vec::new(),
    };
    // The parent may be a child itself, and rule IDs must be unique.
    let free = |id: &String| policy.rules.iter().all(|rule| rule.id != *id);
    let mut ids =
        std::iter::once(DENY_RULE_ID.to_owned()).chain((2..).map(|nth| format!("{DENY_RULE_ID}-{nth}")));
    let rule = rule(ids.find(free).unwrap_or_default());
    let same = |other: &PolicyRule| *other == PolicyRule { id: other.id.clone(), ..rule.clone() };
    if !policy.rules.iter().any(same) {
        policy.rules.push(rule);
    }
    Some(policy)
}

/// Default engine for a read-only piece of work: the other engines' procedures end in a change.
const READ_ONLY_ENGINE: &str = "react";

/// Builds the child's task: the request's fields, and everything else from the parent. Its result
/// is merged into the parent and not delivered elsewhere, and it holds none of the parent's
/// concurrency keys.
fn child_spec(parent: TaskSpec, request: DelegateRequest) -> TaskSpec {
    let conditions = LeaseConditions { after: Vec::new(), ..parent.conditions };
    // Another model cannot use the script of the parent's roles.
    let same = request.model.is_none();
    let usual = if request.writes { parent.engine.clone() } else { READ_ONLY_ENGINE.to_owned() };
    let engine = request.engine.unwrap_or(usual);
    let roles_fit = same && engine == parent.engine;
    TaskSpec {
        title: request.title,
        text: request.text,
        run_at: None,
        dedup_key: None,
        engine,
        model: request.model.unwrap_or(parent.model),
        explore_model: parent.explore_model.filter(|_| same),
        fallback_model: parent.fallback_model.filter(|_| same),
        roles: if roles_fit { parent.roles } else { Vec::new() },
        settings: request.settings.with_defaults(parent.settings),
        tests: request.tests,
        requires: request.requires,
        branch: None,
        delivery: Some(DeliveryMode::Patch),
        conditions,
        // A retry would get the child's share of the parent's budget again. The parent sees the reason of
        // the failure and may delegate again.
        attempts_max: 1,
        ..parent
    }
}

pub(in crate::http) async fn list_children(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    if matches!(call.caller, Caller::RunToken { run: own, .. } if own != run) {
        return Err(foreign_run_error());
    }
    find_run_view(&api, run).await?;
    let mut children = Vec::new();
    for Delegated { call, child } in list_delegated(&api, run).await? {
        // An archived child is found in the archive.
        if let Some(view) = find_task_view(&api, child).await? {
            children.push(ChildView { call, view });
        }
    }
    json_response(&ChildList { children })
}

async fn find_task_view(api: &ApiState, id: TaskId) -> Result<Option<TaskView>, ApiError> {
    let Some((task, lease_expires_at)) = api.store.get_task(id).await? else { return Ok(None) };
    let runs = api.store.list_task_runs(id).await?;
    let waits = api.provider_limits.waiters().find_wait(&task, api.clock.now());
    Ok(Some(TaskView { task, runs, lease_expires_at, waits }))
}

/// Returns what a run delegated, from its log.
async fn list_delegated(api: &ApiState, run: RunId) -> Result<Vec<Delegated>, ApiError> {
    let found: Arc<Mutex<Vec<Delegated>>> = Arc::default();
    let kept = Arc::clone(&found);
    let each = Box::new(move |event: &docket_schema::event::EventRef<'_>| {
        if event.kind == "Delegated"
            && let Ok(RunEvent::Delegated(e)) = RunEvent::decode(event.kind, event.version, event.payload)
        {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(e);
        }
        ControlFlow::Continue(())
    });
    api.store.scan_events(StreamId::Run(run), Seq(0), each).await?;
    let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(found)
}
