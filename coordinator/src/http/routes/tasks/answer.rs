//! The route that answers the question of a blocked run.
//!
//! Validates the answer against the question. If a policy asks whether a call may run, only `yes`,
//! `always` and `no` are answers; any other text is refused and the question stays open. The
//! question is read before the command runs, so the command itself checks that the same question is
//! still open.

use std::sync::Arc;

use docket_schema::{
    api::{AnswerRequest, ProblemCode, TELL_BYTES_MAX},
    content::{BlobRef, Content, INLINE_BYTES_MAX},
    event::TypedEvent as _,
    ids::{RunId, Seq, StreamId, TaskId},
    run::{ApprovalAnswer, RunBlocked, RunEvent},
    task::{TaskBlockedReason, TaskState},
};

use super::submissions::{HandlerResult, execute_task_command};
use crate::http::{
    middleware::{api_error::ApiError, api_state::ApiState, request::ApiRequest},
    routes::commands,
};
use crate::{
    decide::QuestionedRun,
    store::{CommandBlobs, NewBlob},
};

/// Maximum number of characters of a wrong answer that are quoted.
const QUOTED_CHARS_MAX: usize = 80;

/// Events per page when searching a run's stream backwards for its question.
const READ_WINDOW_EVENTS: u32 = 64;

pub(in crate::http) async fn answer_task(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
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
            "`text` must not be empty: the run is asking a question; answer it with `docket answer ID TEXT`";
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

/// Returns the task's run that waits for an answer, if any.
async fn find_asking_run(api: &ApiState, id: TaskId) -> Result<Option<QuestionedRun>, ApiError> {
    let Some((record, _)) = api.store.get_task(id).await? else { return Ok(None) };
    let asks = record.state == TaskState::Blocked && record.blocked_why == Some(TaskBlockedReason::Person);
    Ok(record.run.filter(|_| asks).map(|run| QuestionedRun { run, epoch: record.epoch }))
}

/// Returns the question of a blocked run: its last `RunBlocked`. Messages may have been appended
/// since.
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
                    let detail = "cannot read the run's log; run `docket verify`";
                    return Err(ApiError::new(ProblemCode::Internal, detail));
                }
            }
        }
        end = start;
    }
    Ok(None)
}

/// Refuses text that does not answer a permission question.
fn check_permission_answer(text: &str) -> Result<(), ApiError> {
    let wrong = |detail: String| Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("text"));
    if ApprovalAnswer::parse(text).is_none() {
        return wrong(format!(
            "the run asks whether a call may run, and `{}` does not answer that; answer {}. The question stays open",
            text.chars().take(QUOTED_CHARS_MAX).collect::<String>(),
            ApprovalAnswer::ACCEPTED
        ));
    }
    if text.len() > INLINE_BYTES_MAX {
        return wrong(format!(
            "an answer to a permission question may have at most {INLINE_BYTES_MAX} bytes; send the rest with \
             `docket tell` once the run continues"
        ));
    }
    Ok(())
}
