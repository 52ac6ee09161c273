//! `--request`: the exact body that a model was sent, made again and proven by the recorded hash.

use docket_schema::{
    history::{FoldedRun, ModelCall},
    ids::{RunId, Turn},
};
use docket_worker::{
    client::Client,
    replay::{Rebuilt, rebuild},
    run::Material,
};

use crate::{
    context::Context,
    history::blobs::Remote,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
};

/// Writes the request of `turn`, of its last attempt if none is named.
pub(crate) async fn say(
    cx: &Context,
    client: &Client,
    run: RunId,
    history: &FoldedRun,
    turn: Turn,
    attempt: Option<u32>,
) -> Outcome {
    let summary = history.turn(turn).fail_as(Exit::NotFound)?;
    let attempts = history.history().detail(summary).model_calls;
    let wanted = match attempt {
        Some(nth) => attempts.iter().find(|asked| asked.intent.attempt == nth),
        None => attempts.last(),
    };
    let wanted = wanted.ok_or_else(|| Failure::new(Exit::NotFound, none(turn, &attempts)))?;
    let events = &history.events()[..=wanted.place];
    let rebuilt = rebuild(events, &Material::new(Remote(client)))
        .await
        .fail_with(Exit::Verification, || format!("the request of turn {turn} cannot be made again"))?
        .ok_or_else(|| Failure::new(Exit::Failed, "this event announces no request"))?;
    if cx.json() {
        display::say_json(&serde_json::json!({
            "replay": "view",
            "run": run,
            "turn": turn,
            "attempt": wanted.intent.attempt,
            "attempts": attempts.len(),
            "seq": wanted.seq,
            "model": rebuilt.asked.model.to_string(),
            "proven": rebuilt.is_proven(),
            "request_hash": rebuilt.proof.hash,
            "recorded_hash": rebuilt.asked.request,
            "request_bytes": rebuilt.proof.bytes,
            "body": docket_schema::content::Content::inline(&rebuilt.rendered.body),
        }));
        return Ok(if rebuilt.is_proven() { Exit::Ok } else { Exit::Verification });
    }
    if !rebuilt.is_proven() {
        return Err(Failure::new(Exit::Verification, disproven(&rebuilt, turn)));
    }
    display::note(&format!(
        "replay (view) of run {}: request of turn {turn} to {}, {} bytes, proven by the recorded hash {}",
        run.short(),
        display::line(&rebuilt.asked.model.to_string()),
        rebuilt.proof.bytes,
        rebuilt.proof.hash
    ));
    if attempts.len() > 1 {
        display::note(&choices(&attempts, wanted));
    }
    display::say_exact(&rebuilt.rendered.body);
    Ok(Exit::Ok)
}

fn none(turn: Turn, attempts: &[ModelCall]) -> String {
    let there: Vec<String> = attempts.iter().map(|asked| asked.intent.attempt.to_string()).collect();
    match there.as_slice() {
        [] => format!("in turn {turn} no model was asked; the first request is that of turn 1"),
        there => format!("turn {turn} has no such attempt; it has {}", there.join(", ")),
    }
}

fn disproven(rebuilt: &Rebuilt, turn: Turn) -> String {
    format!(
        "the request of turn {turn} is not the one that was sent: the log has {} ({} bytes), it renders to {} ({} bytes); \
         `docket verify` says more",
        rebuilt.asked.request, rebuilt.asked.request_bytes, rebuilt.proof.hash, rebuilt.proof.bytes
    )
}

fn choices(attempts: &[ModelCall], shown: &ModelCall) -> String {
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
