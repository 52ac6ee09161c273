//! `--request`: rebuilds the exact body of a model request and verifies it against the recorded
//! hash.

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

/// Writes a request of `turn`, by default the last attempt.
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
        .fail_with(ExitKind::Verification, || format!("cannot rebuild the request of turn {turn}"))?
        .ok_or_else(|| CliError::new(ExitKind::Failed, "this event does not announce a request"))?;
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
        "replay (view) of run {}: request of turn {turn} to {}, {} bytes, verified against the recorded hash {}",
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
        [] => format!("no model was called in turn {turn}; the first request is in turn 1"),
        there => format!("turn {turn} has no such attempt; it has {}", there.join(", ")),
    }
}

fn mismatch_message(rebuilt: &RebuiltRequest, turn: Turn) -> String {
    format!(
        "the rebuilt request of turn {turn} differs from the one sent: the log has {} ({} bytes), rebuilt {} ({} bytes); \
         run `docket verify` for details",
        rebuilt.requested.request, rebuilt.requested.request_bytes, rebuilt.proof.hash, rebuilt.proof.bytes
    )
}

fn attempts_note(attempts: &[ModelCall], shown: &ModelCall) -> String {
    let each = attempts
        .iter()
        .map(|asked| format!("{} ({})", asked.intent.attempt, asked.outcome().unwrap_or("no reply")));
    let each: Vec<String> = each.collect();
    format!(
        "the model was called {} times; this is attempt {}; valid values for --attempt: {}",
        each.len(),
        shown.intent.attempt,
        each.join(", ")
    )
}
