//! The route by which a person answers what a blocked run asks.
//!
//! Owns the check of the words against the question. Where policy asks whether a call may run, only `yes`, `always`
//! and `no` are answers: any other text is refused, and the question stays open. The question is read before the
//! command, so the command itself checks that it is still the one that is asked.

use std::sync::Arc;

use docket_schema::{
    content::{BlobRef, Content, INLINE_BYTES_MAX},
    event::TypedEvent as _,
    ids::{RunId, Seq, StreamId, TaskId},
    run::{PermissionAnswer, RunBlocked, RunEvent},
    task::{TaskBlockedWhy, TaskState},
    wire::{AnswerRequest, ProblemCode, TELL_BYTES_MAX},
};

use super::{
    api::Api,
    call::Call,
    commands,
    errors::Refusal,
    tasks::{Answered, tell_run},
};
use crate::{
    decide::AskedRun,
    store::{CommandBlobs, NewBlob},
};

/// Characters of a wrong answer that are told.
const TOLD_CHARS_MAX: usize = 80;

/// Events that are read at once, from the end of a run's stream back, in search of its question.
const WINDOW_EVENTS: u32 = 64;

pub(super) async fn answer(api: Arc<Api>, call: Call) -> Answered {
    let id: TaskId = call.id()?;
    let AnswerRequest { text } = call.json()?;
    if text.len() > TELL_BYTES_MAX {
        let detail = format!("`text` may have at most {TELL_BYTES_MAX} bytes");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("text"));
    }
    let text = api.redactor.text(text.trim()).into_owned();
    let asked = asked_run(&api, id).await?;
    if asked.is_some() && text.is_empty() {
        let detail =
            "`text` must not be empty: the run asks something; give an answer, as `docket answer ID TEXT`";
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("text"));
    }
    if let Some(asked) = asked
        && let Some(RunBlocked { about: Some(_), .. }) = question(&api, asked.run).await?
    {
        check_permission(&text)?;
    }
    let (text, aside) = Content::place(text.into_bytes());
    let blobs = aside.map(|bytes| NewBlob { blob: BlobRef::of(&bytes), bytes: bytes.into() });
    let blobs = CommandBlobs { blobs: blobs.into_iter().collect(), names: Vec::new() };
    let decide = commands::answer(call.caller.name(), text, asked);
    tell_run(&api, &call, decide, blobs).await
}

/// The run of a task that asks a person, if one does.
async fn asked_run(api: &Api, id: TaskId) -> Result<Option<AskedRun>, Refusal> {
    let Some((record, _)) = api.store.task(id).await? else { return Ok(None) };
    let asks = record.state == TaskState::Blocked && record.blocked_why == Some(TaskBlockedWhy::Person);
    Ok(record.run.filter(|_| asks).map(|run| AskedRun { run, epoch: record.epoch }))
}

/// What a blocked run asks: its last `RunBlocked`. Others may have appended words to its stream since.
async fn question(api: &Api, run: RunId) -> Result<Option<RunBlocked>, Refusal> {
    let head = api.store.head(StreamId::Run(run)).await?;
    let mut end = head.map_or(Seq(0), |head| head.seq);
    while end > Seq(0) {
        let start = Seq(end.0.saturating_sub(u64::from(WINDOW_EVENTS)));
        let events = api.store.read(StreamId::Run(run), start, WINDOW_EVENTS).await?;
        for event in events.iter().rev() {
            match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
                Ok(RunEvent::RunBlocked(blocked)) => return Ok(Some(blocked)),
                Ok(_) => {}
                Err(_) => {
                    let detail = "the run's log cannot be read; run `docket verify`";
                    return Err(Refusal::new(ProblemCode::Internal, detail));
                }
            }
        }
        end = start;
    }
    Ok(None)
}

/// Refuses what is no answer to a permission question.
fn check_permission(text: &str) -> Result<(), Refusal> {
    let wrong = |detail: String| Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("text"));
    if PermissionAnswer::parse(text).is_none() {
        return wrong(format!(
            "the run asks whether a call may run, and `{}` is not an answer to that; answer {}. The question stays open",
            text.chars().take(TOLD_CHARS_MAX).collect::<String>(),
            PermissionAnswer::ACCEPTED
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
