//! The tools by name: their specifications, and the one way to run them.

use docket_schema::message::ToolSpec;
use serde_json::Value;

use super::{
    args::{parse, schema_of},
    context::{ToolContext, ToolOutcome},
    create_file, edit_file, list_files, read_file, run_command, run_tests, search_codebase,
};

pub use super::labels::recovery_class;

/// The tools as a model is told of them: always in this order and to the byte the same.
#[must_use]
pub fn specs() -> Vec<ToolSpec> {
    let spec = |name: &str, description: &str, input_schema: Value| ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema,
    };
    vec![
        spec(read_file::NAME, read_file::DESCRIPTION, schema_of::<read_file::Args>()),
        spec(edit_file::NAME, edit_file::DESCRIPTION, schema_of::<edit_file::Args>()),
        spec(create_file::NAME, create_file::DESCRIPTION, schema_of::<create_file::Args>()),
        spec(search_codebase::NAME, search_codebase::DESCRIPTION, schema_of::<search_codebase::Args>()),
        spec(list_files::NAME, list_files::DESCRIPTION, schema_of::<list_files::Args>()),
        spec(run_command::NAME, run_command::DESCRIPTION, schema_of::<run_command::Args>()),
        spec(run_tests::NAME, run_tests::DESCRIPTION, schema_of::<run_tests::Args>()),
    ]
}

/// The tool that a name means: some models put a namespace before it (`functions.edit_file`), and some servers leave
/// a mark of their template behind it (`edit_file<|channel|>json`). A name that means none stays as it is.
#[must_use]
pub fn meant_name(name: &str) -> &str {
    let known = |name: &str| NAMES.contains(&name);
    let unmarked = name.split("<|").next().unwrap_or(name).trim();
    let bare = unmarked.rsplit(['.', ':', '/']).next().unwrap_or(unmarked);
    if !known(name) && known(bare) { bare } else { name }
}

const NAMES: [&str; 7] = [
    read_file::NAME,
    edit_file::NAME,
    create_file::NAME,
    search_codebase::NAME,
    list_files::NAME,
    run_command::NAME,
    run_tests::NAME,
];

/// Runs the tool `name`. A name that no tool has and arguments that do not fit are answers too.
pub async fn execute(context: ToolContext<'_>, name: &str, args: &Value) -> ToolOutcome {
    let bad = |text: String| ToolOutcome::error(name, text);
    match name {
        read_file::NAME => parse(name, args).map_or_else(bad, |args| read_file::run(context, &args)),
        edit_file::NAME => match parse(name, args) {
            Ok(args) => edit_file::run(context, args).await,
            Err(text) => bad(text),
        },
        create_file::NAME => match parse(name, args) {
            Ok(args) => create_file::run(context, &args).await,
            Err(text) => bad(text),
        },
        search_codebase::NAME => {
            parse(name, args).map_or_else(bad, |args| search_codebase::run(context, &args))
        }
        list_files::NAME => parse(name, args).map_or_else(bad, |args| list_files::run(context, &args)),
        run_command::NAME => match parse(name, args) {
            Ok(args) => run_command::run(context, args).await,
            Err(text) => bad(text),
        },
        run_tests::NAME => match parse(name, args) {
            Ok(args) => run_tests::run(context, args).await,
            Err(text) => bad(text),
        },
        _ => {
            let shown: String = name.chars().take(80).collect();
            ToolOutcome::error(
                "unknown tool",
                format!("there is no tool `{shown}`; there are {}", NAMES.join(", ")),
            )
        }
    }
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
        assert_eq!(specs().into_iter().map(|spec| spec.name).collect::<Vec<_>>(), NAMES);
        for (name, meant) in [
            ("edit_file", "edit_file"),
            ("functions.edit_file", "edit_file"),
            ("default_api:run_tests", "run_tests"),
            ("tools/read_file<|channel|>json", "read_file"),
            ("functions.write_file", "functions.write_file"),
            ("edit_file.", "edit_file."),
            ("", ""),
        ] {
            assert_eq!(meant_name(name), meant);
        }
    }

    #[test]
    fn an_unknown_tool_is_an_answer() {
        let out = Workspace::new(&[]).call("write_file", json!({}));
        assert!(
            out.is_error
                && out.text().contains("there is no tool `write_file`; there are read_file, edit_file")
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
        for spec in specs() {
            for args in [json!(null), json!("x"), json!([]), json!({"zzz": 1})] {
                assert!(w.call(&spec.name, args).is_error, "{}", spec.name);
            }
        }
    }
}
