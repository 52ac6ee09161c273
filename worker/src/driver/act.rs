//! Effects: asking a model, and what that leaves behind as events. Tools and gates have a [`Workbench`].

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, Content},
    message::Part,
    run::{ModelAnswered, ModelFailed, RunEvent, RunState},
};

use super::{journal::Outgoing, material::Material, workbench::Workbench};
use crate::{
    clock,
    engine::ModelCall,
    model::{Attempt, ModelClient, Rendered, Secret, next_delay},
    progress::ProgressNote,
    workspace::SnapshotError,
};

/// Text of an answer stays in its event up to this: engines read it to decide.
const ANSWER_INLINE_BYTES_MAX: usize = 64 * 1024;

/// Arguments of all calls of an answer, in bytes of JSON: they stand in its event, and an append that
/// is too large would throw the answer away, to be paid for again.
const ARGS_BYTES_MAX: usize = 128 * 1024;

/// What acts: model and workbench.
pub(super) struct Hands {
    pub(super) model: ModelClient,
    pub(super) key: Option<Secret>,
    pub(super) bench: Workbench,
}

impl Hands {
    /// Asks the model; answers its result as an event.
    pub(super) async fn ask(
        &self,
        call: &ModelCall,
        rendered: &Rendered,
        state: &RunState,
        material: &Material,
        progress: &ProgressNote,
    ) -> Outgoing {
        let pins = &state.pins;
        let mut out = Outgoing::default();
        let attempt = Attempt(call.attempt);
        let heard = || progress.at_most(super::turn::ASK_AT_MOST);
        let answer = self.model.call(rendered, attempt, self.key.as_ref(), &mut |_| heard()).await;
        match answer {
            Ok(answer) => {
                let prices = pins.as_ref().map(|pins| pins.models.terms.prices).unwrap_or_default();
                let (stop, usage) = (answer.stop_reason.clone(), answer.usage);
                let (first_byte_ms, total_ms) = (answer.first_byte_ms, answer.total_ms);
                let parts = answer.into_parts(call.turn);
                let mut room = ARGS_BYTES_MAX;
                let parts = parts.into_iter().map(|part| fitted(part, &mut room));
                let parts = parts.map(|part| placed(part, &mut out, material)).collect();
                let event = ModelAnswered {
                    call: call.call.clone(),
                    parts,
                    stop,
                    usage,
                    cost_nusd: prices.cost_nusd(usage),
                    first_byte_ms,
                    total_ms,
                };
                out.push(call.turn, event);
            }
            Err(error) => {
                let attempt = call.attempt.saturating_sub(state.forgiven_attempts);
                let retry_in = next_delay(attempt, &error, clock::jitter());
                let event = ModelFailed {
                    call: call.call.clone(),
                    error: error.kind().to_owned(),
                    message: self.bench.redactor.text(&error.to_string()).into_owned(),
                    retry_in_ms: retry_in.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
                    needs_person: error.needs_person(),
                };
                out.push(call.turn, event);
            }
        }
        out
    }

    /// Runs the open tool calls; the next request finds their results at hand.
    pub(super) async fn run_tools(
        &mut self,
        state: &RunState,
        material: &Material,
    ) -> Result<Outgoing, SnapshotError> {
        let out = self.bench.run_tools(state).await?;
        keep_results(&out, material);
        Ok(out)
    }

    /// The same after a crash, as the calls' recovery classes allow.
    pub(super) async fn run_tools_again(
        &mut self,
        state: &RunState,
        material: &Material,
    ) -> Result<Outgoing, SnapshotError> {
        let out = self.bench.run_tools_again(state).await?;
        keep_results(&out, material);
        Ok(out)
    }
}

/// What a result shows the model is kept at hand; whole outputs and files are not.
fn keep_results(out: &Outgoing, material: &Material) {
    for (_, event) in out.events() {
        if let RunEvent::ToolFinished(finished) = event
            && let Some(blob) = finished.content.blob()
            && let Some(bytes) = out.bytes_of(&blob)
        {
            material.keep(blob, Bytes::copy_from_slice(bytes));
        }
    }
}

/// Arguments that an event cannot hold are not run: the model is told, as of any it wrote wrongly.
fn fitted(part: Part, room: &mut usize) -> Part {
    let Part::ToolUse(mut tool) = part else { return part };
    let (json, said) = (tool.args.to_string(), tool.malformed.as_ref().map_or(0, String::len));
    let bytes = json.len() + said;
    match room.checked_sub(bytes) {
        Some(left) => *room = left,
        None => {
            let begin: String = tool.malformed.as_ref().unwrap_or(&json).chars().take(200).collect();
            let why = format!("{bytes} bytes, more than a call may have; do it in smaller parts: {begin}");
            (tool.args, tool.malformed) = (serde_json::Value::Null, Some(why));
        }
    }
    Part::ToolUse(tool)
}

/// Long text of an answer goes out of line.
fn placed(part: Part, out: &mut Outgoing, material: &Material) -> Part {
    match part {
        Part::Text { text: Content::Text(text) } if text.len() > ANSWER_INLINE_BYTES_MAX => {
            let blob = BlobRef::of(text.as_bytes());
            material.keep(blob, Bytes::from(text.clone()));
            out.blob(blob, text.into_bytes());
            Part::Text { text: Content::Blob(blob) }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        ids::Turn,
        message::{CallId, ToolUse},
    };

    use super::*;

    #[test]
    fn arguments_that_no_event_can_hold_come_back_to_the_model() {
        let call = |nth, bytes: usize| {
            let args = serde_json::json!({ "path": "a", "content": "x".repeat(bytes) });
            let call = CallId::tool(Turn(1), nth);
            Part::ToolUse(ToolUse { call, name: "create_file".to_owned(), args, malformed: None })
        };
        let mut room = ARGS_BYTES_MAX;
        let parts = [call(0, 1000), call(1, 300_000), call(2, 100_000), call(3, 100_000)];
        let parts: Vec<Part> = parts.into_iter().map(|part| fitted(part, &mut room)).collect();
        assert!(serde_json::to_vec(&parts).unwrap().len() < docket_schema::event::PAYLOAD_BYTES_MAX);
        let told = parts.iter().map(|part| match part {
            Part::ToolUse(tool) => tool.malformed.as_deref().is_some_and(|why| why.contains("smaller parts")),
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolResult { .. } => false,
        });
        assert_eq!(told.collect::<Vec<_>>(), [false, true, false, true]);
    }
}
