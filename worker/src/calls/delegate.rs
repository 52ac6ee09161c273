//! `delegate`: gives a piece of the work to a child task. Parses its arguments; the run executor carries it out,
//! because no tool can reach the queue.

use docket_schema::{
    content::WorkspacePath,
    message::{ModelRef, ToolSpec, ToolUse},
    run::RunSettings,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::args::{argument_schema, parse_args};
use crate::calls::parse_workspace_path;

/// The tool's name.
pub const DELEGATE: &str = "delegate";

const TOOL_DESCRIPTION: &str = "Gives a piece of the work to another agent, which has a copy of the workspace as it is now, and \
    waits for its answer. It knows nothing but what you tell it here: say what is to be done, where to look, and what to \
    answer. With `writes` its changes are merged into your workspace when it is done; without, they are dropped and only \
    its answer counts. Several calls in one answer work at the same time. Worth it for pieces that stand alone.";

/// Longest title, in characters: as much as a list can show.
const TITLE_CHARS_MAX: usize = docket_schema::task::TITLE_CHARS_MAX;
/// Longest instructions, in bytes: as much as the child's prompt can hold.
const INSTRUCTIONS_BYTES_MAX: usize = 32 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DelegateArgs {
    /// One line that says what it is about.
    title: String,
    /// All that the other agent needs to know.
    instructions: String,
    /// Whether its changes are wanted.
    #[serde(default)]
    writes: Option<bool>,
    /// A shell line that must pass before it may end.
    #[serde(default)]
    tests: Option<String>,
    /// Paths that must exist before it may end.
    #[serde(default)]
    requires: Option<Vec<String>>,
    /// Tokens that it may use, of yours; a half of what is left to you where it is left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    budget_tokens: Option<u64>,
    /// Dollars that it may use, of yours, likewise.
    #[serde(default)]
    budget_usd: Option<f64>,
    /// Another model, as PROVIDER:NAME.
    #[serde(default)]
    model: Option<String>,
    /// Another engine.
    #[serde(default)]
    engine: Option<String>,
}

/// The request made by a call.
#[derive(Debug, Clone, PartialEq)]
pub struct DelegateCall {
    /// The child's title.
    pub title: String,
    /// The child's work.
    pub instructions: String,
    /// Whether its changes are wanted.
    pub writes: bool,
    /// The command that tests it.
    pub test_command: Option<String>,
    /// Paths that must exist at its end.
    pub required_paths: Vec<WorkspacePath>,
    /// Tokens it may use.
    pub budget_tokens: Option<u64>,
    /// Nano-dollars it may use.
    pub budget_nusd: Option<u64>,
    /// Another model.
    pub model: Option<ModelRef>,
    /// Another engine.
    pub engine: Option<String>,
}

/// Returns the tool's specification for a model; `None` if the run may not delegate.
#[must_use]
pub fn delegate_tool_spec(settings: &RunSettings) -> Option<ToolSpec> {
    (settings.delegation_depth_max > 0).then(|| ToolSpec {
        name: DELEGATE.to_owned(),
        description: TOOL_DESCRIPTION.to_owned(),
        input_schema: argument_schema::<DelegateArgs>(),
    })
}

/// Parses the request of a call.
///
/// # Errors
/// A message about the mistakes in its arguments, for the model.
pub fn parse_delegate_args(tool: &ToolUse) -> Result<DelegateCall, String> {
    let args: DelegateArgs = parse_args(DELEGATE, &tool.args)?;
    let title: String = args.title.split_whitespace().collect::<Vec<_>>().join(" ");
    if title.is_empty() || title.chars().count() > TITLE_CHARS_MAX {
        return Err(format!("`title` must be one line of 1 to {TITLE_CHARS_MAX} characters"));
    }
    if args.instructions.trim().is_empty() || args.instructions.len() > INSTRUCTIONS_BYTES_MAX {
        return Err(format!("`instructions` must be 1 to {INSTRUCTIONS_BYTES_MAX} bytes"));
    }
    let path = |path: &String| parse_workspace_path(path).map_err(|error| format!("`requires`: {error}"));
    let requires = args.requires.iter().flatten().map(path).collect::<Result<_, _>>()?;
    let model = args.model.filter(|model| !model.trim().is_empty());
    let model = model.map(|model| model.trim().parse()).transpose();
    let model = model.map_err(|error: docket_schema::ids::ParseIdError| format!("`model`: {error}"))?;
    let budget_nusd = match args.budget_usd {
        None => None,
        Some(usd) if usd > 0.0 && usd < 1e9 => Some((usd * 1e9).round() as u64),
        Some(_) => return Err("`budget_usd` must be more than 0".to_owned()),
    };
    if args.budget_tokens == Some(0) {
        return Err("`budget_tokens` must be more than 0".to_owned());
    }
    let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    Ok(DelegateCall {
        title,
        instructions: args.instructions,
        writes: args.writes.unwrap_or(false),
        test_command: given(args.tests),
        required_paths: requires,
        budget_tokens: args.budget_tokens,
        budget_nusd,
        model,
        engine: given(args.engine),
    })
}

#[cfg(test)]
mod tests {
    use docket_schema::{ids::Turn, message::CallId};
    use serde_json::{Value, json};

    use super::*;

    fn parse_call(args: Value) -> Result<DelegateCall, String> {
        let call = CallId::for_tool(Turn(1), 0);
        parse_delegate_args(&ToolUse { call, name: DELEGATE.to_owned(), args, malformed: None })
    }

    #[test]
    fn tool_is_offered_only_if_delegation_is_allowed() {
        assert!(delegate_tool_spec(&RunSettings::default()).is_none());
        let may = RunSettings { delegation_depth_max: 1, ..RunSettings::default() };
        insta::assert_json_snapshot!(delegate_tool_spec(&may));
    }

    #[test]
    fn arguments_are_parsed_and_normalized() {
        let plain =
            parse_call(json!({ "title": " Look\n around ", "instructions": "Say what is there." })).unwrap();
        assert_eq!((plain.title.as_str(), plain.writes, plain.budget_nusd), ("Look around", false, None));
        let all = parse_call(json!({
            "title": "a", "instructions": "b", "writes": true, "tests": "make test", "requires": ["a/b.txt"],
            "budget_tokens": 5, "budget_usd": 0.25, "model": "openai:x", "engine": "react"
        }));
        let all = all.unwrap();
        assert_eq!(all.budget_nusd, Some(250_000_000));
        assert_eq!(all.model.map(|model| model.to_string()).as_deref(), Some("openai:x"));
        assert_eq!(all.required_paths[0].to_string(), "a/b.txt");
    }

    #[test]
    fn invalid_arguments_are_rejected_by_field() {
        let with = |field: &str, value: Value| {
            let mut args = json!({ "title": "a", "instructions": "b" });
            args[field] = value;
            parse_call(args).unwrap_err()
        };
        for (field, value) in [
            ("title", json!(" ")),
            ("title", json!("x".repeat(201))),
            ("instructions", json!("")),
            ("requires", json!(["../out"])),
            ("model", json!("x")),
            ("budget_usd", json!(-1)),
            ("budget_tokens", json!(0)),
            ("depth", json!(1)),
        ] {
            let told = with(field, value);
            assert!(told.contains(field), "{field}: {told}");
        }
    }
}
