//! Routes of queues and workers: how they stand, pause and limit, drain; and why a task does not run.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    event::TypedEvent as _,
    ids::{IncarnationId, QueueName, Seq, StreamId, TaskId, Timestamp, Turn},
    queue::{QueueEvent, QueueSet, QueueSettings},
    system::AdminAct,
    task::TaskState,
    wire::{DrainWorkerRequest, ProblemCode, QueueList, QueueLoad, QueueView, SetQueueRequest},
};

use super::{
    api::Api,
    audit,
    call::{Call, json},
    errors::Refusal,
};
use crate::{
    decide::{self, Standing},
    store::{Append, AppendError, Condition},
};

/// A worker counts as there for this many lease times after it was last heard of.
pub(super) const LEASES_SHOWN: u64 = 3;

/// How often a setting that another was faster with is decided anew.
const TRIES: u32 = 8;

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
    let queue = view(&api, &call.id()?).await?;
    let oldest_ms = queue.oldest_available_at.map_or(0, |at| api.clock.now().ms_since(at));
    json(&QueueLoad {
        wanted: queue.wanted(),
        running: queue.count(TaskState::Running),
        available: queue.count(TaskState::Available),
        oldest_available_s: oldest_ms / 1000,
    })
}

pub(super) async fn set(api: Arc<Api>, call: Call) -> Answered {
    let name: QueueName = call.id()?;
    let request: SetQueueRequest = call.json()?;
    if request == SetQueueRequest::default() {
        let detail = "name what is to be set: `paused` or `running_max`";
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("paused"));
    }
    let stream = StreamId::Queue(name.clone());
    for _ in 0..TRIES {
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
        match api.store.append(append).await {
            Ok(_) => {
                api.wakes.work();
                return json(&view(&api, &name).await?);
            }
            Err(AppendError::WrongSeq { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refusal::new(ProblemCode::Unavailable, "many set this queue at once; try again"))
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
        if let Some((other, _)) = api.store.task(*on).await? {
            dependencies.push((*on, other.state));
        }
    }
    let ahead = match record.state {
        TaskState::Available => api.store.ahead(record.clone()).await?,
        _ => 0,
    };
    let (_, workers) = api.store.status(heard_since(&api)).await?;
    let standing = Standing {
        running_in_queue: queue.count(TaskState::Running),
        queue: queue.settings,
        record,
        sharing,
        ahead,
        workers,
        dependencies,
    };
    json(&decide::why(&standing, api.clock.now()))
}
