//! All tools there are, each by its name: what a model is told of it, and how it is run. What a call of each does, and
//! which of them a run can have, is in [`calls`](crate::calls). Pure but for [`Tool::run`].

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

/// A tool.
pub(super) struct ToolDefinition {
    pub(super) name: &'static str,
    description: &'static str,
    schema: fn() -> Value,
    pub(super) run: for<'a> fn(ToolContext<'a>, &'a Value) -> BoxFuture<'a, ToolOutcome>,
}

/// A row of the table: `sync` where running it waits for nothing, `git` where it is a git command.
macro_rules! tool {
    ($($module:ident)::+) => {
        tool!(@row $($module)::+, |context, args| $($module)::+::run(context, args).await)
    };
    (sync $($module:ident)::+) => {
        tool!(@row $($module)::+, |context, args| $($module)::+::run(context, &args))
    };
    (git $verb:ident) => {
        tool!(@row calls::git::$verb, |context, args| git::run(context, calls::git::$verb::NAME, args.git()).await)
    };
    (@row $($module:ident)::+, |$context:ident, $args:ident| $outcome:expr) => {
        Tool {
            name: $($module)::+::NAME,
            description: $($module)::+::DESCRIPTION,
            schema: schema_of::<$($module)::+::Args>,
            run: |$context, args| {
                Box::pin(async move {
                    match parse::<$($module)::+::Args>($($module)::+::NAME, args) {
                        Ok($args) => $outcome,
                        Err(text) => ToolOutcome::error($($module)::+::NAME, text),
                    }
                })
            },
        }
    };
}

/// All of them; those of `core` first, in their order.
static TOOLS: [ToolDefinition; 35] = [
    tool!(sync read_file),
    tool!(edit_file),
    tool!(create_file),
    tool!(sync search_codebase),
    tool!(sync list_files),
    tool!(run_command),
    tool!(test_command),
    tool!(paths::write_file),
    tool!(paths::append_file),
    tool!(paths::move_file),
    tool!(paths::copy_file),
    tool!(sync paths::delete_file),
    tool!(sync paths::make_folder),
    tool!(sync paths::stat_file),
    tool!(git status),
    tool!(git diff),
    tool!(git log),
    tool!(git show),
    tool!(git add),
    tool!(git commit),
    tool!(git branch),
    tool!(git checkout),
    tool!(venv::install),
    tool!(venv::run),
    tool!(memory::save),
    tool!(memory::recall),
    tool!(memory::delete),
    tool!(sync read_output),
    // In no set: the runtime's own, and those that an engine gives to its roles.
    tool!(sync show_file),
    tool!(sync show_changes),
    tool!(survey),
    tool!(sync artifacts::plan_card),
    tool!(sync artifacts::diff_card),
    tool!(sync artifacts::review_report),
    tool!(sync artifacts::complete_task),
];

/// The tool of this name, in whatever set.
pub(super) fn find_tool(name: &str) -> Option<&'static ToolDefinition> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The tools of a set as a model is told of them: always in this order and to the byte the same.
#[must_use]
pub fn tool_specs(set: ToolSet) -> Vec<ToolSpec> {
    tool_names_in_set(set).iter().filter_map(|name| tool_spec(name)).collect()
}

/// The tools by which a role hands a structured result to the runtime, as a model is told of them.
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

    /// A worked example: a tool of one's own. All of it stands here but its rows in `TOOLS` and in `ACTS`,
    /// and the sets that are to have it.
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

        /// All access to files goes through the context's folder; what goes wrong is an answer to the model.
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
        let row = tool!(sync count_lines);
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
