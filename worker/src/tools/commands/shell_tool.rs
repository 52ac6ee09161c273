//! Runs the tools that are a shell line, in the sandbox like any other command.

use docket_schema::content::WorkspacePath;

use super::run_command::{format_output, outcome_from_end};
use crate::tools::{
    context::{
        runner::CommandSpec,
        tool_context::{ToolContext, ToolOutcome},
    },
    text::output::cut_middle,
};

/// What a line leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShellToolEffect {
    /// Nothing: it reads.
    ReadOnly,
    /// Perhaps anything.
    MayChange,
}

/// How a line is run.
pub(crate) struct ShellToolCall {
    /// The tool, for its errors.
    pub(crate) tool: &'static str,
    /// What is run, with all that docket puts around it.
    pub(crate) shell: String,
    pub(crate) cwd: Option<WorkspacePath>,
    /// Its own time limit.
    pub(crate) timeout_ms: u64,
    pub(crate) effect: ShellToolEffect,
    /// Whether a status other than 0 is an error of the tool: so it is where the tool made the line itself.
    pub(crate) nonzero_is_error: bool,
}

/// Runs it.
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
