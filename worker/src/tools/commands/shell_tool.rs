//! Runs tools that are implemented as a shell line, in the sandbox like any other command.

use docket_schema::content::WorkspacePath;

use super::run_command::{format_output, outcome_from_end};
use crate::tools::{
    context::{
        runner::CommandSpec,
        tool_context::{ToolContext, ToolOutcome},
    },
    text::output::cut_middle,
};

/// Effect of a shell line on the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellToolEffect {
    /// It only reads.
    ReadOnly,
    /// It may change anything.
    MayChange,
}

/// A shell line to run for a tool.
pub(crate) struct ShellToolCall {
    /// The tool's name, for errors.
    pub(crate) tool: &'static str,
    /// The complete shell line, including what docket adds.
    pub(crate) shell: String,
    pub(crate) cwd: Option<WorkspacePath>,
    /// The tool's own time limit, in milliseconds.
    pub(crate) timeout_ms: u64,
    pub(crate) effect: ShellToolEffect,
    /// Whether a nonzero status is a tool error: it is if the tool itself built the line.
    pub(crate) nonzero_is_error: bool,
}

pub(crate) async fn run_shell_tool(context: ToolContext<'_>, running: ShellToolCall) -> ToolOutcome {
    let limit = context.settings.time_limit(running.timeout_ms);
    let spec = CommandSpec { shell: running.shell, cwd: running.cwd, timeout_ms: limit.ms };
    let output = match context.runner.run(spec).await {
        Ok(output) => output,
        Err(error) if running.effect == ShellToolEffect::ReadOnly => {
            return ToolOutcome::error(running.tool, error.to_string());
        }
        Err(error) => return ToolOutcome::error_midway(running.tool, error.to_string()),
    };
    let text = format_output(&output, &context.settings.redactor);
    let (shown, was_cut) = cut_middle(&text, context.settings.output_chars_max);
    let mut outcome = outcome_from_end(output.ended, limit, &text);
    outcome.content.extend_from_slice(shown.as_bytes());
    outcome
        .content
        .extend_from_slice(super::run_command::format_restored_paths(&output.restored_paths).as_bytes());
    outcome.full_output = was_cut.then(|| text.into_bytes());
    outcome.is_error |= running.nonzero_is_error && outcome.facts.exit != Some(0);
    if running.effect == ShellToolEffect::ReadOnly {
        outcome.facts.may_have_changed_tree = false;
    }
    outcome
}
