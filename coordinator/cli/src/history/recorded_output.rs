//! The full recorded output of a tool call or a check.

use docket_schema::{
    content::{BlobRef, Content},
    history::{FoldedRun, TurnDetail},
    ids::RunId,
};
use docket_worker::client::CoordinatorClient;

use crate::output::error::{CliError, CliResult, ExitKind};

/// Returns the name and the full output of the call with this id.
pub(crate) async fn read_recorded_output(
    client: &CoordinatorClient,
    run: RunId,
    history: &FoldedRun,
    call: &str,
) -> CliResult<(String, Vec<u8>)> {
    let mut last = None;
    for turn in history.turns() {
        let TurnDetail { calls, checks, .. } = history.history().turn_detail(turn);
        let calls = calls.into_iter().map(|call| {
            let result = call.result.map(|result| (result.content, result.full));
            (call.tool.call, call.tool.name, result)
        });
        let checks = checks.into_iter().map(|check| {
            let name = check.name().into_owned();
            let result = check.result.map(|result| (result.content, result.full));
            (check.intent.call, name, result)
        });
        for (id, name, result) in calls.chain(checks) {
            if id.0 != call {
                last = Some(id.0);
                continue;
            }
            let Some((content, full)) = result else {
                let message = format!("call {call} ({name}) has no result in the log");
                return Err(CliError::new(ExitKind::NotFound, message));
            };
            return Ok((name, fetch_full_output(client, &content, full).await?));
        }
    }
    let last = last.map_or_else(String::new, |last| format!("; its last call is {last}"));
    Err(CliError::new(ExitKind::NotFound, format!("run {} has no call `{call}`{last}", run.short())))
}

async fn fetch_full_output(
    client: &CoordinatorClient,
    content: &Content,
    full: Option<BlobRef>,
) -> CliResult<Vec<u8>> {
    match full.or_else(|| content.blob_ref()) {
        Some(blob) => Ok(client.get_blob(&blob).await?.to_vec()),
        None => content
            .inline_bytes()
            .map(|bytes| bytes.to_vec())
            .ok_or_else(|| CliError::new(ExitKind::Verification, "the recorded output is damaged")),
    }
}
