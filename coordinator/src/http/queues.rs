//! Routes of queues and workers: how they stand, pause and limit, drain; and why a task does not run.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    event::TypedEvent as _,
    ids::{IncarnationId, QueueName, Seq, StreamId, TaskId, Timestamp, Turn},
    queue::{QueueEvent, QueueSet, QueueSettings},
    system::AdminAct,
    task::{Labels, TaskState},
    wire::{
        DrainWorkerRequest, LoadQuery, ProblemCode, QueueList, QueueLoad, QueueView, SetQueueRequest,
        WorkerAbout,
    },
};

use super::{
    api::Api,
    audit,
    call::{Call, json},
    errors::Refusal,
};
use crate::{
    decide::{self, Dependency, LabelsOf, Standing, TakeUp, Waiting},
    store::{Append, Condition},
    system::AppendRetries,
};

/// A worker counts as there for this many lease times after it was last heard of.
pub(super) const LEASES_SHOWN: u64 = 3;

type Answered = Result<Response<Body>, Refusal>;

/// Since when a worker that was heard of counts as there.
pub(super) fn heard_since(api: &Api) -> Timestamp {
    let shown_us = api.limits.lease_ms.saturating_mul(LEASES_SHOWN).saturating_mul(1000);
    Timestamp(api.clock.now().0.saturating_sub_unsigned(shown_us))
}

pub(super) async fn list(api: Arc<Api>, _: Call) -> Answered {
    json(&QueueList { queues: api.store.queues().await? })
}

pub(super) async fn load(api: Arc<Api>, call: Call) -> Answered {
    let LoadQuery { labels } = call.query()?;
    let labels: Option<Labels> = labels.map(|labels| labels.parse()).transpose().map_err(|error| {
        Refusal::new(ProblemCode::InvalidRequest, format!("`labels`: {error}")).field("labels")
    })?;
    let queue = view(&api, &call.id()?).await?;
    let oldest_ms = queue.oldest_available_at.map_or(0, |at| api.clock.now().ms_since(at));
    let waiting = api.store.waiting().await?;
    let wanted = match &labels {
        Some(labels) => decide::wanted(&queue, &waiting, LabelsOf::These(labels)),
        None => decide::wanted(&queue, &waiting, LabelsOf::Known(&known(&api, &waiting).await?)),
    };
    json(&QueueLoad {
        wanted,
        running: queue.count(TaskState::Running),
        available: queue.count(TaskState::Available),
        oldest_available_s: oldest_ms / 1000,
    })
}

/// How long a worker's labels are remembered after it was last heard of: queues that nobody has work for at night, or
/// over a weekend, have no workers then, and are to get them again.
const LABELS_KNOWN_US: i64 = 7 * 86_400 * 1_000_000;

/// What the workers take that were heard of within a week, where it matters to anything that waits.
pub(super) async fn known(api: &Api, waiting: &Waiting) -> Result<Vec<WorkerAbout>, Refusal> {
    if waiting.parts.iter().all(|part| part.flow.selector.is_empty()) {
        return Ok(Vec::new());
    }
    let since = Timestamp(api.clock.now().0.saturating_sub(LABELS_KNOWN_US));
    Ok(api.store.workers(since).await?.into_iter().filter_map(|worker| worker.about).collect())
}

pub(super) async fn set(api: Arc<Api>, call: Call) -> Answered {
    let name: QueueName = call.id()?;
    let request: SetQueueRequest = call.json()?;
    if request == SetQueueRequest::default() {
        let detail = "name what is to be set: `paused` or `running_max`";
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("paused"));
    }
    let stream = StreamId::Queue(name.clone());
    let mut retries = AppendRetries::new("many set this queue at once; try again");
    loop {
        // The head first: what is appended at it was decided on no later state.
        let head = api.store.head(stream.clone()).await?.map_or(Seq(0), |head| head.seq);
        let before = view(&api, &name).await?;
        let settings = QueueSettings {
            paused: request.paused.unwrap_or(before.settings.paused),
            running_max: match request.running_max {
                None => before.settings.running_max,
                Some(max) => (max > 0).then_some(max),
            },
        };
        if settings == before.settings {
            return json(&before);
        }
        let set = QueueSet { by: call.caller.name(), settings };
        let append = Append {
            stream: stream.clone(),
            condition: Condition::Expected(head),
            events: vec![QueueEvent::from(set).encode(Turn(0))],
            blobs: Vec::new(),
            names: Vec::new(),
            now: api.clock.now(),
        };
        if retries.append(&*api.store, append).await? {
            api.wakes.work();
            return json(&view(&api, &name).await?);
        }
    }
}

async fn view(api: &Api, name: &QueueName) -> Result<QueueView, Refusal> {
    let found = api.store.queues().await?.into_iter().find(|queue| queue.name == *name);
    Ok(found.unwrap_or_else(|| QueueView {
        name: name.clone(),
        settings: QueueSettings::default(),
        tasks: Vec::new(),
        oldest_available_at: None,
        oldest_leased_at: None,
    }))
}

pub(super) async fn drain_worker(api: Arc<Api>, call: Call) -> Answered {
    let incarnation: IncarnationId = call.id()?;
    let request: DrainWorkerRequest = call.json()?;
    audit::record(&api, &call, AdminAct::DrainWorker { incarnation }).await?;
    if !api.store.drain_worker(incarnation).await? {
        let detail = format!(
            "no worker of the incarnation {incarnation} was ever heard of; `docket workers` lists them"
        );
        return Err(Refusal::new(ProblemCode::NotFound, detail).field("path"));
    }
    // Whoever waits is told now.
    api.wakes.work();
    api.wakes.leases();
    json(&request)
}

pub(super) async fn why(api: Arc<Api>, call: Call) -> Answered {
    let id: TaskId = call.id()?;
    let absent = || Refusal::new(ProblemCode::NotFound, format!("there is no task {id}")).field("path");
    let (record, _) = api.store.task(id).await?.ok_or_else(absent)?;
    let queue = view(&api, &record.spec.queue).await?;
    let sharing = match &record.spec.conditions.concurrency {
        Some(shared) => api.store.sharing(shared.key.clone()).await?,
        None => Vec::new(),
    };
    let mut dependencies = Vec::new();
    for on in &record.waits_for {
        let found = match api.store.task(*on).await? {
            Some((other, _)) => Some((other.state, TakeUp::of(&other))),
            // It failed, and went to the archive.
            None => {
                let stub = api.store.stub(on.0).await?.and_then(|stub| stub.task);
                stub.map(|task| (task.state, TakeUp::Restore))
            }
        };
        dependencies.extend(found.map(|(state, again)| Dependency { task: *on, state, again }));
    }
    let ahead = match record.state {
        TaskState::Available => api.store.ahead(record.clone()).await?,
        _ => 0,
    };
    let (_, workers) = api.store.status(heard_since(&api)).await?;
    let spent = match record.spec.batch {
        Some(batch) => api.store.budget(batch).await?.0.spent,
        None => None,
    };
    let standing = Standing {
        spent,
        waits: api.model_limits.waiters().wait_of(&record, api.clock.now()),
        running_in_queue: queue.count(TaskState::Running),
        queue: queue.settings,
        record,
        sharing,
        ahead,
        workers,
        claim_ms: decide::claim_ms(api.lease_length.current_ms()),
        dependencies,
    };
    json(&decide::why(&standing, api.clock.now()))
}
