//! Tool registry: specifications by name, and the single entry point to run a tool.

use docket_schema::{message::ToolSpec, tool::ToolSet};
use serde_json::Value;

use super::{
    catalog::{find_tool, tool_specs},
    context::tool_context::{ToolContext, ToolOutcome},
};
use crate::calls::{DELEGATE, selectable_tool_names};

/// Specifications of the default tool set.
#[must_use]
pub fn core_tool_specs() -> Vec<ToolSpec> {
    tool_specs(ToolSet::Core)
}

/// Resolves a tool name: some models add a namespace in front (`functions.edit_file`), and some servers leave a
/// template mark behind (`edit_file<|channel|>json`). An unknown name is returned unchanged.
#[must_use]
pub fn canonical_tool_name(name: &str) -> &str {
    let known = |name: &str| find_tool(name).is_some() || name == DELEGATE;
    let unmarked = name.split("<|").next().unwrap_or(name).trim();
    let bare = unmarked.rsplit(['.', ':', '/']).next().unwrap_or(unmarked);
    if !known(name) && known(bare) { bare } else { name }
}

/// Runs the tool `name`. Unknown names and invalid arguments become answers too.
pub async fn execute_tool(context: ToolContext<'_>, name: &str, args: &Value) -> ToolOutcome {
    match find_tool(name) {
        Some(tool) => (tool.run)(context, args).await,
        None => unknown_tool(name, selectable_tool_names()),
    }
}

/// The answer to an unknown tool name.
pub fn unknown_tool<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> ToolOutcome {
    let shown: String = name.chars().take(80).collect();
    let known: Vec<&str> = known.into_iter().collect();
    ToolOutcome::error("unknown tool", format!("there is no tool `{shown}`; there are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::testing::TestWorkspace, *};

    #[test]
    fn core_tool_specs_match_the_snapshot() {
        insta::assert_json_snapshot!(core_tool_specs());
    }

    #[test]
    fn namespaced_name_means_its_tool() {
        for (name, meant) in [
            ("edit_file", "edit_file"),
            ("functions.edit_file", "edit_file"),
            ("default_api:run_tests", "run_tests"),
            ("tools/read_file<|channel|>json", "read_file"),
            ("functions.write_file", "write_file"),
            ("functions.make_coffee", "functions.make_coffee"),
            ("edit_file.", "edit_file."),
            ("", ""),
        ] {
            assert_eq!(canonical_tool_name(name), meant);
        }
    }

    #[test]
    fn unknown_tool_is_reported_to_the_model() {
        let out = TestWorkspace::new(&[]).call_tool("make_coffee", json!({}));
        assert!(
            out.is_error
                && out.text().contains("there is no tool `make_coffee`; there are read_file, edit_file")
        );
    }

    #[test]
    fn optional_argument_may_be_null() {
        let mut w = TestWorkspace::new(&[("a", "1\n")]);
        assert!(!w.call_tool("read_file", json!({"path": "a", "start_line": null})).is_error);
        assert!(w.call_tool("read_file", json!({"path": null})).is_error);
    }

    #[test]
    fn every_tool_rejects_arguments_that_are_not_an_object() {
        let mut w = TestWorkspace::new(&[]);
        for spec in tool_specs(ToolSet::Wide) {
            for args in [json!(null), json!("x"), json!([]), json!({"zzz": 1})] {
                assert!(w.call_tool(&spec.name, args).is_error, "{}", spec.name);
            }
        }
    }
}
