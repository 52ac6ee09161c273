//! Effects of calls, derived from tool and arguments. Pure.

use docket_schema::tool::RecoveryClass;
use serde_json::Value;

use super::{
    CommandArgs, RUN_COMMAND, ShellLine, VENV_RUN, command::run_command_line, git, parse_args, venv_install,
};

/// The effect of a tool, as far as the arguments of a call tell.
pub(crate) enum ToolEffect {
    /// It reads files.
    Reads,
    /// It reads the run's own log, or memory.
    Recalls(RecallSource),
    /// It writes the files that these arguments name.
    Writes(&'static [&'static str]),
    /// It removes the files that these arguments name.
    Deletes(&'static [&'static str]),
    /// It runs the project's tests.
    RunsTests,
    /// It runs a shell line, built from its arguments.
    RunsShell { to_line: fn(&Value) -> Option<ShellLine>, class: RecoveryClass },
    /// It changes memory; the same call takes effect only once.
    ChangesMemory,
}

/// The source of recalled content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecallSource {
    /// The run's own log.
    Log,
    /// Memory that outlives the run.
    Memory,
}

/// A tool that runs a git command.
macro_rules! git {
    ($verb:ident, $input:ident, $class:expr) => {
        (
            git::$verb::NAME,
            ToolEffect::RunsShell {
                to_line: |args| {
                    let args = parse_args::<git::$verb::$input>(git::$verb::NAME, args).ok()?;
                    Some(args.to_git_command().ok()?.to_shell_line())
                },
                class: $class,
            },
        )
    };
}

use RecoveryClass::{Reads, Workspace};

/// The effect of each tool by name; those of `core` first, in their order.
static TOOL_EFFECTS: [(&str, ToolEffect); 35] = [
    ("read_file", ToolEffect::Reads),
    ("edit_file", ToolEffect::Writes(&["path"])),
    ("create_file", ToolEffect::Writes(&["path"])),
    ("search_codebase", ToolEffect::Reads),
    ("list_files", ToolEffect::Reads),
    (RUN_COMMAND, ToolEffect::RunsShell { to_line: |args| Some(run_command_line(args)), class: Workspace }),
    ("run_tests", ToolEffect::RunsTests),
    ("write_file", ToolEffect::Writes(&["path"])),
    ("append_file", ToolEffect::Writes(&["path"])),
    ("move_file", ToolEffect::Writes(&["from", "to"])),
    ("copy_file", ToolEffect::Writes(&["to"])),
    ("delete_file", ToolEffect::Deletes(&["path"])),
    ("make_folder", ToolEffect::Writes(&["path"])),
    ("stat_file", ToolEffect::Reads),
    git!(status, GitStatusArgs, Reads),
    git!(diff, GitDiffArgs, Reads),
    git!(log, GitLogArgs, Reads),
    git!(show, GitShowArgs, Reads),
    git!(add, GitAddArgs, Workspace),
    git!(commit, GitCommitArgs, Workspace),
    git!(branch, GitBranchArgs, Workspace),
    git!(checkout, GitCheckoutArgs, Workspace),
    (venv_install::NAME, ToolEffect::RunsShell { to_line: venv_install_line, class: Workspace }),
    (VENV_RUN, ToolEffect::RunsShell { to_line: venv_run_line, class: Workspace }),
    ("memory_save", ToolEffect::ChangesMemory),
    ("memory_recall", ToolEffect::Recalls(RecallSource::Memory)),
    ("memory_delete", ToolEffect::ChangesMemory),
    ("read_output", ToolEffect::Recalls(RecallSource::Log)),
    // In no set: the runtime's own tools, and those that an engine gives to its roles.
    ("show_file", ToolEffect::Reads),
    ("show_changes", ToolEffect::Reads),
    ("survey", ToolEffect::Reads),
    ("plan_card", ToolEffect::Reads),
    ("diff_card", ToolEffect::Reads),
    ("review_report", ToolEffect::Reads),
    ("complete_task", ToolEffect::Reads),
];

fn venv_install_line(args: &Value) -> Option<ShellLine> {
    parse_args::<venv_install::VenvInstallArgs>(venv_install::NAME, args).ok()?.to_shell_line().ok()
}

fn venv_run_line(args: &Value) -> Option<ShellLine> {
    Some(parse_args::<CommandArgs>(VENV_RUN, args).ok()?.into_shell_line())
}

/// Returns the effect of the tool of this name, in any set.
pub(crate) fn tool_effect(name: &str) -> Option<&'static ToolEffect> {
    TOOL_EFFECTS.iter().find(|(known, _)| *known == name).map(|(_, acts)| acts)
}

/// Returns the names of all tools.
pub(super) fn all_tool_names() -> impl Iterator<Item = &'static str> {
    TOOL_EFFECTS.iter().map(|(name, _)| *name)
}

/// Returns the names of all tools that do more than read.
pub(crate) fn mutating_tool_names() -> impl Iterator<Item = &'static str> {
    let acts = |(_, acts): &&(&str, ToolEffect)| match acts {
        ToolEffect::Reads | ToolEffect::Recalls(_) => false,
        ToolEffect::RunsShell { to_line: _, class } => *class != Reads,
        ToolEffect::Writes(_)
        | ToolEffect::Deletes(_)
        | ToolEffect::RunsTests
        | ToolEffect::ChangesMemory => true,
    };
    TOOL_EFFECTS.iter().filter(acts).map(|(name, _)| *name)
}

/// Returns the shell line of a call; `None` for other tools, or if its arguments do not form a line.
#[must_use]
pub(crate) fn shell_line(name: &str, args: &Value) -> Option<ShellLine> {
    let ToolEffect::RunsShell { to_line: of, class: _ } = tool_effect(name)? else { return None };
    of(args)
}

/// Returns the files that a call names, as written in its arguments: those it changes, or the one it reads.
#[must_use]
pub(crate) fn named_files(name: &str, args: &Value) -> Vec<String> {
    let text = |field: &&str| args.get(field).and_then(Value::as_str).map(str::to_owned);
    let fields: &[&str] = match tool_effect(name) {
        // A copy reads one file and writes the other; both are named.
        Some(ToolEffect::Writes(_)) if name == "copy_file" => &["from", "to"],
        Some(ToolEffect::Writes(fields) | ToolEffect::Deletes(fields)) => fields,
        Some(
            ToolEffect::Reads
            | ToolEffect::Recalls(_)
            | ToolEffect::RunsTests
            | ToolEffect::RunsShell { .. }
            | ToolEffect::ChangesMemory,
        )
        | None => {
            return ["path", "test_path"].iter().find_map(text).into_iter().collect();
        }
    };
    fields.iter().filter_map(text).collect()
}

/// Whether a call of the tool affects a named folder as a whole.
#[must_use]
pub(crate) fn affects_whole_folder(name: &str) -> bool {
    ["move_file", "delete_file", git::checkout::NAME].contains(&name)
}

/// Returns the files that a call itself writes or removes, as written in its arguments; the effects of a command
/// cannot be derived.
#[must_use]
pub(crate) fn written_files(name: &str, args: &Value) -> Vec<String> {
    let text = |field: &&str| args.get(field).and_then(Value::as_str).map(str::to_owned);
    match tool_effect(name) {
        Some(ToolEffect::Writes(fields) | ToolEffect::Deletes(fields)) => {
            fields.iter().filter_map(text).collect()
        }
        Some(
            ToolEffect::Reads
            | ToolEffect::Recalls(_)
            | ToolEffect::RunsTests
            | ToolEffect::RunsShell { .. }
            | ToolEffect::ChangesMemory,
        )
        | None => Vec::new(),
    }
}

/// Whether this is the name of a tool that an MCP server offers.
#[must_use]
pub(crate) fn is_external(name: &str) -> bool {
    name.starts_with("mcp__")
}

/// Whether a read-only call waits for something other than files: such calls are not run in parallel.
#[must_use]
pub fn waits_on_external_io(name: &str) -> bool {
    match tool_effect(name) {
        Some(ToolEffect::Recalls(from)) => *from == RecallSource::Memory,
        Some(ToolEffect::RunsShell { .. } | ToolEffect::RunsTests | ToolEffect::ChangesMemory) => true,
        Some(ToolEffect::Reads | ToolEffect::Writes(_) | ToolEffect::Deletes(_)) => false,
        None => is_external(name),
    }
}

/// Whether a call reads or changes state that outlives the run: a replay takes its result from the log.
#[must_use]
pub fn uses_external_state(name: &str) -> bool {
    match tool_effect(name) {
        Some(ToolEffect::Recalls(from)) => *from == RecallSource::Memory,
        Some(ToolEffect::ChangesMemory) => true,
        Some(
            ToolEffect::Reads
            | ToolEffect::Writes(_)
            | ToolEffect::Deletes(_)
            | ToolEffect::RunsTests
            | ToolEffect::RunsShell { .. },
        ) => false,
        // An MCP server belongs to the worker that executed the call.
        None => is_external(name),
    }
}
