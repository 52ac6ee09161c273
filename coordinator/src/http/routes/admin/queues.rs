//! Routes of queues and workers: list, pause and limit queues, drain workers; explain why a task
//! does not run.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        DrainWorkerRequest, ProblemCode, QueueList, QueueLoad, QueueLoadQuery, QueueView, SetQueueRequest,
        WorkerCapabilities,
    },
    event::TypedEvent as _,
    ids::{IncarnationId, QueueName, Seq, StreamId, TaskId, Timestamp, Turn},
    queue::{QueueEvent, QueueSet, QueueSettings},
    system::AdminAct,
    task::{LabelSet, TaskState},
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::audit,
};
use crate::{
    decide::{self, DependencyStatus, RestartCommand, TaskSituation, WaitingTasks, WorkerLabels},
    store::{AppendCondition, LogAppend},
    system::AppendRetries,
};

/// A worker counts as present for this many lease durations after it was last seen.
pub(in crate::http) const WORKER_VISIBLE_LEASES: u64 = 3;

type HandlerResult = Result<Response<Body>, ApiError>;

/// Returns the time since when a worker must have been seen to count as present.
pub(in crate::http) fn workers_seen_since(api: &ApiState) -> Timestamp {
    let shown_us = api.settings.lease_ms.saturating_mul(WORKER_VISIBLE_LEASES).saturating_mul(1000);
    Timestamp(api.clock.now().0.saturating_sub_unsigned(shown_us))
}

pub(in crate::http) async fn list_queues(api: Arc<ApiState>, _: ApiRequest) -> HandlerResult {
    json_response(&QueueList { queues: api.store.list_queues().await? })
}

pub(in crate::http) async fn show_queue_load(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let QueueLoadQuery { labels } = call.query()?;
    let labels: Option<LabelSet> = labels.map(|labels| labels.parse()).transpose().map_err(|error| {
        ApiError::new(ProblemCode::InvalidRequest, format!("`labels`: {error}")).with_field("labels")
    })?;
    let queue = find_queue_view(&api, &call.id()?).await?;
    let oldest_ms = queue.oldest_available_at.map_or(0, |at| api.clock.now().ms_since(at));
    let waiting = api.store.read_waiting().await?;
    let wanted = match &labels {
        Some(labels) => decide::desired_workers(&queue, &waiting, WorkerLabels::Uniform(labels)),
        None => decide::desired_workers(
            &queue,
            &waiting,
            WorkerLabels::Known(&known_workers(&api, &waiting).await?),
        ),
    };
    json_response(&QueueLoad {
        wanted,
        running: queue.count_in_state(TaskState::Running),
        available: queue.count_in_state(TaskState::Available),
        oldest_available_s: oldest_ms / 1000,
    })
}

/// How long a worker's labels are remembered after it was last seen. Autoscaled queues may have no
/// workers overnight or over a weekend, and must be able to get them again.
const LABELS_REMEMBERED_US: i64 = 7 * 86_400 * 1_000_000;

/// Returns the capabilities of workers seen within a week, if a waiting task needs them.
pub(in crate::http) async fn known_workers(
    api: &ApiState,
    waiting: &WaitingTasks,
) -> Result<Vec<WorkerCapabilities>, ApiError> {
    if waiting.groups.iter().all(|part| part.flow.selector.is_empty()) {
        return Ok(Vec::new());
    }
    let since = Timestamp(api.clock.now().0.saturating_sub(LABELS_REMEMBERED_US));
    Ok(api.store.list_workers(since).await?.into_iter().filter_map(|worker| worker.about).collect())
}

pub(in crate::http) async fn set_queue(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let name: QueueName = call.id()?;
    let request: SetQueueRequest = call.json()?;
    if request == SetQueueRequest::default() {
        let detail = "specify `paused` or `running_max`";
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("paused"));
    }
    let stream = StreamId::Queue(name.clone());
    let mut retries = AppendRetries::new("too many concurrent changes of this queue; try again");
    loop {
        // The head is read first, so that the append is based on no later state.
        let head = api.store.stream_head(stream.clone()).await?.map_or(Seq(0), |head| head.seq);
        let before = find_queue_view(&api, &name).await?;
        let settings = QueueSettings {
            paused: request.paused.unwrap_or(before.settings.paused),
            running_max: match request.running_max {
                None => before.settings.running_max,
                Some(max) => (max > 0).then_some(max),
            },
        };
        if settings == before.settings {
            return json_response(&before);
        }
        let set = QueueSet { by: call.caller.log_name(), settings };
        let append = LogAppend {
            stream: stream.clone(),
            condition: AppendCondition::ExpectedSeq(head),
            events: vec![QueueEvent::from(set).encode(Turn(0))],
            blobs: Vec::new(),
            required_blobs: Vec::new(),
            now: api.clock.now(),
        };
        if retries.append(&*api.store, append).await? {
            api.wakeups.notify_task_available();
            return json_response(&find_queue_view(&api, &name).await?);
        }
    }
}

async fn find_queue_view(api: &ApiState, name: &QueueName) -> Result<QueueView, ApiError> {
    let found = api.store.list_queues().await?.into_iter().find(|queue| queue.name == *name);
    Ok(found.unwrap_or_else(|| QueueView {
        name: name.clone(),
        settings: QueueSettings::default(),
        tasks: Vec::new(),
        oldest_available_at: None,
        oldest_leased_at: None,
    }))
}

pub(in crate::http) async fn drain_worker(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let incarnation: IncarnationId = call.id()?;
    let request: DrainWorkerRequest = call.json()?;
    audit::record_admin_act(&api, &call, AdminAct::DrainWorker { incarnation }).await?;
    if !api.store.drain_worker(incarnation).await? {
        let detail = format!("unknown worker incarnation {incarnation}; see `docket workers`");
        return Err(ApiError::new(ProblemCode::NotFound, detail).with_field("path"));
    }
    // Wakes waiting requests now.
    api.wakeups.notify_task_available();
    api.wakeups.notify_lease_lost();
    json_response(&request)
}

pub(in crate::http) async fn explain_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let id: TaskId = call.id()?;
    let absent = || ApiError::new(ProblemCode::NotFound, format!("there is no task {id}")).with_field("path");
    let (record, _) = api.store.get_task(id).await?.ok_or_else(absent)?;
    let queue = find_queue_view(&api, &record.spec.queue).await?;
    let sharing = match &record.spec.conditions.concurrency {
        Some(shared) => api.store.running_with_key(shared.key.clone()).await?,
        None => Vec::new(),
    };
    let mut dependencies = Vec::new();
    for on in &record.waits_for {
        let found = match api.store.get_task(*on).await? {
            Some((other, _)) => Some((other.state, RestartCommand::for_task(&other))),
            // The dependency failed and was archived.
            None => {
                let stub = api.store.find_stub(on.0).await?.and_then(|stub| stub.task);
                stub.map(|task| (task.state, RestartCommand::Restore))
            }
        };
        dependencies.extend(found.map(|(state, again)| DependencyStatus {
            task: *on,
            state,
            restart: again,
        }));
    }
    let ahead = match record.state {
        TaskState::Available => api.store.count_ahead(record.clone()).await?,
        _ => 0,
    };
    let (_, workers) = api.store.read_status(workers_seen_since(&api)).await?;
    let spent = match record.spec.batch {
        Some(batch) => api.store.batch_budget(batch).await?.0.spent,
        None => None,
    };
    let standing = TaskSituation {
        budget_spent: spent,
        provider_wait: api.provider_limits.waiters().find_wait(&record, api.clock.now()),
        running_in_queue: queue.count_in_state(TaskState::Running),
        queue: queue.settings,
        record,
        same_key_tasks: sharing,
        tasks_ahead: ahead,
        workers,
        queue_claim_ms: decide::queue_claim_ms(api.lease_length.current_ms()),
        dependencies,
    };
    json_response(&decide::explain_waiting(&standing, api.clock.now()))
}
