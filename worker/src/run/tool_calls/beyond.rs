//! Calls that reach beyond the files of a workspace: commands that were granted the network, and servers of the worker's.
//! Called by the workbench, which runs all others itself.

use std::{collections::BTreeMap, sync::Arc};

use docket_schema::{content::WorkPath, ids::BlobHash, message::ToolUse, policy::AllowList};

use super::{malformed::not_run, workbench::Workbench};
use crate::run::environment::granted::{Granted, told};
use crate::{
    mcp,
    tools::{self, ToolContext, ToolOutcome},
};

impl Workbench {
    /// Runs a call that was granted the network. What it did there stands below its result.
    pub(in crate::run) async fn execute_granted(
        &self,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkPath, BlobHash>,
        allow: Arc<AllowList>,
    ) -> ToolOutcome {
        let runner = Granted::new(&self.runner, allow);
        let context = self.context(read_set, self.tests.as_ref());
        let context = ToolContext { runner: &runner, call: Some(&tool.call), ..context };
        let mut outcome = tools::execute(context, &tool.name, &tool.args).await;
        if let Some(seen) = runner.seen() {
            outcome.content.extend_from_slice(told(&seen).as_bytes());
            outcome.facts.network = Some(seen);
        }
        outcome
    }

    /// Calls a server's tool. What it did on the network stands below its result.
    pub(in crate::run) async fn ask_server(
        &self,
        tool: &ToolUse,
        network: Option<Arc<AllowList>>,
    ) -> ToolOutcome {
        if let Some(text) = &tool.malformed {
            return ToolOutcome::error(&tool.name, not_run(&tool.name, text));
        }
        let Some(external) = self.external.iter().find(|external| external.name == tool.name) else {
            return ToolOutcome::error(&tool.name, format!("`{}` is no tool of this run", tool.name));
        };
        let asked = mcp::Asked { tool: external, args: &tool.args, network };
        let mut outcome = mcp::call(&self.runner.0, &self.servers, &self.settings, asked).await;
        if let Some(seen) = &outcome.facts.network {
            outcome.content.extend_from_slice(told(seen).as_bytes());
        }
        outcome
    }
}
