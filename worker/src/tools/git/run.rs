//! Runs a git command that a call comes to.

use docket_schema::tool::RecoveryClass;
use serde_json::Value;

use super::super::{
    commands::line::{self, Leaves, Running},
    context::tool_context::{ToolContext, ToolOutcome},
};
use crate::calls::{git::Git, recovery_class};

pub(in super::super) async fn run(
    context: ToolContext<'_>,
    tool: &'static str,
    git: Result<Git, String>,
) -> ToolOutcome {
    let git = match git {
        Ok(git) => git,
        Err(text) => return ToolOutcome::error(tool, text),
    };
    let reads = recovery_class(tool, &Value::Null) == RecoveryClass::Reads;
    let leaves = if reads { Leaves::Nothing } else { Leaves::Changes };
    let (shell, timeout_ms) = (git.shell(reads), context.settings.command_timeout_ms);
    line::run(context, Running { tool, shell, cwd: None, timeout_ms, leaves, must_end_well: true }).await
}
