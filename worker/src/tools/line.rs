//! Runs the tools that are a shell line, in the sandbox like any other command.

use docket_schema::content::WorkPath;

use super::{
    output::cut,
    run_command::{as_text, ended},
    runner::CommandSpec,
    tool_context::{ToolContext, ToolOutcome},
};

/// What a line leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    /// Nothing: it reads.
    Nothing,
    /// Perhaps anything.
    Changes,
}

/// How a line is run.
pub(super) struct Running {
    /// The tool, for its errors.
    pub(super) tool: &'static str,
    /// What is run, with all that docket puts around it.
    pub(super) shell: String,
    pub(super) cwd: Option<WorkPath>,
    /// Its own time limit.
    pub(super) timeout_ms: u64,
    pub(super) leaves: Leaves,
    /// Whether a status other than 0 is an error of the tool: so it is where the tool made the line itself.
    pub(super) must_end_well: bool,
}

/// Runs it.
pub(super) async fn run(context: ToolContext<'_>, running: Running) -> ToolOutcome {
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
