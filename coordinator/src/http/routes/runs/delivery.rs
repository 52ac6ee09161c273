//! Routes of results: record deliveries, accept a result.
//!
//! A coordinator delivers nothing itself: the repository and the credentials are on another
//! machine.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{AcceptRequest, DeliveryRequest, DeliveryStep, PAGE_EVENTS_MAX, ProblemCode, TELL_BYTES_MAX},
    event::Envelope,
    ids::{RunId, Seq, StreamId, TaskId},
    redact::Redactor,
    task::{
        CONFLICTS_NAMED_MAX, DELIVERY_CLAIM_MS_MAX, DELIVERY_TEXT_BYTES_MAX, DeliveryHistory, ResultReview,
        TaskRecord, TaskState,
    },
};

use super::run_views::find_run_view;
use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::commands,
};
use crate::store::{CommandBlobs, DecideFn};

/// Maximum length of a branch, commit, remote or path in bytes.
const NAME_BYTES_MAX: usize = 4096;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn record_delivery_step(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let task: TaskId = call.id()?;
    let DeliveryRequest { run, step } = call.json()?;
    let of = find_run_view(&api, run).await?.task;
    if of != task {
        let detail = format!("run {run} belongs to task {of}");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("run"));
    }
    let step = check_delivery_step(step, &api.redactor)?;
    json_response(
        &run_delivery_command(&api, task, commands::deliver(call.caller.log_name(), run, step)).await?,
    )
}

pub(in crate::http) async fn accept_result(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    let AcceptRequest { comment } = call.json()?;
    if comment.len() > TELL_BYTES_MAX {
        let detail = format!("`comment` may have at most {TELL_BYTES_MAX} bytes");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("comment"));
    }
    let comment = api.redactor.redact_text(comment.trim()).into_owned();
    let task = find_run_view(&api, run).await?.task;
    // Accepting again with the same comment is recorded once.
    let said = last_verdict(&api, task).await?;
    if let (Some(ResultReview::Accepted(said)), Some((record, _))) = (said, api.store.get_task(task).await?)
        && (said.run, &said.comment) == (run, &comment)
        && record.state == TaskState::Completed
    {
        return json_response(&record);
    }
    json_response(
        &run_delivery_command(&api, task, commands::accept(call.caller.log_name(), run, comment)).await?,
    )
}

/// Returns the last review of the task's result.
async fn last_verdict(api: &ApiState, task: TaskId) -> Result<Option<ResultReview>, ApiError> {
    let mut events: Vec<Envelope> = Vec::new();
    loop {
        let after = events.last().map_or(Seq(0), |event| event.seq);
        let page = api.store.read_events(StreamId::Task(task), after, PAGE_EVENTS_MAX).await?;
        if page.is_empty() {
            break;
        }
        events.extend(page);
    }
    let unreadable = |error| ApiError::new(ProblemCode::Internal, format!("the task's log: {error}"));
    Ok(DeliveryHistory::from_events(&events).map_err(unreadable)?.review)
}

async fn run_delivery_command(
    api: &ApiState,
    task: TaskId,
    decide: DecideFn,
) -> Result<TaskRecord, ApiError> {
    let (record, _) =
        api.store.execute_command(task, decide, CommandBlobs::default(), api.clock.now()).await?;
    api.wake_waiters(&record);
    Ok(record)
}

/// Limits the size of a delivery step and redacts secrets before it is recorded permanently.
fn check_delivery_step(step: DeliveryStep, redactor: &Redactor) -> Result<DeliveryStep, ApiError> {
    let text = |field: &str, text: String, most: usize| {
        if text.len() <= most && !text.contains('\0') {
            return Ok(redactor.redact_text(&text).into_owned());
        }
        let detail = format!("`{field}` may have at most {most} bytes and no zero bytes");
        Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(format!("step.{field}")))
    };
    let name = |field: &str, value: String| text(field, value, NAME_BYTES_MAX);
    Ok(match step {
        DeliveryStep::Claimed { deliverer, term_ms, expected, push, hook } => {
            if term_ms > DELIVERY_CLAIM_MS_MAX {
                let detail = format!("`term_ms` may be at most {DELIVERY_CLAIM_MS_MAX}");
                return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("step.term_ms"));
            }
            DeliveryStep::Claimed { deliverer: name("deliverer", deliverer)?, term_ms, expected, push, hook }
        }
        DeliveryStep::Needless {} => DeliveryStep::Needless {},
        DeliveryStep::Requested { branch, commit, remote } => DeliveryStep::Requested {
            branch: name("branch", branch)?,
            commit: name("commit", commit)?,
            remote: name("remote", remote)?,
        },
        DeliveryStep::Delivered { branch, commit, remote } => DeliveryStep::Delivered {
            branch: name("branch", branch)?,
            commit: name("commit", commit)?,
            remote: remote.map(|remote| name("remote", remote)).transpose()?,
        },
        DeliveryStep::Blocked { branch, why, paths, kept, message } => {
            if paths.len() > CONFLICTS_NAMED_MAX {
                let detail = format!("at most {CONFLICTS_NAMED_MAX} paths may be given");
                return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("step.paths"));
            }
            DeliveryStep::Blocked {
                branch: name("branch", branch)?,
                why,
                paths: paths.into_iter().map(|path| name("paths", path)).collect::<Result<_, _>>()?,
                kept: kept.map(|kept| name("kept", kept)).transpose()?,
                message: text("message", message, DELIVERY_TEXT_BYTES_MAX)?,
            }
        }
        DeliveryStep::HookRan { commit, exit, output } => DeliveryStep::HookRan {
            commit: name("commit", commit)?,
            exit,
            output: text("output", output, DELIVERY_TEXT_BYTES_MAX)?,
        },
    })
}
