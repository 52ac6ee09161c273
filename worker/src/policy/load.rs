//! Parses policies from TOML and checks their rules against their own examples.

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, PolicyError, PolicyRule},
};
use serde_json::json;

use super::{
    call_parts::call_parts,
    evaluate::{compile_glob, label_name, rule_matches},
};
use crate::calls::{CallLabel, DELEGATE, is_external, selectable_tool_names};

/// Parses and checks a policy.
///
/// # Errors
/// Describes the first problem, with its field.
pub fn parse_policy(table: toml::Table) -> Result<Policy, String> {
    let rules = table.get("rules").and_then(toml::Value::as_array).into_iter().flatten();
    for (nth, rule) in rules.enumerate() {
        if let Err(error) = rule.clone().try_into::<PolicyRule>() {
            return Err(describe_rule_error(nth, &error));
        }
    }
    let policy: Policy =
        table.try_into().map_err(|error: toml::de::Error| error.to_string().trim().replace('\n', " "))?;
    check_policy(&policy).map_err(|error| error.to_string())?;
    Ok(policy)
}

/// Formats a rule error as `rules[0].verdict: …`. The TOML error names the field only in its text.
fn describe_rule_error(nth: usize, error: &toml::de::Error) -> String {
    let text = error.to_string();
    let (what, path) = text.trim().rsplit_once("in `").unwrap_or((text.trim(), ""));
    let missing = || what.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    let field = Some(path.trim_end_matches('`')).filter(|path| !path.is_empty()).or_else(missing);
    let field = field.map_or(String::new(), |field| format!(".{field}"));
    format!("rules[{nth}]{field}: {}", what.trim().replace('\n', " "))
}

/// Checks a policy, including patterns and examples.
///
/// # Errors
/// Returns a [`PolicyError`] for the first invalid field.
pub fn check_policy(policy: &Policy) -> Result<(), PolicyError> {
    policy.check()?;
    for (nth, rule) in policy.rules.iter().enumerate() {
        check_rule(rule, &format!("rules[{nth}]"))?;
    }
    Ok(())
}

fn check_rule(rule: &PolicyRule, at: &str) -> Result<(), PolicyError> {
    if !rule.commands.is_empty() && !rule.paths.is_empty() {
        let must = "must not be combined with commands: a rule is about commands or about files";
        return Err(PolicyError::new(format!("{at}.paths"), must));
    }
    let known: Vec<String> = selectable_tool_names().chain([DELEGATE]).map(str::to_owned).collect();
    // Tools of MCP servers are only known when a run begins.
    let own: Vec<String> = rule.tools.iter().filter(|name| !is_external(name)).cloned().collect();
    require_known(&own, &known, &format!("{at}.tools"))?;
    let labels: Vec<String> = CallLabel::ALL.into_iter().map(label_name).collect();
    require_known(&rule.labels, &labels, &format!("{at}.labels"))?;
    for (nth, glob) in rule.paths.iter().enumerate() {
        compile_glob(glob).map_err(|error| {
            PolicyError::new(format!("{at}.paths[{nth}]"), format!("must be a glob: {error}"))
        })?;
    }
    for (name, examples, wanted) in [("matches", &rule.matches, true), ("misses", &rule.misses, false)] {
        for (nth, example) in examples.iter().enumerate() {
            if matches_example(rule, example) != wanted {
                let not = if wanted { "" } else { "not " };
                let must = format!("must {not}be matched by `{}`: `{example}`", rule.id);
                return Err(PolicyError::new(format!("{at}.{name}[{nth}]"), must));
            }
        }
    }
    Ok(())
}

fn require_known(given: &[String], known: &[String], at: &str) -> Result<(), PolicyError> {
    match given.iter().position(|name| !known.contains(name)) {
        None => Ok(()),
        Some(nth) => {
            Err(PolicyError::new(format!("{at}[{nth}]"), format!("must be one of {}", known.join(", "))))
        }
    }
}

/// The example of a path rule is a path; that of any other rule is a shell line.
fn matches_example(rule: &PolicyRule, example: &str) -> bool {
    let (name, args) = match rule.paths.is_empty() {
        true => ("run_command", json!({ "command": example })),
        false => (rule.tools.first().map_or("edit_file", String::as_str), json!({ "path": example })),
    };
    let tool = ToolUse { call: CallId("example".to_owned()), name: name.to_owned(), args, malformed: None };
    call_parts(&tool).iter().any(|unit| rule_matches(rule, unit, name))
}
