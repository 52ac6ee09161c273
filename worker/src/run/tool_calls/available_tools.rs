//! The tools available to a run.

use docket_schema::{
    message::{ToolSpec, ToolUse},
    run::RunState,
};

use super::tool_executor::ToolExecutor;
use crate::{
    tools::{self, ToolOutcome},
    workspace::BlobReader,
};

impl ToolExecutor {
    /// Loads the run's tools: those pinned at its start, whatever others this build has.
    pub(in crate::run) async fn load_available_tools<S: BlobReader>(&mut self, state: &RunState, blobs: &S) {
        self.external_tools = state.pins.as_ref().map(|pins| pins.external.clone()).unwrap_or_default();
        if let Some(role) = state.current_role() {
            self.available_tools = Some(Ok(role.may.clone()));
            return;
        }
        let Some(pins) = state.pins.as_ref().filter(|_| !matches!(self.available_tools, Some(Ok(_)))) else {
            return;
        };
        let read = blobs.get(&pins.prompts.tools).await.map_err(|error| error.to_string());
        let specs = read.and_then(|bytes| {
            serde_json::from_slice::<Vec<ToolSpec>>(&bytes).map_err(|error| error.to_string())
        });
        self.available_tools = Some(specs.map(|specs| specs.into_iter().map(|spec| spec.name).collect()));
    }

    /// Returns the refusal of a tool that the run's model does not have.
    pub(in crate::run) fn refuse_unavailable_tool(&self, tool: &ToolUse) -> Option<ToolOutcome> {
        match &self.available_tools {
            // The runtime's own calls are never offered to a model.
            _ if tool.call.is_runtime() => None,
            Some(Ok(known)) if known.contains(&tool.name) => None,
            Some(Ok(known)) => Some(tools::unknown_tool(&tool.name, known.iter().map(String::as_str))),
            Some(Err(why)) => Some(ToolOutcome::error(
                &tool.name,
                format!("the tools of this run cannot be read now: {why}"),
            )),
            // Nothing is pinned: not a run.
            None => None,
        }
    }
}
