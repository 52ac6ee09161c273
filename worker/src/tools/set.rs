//! All tools there are, each by its name: what a model is told of it, what it does in the words of policy and recovery,
//! and how it is run. And the sets of them that a run can have.
//!
//! The seven of `core` are few on purpose. The 26 of `wide`: eleven for files (read, write, append, edit, move, copy,
//! delete, make a folder, list, search, stat), eight for git (status, diff, log, show, add, commit, branch, checkout),
//! two for commands (run, tests), two for a virtual environment (install, which also creates it; run) and three for
//! memory (save; recall, which without a key lists; delete). `read_output` is one more. Pure but for [`Tool::run`].

use docket_schema::{
    message::ToolSpec,
    tool::{RecoveryClass, ToolSet},
};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{
    args::{parse, schema_of},
    cards,
    context::{ToolContext, ToolOutcome},
    create_file, edit_file, git,
    line::Line,
    list_files, memory, paths, read_file, read_output, run_command, run_tests, search_codebase, show_changes,
    show_file, survey, venv,
};

/// A tool.
pub(super) struct Tool {
    pub(super) name: &'static str,
    description: &'static str,
    schema: fn() -> Value,
    pub(super) acts: Acts,
    pub(super) run: for<'a> fn(ToolContext<'a>, &'a Value) -> BoxFuture<'a, ToolOutcome>,
}

/// What a call of a tool does, as far as its arguments tell.
pub(super) enum Acts {
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
pub(super) enum Where {
    /// The run's own log.
    Log,
    /// Memory that outlives the run.
    Memory,
}

/// A row of the table; `sync` where running it waits for nothing.
macro_rules! tool {
    ($($module:ident)::+, $acts:expr) => {
        Tool {
            name: $($module)::+::NAME,
            description: $($module)::+::DESCRIPTION,
            schema: schema_of::<$($module)::+::Args>,
            acts: $acts,
            run: |context, args| {
                Box::pin(async move {
                    match parse::<$($module)::+::Args>($($module)::+::NAME, args) {
                        Ok(args) => $($module)::+::run(context, args).await,
                        Err(text) => ToolOutcome::error($($module)::+::NAME, text),
                    }
                })
            },
        }
    };
    (sync $($module:ident)::+, $acts:expr) => {
        Tool {
            name: $($module)::+::NAME,
            description: $($module)::+::DESCRIPTION,
            schema: schema_of::<$($module)::+::Args>,
            acts: $acts,
            run: |context, args| {
                Box::pin(async move {
                    match parse::<$($module)::+::Args>($($module)::+::NAME, args) {
                        Ok(args) => $($module)::+::run(context, &args),
                        Err(text) => ToolOutcome::error($($module)::+::NAME, text),
                    }
                })
            },
        }
    };
}

/// A tool that is a git command.
macro_rules! git {
    ($module:ident, $class:expr) => {
        tool!(
            git::$module,
            Acts::Line {
                of: |args| parse::<git::$module::Args>(git::$module::NAME, args).ok()?.line().ok(),
                class: $class,
            }
        )
    };
}

use RecoveryClass::{Reads, Workspace};

/// All of them; those of `core` first, in their order.
static TOOLS: [Tool; 35] = [
    tool!(sync read_file, Acts::Reads),
    tool!(edit_file, Acts::Writes(&["path"])),
    tool!(create_file, Acts::Writes(&["path"])),
    tool!(sync search_codebase, Acts::Reads),
    tool!(sync list_files, Acts::Reads),
    tool!(run_command, Acts::Line { of: command_line, class: Workspace }),
    tool!(run_tests, Acts::Tests),
    tool!(paths::write_file, Acts::Writes(&["path"])),
    tool!(paths::append_file, Acts::Writes(&["path"])),
    tool!(paths::move_file, Acts::Writes(&["from", "to"])),
    tool!(paths::copy_file, Acts::Writes(&["to"])),
    tool!(sync paths::delete_file, Acts::Deletes(&["path"])),
    tool!(sync paths::make_folder, Acts::Writes(&["path"])),
    tool!(sync paths::stat_file, Acts::Reads),
    git!(status, Reads),
    git!(diff, Reads),
    git!(log, Reads),
    git!(show, Reads),
    git!(add, Workspace),
    git!(commit, Workspace),
    git!(branch, Workspace),
    git!(checkout, Workspace),
    tool!(
        venv::install,
        Acts::Line {
            of: |args| parse::<venv::install::Args>(venv::install::NAME, args).ok()?.line().ok(),
            class: Workspace,
        }
    ),
    tool!(
        venv::run,
        Acts::Line {
            of: |args| venv::run::line(&parse::<venv::run::Args>(venv::run::NAME, args).ok()?).ok(),
            class: Workspace,
        }
    ),
    tool!(memory::save, Acts::Remembers),
    tool!(memory::recall, Acts::Recalls(Where::Memory)),
    tool!(memory::delete, Acts::Remembers),
    tool!(sync read_output, Acts::Recalls(Where::Log)),
    // In no set: the runtime's own, and those that an engine gives to its roles.
    tool!(sync show_file, Acts::Reads),
    tool!(sync show_changes, Acts::Reads),
    tool!(survey, Acts::Reads),
    tool!(sync cards::plan_card, Acts::Reads),
    tool!(sync cards::diff_card, Acts::Reads),
    tool!(sync cards::review_report, Acts::Reads),
    tool!(sync cards::complete_task, Acts::Reads),
];

/// Those in no set that a role may have.
const CARDS: [&str; 4] =
    [cards::plan_card::NAME, cards::diff_card::NAME, cards::review_report::NAME, cards::complete_task::NAME];
/// Those that only the runtime calls.
const OWN: [&str; 3] = [show_file::NAME, show_changes::NAME, survey::NAME];

/// The line of `run_command`, however much of its arguments is right: it was read so before there were others.
fn command_line(args: &Value) -> Option<Line> {
    let text = |field: &str| args.get(field).and_then(Value::as_str);
    let cwd = text("cwd").map(str::to_owned);
    Some(Line {
        shell: text("command").unwrap_or_default().to_owned(),
        cwd,
        paths: Vec::new(),
        reads: Vec::new(),
    })
}

/// The names of a set, in the order in which a model is told of them.
fn names_of(set: ToolSet) -> &'static [&'static str] {
    match set {
        ToolSet::Core => &[
            read_file::NAME,
            edit_file::NAME,
            create_file::NAME,
            search_codebase::NAME,
            list_files::NAME,
            run_command::NAME,
            run_tests::NAME,
        ],
        ToolSet::Wide => &[
            read_file::NAME,
            paths::write_file::NAME,
            paths::append_file::NAME,
            edit_file::NAME,
            paths::move_file::NAME,
            paths::copy_file::NAME,
            paths::delete_file::NAME,
            paths::make_folder::NAME,
            list_files::NAME,
            search_codebase::NAME,
            paths::stat_file::NAME,
            git::status::NAME,
            git::diff::NAME,
            git::log::NAME,
            git::show::NAME,
            git::add::NAME,
            git::commit::NAME,
            git::branch::NAME,
            git::checkout::NAME,
            run_command::NAME,
            run_tests::NAME,
            venv::install::NAME,
            venv::run::NAME,
            memory::save::NAME,
            memory::recall::NAME,
            memory::delete::NAME,
            read_output::NAME,
        ],
    }
}

/// The tool of this name, in whatever set.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The names of all tools, those of `core` first.
pub fn all_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name).filter(|name| !OWN.contains(name) && !CARDS.contains(name))
}

/// The names of all tools that do more than read.
pub(crate) fn acting() -> impl Iterator<Item = &'static str> {
    let acts = |tool: &&Tool| match tool.acts {
        Acts::Reads | Acts::Recalls(_) => false,
        Acts::Line { of: _, class } => class != Reads,
        Acts::Writes(_) | Acts::Deletes(_) | Acts::Tests | Acts::Remembers => true,
    };
    TOOLS.iter().filter(acts).map(|tool| tool.name)
}

/// Whether a set has a tool of this name.
#[must_use]
pub fn has(set: ToolSet, name: &str) -> bool {
    names_of(set).contains(&name)
}

/// The tools of a set as a model is told of them: always in this order and to the byte the same.
#[must_use]
pub fn specs_of(set: ToolSet) -> Vec<ToolSpec> {
    names_of(set).iter().filter_map(|name| spec(name)).collect()
}

/// The tools by which a role hands a structured result to the runtime, as a model is told of them.
#[must_use]
pub fn card_specs() -> Vec<ToolSpec> {
    CARDS.iter().filter_map(|name| spec(name)).collect()
}

/// Whether this is one of them.
#[must_use]
pub(crate) fn is_card(name: &str) -> bool {
    CARDS.contains(&name)
}

fn spec(name: &str) -> Option<ToolSpec> {
    let tool = find(name)?;
    let (name, description) = (tool.name.to_owned(), tool.description.to_owned());
    Some(ToolSpec { name, description, input_schema: (tool.schema)() })
}

/// What a call of a tool that is a shell line runs; none of any other tool, and where its arguments come to no line.
#[must_use]
pub(crate) fn shell_line(name: &str, args: &Value) -> Option<Line> {
    match find(name)?.acts {
        Acts::Line { of, class: _ } => of(args),
        Acts::Reads
        | Acts::Recalls(_)
        | Acts::Writes(_)
        | Acts::Deletes(_)
        | Acts::Tests
        | Acts::Remembers => None,
    }
}

/// The files that a call names, as it names them: those that it changes, or the one that it reads.
#[must_use]
pub(crate) fn named_files(name: &str, args: &Value) -> Vec<String> {
    let text = |field: &&str| args.get(field).and_then(Value::as_str).map(str::to_owned);
    let fields: &[&str] = match find(name).map(|tool| &tool.acts) {
        // A copy reads the one and writes the other: both are what it is about.
        Some(Acts::Writes(_)) if name == paths::copy_file::NAME => &["from", "to"],
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
    [paths::move_file::NAME, paths::delete_file::NAME, git::checkout::NAME].contains(&name)
}

/// The files that a call writes or removes by itself, as it names them; what a command does no argument tells.
#[must_use]
pub(crate) fn written_files(name: &str, args: &Value) -> Vec<String> {
    let text = |field: &&str| args.get(field).and_then(Value::as_str).map(str::to_owned);
    match find(name).map(|tool| &tool.acts) {
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
    match find(name).map(|tool| &tool.acts) {
        Some(Acts::Recalls(from)) => *from == Where::Memory,
        Some(Acts::Line { .. } | Acts::Tests | Acts::Remembers) => true,
        Some(Acts::Reads | Acts::Writes(_) | Acts::Deletes(_)) => false,
        None => is_external(name),
    }
}

/// Whether a call asks or changes what outlives the run: a replay takes its result from the log.
#[must_use]
pub fn is_beyond_run(name: &str) -> bool {
    match find(name).map(|tool| &tool.acts) {
        Some(Acts::Recalls(from)) => *from == Where::Memory,
        Some(Acts::Remembers) => true,
        Some(Acts::Reads | Acts::Writes(_) | Acts::Deletes(_) | Acts::Tests | Acts::Line { .. }) => false,
        // A server is the worker's that carried it out.
        None => is_external(name),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_wide_set_has_26_tools_and_one_more_and_each_is_found() {
        let wide = names_of(ToolSet::Wide);
        assert_eq!(wide.iter().filter(|name| **name != read_output::NAME).count(), 26);
        let of = |begin: &str| wide.iter().filter(|name| name.starts_with(begin)).count();
        assert_eq!((of("git_"), of("venv_"), of("memory_")), (8, 2, 3));
        for set in ToolSet::ALL {
            let names: BTreeSet<_> = names_of(set).iter().collect();
            assert_eq!(names.len(), names_of(set).len());
            assert_eq!(specs_of(set).len(), names_of(set).len());
        }
        let all: BTreeSet<_> = all_names().collect();
        let used: BTreeSet<_> = ToolSet::ALL.iter().flat_map(|set| names_of(*set)).copied().collect();
        assert_eq!((all.len() + OWN.len() + CARDS.len(), all == used), (TOOLS.len(), true));
        assert_eq!(card_specs().len(), CARDS.len());
        assert_eq!(all_names().take(7).collect::<Vec<_>>(), names_of(ToolSet::Core));
    }

    #[test]
    fn specifications_of_the_wide_set_do_not_change_unseen() {
        insta::assert_json_snapshot!(specs_of(ToolSet::Wide));
    }

    #[test]
    fn specifications_of_the_cards_do_not_change_unseen() {
        insta::assert_json_snapshot!(card_specs());
    }

    /// A worked example: a tool of one's own. All of it stands here but its row in `TOOLS`, and the sets that are to have it.
    mod count_lines {
        use schemars::JsonSchema;
        use serde::Deserialize;

        use super::super::super::{
            context::{ToolContext, ToolOutcome},
            files::{load, work_path},
        };

        pub(super) const NAME: &str = "count_lines";
        pub(super) const DESCRIPTION: &str = "Counts the lines of a file.";

        /// What a model is told of its arguments is derived from this.
        #[derive(Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct Args {
            /// The file, from the workspace.
            path: String,
        }

        /// All access to files goes through the context's folder; what goes wrong is an answer to the model.
        pub(super) fn run(context: ToolContext<'_>, args: &Args) -> ToolOutcome {
            let read = work_path(&args.path).map_err(|error| error.to_string());
            let read = read.and_then(|path| load(context.root, &path).map_err(|error| error.to_string()));
            match read {
                Ok(file) => {
                    let lines = file.bytes.iter().filter(|byte| **byte == b'\n').count();
                    ToolOutcome::ok(format!("{lines} lines\n"))
                }
                Err(text) => ToolOutcome::error(NAME, text),
            }
        }
    }

    #[test]
    fn a_tool_of_ones_own_is_one_row() {
        let row = tool!(sync count_lines, Acts::Reads);
        let place = super::super::testing::Workspace::new(&[("a", "1\n2\n")]);
        let call =
            |args: Value| place.with(|context| Box::pin(async move { (row.run)(context, &args).await }));
        assert_eq!(call(serde_json::json!({ "path": "a" })).text(), "2 lines\n");
        for (args, want) in [
            (serde_json::json!({ "path": "b" }), "does not exist"),
            (serde_json::json!({ "path": "../b" }), "path"),
            (serde_json::json!({ "file": "a" }), "`file` is unknown"),
        ] {
            let out = call(args);
            assert!(out.is_error && out.text().contains(want), "{want}: {}", out.text());
        }
        assert_eq!((row.schema)()["properties"]["path"]["type"], "string");
        assert!(find(row.name).is_none() && matches!(row.acts, Acts::Reads));
    }
}
