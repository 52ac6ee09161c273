//! `--output`: all that a tool call or a gate put out, as it was recorded.

use docket_schema::{content::Content, history::FoldedRun, ids::RunId};
use docket_worker::client::Client;

use crate::{
    context::Context,
    history::recorded_output::recorded,
    output::{
        display,
        fail::{Exit, Outcome},
    },
};

/// Writes the whole output of the call with this id.
pub(crate) async fn say(
    cx: &Context,
    client: &Client,
    run: RunId,
    history: &FoldedRun,
    call: &str,
) -> Outcome {
    let (name, bytes) = recorded(client, run, history, call).await?;
    show(cx, run, (call, &name), &bytes);
    Ok(Exit::Ok)
}

fn show(cx: &Context, run: RunId, (call, name): (&str, &str), bytes: &[u8]) {
    if cx.json() {
        let output = Content::inline(bytes);
        display::say_json(&serde_json::json!({
            "replay": "view", "run": run, "call": call, "name": name, "bytes": bytes.len(), "output": output,
        }));
        return;
    }
    display::say_exact(bytes);
    let (run, name) = (run.short(), display::line(name));
    display::note(&format!("replay (view) of run {run}: output of {call} ({name}), {} bytes", bytes.len()));
}
