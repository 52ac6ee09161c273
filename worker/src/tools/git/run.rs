//! Runs the git command of a tool call.

use docket_schema::tool::RecoveryClass;
use serde_json::Value;

use super::super::{
    commands::shell_tool::{self, ShellToolCall, ShellToolEffect},
    context::tool_context::{ToolContext, ToolOutcome},
};
use crate::calls::{git::GitCommand, recovery_class};

pub(in super::super) async fn run(
    context: ToolContext<'_>,
    tool: &'static str,
    git: Result<GitCommand, String>,
) -> ToolOutcome {
    let git = match git {
        Ok(git) => git,
        Err(text) => return ToolOutcome::error(tool, text),
    };
    let reads = recovery_class(tool, &Value::Null) == RecoveryClass::Reads;
    let leaves = if reads { ShellToolEffect::ReadOnly } else { ShellToolEffect::MayChange };
    let (shell, timeout_ms) = (git.to_shell_script(reads), context.settings.command_timeout_ms);
    shell_tool::run_shell_tool(
        context,
        ShellToolCall { tool, shell, cwd: None, timeout_ms, effect: leaves, nonzero_is_error: true },
    )
    .await
}
