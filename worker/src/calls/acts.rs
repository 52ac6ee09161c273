//! What a call does, as far as its tool and its arguments tell. Pure.

use docket_schema::tool::RecoveryClass;
use serde_json::Value;

use super::{CommandArgs, Line, RUN_COMMAND, VENV_RUN, command::line_of_command, git, parse, venv_install};

/// What a call of a tool does, as far as its arguments tell.
pub(crate) enum Acts {
    /// It reads files.
    Reads,
    /// It reads what the run has already, or what is remembered.
    Recalls(Where),
    /// It writes the files that these arguments name.
    Writes(&'static [&'static str]),
    /// It removes the files that these arguments name.
    Deletes(&'static [&'static str]),
    /// It runs the project's tests.
    Tests,
    /// It runs a shell line, which these arguments come to.
    Line { of: fn(&Value) -> Option<Line>, class: RecoveryClass },
    /// It changes what is remembered: the same call does so once.
    Remembers,
}

/// Where what is recalled comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
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
static ACTS: [(&str, Acts); 35] = [
    ("read_file", Acts::Reads),
    ("edit_file", Acts::Writes(&["path"])),
    ("create_file", Acts::Writes(&["path"])),
    ("search_codebase", Acts::Reads),
    ("list_files", Acts::Reads),
    (RUN_COMMAND, Acts::Line { of: |args| Some(line_of_command(args)), class: Workspace }),
    ("run_tests", Acts::Tests),
    ("write_file", Acts::Writes(&["path"])),
    ("append_file", Acts::Writes(&["path"])),
    ("move_file", Acts::Writes(&["from", "to"])),
    ("copy_file", Acts::Writes(&["to"])),
    ("delete_file", Acts::Deletes(&["path"])),
    ("make_folder", Acts::Writes(&["path"])),
    ("stat_file", Acts::Reads),
    git!(status, Reads),
    git!(diff, Reads),
    git!(log, Reads),
    git!(show, Reads),
    git!(add, Workspace),
    git!(commit, Workspace),
    git!(branch, Workspace),
    git!(checkout, Workspace),
    (venv_install::NAME, Acts::Line { of: line_of_install, class: Workspace }),
    (VENV_RUN, Acts::Line { of: line_in_venv, class: Workspace }),
    ("memory_save", Acts::Remembers),
    ("memory_recall", Acts::Recalls(Where::Memory)),
    ("memory_delete", Acts::Remembers),
    ("read_output", Acts::Recalls(Where::Log)),
    // In no set: the runtime's own, and those that an engine gives to its roles.
    ("show_file", Acts::Reads),
    ("show_changes", Acts::Reads),
    ("survey", Acts::Reads),
    ("plan_card", Acts::Reads),
    ("diff_card", Acts::Reads),
    ("review_report", Acts::Reads),
    ("complete_task", Acts::Reads),
];

fn line_of_install(args: &Value) -> Option<Line> {
    parse::<venv_install::Args>(venv_install::NAME, args).ok()?.line().ok()
}

fn line_in_venv(args: &Value) -> Option<Line> {
    Some(parse::<CommandArgs>(VENV_RUN, args).ok()?.into_line())
}

/// What the tool of this name does, in whatever set it is.
pub(crate) fn acts_of(name: &str) -> Option<&'static Acts> {
    ACTS.iter().find(|(known, _)| *known == name).map(|(_, acts)| acts)
}

/// The names of all tools there are.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    ACTS.iter().map(|(name, _)| *name)
}

/// The names of all tools that do more than read.
pub(crate) fn acting() -> impl Iterator<Item = &'static str> {
    let acts = |(_, acts): &&(&str, Acts)| match acts {
        Acts::Reads | Acts::Recalls(_) => false,
        Acts::Line { of: _, class } => *class != Reads,
        Acts::Writes(_) | Acts::Deletes(_) | Acts::Tests | Acts::Remembers => true,
    };
    ACTS.iter().filter(acts).map(|(name, _)| *name)
}

/// What a call of a tool that is a shell line runs; none of any other tool, and where its arguments come to no line.
#[must_use]
pub(crate) fn shell_line(name: &str, args: &Value) -> Option<Line> {
    let Acts::Line { of, class: _ } = acts_of(name)? else { return None };
    of(args)
}

/// The files that a call names, as it names them: those that it changes, or the one that it reads.
#[must_use]
pub(crate) fn named_files(name: &str, args: &Value) -> Vec<String> {
    let text = |field: &&str| args.get(field).and_then(Value::as_str).map(str::to_owned);
    let fields: &[&str] = match acts_of(name) {
        // A copy reads the one and writes the other: both are what it is about.
        Some(Acts::Writes(_)) if name == "copy_file" => &["from", "to"],
        Some(Acts::Writes(fields) | Acts::Deletes(fields)) => fields,
        Some(Acts::Reads | Acts::Recalls(_) | Acts::Tests | Acts::Line { .. } | Acts::Remembers) | None => {
            return ["path", "test_path"].iter().find_map(text).into_iter().collect();
        }
    };
    fields.iter().filter_map(text).collect()
}

/// Whether a call of it does what it does to a folder whole, where it names one.
#[must_use]
pub(crate) fn acts_on_folders(name: &str) -> bool {
    ["move_file", "delete_file", git::checkout::NAME].contains(&name)
}

/// The files that a call writes or removes by itself, as it names them; what a command does no argument tells.
#[must_use]
pub(crate) fn written_files(name: &str, args: &Value) -> Vec<String> {
    let text = |field: &&str| args.get(field).and_then(Value::as_str).map(str::to_owned);
    match acts_of(name) {
        Some(Acts::Writes(fields) | Acts::Deletes(fields)) => fields.iter().filter_map(text).collect(),
        Some(Acts::Reads | Acts::Recalls(_) | Acts::Tests | Acts::Line { .. } | Acts::Remembers) | None => {
            Vec::new()
        }
    }
}

/// Whether this is the name of a tool that an MCP server offers.
#[must_use]
pub(crate) fn is_external(name: &str) -> bool {
    name.starts_with("mcp__")
}

/// Whether a call that only reads waits for something beyond the files: those are not run beside each other.
#[must_use]
pub fn waits(name: &str) -> bool {
    match acts_of(name) {
        Some(Acts::Recalls(from)) => *from == Where::Memory,
        Some(Acts::Line { .. } | Acts::Tests | Acts::Remembers) => true,
        Some(Acts::Reads | Acts::Writes(_) | Acts::Deletes(_)) => false,
        None => is_external(name),
    }
}

/// Whether a call asks or changes what outlives the run: a replay takes its result from the log.
#[must_use]
pub fn is_beyond_run(name: &str) -> bool {
    match acts_of(name) {
        Some(Acts::Recalls(from)) => *from == Where::Memory,
        Some(Acts::Remembers) => true,
        Some(Acts::Reads | Acts::Writes(_) | Acts::Deletes(_) | Acts::Tests | Acts::Line { .. }) => false,
        // A server is the worker's that carried it out.
        None => is_external(name),
    }
}
