//! Routes of results: what whoever delivers one did, and that a person took it.
//!
//! A coordinator delivers nothing: the repository is on another machine, and so are the credentials.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    event::Envelope,
    ids::{RunId, Seq, StreamId, TaskId},
    redact::Redactor,
    task::{
        CONFLICTS_NAMED_MAX, DELIVERY_TERM_MS_MAX, DELIVERY_TEXT_BYTES_MAX, Deliveries, Judged, TaskRecord,
        TaskState,
    },
    wire::{AcceptRequest, DeliveryRequest, DeliveryStep, PAGE_EVENTS_MAX, ProblemCode, TELL_BYTES_MAX},
};

use super::{
    api::Api,
    call::{Call, json},
    commands,
    errors::Refusal,
    runs::view,
};
use crate::store::{CommandBlobs, Decide};

/// Longest name of a branch, a commit, a remote or a path, in bytes.
const NAME_BYTES_MAX: usize = 4096;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn record(api: Arc<Api>, call: Call) -> Answered {
    let task: TaskId = call.id()?;
    let DeliveryRequest { run, step } = call.json()?;
    let of = view(&api, run).await?.task;
    if of != task {
        let detail = format!("run {run} is of task {of}");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("run"));
    }
    let step = checked(step, &api.redactor)?;
    json(&done(&api, task, commands::deliver(call.caller.name(), run, step)).await?)
}

pub(super) async fn accept(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    let AcceptRequest { comment } = call.json()?;
    if comment.len() > TELL_BYTES_MAX {
        let detail = format!("`comment` may have at most {TELL_BYTES_MAX} bytes");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("comment"));
    }
    let comment = api.redactor.text(comment.trim()).into_owned();
    let task = view(&api, run).await?.task;
    // Said before, in the same words: once is enough.
    let said = judged(&api, task).await?;
    if let (Some(Judged::Accepted(said)), Some((record, _))) = (said, api.store.task(task).await?)
        && (said.run, &said.comment) == (run, &comment)
        && record.state == TaskState::Completed
    {
        return json(&record);
    }
    json(&done(&api, task, commands::accept(call.caller.name(), run, comment)).await?)
}

/// What a person said of the task's result last.
async fn judged(api: &Api, task: TaskId) -> Result<Option<Judged>, Refusal> {
    let mut events: Vec<Envelope> = Vec::new();
    loop {
        let after = events.last().map_or(Seq(0), |event| event.seq);
        let page = api.store.read(StreamId::Task(task), after, PAGE_EVENTS_MAX).await?;
        if page.is_empty() {
            break;
        }
        events.extend(page);
    }
    let unreadable = |error| Refusal::new(ProblemCode::Internal, format!("the task's log: {error}"));
    Ok(Deliveries::of(&events).map_err(unreadable)?.judged)
}

async fn done(api: &Api, task: TaskId, decide: Decide) -> Result<TaskRecord, Refusal> {
    let (record, _) = api.store.command(task, decide, CommandBlobs::default(), api.clock.now()).await?;
    api.announce(&record);
    Ok(record)
}

/// What stands in the log for ever is bounded, and holds no secret.
fn checked(step: DeliveryStep, redactor: &Redactor) -> Result<DeliveryStep, Refusal> {
    let text = |field: &str, text: String, most: usize| {
        if text.len() <= most && !text.contains('\0') {
            return Ok(redactor.text(&text).into_owned());
        }
        let detail = format!("`{field}` may have at most {most} bytes, none of them zero");
        Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(format!("step.{field}")))
    };
    let name = |field: &str, value: String| text(field, value, NAME_BYTES_MAX);
    Ok(match step {
        DeliveryStep::Claimed { deliverer, term_ms, expected, push, hook } => {
            if term_ms > DELIVERY_TERM_MS_MAX {
                let detail = format!("`term_ms` is at most {DELIVERY_TERM_MS_MAX}");
                return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("step.term_ms"));
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
                let detail = format!("at most {CONFLICTS_NAMED_MAX} paths are named");
                return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("step.paths"));
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
