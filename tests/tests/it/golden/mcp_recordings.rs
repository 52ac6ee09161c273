//! A run with tools of an MCP server: pinned, called, refused by policy, ended by crashes in their middle.

use anyhow::Result;
use docket_schema::{export::InMemoryExport, task::TaskState};
use docket_tests::system::{Signal, send_signal};
use docket_worker::model::ModelProvider;

use super::record::{RecordingFixture, wait_for_middle};
use crate::mcp::{PATIENT, PATIENT_SETTINGS, release_call};

/// One call of each kind, and one that is refused.
const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "mcp__notes__count", args = { word = "docket" } }, { name = "mcp__notes__erase", args = { word = "x" } }]
[[turns]]
calls = [{ name = "mcp__notes__post", args = { word = "first" } }]
[[turns]]
text = "Noted, as far as I can tell."
"#;

/// The run process dies in the middle of a call that only reads, which is made again, and of one that may have reached
/// out, which is not.
pub(super) async fn record_external_tools(stage: &RecordingFixture) -> Result<InMemoryExport> {
    let files = [("tools/notes.py", PATIENT), ("notes.txt", "")];
    let more = ["--tests", "true"];
    let scene = stage.start_task_on(&files, "external-tools", SCRIPT, ModelProvider::OpenAi, &more).await?;
    let worker = stage.start_worker_with(&scene, PATIENT_SETTINGS).await?;
    let dies = async |but| {
        let folder = wait_for_middle(&worker, but).await?;
        worker.run_processes().into_iter().for_each(|run| send_signal(run, Signal::SIGKILL));
        anyhow::Ok(folder)
    };
    let first = dies(None).await?;
    let second = wait_for_middle(&worker, Some(&first)).await?;
    release_call(&second).await?;
    dies(None).await?;
    stage.wait_for_state(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export_run(stage.task_run(&scene).await?).await
}
