//! A run with tools of an MCP server: pinned, called, refused by policy, ended by crashes in their middle.

use anyhow::Result;
use docket_schema::{export::Export, task::TaskState};
use docket_tests::system::{Signal, send};
use docket_worker::model::Provider;

use super::record::{Stage, middle};
use crate::mcp::{PATIENT, PATIENT_SETTINGS, lets_on};

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
pub(super) async fn external_tools(stage: &Stage) -> Result<Export> {
    let files = [("tools/notes.py", PATIENT), ("notes.txt", "")];
    let more = ["--tests", "true"];
    let scene = stage.scene_on(&files, "external-tools", SCRIPT, Provider::OpenAi, &more).await?;
    let worker = stage.worker_with(&scene, PATIENT_SETTINGS).await?;
    let dies = async |but| {
        let folder = middle(&worker, but).await?;
        worker.run_processes().into_iter().for_each(|run| send(run, Signal::SIGKILL));
        anyhow::Ok(folder)
    };
    let first = dies(None).await?;
    let second = middle(&worker, Some(&first)).await?;
    lets_on(&second).await?;
    dies(None).await?;
    stage.is(&scene, TaskState::Completed).await?;
    worker.drain().await?;
    stage.export(stage.run_of(&scene).await?).await
}
