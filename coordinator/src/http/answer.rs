//! The route by which a person answers what a blocked run asks.
//!
//! Owns the check of the words against the question. Where policy asks whether a call may run, only `yes`, `always`
//! and `no` are answers: any other text is refused, and the question stays open. The question is read before the
//! command, so the command itself checks that it is still the one that is asked.

use std::sync::Arc;

use docket_schema::{
    api::{AnswerRequest, ProblemCode, TELL_BYTES_MAX},
    content::{BlobRef, Content, INLINE_BYTES_MAX},
    event::TypedEvent as _,
    ids::{RunId, Seq, StreamId, TaskId},
    run::{ApprovalAnswer, RunBlocked, RunEvent},
    task::{TaskBlockedReason, TaskState},
};

use super::{
    api_error::ApiError,
    api_state::ApiState,
    commands,
    request::ApiRequest,
    tasks::{HandlerResult, execute_task_command},
};
use crate::{
    decide::QuestionedRun,
    store::{CommandBlobs, NewBlob},
};

/// Characters of a wrong answer that are told.
const QUOTED_CHARS_MAX: usize = 80;

/// Events that are read at once, from the end of a run's stream back, in search of its question.
const READ_WINDOW_EVENTS: u32 = 64;

pub(super) async fn answer_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let id: TaskId = call.id()?;
    let AnswerRequest { text } = call.json()?;
    if text.len() > TELL_BYTES_MAX {
        let detail = format!("`text` may have at most {TELL_BYTES_MAX} bytes");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("text"));
    }
    let text = api.redactor.redact_text(text.trim()).into_owned();
    let asked = find_asking_run(&api, id).await?;
    if asked.is_some() && text.is_empty() {
        let detail =
            "`text` must not be empty: the run asks something; give an answer, as `docket answer ID TEXT`";
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("text"));
    }
    if let Some(asked) = asked
        && let Some(RunBlocked { about: Some(_), .. }) = last_question(&api, asked.run).await?
    {
        check_permission_answer(&text)?;
    }
    let (text, aside) = Content::inline_or_blob(text.into_bytes());
    let blobs = aside.map(|bytes| NewBlob { blob: BlobRef::for_bytes(&bytes), bytes: bytes.into() });
    let blobs = CommandBlobs { blobs: blobs.into_iter().collect(), required_blobs: Vec::new() };
    let decide = commands::answer(call.caller.log_name(), text, asked);
    execute_task_command(&api, &call, decide, blobs).await
}

/// The run of a task that asks a person, if one does.
async fn find_asking_run(api: &ApiState, id: TaskId) -> Result<Option<QuestionedRun>, ApiError> {
    let Some((record, _)) = api.store.get_task(id).await? else { return Ok(None) };
    let asks = record.state == TaskState::Blocked && record.blocked_why == Some(TaskBlockedReason::Person);
    Ok(record.run.filter(|_| asks).map(|run| QuestionedRun { run, epoch: record.epoch }))
}

/// What a blocked run asks: its last `RunBlocked`. Others may have appended words to its stream since.
async fn last_question(api: &ApiState, run: RunId) -> Result<Option<RunBlocked>, ApiError> {
    let head = api.store.stream_head(StreamId::Run(run)).await?;
    let mut end = head.map_or(Seq(0), |head| head.seq);
    while end > Seq(0) {
        let start = Seq(end.0.saturating_sub(u64::from(READ_WINDOW_EVENTS)));
        let events = api.store.read_events(StreamId::Run(run), start, READ_WINDOW_EVENTS).await?;
        for event in events.iter().rev() {
            match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
                Ok(RunEvent::RunBlocked(blocked)) => return Ok(Some(blocked)),
                Ok(_) => {}
                Err(_) => {
                    let detail = "the run's log cannot be read; run `docket verify`";
                    return Err(ApiError::new(ProblemCode::Internal, detail));
                }
            }
        }
        end = start;
    }
    Ok(None)
}

/// Refuses what is no answer to a permission question.
fn check_permission_answer(text: &str) -> Result<(), ApiError> {
    let wrong = |detail: String| Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("text"));
    if ApprovalAnswer::parse(text).is_none() {
        return wrong(format!(
            "the run asks whether a call may run, and `{}` is not an answer to that; answer {}. The question stays open",
            text.chars().take(QUOTED_CHARS_MAX).collect::<String>(),
            ApprovalAnswer::ACCEPTED
        ));
    }
    if text.len() > INLINE_BYTES_MAX {
        return wrong(format!(
            "the answer to whether a call may run may have at most {INLINE_BYTES_MAX} bytes; the rest can be said with \
             `docket tell` once the run goes on"
        ));
    }
    Ok(())
}
