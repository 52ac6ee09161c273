//! Catalog of all tools by name: their specification for the model and their implementation. Their effects and the
//! sets they belong to are in [`calls`](crate::calls). Pure except for [`ToolDefinition::run`].

use docket_schema::{message::ToolSpec, tool::ToolSet};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{
    artifacts,
    commands::{run_command, venv},
    context::tool_context::{ToolContext, ToolOutcome},
    files::{create_file, edit_file, paths, read_file, read_output, show_changes, show_file},
    git, memory,
    search::{list_files, search_codebase, survey},
    test_runs::test_command,
};
use crate::calls::{self, ARTIFACT_TOOLS, argument_schema, parse_args, tool_names_in_set};

/// A tool of the catalog.
pub(super) struct ToolDefinition {
    pub(super) name: &'static str,
    description: &'static str,
    schema: fn() -> Value,
    pub(super) run: for<'a> fn(ToolContext<'a>, &'a Value) -> BoxFuture<'a, ToolOutcome>,
}

/// A row of the table: `sync` if the tool does not wait for anything, `git` if it is a git command.
macro_rules! tool {
    ($($module:ident)::+, $input:ident) => {
        tool!(@row $($module)::+, $input, |context, args| $($module)::+::run(context, args).await)
    };
    (sync $($module:ident)::+, $input:ident) => {
        tool!(@row $($module)::+, $input, |context, args| $($module)::+::run(context, &args))
    };
    (git $verb:ident, $input:ident) => {
        tool!(@row calls::git::$verb, $input, |context, args| git::run(context, calls::git::$verb::NAME, args.to_git_command()).await)
    };
    (@row $($module:ident)::+, $input:ident, |$context:ident, $args:ident| $outcome:expr) => {
        ToolDefinition {
            name: $($module)::+::NAME,
            description: $($module)::+::DESCRIPTION,
            schema: argument_schema::<$($module)::+::$input>,
            run: |$context, args| {
                Box::pin(async move {
                    match parse_args::<$($module)::+::$input>($($module)::+::NAME, args) {
                        Ok($args) => $outcome,
                        Err(text) => ToolOutcome::error($($module)::+::NAME, text),
                    }
                })
            },
        }
    };
}

/// All tools; those of `core` first, in their order.
static TOOLS: [ToolDefinition; 35] = [
    tool!(sync read_file, ReadFileArgs),
    tool!(edit_file, EditFileArgs),
    tool!(create_file, CreateFileArgs),
    tool!(sync search_codebase, SearchCodebaseArgs),
    tool!(sync list_files, ListFilesArgs),
    tool!(run_command, CommandArgs),
    tool!(test_command, RunTestsArgs),
    tool!(paths::write_file, WriteFileArgs),
    tool!(paths::append_file, AppendFileArgs),
    tool!(paths::move_file, MoveFileArgs),
    tool!(paths::copy_file, CopyFileArgs),
    tool!(sync paths::delete_file, DeleteFileArgs),
    tool!(sync paths::make_folder, MakeFolderArgs),
    tool!(sync paths::stat_file, StatFileArgs),
    tool!(git status, GitStatusArgs),
    tool!(git diff, GitDiffArgs),
    tool!(git log, GitLogArgs),
    tool!(git show, GitShowArgs),
    tool!(git add, GitAddArgs),
    tool!(git commit, GitCommitArgs),
    tool!(git branch, GitBranchArgs),
    tool!(git checkout, GitCheckoutArgs),
    tool!(venv::install, VenvInstallArgs),
    tool!(venv::run, CommandArgs),
    tool!(memory::save, MemorySaveArgs),
    tool!(memory::recall, MemoryRecallArgs),
    tool!(memory::delete, MemoryDeleteArgs),
    tool!(sync read_output, ReadOutputArgs),
    // In no set: the runtime's own tools, and those that an engine gives to its roles.
    tool!(sync show_file, ShowFileArgs),
    tool!(sync show_changes, ShowChangesArgs),
    tool!(survey, SurveyArgs),
    tool!(sync artifacts::plan_card, PlanCardArgs),
    tool!(sync artifacts::diff_card, DiffCardArgs),
    tool!(sync artifacts::review_report, ReviewReportArgs),
    tool!(sync artifacts::complete_task, CompleteTaskArgs),
];

/// Finds a tool by name, in any set.
pub(super) fn find_tool(name: &str) -> Option<&'static ToolDefinition> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Specifications of the tools in a set for the model: always in this order and byte for byte the same.
#[must_use]
pub fn tool_specs(set: ToolSet) -> Vec<ToolSpec> {
    tool_names_in_set(set).iter().filter_map(|name| tool_spec(name)).collect()
}

/// Specifications of the tools by which a role returns a structured result.
#[must_use]
pub fn card_specs() -> Vec<ToolSpec> {
    ARTIFACT_TOOLS.iter().filter_map(|name| tool_spec(name)).collect()
}

fn tool_spec(name: &str) -> Option<ToolSpec> {
    let tool = find_tool(name)?;
    let (name, description) = (tool.name.to_owned(), tool.description.to_owned());
    Some(ToolSpec { name, description, input_schema: (tool.schema)() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::calls::{RUNTIME_TOOLS, selectable_tool_names, tool_effect};

    #[test]
    fn wide_set_has_27_tools_and_each_is_found() {
        let wide = tool_names_in_set(ToolSet::Wide);
        assert_eq!(wide.iter().filter(|name| **name != read_output::NAME).count(), 26);
        let of = |begin: &str| wide.iter().filter(|name| name.starts_with(begin)).count();
        assert_eq!((of("git_"), of("venv_"), of("memory_")), (8, 2, 3));
        for set in ToolSet::ALL {
            let names: BTreeSet<_> = tool_names_in_set(set).iter().collect();
            assert_eq!(names.len(), tool_names_in_set(set).len());
            assert_eq!(tool_specs(set).len(), tool_names_in_set(set).len());
        }
        let all: BTreeSet<_> = selectable_tool_names().collect();
        let used: BTreeSet<_> =
            ToolSet::ALL.iter().flat_map(|set| tool_names_in_set(*set)).copied().collect();
        assert_eq!(
            (all.len() + RUNTIME_TOOLS.len() + ARTIFACT_TOOLS.len(), all == used),
            (TOOLS.len(), true)
        );
        assert!(
            TOOLS.iter().all(|tool| tool_effect(tool.name).is_some()),
            "each does something that is told"
        );
        assert_eq!(card_specs().len(), ARTIFACT_TOOLS.len());
        assert_eq!(selectable_tool_names().take(7).collect::<Vec<_>>(), tool_names_in_set(ToolSet::Core));
    }

    #[test]
    fn wide_set_specs_match_the_snapshot() {
        insta::assert_json_snapshot!(tool_specs(ToolSet::Wide));
    }

    #[test]
    fn card_specs_match_the_snapshot() {
        insta::assert_json_snapshot!(card_specs());
    }

    /// A worked example of a custom tool. It is complete except for its rows in `TOOLS` and in the effects table, and
    /// the sets that should include it.
    mod count_lines {
        use schemars::JsonSchema;
        use serde::Deserialize;

        use super::super::super::{
            context::tool_context::{ToolContext, ToolOutcome},
            file_access::files::load_file,
        };
        use crate::calls::parse_workspace_path;

        pub(super) const NAME: &str = "count_lines";
        pub(super) const DESCRIPTION: &str = "Counts the lines of a file.";

        /// What a model is told of its arguments is derived from this.
        #[derive(Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct CountLinesArgs {
            /// The file, from the workspace.
            path: String,
        }

        /// All file access uses the context's directory handle; failures are answers to the model.
        pub(super) fn run(context: ToolContext<'_>, args: &CountLinesArgs) -> ToolOutcome {
            let read = parse_workspace_path(&args.path).map_err(|error| error.to_string());
            let read =
                read.and_then(|path| load_file(context.root, &path).map_err(|error| error.to_string()));
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
    fn custom_tool_takes_one_row() {
        let row = tool!(sync count_lines, CountLinesArgs);
        let place = super::super::testing::TestWorkspace::new(&[("a", "1\n2\n")]);
        let call = |args: Value| {
            place.with_context(|context| Box::pin(async move { (row.run)(context, &args).await }))
        };
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
        assert!(find_tool(row.name).is_none());
    }
}
