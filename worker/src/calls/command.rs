//! Calls of the tools that run a shell line written by the model. Pure.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::ShellLine;

/// The tool that runs a line as it is.
pub(crate) const RUN_COMMAND: &str = "run_command";
/// The tool that looks up programs in the virtual environment first.
pub(crate) const VENV_RUN: &str = "venv_run";

// The arguments of both. Not a doc comment, because models would read it as part of the schema.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandArgs {
    /// The shell line.
    pub(crate) command: String,
    /// Folder to run it in, relative to the workspace; the workspace itself where it is left out.
    #[serde(default)]
    pub(crate) cwd: Option<String>,
    /// Seconds after which it is ended, 60 where it is left out, at most 300.
    #[serde(default)]
    #[schemars(range(min = 1, max = 300))]
    pub(crate) timeout_s: Option<u64>,
}

impl CommandArgs {
    pub(super) fn into_shell_line(self) -> ShellLine {
        ShellLine { command: self.command, cwd: self.cwd, ..ShellLine::default() }
    }
}

/// Returns the line of `run_command` even if its other arguments are invalid, as earlier versions did when there were
/// no others.
pub(super) fn run_command_line(args: &Value) -> ShellLine {
    let text = |field: &str| args.get(field).and_then(Value::as_str).map(str::to_owned);
    ShellLine { command: text("command").unwrap_or_default(), cwd: text("cwd"), ..ShellLine::default() }
}
