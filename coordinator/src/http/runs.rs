//! Routes of runs: show, events, tell.
//!
//! A run's own token reads its run, of its parents exactly the history it shares, and the runs of its children.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    content::{BlobRef, Content},
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq, StreamId, Turn},
    run::{PolicyChanged, RunEvent, Told},
    system::AdminAct,
    wire::{
        EventPage, EventsQuery, ParentRef, PolicyRequest, ProblemCode, RunView, TELL_BYTES_MAX, TellRequest,
        TellResponse,
    },
};

use super::{
    api::Api,
    audit,
    auth::Caller,
    call::{Call, json},
    errors::Refusal,
    feed::{answer, page, page_limit},
};
use crate::{
    history,
    store::{Append, AppendError, Condition, Holding, NewBlob},
    task_check::redact_policy,
};

/// Most events answered as one lineage; a longer one is read run by run.
const LINEAGE_EVENTS_MAX: usize = 100_000;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn show(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    match call.caller {
        Caller::Run { run: own, .. } if own != run => Err(not_yours()),
        Caller::Run { .. } | Caller::Api { .. } | Caller::Anyone => json(&view(&api, run).await?),
    }
}

pub(super) async fn events(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    let query: EventsQuery = call.query()?;
    let limit = page_limit(query.limit)?;
    let wrong =
        |field: &str, detail: &str| Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(field));
    if query.stream.is_some() {
        return wrong("stream", "the path says which run");
    }
    let until = readable_until(&api, &call.caller, run).await?;
    if query.lineage {
        if query.after != Seq(0) {
            return wrong("after", "a lineage is answered whole: leave `after` out");
        }
        let view = view(&api, run).await?;
        return answer(&EventPage { events: lineage(&api, &view, until).await?, more: false });
    }
    let mut events = api.store.read(StreamId::Run(run), query.after, limit).await?;
    if events.is_empty() {
        // Tells a run without news from one that is not there.
        view(&api, run).await?;
    }
    let mut page = {
        let read = events.len();
        events.retain(|event| event.seq <= until);
        let cut = events.len() < read;
        let mut page = page(events, limit);
        page.more &= !cut;
        page
    };
    page.more &= page.events.last().is_none_or(|last| last.seq < until);
    answer(&page)
}

/// Up to which event `caller` may read `run`.
async fn readable_until(api: &Api, caller: &Caller, run: RunId) -> Result<Seq, Refusal> {
    let Caller::Run { run: own, .. } = caller else { return Ok(Seq(u64::MAX)) };
    if *own == run {
        return Ok(Seq(u64::MAX));
    }
    let own = view(api, *own).await?;
    let parents = parents(api, &own).await?;
    let shared = parents.iter().find(|parent| parent.run == run).map(|parent| parent.seq);
    match shared {
        Some(until) => Ok(until),
        // What it gave away, it may look at.
        None if is_child(api, own.id, run).await? => Ok(Seq(u64::MAX)),
        None => Err(not_yours()),
    }
}

/// Whether `run` is of a task that the run `parent` gave away, as far as that one may know.
async fn is_child(api: &Api, parent: RunId, run: RunId) -> Result<bool, Refusal> {
    let Some(view) = api.store.run(run).await? else { return Ok(false) };
    let task = api.store.task(view.task).await?;
    Ok(task.and_then(|(task, _)| task.delegated_by).is_some_and(|by| by.run == parent))
}

/// The runs whose history `of` shares, nearest first, each up to where.
pub(super) async fn parents(api: &Api, of: &RunView) -> Result<Vec<ParentRef>, Refusal> {
    Ok(history::parents(&*api.store, of).await?)
}

/// The whole history of a run up to `until` of its own stream, oldest first.
pub(super) async fn lineage(api: &Api, of: &RunView, until: Seq) -> Result<Vec<Envelope>, Refusal> {
    Ok(history::lineage(&*api.store, of, until, LINEAGE_EVENTS_MAX).await?)
}

pub(super) async fn tell(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    let TellRequest { text } = call.json()?;
    if text.trim().is_empty() || text.len() > TELL_BYTES_MAX {
        let detail = format!("`text` must be 1 to {TELL_BYTES_MAX} bytes");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("text"));
    }
    let (text, aside) = Content::place(api.redactor.bytes(text.into_bytes()));
    let blobs = aside.map(|bytes| NewBlob { blob: BlobRef::of(&bytes), bytes: bytes.into() });
    let told = RunEvent::from(Told { text, by: call.caller.name() });
    said(&api, run, told, blobs.into_iter().collect()).await
}

/// Takes the place of the task's policy. The worker's own stays whatever is said here.
pub(super) async fn policy(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    let PolicyRequest { policy } = call.json()?;
    policy.check().map_err(|error| {
        Refusal::new(ProblemCode::InvalidRequest, error.to_string()).field(format!("policy.{}", error.field))
    })?;
    let rules = redact_policy(policy, &api.redactor);
    let bytes = serde_json::to_vec(&rules)
        .map_err(|error| Refusal::new(ProblemCode::InvalidRequest, error.to_string()).field("policy"))?;
    let blob = BlobRef::of(&bytes);
    let by = call.caller.name();
    match api.store.holding(run).await? {
        None => return Err(AppendError::NoStream.into()),
        Some(Holding::Closed) => return Err(AppendError::Closed.into()),
        Some(Holding::Open(_) | Holding::Shut(_)) => {}
    }
    audit::record(&api, &call, AdminAct::ChangePolicy { run }).await?;
    let changed = RunEvent::from(PolicyChanged { policy: blob, rules: Some(rules), of_task: true, by });
    said(&api, run, changed, vec![NewBlob { blob, bytes: bytes.into() }]).await
}

/// Writes what somebody has for a run.
async fn said(api: &Api, run: RunId, event: RunEvent, blobs: Vec<NewBlob>) -> Answered {
    let append = Append {
        stream: StreamId::Run(run),
        condition: Condition::AtHead,
        events: vec![event.encode(Turn(0))],
        blobs,
        names: Vec::new(),
        now: api.clock.now(),
    };
    let done = api.store.append(append).await?;
    api.wakes.appended(run);
    json(&TellResponse { head: done.head })
}

pub(super) async fn view(api: &Api, run: RunId) -> Result<RunView, Refusal> {
    Ok(history::view(&*api.store, run).await?)
}

pub(super) fn not_yours() -> Refusal {
    Refusal::new(
        ProblemCode::Forbidden,
        "a run token reads its own run, the history it shares and what it gave away",
    )
    .field("path")
}
