//! The tools by name: their specifications, and the one way to run them.

use docket_schema::{message::ToolSpec, tool::ToolSet};
use serde_json::Value;

use super::{
    context::tool_context::{ToolContext, ToolOutcome},
    set::{find, specs_of},
};
use crate::calls::{DELEGATE, all_names};

/// The tools of a run that asks for no other set.
#[must_use]
pub fn specs() -> Vec<ToolSpec> {
    specs_of(ToolSet::Core)
}

/// The tool that a name means: some models put a namespace before it (`functions.edit_file`), and some servers leave
/// a mark of their template behind it (`edit_file<|channel|>json`). A name that means none stays as it is.
#[must_use]
pub fn meant_name(name: &str) -> &str {
    let known = |name: &str| find(name).is_some() || name == DELEGATE;
    let unmarked = name.split("<|").next().unwrap_or(name).trim();
    let bare = unmarked.rsplit(['.', ':', '/']).next().unwrap_or(unmarked);
    if !known(name) && known(bare) { bare } else { name }
}

/// Runs the tool `name`. A name that no tool has and arguments that do not fit are answers too.
pub async fn execute(context: ToolContext<'_>, name: &str, args: &Value) -> ToolOutcome {
    match find(name) {
        Some(tool) => (tool.run)(context, args).await,
        None => unknown(name, all_names()),
    }
}

/// The answer to a name that none of these tools has.
pub fn unknown<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> ToolOutcome {
    let shown: String = name.chars().take(80).collect();
    let known: Vec<&str> = known.into_iter().collect();
    ToolOutcome::error("unknown tool", format!("there is no tool `{shown}`; there are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::testing::Workspace, *};

    #[test]
    fn specifications_do_not_change_unseen() {
        insta::assert_json_snapshot!(specs());
    }

    #[test]
    fn a_name_with_a_namespace_means_its_tool() {
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
            assert_eq!(meant_name(name), meant);
        }
    }

    #[test]
    fn an_unknown_tool_is_an_answer() {
        let out = Workspace::new(&[]).call("make_coffee", json!({}));
        assert!(
            out.is_error
                && out.text().contains("there is no tool `make_coffee`; there are read_file, edit_file")
        );
    }

    #[test]
    fn an_argument_that_may_be_left_out_may_be_null() {
        let mut w = Workspace::new(&[("a", "1\n")]);
        assert!(!w.call("read_file", json!({"path": "a", "start_line": null})).is_error);
        assert!(w.call("read_file", json!({"path": null})).is_error);
    }

    #[test]
    fn arguments_that_are_no_object_are_an_answer_of_every_tool() {
        let mut w = Workspace::new(&[]);
        for spec in specs_of(ToolSet::Wide) {
            for args in [json!(null), json!("x"), json!([]), json!({"zzz": 1})] {
                assert!(w.call(&spec.name, args).is_error, "{}", spec.name);
            }
        }
    }
}
