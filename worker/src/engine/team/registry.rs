//! The registry of `team`: which roles there are, what each is told, may do and must answer, and after whom it speaks. Pure.
//!
//! The built-in roles are a TOML document (`roles.toml`); a task adds roles and changes those, by the same keys. What comes
//! of it is pinned when a run begins, in the order in which the roles speak: no later decision looks here.

use docket_schema::{run::WriteScope, task::RoleAsked, tool::ToolSet};
use toml::Value;

use super::super::{
    core::definition::{RoleDef, RoleError},
    json_schema,
};
use crate::tools;

/// Roles whose answers the runtime reads.
pub(super) const ORCHESTRATOR: &str = "orchestrator";
pub(super) const TESTER: &str = "tester";
pub(super) const REVIEWER: &str = "reviewer";

const BUILT_IN: &str = include_str!("roles.toml");
/// What a role of a registry is, key by key.
pub const ROLE_KEYS: [&str; 5] = ["prompt", "tools", "answer", "after", "writes"];
/// The form of their answers is not a task's to change.
const READ_BY_US: [&str; 3] = [ORCHESTRATOR, TESTER, REVIEWER];
/// Longest prompt of a role, in bytes: the project's instructions may have as many.
const PROMPT_BYTES_MAX: usize = 32 * 1024;
/// Longest schema of an answer, in bytes: it stands in the role's prompt.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// Takes one of [`ROLE_KEYS`] as a TOML document has it.
///
/// # Errors
/// The value has another form, or there is no such key.
pub fn define(role: &mut RoleAsked, key: &str, value: &Value) -> Result<(), RoleError> {
    let wrong = |key: &'static str, must: &str| Err(refused(&role.name, key, must));
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
            // TOML has instants, and JSON has none.
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

fn refused(role: &str, key: &'static str, must: impl Into<String>) -> RoleError {
    RoleError::Value { role: role.to_owned(), key, must: must.into() }
}

/// The roles of the document.
fn built_in() -> Vec<RoleAsked> {
    let table: toml::Table = BUILT_IN.parse().expect("the built-in registry is tested");
    let role = |(name, keys): (String, Value)| {
        let mut role = RoleAsked::of(&name);
        for (key, value) in keys.as_table().into_iter().flatten() {
            define(&mut role, key, value).expect("the built-in registry is tested");
        }
        role
    };
    table.into_iter().map(role).collect()
}

/// The roles in the order in which they speak, the orchestrator first, with what a task says of them.
///
/// # Errors
/// The first thing that cannot be.
pub(super) fn sequence(asked: &[RoleAsked]) -> Result<Vec<RoleDef>, RoleError> {
    let own = built_in();
    let mut roles = own.clone();
    for role in asked.iter().filter(|role| role.defines()) {
        match roles.iter_mut().find(|known| known.name == role.name) {
            Some(known) => change(known, role)?,
            None => roles.push(added(role)?),
        }
    }
    roles.iter().try_for_each(check)?;
    let is_own = |role: &RoleAsked| own.iter().any(|own| own.name == role.name);
    let mut order: Vec<&RoleAsked> = Vec::new();
    let mut open: Vec<&RoleAsked> = roles.iter().filter(|role| role.after.is_none()).collect();
    while let Some(role) = open.pop() {
        order.push(role);
        let mut next: Vec<&RoleAsked> =
            roles.iter().filter(|next| next.after.as_deref() == Some(role.name.as_str())).collect();
        // Last in, first out: those that a task adds, by their names, and then whoever followed before.
        next.sort_by_key(|next| (!is_own(next), std::cmp::Reverse(next.name.clone())));
        open.extend(next);
    }
    if let Some(lost) = roles.iter().find(|role| !order.iter().any(|known| known.name == role.name)) {
        let known: Vec<&str> = order.iter().map(|role| role.name.as_str()).collect();
        return Err(refused(&lost.name, "after", format!("the role that it follows: {}", known.join(", "))));
    }
    Ok(order.iter().map(|role| def(role, &order)).collect())
}

/// What a task says of a role that there is.
fn change(known: &mut RoleAsked, role: &RoleAsked) -> Result<(), RoleError> {
    if role.after.is_some() {
        return Err(refused(&role.name, "after", "left out: the places of the built-in roles are fixed"));
    }
    if role.answer.is_some() && READ_BY_US.contains(&role.name.as_str()) {
        return Err(refused(&role.name, "answer", "left out: the runtime reads what this role answers"));
    }
    let RoleAsked { prompt, tools, answer, writes, .. } = role.clone();
    known.prompt = prompt.or(known.prompt.take());
    known.tools = tools.or(known.tools.take());
    known.answer = answer.or(known.answer.take());
    known.writes = writes.or(known.writes);
    Ok(())
}

/// A role that there is not yet.
fn added(role: &RoleAsked) -> Result<RoleAsked, RoleError> {
    if role.prompt.is_none() {
        return Err(refused(&role.name, "prompt", "given: it says what the role is"));
    }
    if role.after.is_none() {
        return Err(refused(&role.name, "after", "given: the role that it follows"));
    }
    Ok(role.clone())
}

fn check(role: &RoleAsked) -> Result<(), RoleError> {
    let wrong = |key: &'static str, must: String| Err(refused(&role.name, key, must));
    let prompt = role.prompt.as_deref().unwrap_or_default();
    if prompt.trim().is_empty() || prompt.len() > PROMPT_BYTES_MAX {
        return wrong("prompt", format!("text of 1 to {PROMPT_BYTES_MAX} bytes"));
    }
    for (nth, tool) in role.tools.iter().flatten().enumerate() {
        if !tools::has(ToolSet::Wide, tool) && tool != tools::DELEGATE {
            let known = tools::specs_of(ToolSet::Wide).into_iter().map(|spec| spec.name);
            let known: Vec<String> = known.chain([tools::DELEGATE.to_owned()]).collect();
            return wrong("tools", format!("a list of {}; [{nth}] is `{tool}`", known.join(", ")));
        }
        if role.tools.iter().flatten().take(nth).any(|before| before == tool) {
            return wrong("tools", format!("a list that names each tool once; `{tool}` stands there twice"));
        }
    }
    if let Some(schema) = &role.answer {
        if let Err(error) = json_schema::check(schema) {
            return wrong("answer", format!("a JSON Schema: {error}"));
        }
        if schema.to_string().len() > ANSWER_BYTES_MAX {
            return wrong("answer", format!("at most {ANSWER_BYTES_MAX} bytes of JSON"));
        }
    }
    Ok(())
}

/// The role as a run pins it.
fn def(role: &RoleAsked, order: &[&RoleAsked]) -> RoleDef {
    let mut words = role.prompt.clone().unwrap_or_default();
    words.push('\n');
    if role.name == ORCHESTRATOR {
        words.push_str("\n# The roles, in their order\n");
        for other in order.iter().filter(|other| other.name != ORCHESTRATOR) {
            words.push_str(&format!(
                "- `{}`: {}\n",
                other.name,
                gist(other.prompt.as_deref().unwrap_or_default())
            ));
        }
    }
    if let Some(schema) = &role.answer {
        words.push_str(&format!(
            "\n# Your answer\nOnce your part is done, answer without a tool, with one JSON object and nothing else, that meets \
             this JSON Schema:\n{schema}\n"
        ));
    }
    RoleDef {
        tools: role.tools.clone().unwrap_or_default(),
        answer: role.answer.clone(),
        writes: role.writes.unwrap_or(WriteScope::Any),
        ..RoleDef::of(&role.name, &words)
    }
}

/// Its first two sentences, for the orchestrator.
fn gist(prompt: &str) -> String {
    let line = prompt.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.match_indices(". ").nth(1).map_or(line.len(), |(at, _)| at + 1);
    line[..end].chars().take(GIST_CHARS_MAX).collect()
}

/// Characters of a role's prompt that the orchestrator is told.
const GIST_CHARS_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, keys: &str) -> RoleAsked {
        let mut role = RoleAsked::of(name);
        for (key, value) in &keys.parse::<toml::Table>().expect("TOML") {
            define(&mut role, key, value).expect("has the form");
        }
        role
    }

    fn names(asked: &[RoleAsked]) -> Vec<String> {
        sequence(asked).expect("legal").into_iter().map(|role| role.name).collect()
    }

    #[test]
    fn the_built_in_roles_speak_in_their_order_and_each_has_its_own_tools() {
        assert_eq!(names(&[]), ["orchestrator", "architect", "coder", "tester", "reviewer"]);
        let roles = sequence(&[]).expect("legal");
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
            assert_eq!(role.writes == WriteScope::Tests, name == "tester");
            assert!(role.answer.is_some() && role.words.contains("JSON Schema"), "{name}");
        }
        assert!(roles[0].words.contains("- `reviewer`: You are the reviewer"), "{}", roles[0].words);
    }

    #[test]
    fn a_role_that_is_added_speaks_where_it_says() {
        let documenter =
            of("documenter", "prompt = \"You document.\"\nafter = \"coder\"\ntools = [\"read_file\"]");
        let auditor = of("auditor", "prompt = \"You audit.\"\nafter = \"coder\"");
        let last = of("last", "prompt = \"You are last.\"\nafter = \"reviewer\"");
        let behind = of("behind", "prompt = \"You follow.\"\nafter = \"documenter\"");
        assert_eq!(
            names(&[documenter.clone(), behind, last, auditor]),
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
        let roles = sequence(&[documenter]).expect("legal");
        assert!(roles[0].words.contains("- `documenter`: You document."));
        let changed = of("coder", "prompt = \"You write Rust.\"\ntools = [\"edit_file\"]");
        let roles = sequence(&[changed]).expect("legal");
        let coder = roles.iter().find(|role| role.name == "coder").expect("is there");
        assert!(
            coder.words.starts_with("You write Rust.")
                && coder.tools == ["edit_file"]
                && coder.answer.is_some()
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_key() {
        let new = "prompt = \"x\"\nafter = \"coder\"\n";
        for (role, key, told) in [
            (of("a", "after = \"coder\""), "prompt", "given"),
            (of("a", "prompt = \"x\""), "after", "given"),
            (of("a", "prompt = \"x\"\nafter = \"nobody\""), "after", "orchestrator, architect, coder"),
            (of("a", "prompt = \"x\"\nafter = \"a\""), "after", "the role that it follows"),
            (of("a", &format!("{new}tools = [\"fly\"]")), "tools", "[0] is `fly`"),
            (of("a", &format!("{new}tools = [\"edit_file\", \"edit_file\"]")), "tools", "twice"),
            (of("a", &format!("{new}answer = {{ type = \"text\" }}")), "answer", "at `#/type`"),
            (
                of("a", &format!("{new}answer = {{ \"$ref\" = \"https://x/y\" }}")),
                "answer",
                "nothing is fetched",
            ),
            (of("coder", "after = \"tester\""), "after", "fixed"),
            (of("tester", "answer = { type = \"object\" }"), "answer", "the runtime reads"),
            (of("coder", "prompt = \" \""), "prompt", "1 to"),
        ] {
            match sequence(std::slice::from_ref(&role)) {
                Err(RoleError::Value { role: of, key: wrong, must }) => {
                    assert!(of == role.name && wrong == key && must.contains(told), "{key}: {must}");
                }
                other => panic!("{key}: {other:?}"),
            }
        }
        let mut role = RoleAsked::of("a");
        for (key, value) in
            [("prompt", "1"), ("tools", "\"x\""), ("answer", "\"x\""), ("after", "1"), ("writes", "\"all\"")]
        {
            let table: toml::Table = format!("v = {value}").parse().expect("TOML");
            assert!(
                define(&mut role, key, &table["v"]).is_err_and(|error| error.to_string().contains(key)),
                "{key}"
            );
        }
        assert!(define(&mut role, "promt", &Value::Boolean(true)).is_err());
    }
}
