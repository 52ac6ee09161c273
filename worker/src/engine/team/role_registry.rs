//! The role registry of `team`: which roles exist, their prompts, tools and reply schemas, and their order. Pure.
//!
//! The built-in roles are a TOML document (`roles.toml`); a task adds and changes roles with the same keys. The
//! result is pinned when a run begins, in the order in which the roles speak; later decisions do not use the
//! registry.

use docket_schema::{run::WriteScope, task::RoleOverride, tool::ToolSet};
use toml::Value;

use super::super::{
    core::definition::{RoleDefinition, RoleError},
    json_schema,
};
use crate::tools;

/// Roles whose replies the runtime reads.
pub(super) const ORCHESTRATOR: &str = "orchestrator";
pub(super) const TESTER: &str = "tester";
pub(super) const REVIEWER: &str = "reviewer";

const BUILT_IN_ROLES: &str = include_str!("roles.toml");
/// The keys of a role in a registry.
pub const ROLE_KEYS: [&str; 5] = ["prompt", "tools", "answer", "after", "writes"];
/// A task cannot change the reply schema of these roles.
const RUNTIME_READ_ROLES: [&str; 3] = [ORCHESTRATOR, TESTER, REVIEWER];
/// Longest prompt of a role, in bytes: the same as for the project's instructions.
const PROMPT_BYTES_MAX: usize = 32 * 1024;
/// Longest reply schema, in bytes: it is part of the role's prompt.
const REPLY_SCHEMA_BYTES_MAX: usize = 16 * 1024;

/// Sets one of [`ROLE_KEYS`] from a TOML value.
///
/// # Errors
/// The value has the wrong type, or there is no such key.
pub fn set_role_key(role: &mut RoleOverride, key: &str, value: &Value) -> Result<(), RoleError> {
    let wrong = |key: &'static str, must: &str| Err(invalid_value(&role.name, key, must));
    match key {
        "prompt" => match value.as_str() {
            Some(text) => role.prompt = Some(text.trim().to_owned()),
            None => return wrong("prompt", "text"),
        },
        "tools" => {
            let names = value.as_array().map(|all| all.iter().map(|one| one.as_str().map(str::to_owned)));
            match names.and_then(Iterator::collect::<Option<Vec<String>>>) {
                Some(names) => role.tools = Some(names),
                None => return wrong("tools", "a list of names of tools"),
            }
        }
        "answer" => {
            // TOML has date-times, which JSON cannot represent.
            match value.as_table().and_then(|table| serde_json::to_value(table).ok()) {
                Some(schema) => role.answer = Some(schema),
                None => return wrong("answer", "a table: a JSON Schema in TOML"),
            }
        }
        "after" => match value.as_str() {
            Some(name) => role.after = Some(name.to_owned()),
            None => return wrong("after", "the name of a role"),
        },
        "writes" => match value.as_str().and_then(|text| text.parse().ok()) {
            Some(scope) => role.writes = Some(scope),
            None => return wrong("writes", "any or tests"),
        },
        _ => return Err(RoleError::Key { role: role.name.clone(), key: key.to_owned() }),
    }
    Ok(())
}

fn invalid_value(role: &str, key: &'static str, must: impl Into<String>) -> RoleError {
    RoleError::Value { role: role.to_owned(), key, must: must.into() }
}

/// Parses the roles of the document.
fn parse_built_in_roles() -> Vec<RoleOverride> {
    let table: toml::Table = BUILT_IN_ROLES.parse().expect("the built-in registry is tested");
    let role = |(name, keys): (String, Value)| {
        let mut role = RoleOverride::for_role(&name);
        for (key, value) in keys.as_table().into_iter().flatten() {
            set_role_key(&mut role, key, value).expect("the built-in registry is tested");
        }
        role
    };
    table.into_iter().map(role).collect()
}

/// Returns the roles in the order in which they speak, the orchestrator first, with a task's overrides.
///
/// # Errors
/// The first invalid override.
pub(super) fn resolve_role_order(asked: &[RoleOverride]) -> Result<Vec<RoleDefinition>, RoleError> {
    let own = parse_built_in_roles();
    let mut roles = own.clone();
    for role in asked.iter().filter(|role| role.defines_role()) {
        match roles.iter_mut().find(|known| known.name == role.name) {
            Some(known) => apply_override(known, role)?,
            None => roles.push(require_new_role(role)?),
        }
    }
    roles.iter().try_for_each(validate_role)?;
    let is_own = |role: &RoleOverride| own.iter().any(|own| own.name == role.name);
    let mut order: Vec<&RoleOverride> = Vec::new();
    let mut open: Vec<&RoleOverride> = roles.iter().filter(|role| role.after.is_none()).collect();
    while let Some(role) = open.pop() {
        order.push(role);
        let mut next: Vec<&RoleOverride> =
            roles.iter().filter(|next| next.after.as_deref() == Some(role.name.as_str())).collect();
        // Last in, first out: roles that a task adds, by name, and then the roles that followed before.
        next.sort_by_key(|next| (!is_own(next), std::cmp::Reverse(next.name.clone())));
        open.extend(next);
    }
    if let Some(lost) = roles.iter().find(|role| !order.iter().any(|known| known.name == role.name)) {
        let known: Vec<&str> = order.iter().map(|role| role.name.as_str()).collect();
        return Err(invalid_value(
            &lost.name,
            "after",
            format!("the role that it follows: {}", known.join(", ")),
        ));
    }
    Ok(order.iter().map(|role| role_definition(role, &order)).collect())
}

/// Applies an override to an existing role.
fn apply_override(known: &mut RoleOverride, role: &RoleOverride) -> Result<(), RoleError> {
    if role.after.is_some() {
        return Err(invalid_value(
            &role.name,
            "after",
            "left out: the places of the built-in roles are fixed",
        ));
    }
    if role.answer.is_some() && RUNTIME_READ_ROLES.contains(&role.name.as_str()) {
        return Err(invalid_value(
            &role.name,
            "answer",
            "left out: the runtime reads what this role answers",
        ));
    }
    let RoleOverride { prompt, tools, answer, writes, .. } = role.clone();
    known.prompt = prompt.or(known.prompt.take());
    known.tools = tools.or(known.tools.take());
    known.answer = answer.or(known.answer.take());
    known.writes = writes.or(known.writes);
    Ok(())
}

/// Checks the override as a new role.
fn require_new_role(role: &RoleOverride) -> Result<RoleOverride, RoleError> {
    if role.prompt.is_none() {
        return Err(invalid_value(&role.name, "prompt", "given: it says what the role is"));
    }
    if role.after.is_none() {
        return Err(invalid_value(&role.name, "after", "given: the role that it follows"));
    }
    Ok(role.clone())
}

fn validate_role(role: &RoleOverride) -> Result<(), RoleError> {
    let wrong = |key: &'static str, must: String| Err(invalid_value(&role.name, key, must));
    let prompt = role.prompt.as_deref().unwrap_or_default();
    if prompt.trim().is_empty() || prompt.len() > PROMPT_BYTES_MAX {
        return wrong("prompt", format!("text of 1 to {PROMPT_BYTES_MAX} bytes"));
    }
    for (nth, tool) in role.tools.iter().flatten().enumerate() {
        if !tools::set_has_tool(ToolSet::Wide, tool) && tool != tools::DELEGATE {
            let known = tools::tool_specs(ToolSet::Wide).into_iter().map(|spec| spec.name);
            let known: Vec<String> = known.chain([tools::DELEGATE.to_owned()]).collect();
            return wrong("tools", format!("a list of {}; [{nth}] is `{tool}`", known.join(", ")));
        }
        if role.tools.iter().flatten().take(nth).any(|before| before == tool) {
            return wrong("tools", format!("a list that names each tool once; `{tool}` stands there twice"));
        }
    }
    if let Some(schema) = &role.answer {
        if let Err(error) = json_schema::check_schema(schema) {
            return wrong("answer", format!("a JSON Schema: {error}"));
        }
        if schema.to_string().len() > REPLY_SCHEMA_BYTES_MAX {
            return wrong("answer", format!("at most {REPLY_SCHEMA_BYTES_MAX} bytes of JSON"));
        }
    }
    Ok(())
}

/// Returns the role as a run pins it.
fn role_definition(role: &RoleOverride, order: &[&RoleOverride]) -> RoleDefinition {
    let mut words = role.prompt.clone().unwrap_or_default();
    words.push('\n');
    if role.name == ORCHESTRATOR {
        words.push_str("\n# The roles, in their order\n");
        for other in order.iter().filter(|other| other.name != ORCHESTRATOR) {
            words.push_str(&format!(
                "- `{}`: {}\n",
                other.name,
                first_sentences(other.prompt.as_deref().unwrap_or_default())
            ));
        }
    }
    if let Some(schema) = &role.answer {
        words.push_str(&format!(
            "\n# Your answer\nOnce your part is done, answer without a tool, with one JSON object and nothing else, that meets \
             this JSON Schema:\n{schema}\n"
        ));
    }
    RoleDefinition {
        tools: role.tools.clone().unwrap_or_default(),
        reply_schema: role.answer.clone(),
        write_scope: role.writes.unwrap_or(WriteScope::Any),
        ..RoleDefinition::new(&role.name, &words)
    }
}

/// Returns its first two sentences, for the orchestrator.
fn first_sentences(prompt: &str) -> String {
    let line = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.match_indices(". ").nth(1).map_or(line.len(), |(at, _)| at + 1);
    line[..end].chars().take(ROLE_SUMMARY_CHARS_MAX).collect()
}

/// Characters of a role's prompt that the orchestrator sees.
const ROLE_SUMMARY_CHARS_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    fn role_from_toml(name: &str, keys: &str) -> RoleOverride {
        let mut role = RoleOverride::for_role(name);
        for (key, value) in &keys.parse::<toml::Table>().expect("TOML") {
            set_role_key(&mut role, key, value).expect("has the form");
        }
        role
    }

    fn role_names(asked: &[RoleOverride]) -> Vec<String> {
        resolve_role_order(asked).expect("legal").into_iter().map(|role| role.name).collect()
    }

    #[test]
    fn built_in_roles_speak_in_order_with_their_own_tools() {
        assert_eq!(role_names(&[]), ["orchestrator", "architect", "coder", "tester", "reviewer"]);
        let roles = resolve_role_order(&[]).expect("legal");
        let writes = |tool: &String| {
            !tools::written_files(tool, &serde_json::json!({"path": "a", "to": "a"})).is_empty()
        };
        for (name, may_write, runs) in [
            ("orchestrator", false, false),
            ("architect", false, false),
            ("coder", true, true),
            ("tester", true, true),
            ("reviewer", false, false),
        ] {
            let role = roles.iter().find(|role| role.name == name).expect("is there");
            assert_eq!(role.tools.iter().any(writes), may_write, "{name}");
            assert_eq!(role.tools.iter().any(|tool| tool == "run_command"), runs, "{name}");
            assert_eq!(role.write_scope == WriteScope::Tests, name == "tester");
            assert!(role.reply_schema.is_some() && role.prompt.contains("JSON Schema"), "{name}");
        }
        assert!(roles[0].prompt.contains("- `reviewer`: You are the reviewer"), "{}", roles[0].prompt);
    }

    #[test]
    fn added_role_speaks_after_the_role_it_names() {
        let documenter = role_from_toml(
            "documenter",
            "prompt = \"You document.\"\nafter = \"coder\"\ntools = [\"read_file\"]",
        );
        let auditor = role_from_toml("auditor", "prompt = \"You audit.\"\nafter = \"coder\"");
        let last = role_from_toml("last", "prompt = \"You are last.\"\nafter = \"reviewer\"");
        let behind = role_from_toml("behind", "prompt = \"You follow.\"\nafter = \"documenter\"");
        assert_eq!(
            role_names(&[documenter.clone(), behind, last, auditor]),
            [
                "orchestrator",
                "architect",
                "coder",
                "auditor",
                "documenter",
                "behind",
                "tester",
                "reviewer",
                "last"
            ]
        );
        let roles = resolve_role_order(&[documenter]).expect("legal");
        assert!(roles[0].prompt.contains("- `documenter`: You document."));
        let changed = role_from_toml("coder", "prompt = \"You write Rust.\"\ntools = [\"edit_file\"]");
        let roles = resolve_role_order(&[changed]).expect("legal");
        let coder = roles.iter().find(|role| role.name == "coder").expect("is there");
        assert!(
            coder.prompt.starts_with("You write Rust.")
                && coder.tools == ["edit_file"]
                && coder.reply_schema.is_some()
        );
    }

    #[test]
    fn invalid_role_is_rejected_by_key() {
        let new = "prompt = \"x\"\nafter = \"coder\"\n";
        for (role, key, told) in [
            (role_from_toml("a", "after = \"coder\""), "prompt", "given"),
            (role_from_toml("a", "prompt = \"x\""), "after", "given"),
            (
                role_from_toml("a", "prompt = \"x\"\nafter = \"nobody\""),
                "after",
                "orchestrator, architect, coder",
            ),
            (role_from_toml("a", "prompt = \"x\"\nafter = \"a\""), "after", "the role that it follows"),
            (role_from_toml("a", &format!("{new}tools = [\"fly\"]")), "tools", "[0] is `fly`"),
            (role_from_toml("a", &format!("{new}tools = [\"edit_file\", \"edit_file\"]")), "tools", "twice"),
            (role_from_toml("a", &format!("{new}answer = {{ type = \"text\" }}")), "answer", "at `#/type`"),
            (
                role_from_toml("a", &format!("{new}answer = {{ \"$ref\" = \"https://x/y\" }}")),
                "answer",
                "nothing is fetched",
            ),
            (role_from_toml("coder", "after = \"tester\""), "after", "fixed"),
            (role_from_toml("tester", "answer = { type = \"object\" }"), "answer", "the runtime reads"),
            (role_from_toml("coder", "prompt = \" \""), "prompt", "1 to"),
        ] {
            match resolve_role_order(std::slice::from_ref(&role)) {
                Err(RoleError::Value { role: of, key: wrong, must }) => {
                    assert!(of == role.name && wrong == key && must.contains(told), "{key}: {must}");
                }
                other => panic!("{key}: {other:?}"),
            }
        }
        let mut role = RoleOverride::for_role("a");
        for (key, value) in
            [("prompt", "1"), ("tools", "\"x\""), ("answer", "\"x\""), ("after", "1"), ("writes", "\"all\"")]
        {
            let table: toml::Table = format!("v = {value}").parse().expect("TOML");
            assert!(
                set_role_key(&mut role, key, &table["v"]).is_err_and(|error| error.to_string().contains(key)),
                "{key}"
            );
        }
        assert!(set_role_key(&mut role, "promt", &Value::Boolean(true)).is_err());
    }
}
