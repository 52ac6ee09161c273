//! The tools that a run has.

use docket_schema::{
    message::{ToolSpec, ToolUse},
    run::RunState,
};

use super::workbench::Workbench;
use crate::{
    tools::{self, ToolOutcome},
    workspace::Blobs,
};

impl Workbench {
    /// Looks up which tools the run has: those that its start pinned, whatever this build has besides.
    pub(in crate::run) async fn look_up_tools<S: Blobs>(&mut self, state: &RunState, blobs: &S) {
        self.external = state.pins.as_ref().map(|pins| pins.external.clone()).unwrap_or_default();
        if let Some(role) = state.role() {
            self.known = Some(Ok(role.may.clone()));
            return;
        }
        let Some(pins) = state.pins.as_ref().filter(|_| !matches!(self.known, Some(Ok(_)))) else { return };
        let read = blobs.get(&pins.prompts.tools).await.map_err(|error| error.to_string());
        let specs = read.and_then(|bytes| {
            serde_json::from_slice::<Vec<ToolSpec>>(&bytes).map_err(|error| error.to_string())
        });
        self.known = Some(specs.map(|specs| specs.into_iter().map(|spec| spec.name).collect()));
    }

    /// The refusal of a tool that the run's model was not told of.
    pub(in crate::run) fn unknown(&self, tool: &ToolUse) -> Option<ToolOutcome> {
        match &self.known {
            // What the runtime calls itself is no model's to be told of.
            _ if tool.call.is_own() => None,
            Some(Ok(known)) if known.contains(&tool.name) => None,
            Some(Ok(known)) => Some(tools::unknown(&tool.name, known.iter().map(String::as_str))),
            Some(Err(why)) => Some(ToolOutcome::error(
                &tool.name,
                format!("the tools of this run cannot be read now: {why}"),
            )),
            // Nothing is pinned: no run.
            None => None,
        }
    }
}
