//! Routes of delegation: a run gives work away, and looks what became of it.
//!
//! What a child may do is its parent's: queue, batch, key, priority, policy and base come from the parent's record, not
//! from the request, so that no run escapes by delegating what its own task binds it to. A request may only deny more.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{body::Body, http::Response};
use docket_schema::{
    event::TypedEvent as _,
    ids::{RunId, Seq, StreamId, TaskId},
    policy::{Policy, Rule, Ruling},
    run::{Delegated, RunEvent},
    task::{Conditions, DelegatedBy, Delivery, TaskSpec, TaskSubmitted, child_of},
    wire::{ChildList, ChildView, DelegateRequest, DelegateResponse, PAGE_EVENTS_MAX, ProblemCode, TaskView},
};

use super::{
    api::Api,
    append::uploaded,
    auth::Caller,
    call::{Call, json},
    commands,
    errors::Refusal,
    failpoint,
    runs::{not_yours, view},
    task_policy,
};
use crate::{store::CommandBlobs, task_check::checked_spec};

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn delegate(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    Api::must_be_of(&call.caller, run)?;
    api.must_be_in_force(&call.caller).await?;
    let mut request: DelegateRequest = call.json()?;
    Api::must_hold(&call.caller, run, request.epoch)?;
    let (after, epoch) = (request.after, request.epoch);
    let child = child_of(run, &request.call);
    let task = view(&api, run).await?.task;
    let Some((parent, _)) = api.store.task(task).await? else {
        return Err(Refusal::new(ProblemCode::NotFound, format!("there is no task {task}")));
    };
    let blobs = uploaded(std::mem::take(&mut request.blobs)).await?;
    let names = request.start.iter().map(|start| start.hash).collect();
    let delegated_by = DelegatedBy {
        task,
        run,
        call: request.call.clone(),
        writes: request.writes,
        tree: request.tree,
        start: request.start,
    };
    let policy = task_policy::in_force(task_policy::changed(&api, task).await?, parent.spec.policy.clone());
    let policy = denying(policy, std::mem::take(&mut request.denied_tools));
    let spec = TaskSpec { policy, ..spec(parent.spec, request) };
    let spec = checked_spec(spec, &api.redactor).map_err(|unsound| unsound.at("child"))?;
    let by = format!("run {run}");
    let submitted = TaskSubmitted { spec, by, forked_from: None, delegated_by: Some(delegated_by) };
    let decide = commands::delegate(epoch, child, submitted);
    let blobs = CommandBlobs { blobs, names };
    let (_, done) = api.store.command(task, decide, blobs, api.clock.now()).await?;
    if let Some(done) = done {
        failpoint::committed(&api.answers_lost, epoch, done.head.seq, 1);
        api.wakes.appended(run);
        api.wakes.work();
    }
    let events = api.store.read(StreamId::Run(run), after, PAGE_EVENTS_MAX).await?;
    json(&DelegateResponse { child, events })
}

/// The rule by which a child may not call what whoever gave it away may not; and why, for its model.
const GIVEN: &str = "given";
const NOT_GIVEN: &str = "whoever gave this piece of work away may not do that either";

/// A policy that denies these tools as well. With them goes the network, which only commands and servers reach.
fn denying(policy: Option<Policy>, tools: Vec<String>) -> Option<Policy> {
    if tools.is_empty() {
        return policy;
    }
    let mut policy = Policy { network: None, ..policy.unwrap_or_default() };
    let rule = |id: String| Rule {
        id,
        verdict: Ruling::Deny,
        tools: tools.clone(),
        commands: Vec::new(),
        paths: Vec::new(),
        labels: Vec::new(),
        reason: NOT_GIVEN.to_owned(),
        matches: Vec::new(),
        misses: Vec::new(),
    };
    // The parent may be such a piece itself, and a name is a rule's own.
    let free = |id: &String| policy.rules.iter().all(|rule| rule.id != *id);
    let mut ids = std::iter::once(GIVEN.to_owned()).chain((2..).map(|nth| format!("{GIVEN}-{nth}")));
    let rule = rule(ids.find(free).unwrap_or_default());
    let same = |other: &Rule| *other == Rule { id: other.id.clone(), ..rule.clone() };
    if !policy.rules.iter().any(same) {
        policy.rules.push(rule);
    }
    Some(policy)
}

/// What plays a piece that only reads, where nobody says what does: the procedures of other engines end in a change.
const READS_BY: &str = "react";

/// What is asked of the child: what the call says, and all else as its parent has it. Its result is its parent's: it
/// is delivered nowhere else, and holds no key that its parent holds.
fn spec(parent: TaskSpec, request: DelegateRequest) -> TaskSpec {
    let conditions = Conditions { after: Vec::new(), ..parent.conditions };
    // Another model plays no script of its parent's roles.
    let same = request.model.is_none();
    let usual = if request.writes { parent.engine.clone() } else { READS_BY.to_owned() };
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
        settings: request.settings.over(parent.settings),
        tests: request.tests,
        requires: request.requires,
        branch: None,
        delivery: Some(Delivery::Patch),
        conditions,
        // Its budget is what it may use of its parent's: each further try would have the whole of it again. Whoever gave
        // it away hears why it failed, and may give it away anew.
        attempts_max: 1,
        ..parent
    }
}

pub(super) async fn children(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    if matches!(call.caller, Caller::Run { run: own, .. } if own != run) {
        return Err(not_yours());
    }
    view(&api, run).await?;
    let mut children = Vec::new();
    for Delegated { call, child } in given_away(&api, run).await? {
        // One that went to the archive is found there.
        if let Some(view) = view_of(&api, child).await? {
            children.push(ChildView { call, view });
        }
    }
    json(&ChildList { children })
}

async fn view_of(api: &Api, id: TaskId) -> Result<Option<TaskView>, Refusal> {
    let Some((task, lease_expires_at)) = api.store.task(id).await? else { return Ok(None) };
    let runs = api.store.runs_of(id).await?;
    let waits = api.model_limits.waiters().wait_of(&task, api.clock.now());
    Ok(Some(TaskView { task, runs, lease_expires_at, waits }))
}

/// What a run gave away, from its log.
async fn given_away(api: &Api, run: RunId) -> Result<Vec<Delegated>, Refusal> {
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
    api.store.scan(StreamId::Run(run), Seq(0), each).await?;
    let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(found)
}
