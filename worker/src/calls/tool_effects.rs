//! What a call does, as far as its tool and its arguments tell. Pure.

use docket_schema::tool::RecoveryClass;
use serde_json::Value;

use super::{
    CommandArgs, RUN_COMMAND, ShellLine, VENV_RUN, command::run_command_line, git, parse_args, venv_install,
};

/// What a call of a tool does, as far as its arguments tell.
pub(crate) enum ToolEffect {
    /// It reads files.
    Reads,
    /// It reads what the run has already, or what is remembered.
    Recalls(RecallSource),
    /// It writes the files that these arguments name.
    Writes(&'static [&'static str]),
    /// It removes the files that these arguments name.
    Deletes(&'static [&'static str]),
    /// It runs the project's tests.
    RunsTests,
    /// It runs a shell line, which these arguments come to.
    RunsShell { to_line: fn(&Value) -> Option<ShellLine>, class: RecoveryClass },
    /// It changes what is remembered: the same call does so once.
    ChangesMemory,
}

/// Where what is recalled comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecallSource {
    /// The run's own log.
    Log,
    /// Memory that outlives the run.
    Memory,
}

/// A tool that is a git command.
macro_rules! git {
    ($verb:ident, $class:expr) => {
        (
            git::$verb::NAME,
            Acts::Line {
                of: |args| {
                    let args = parse::<git::$verb::Args>(git::$verb::NAME, args).ok()?;
                    Some(args.git().ok()?.line())
                },
                class: $class,
            },
        )
    };
}

use RecoveryClass::{Reads, Workspace};

/// What each tool does, by its name; those of `core` first, in their order.
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
    git!(status, Reads),
    git!(diff, Reads),
    git!(log, Reads),
    git!(show, Reads),
    git!(add, Workspace),
    git!(commit, Workspace),
    git!(branch, Workspace),
    git!(checkout, Workspace),
    (venv_install::NAME, ToolEffect::RunsShell { to_line: venv_install_line, class: Workspace }),
    (VENV_RUN, ToolEffect::RunsShell { to_line: venv_run_line, class: Workspace }),
    ("memory_save", ToolEffect::ChangesMemory),
    ("memory_recall", ToolEffect::Recalls(RecallSource::Memory)),
    ("memory_delete", ToolEffect::ChangesMemory),
    ("read_output", ToolEffect::Recalls(RecallSource::Log)),
    // In no set: the runtime's own, and those that an engine gives to its roles.
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

/// What the tool of this name does, in whatever set it is.
pub(crate) fn tool_effect(name: &str) -> Option<&'static ToolEffect> {
    TOOL_EFFECTS.iter().find(|(known, _)| *known == name).map(|(_, acts)| acts)
}

/// The names of all tools there are.
pub(super) fn all_tool_names() -> impl Iterator<Item = &'static str> {
    TOOL_EFFECTS.iter().map(|(name, _)| *name)
}

/// The names of all tools that do more than read.
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

/// What a call of a tool that is a shell line runs; none of any other tool, and where its arguments come to no line.
#[must_use]
pub(crate) fn shell_line(name: &str, args: &Value) -> Option<ShellLine> {
    let ToolEffect::RunsShell { to_line: of, class: _ } = tool_effect(name)? else { return None };
    of(args)
}

/// The files that a call names, as it names them: those that it changes, or the one that it reads.
#[must_use]
pub(crate) fn named_files(name: &str, args: &Value) -> Vec<String> {
    let text = |field: &&str| args.get(field).and_then(Value::as_str).map(str::to_owned);
    let fields: &[&str] = match tool_effect(name) {
        // A copy reads the one and writes the other: both are what it is about.
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

/// Whether a call of it does what it does to a folder whole, where it names one.
#[must_use]
pub(crate) fn affects_whole_folder(name: &str) -> bool {
    ["move_file", "delete_file", git::checkout::NAME].contains(&name)
}

/// The files that a call writes or removes by itself, as it names them; what a command does no argument tells.
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

/// Whether a call that only reads waits for something beyond the files: those are not run beside each other.
#[must_use]
pub fn waits_on_external_io(name: &str) -> bool {
    match tool_effect(name) {
        Some(ToolEffect::Recalls(from)) => *from == RecallSource::Memory,
        Some(ToolEffect::RunsShell { .. } | ToolEffect::RunsTests | ToolEffect::ChangesMemory) => true,
        Some(ToolEffect::Reads | ToolEffect::Writes(_) | ToolEffect::Deletes(_)) => false,
        None => is_external(name),
    }
}

/// Whether a call asks or changes what outlives the run: a replay takes its result from the log.
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
        // A server is the worker's that carried it out.
        None => is_external(name),
    }
}
