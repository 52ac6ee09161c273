//! Runs the tools that are a shell line, in the sandbox like any other command.

use docket_schema::content::WorkPath;

use super::run_command::{as_text, ended};
use crate::tools::{
    context::{
        runner::CommandSpec,
        tool_context::{ToolContext, ToolOutcome},
    },
    text::output::cut,
};

/// What a line leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Nothing: it reads.
    Nothing,
    /// Perhaps anything.
    Changes,
}

/// How a line is run.
pub(crate) struct Running {
    /// The tool, for its errors.
    pub(crate) tool: &'static str,
    /// What is run, with all that docket puts around it.
    pub(crate) shell: String,
    pub(crate) cwd: Option<WorkPath>,
    /// Its own time limit.
    pub(crate) timeout_ms: u64,
    pub(crate) leaves: Leaves,
    /// Whether a status other than 0 is an error of the tool: so it is where the tool made the line itself.
    pub(crate) must_end_well: bool,
}

/// Runs it.
pub(crate) async fn run(context: ToolContext<'_>, running: Running) -> ToolOutcome {
    let limit = context.settings.time_limit(running.timeout_ms);
    let spec = CommandSpec { shell: running.shell, cwd: running.cwd, timeout_ms: limit.ms };
    let output = match context.runner.run(spec).await {
        Ok(output) => output,
        Err(error) if running.leaves == Leaves::Nothing => {
            return ToolOutcome::error(running.tool, error.to_string());
        }
        Err(error) => return ToolOutcome::error_midway(running.tool, error.to_string()),
    };
    let text = as_text(&output, &context.settings.redactor);
    let (shown, was_cut) = cut(&text, context.settings.output_chars_max);
    let mut outcome = ended(output.ended, limit, &text);
    outcome.content.extend_from_slice(shown.as_bytes());
    outcome.content.extend_from_slice(super::run_command::protected(&output.put_back).as_bytes());
    outcome.full = was_cut.then(|| text.into_bytes());
    outcome.is_error |= running.must_end_well && outcome.facts.exit != Some(0);
    if running.leaves == Leaves::Nothing {
        outcome.facts.may_have_changed_tree = false;
    }
    outcome
}
