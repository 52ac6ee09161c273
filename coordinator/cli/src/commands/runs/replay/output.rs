//! `--output`: prints the full recorded output of a tool call or check.

use docket_schema::{content::Content, history::FoldedRun, ids::RunId};
use docket_worker::client::CoordinatorClient;

use crate::{
    context::CliContext,
    history::recorded_output::read_recorded_output,
    output::{
        display,
        error::{CliResult, ExitKind},
    },
};

/// Writes the full output of the call with this ID.
pub(crate) async fn print_recorded_output(
    cx: &CliContext,
    client: &CoordinatorClient,
    run: RunId,
    history: &FoldedRun,
    call: &str,
) -> CliResult {
    let (name, bytes) = read_recorded_output(client, run, history, call).await?;
    print_output(cx, run, (call, &name), &bytes);
    Ok(ExitKind::Ok)
}

fn print_output(cx: &CliContext, run: RunId, (call, name): (&str, &str), bytes: &[u8]) {
    if cx.is_json() {
        let output = Content::inline(bytes);
        display::print_json(&serde_json::json!({
            "replay": "view", "run": run, "call": call, "name": name, "bytes": bytes.len(), "output": output,
        }));
        return;
    }
    display::print_exact(bytes);
    let (run, name) = (run.short(), display::sanitize_line(name));
    display::print_note(&format!(
        "replay (view) of run {run}: output of {call} ({name}), {} bytes",
        bytes.len()
    ));
}
