//! `--request`: the exact body that a model was sent, made again and proven by the recorded hash.

use docket_schema::{
    history::{FoldedRun, ModelCall},
    ids::{RunId, Turn},
};
use docket_worker::{
    client::CoordinatorClient,
    replay::{RebuiltRequest, rebuild_request},
    run::BlobCache,
};

use crate::{
    context::CliContext,
    history::blobs::RemoteBlobs,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Writes the request of `turn`, of its last attempt if none is named.
pub(crate) async fn print_request(
    cx: &CliContext,
    client: &CoordinatorClient,
    run: RunId,
    history: &FoldedRun,
    turn: Turn,
    attempt: Option<u32>,
) -> CliResult {
    let summary = history.turn(turn).fail_as(ExitKind::NotFound)?;
    let attempts = history.history().turn_detail(summary).model_calls;
    let wanted = match attempt {
        Some(nth) => attempts.iter().find(|asked| asked.intent.attempt == nth),
        None => attempts.last(),
    };
    let wanted =
        wanted.ok_or_else(|| CliError::new(ExitKind::NotFound, no_attempt_message(turn, &attempts)))?;
    let events = &history.events()[..=wanted.event_index];
    let rebuilt = rebuild_request(events, &BlobCache::new(RemoteBlobs(client)))
        .await
        .fail_with(ExitKind::Verification, || format!("the request of turn {turn} cannot be made again"))?
        .ok_or_else(|| CliError::new(ExitKind::Failed, "this event announces no request"))?;
    if cx.is_json() {
        display::print_json(&serde_json::json!({
            "replay": "view",
            "run": run,
            "turn": turn,
            "attempt": wanted.intent.attempt,
            "attempts": attempts.len(),
            "seq": wanted.seq,
            "model": rebuilt.requested.model.to_string(),
            "proven": rebuilt.matches_recorded_hash(),
            "request_hash": rebuilt.proof.hash,
            "recorded_hash": rebuilt.requested.request,
            "request_bytes": rebuilt.proof.bytes,
            "body": docket_schema::content::Content::inline(&rebuilt.rendered.body),
        }));
        return Ok(if rebuilt.matches_recorded_hash() { ExitKind::Ok } else { ExitKind::Verification });
    }
    if !rebuilt.matches_recorded_hash() {
        return Err(CliError::new(ExitKind::Verification, mismatch_message(&rebuilt, turn)));
    }
    display::print_note(&format!(
        "replay (view) of run {}: request of turn {turn} to {}, {} bytes, proven by the recorded hash {}",
        run.short(),
        display::sanitize_line(&rebuilt.requested.model.to_string()),
        rebuilt.proof.bytes,
        rebuilt.proof.hash
    ));
    if attempts.len() > 1 {
        display::print_note(&attempts_note(&attempts, wanted));
    }
    display::print_exact(&rebuilt.rendered.body);
    Ok(ExitKind::Ok)
}

fn no_attempt_message(turn: Turn, attempts: &[ModelCall]) -> String {
    let there: Vec<String> = attempts.iter().map(|asked| asked.intent.attempt.to_string()).collect();
    match there.as_slice() {
        [] => format!("in turn {turn} no model was asked; the first request is that of turn 1"),
        there => format!("turn {turn} has no such attempt; it has {}", there.join(", ")),
    }
}

fn mismatch_message(rebuilt: &RebuiltRequest, turn: Turn) -> String {
    format!(
        "the request of turn {turn} is not the one that was sent: the log has {} ({} bytes), it renders to {} ({} bytes); \
         `docket verify` says more",
        rebuilt.requested.request, rebuilt.requested.request_bytes, rebuilt.proof.hash, rebuilt.proof.bytes
    )
}

fn attempts_note(attempts: &[ModelCall], shown: &ModelCall) -> String {
    let each = attempts.iter().map(|asked| {
        format!("{} ({})", asked.intent.attempt, asked.outcome().unwrap_or("without an answer"))
    });
    let each: Vec<String> = each.collect();
    format!(
        "the model was asked {} times; this is attempt {}; --attempt takes {}",
        each.len(),
        shown.intent.attempt,
        each.join(", ")
    )
}
