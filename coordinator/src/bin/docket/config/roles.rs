//! Settings of roles: `[roles.NAME]`, who plays a role and how.

use docket_schema::{
    run::temperature_milli,
    task::{RoleAsked, is_role_name},
};
use toml::{Table, Value};

use super::{amounts::TEMPERATURE, keys::MODEL, plain};

/// What can be said of a role, in whichever engine.
const KEYS: [&str; 4] = ["model", "effort", "temperature", "context_tokens_max"];

/// Reads `[roles]`.
///
/// # Errors
/// The key that is wrong, and what it must be.
pub(super) fn read(table: Table) -> Result<Vec<RoleAsked>, String> {
    table
        .into_iter()
        .map(|(name, value)| {
            let Value::Table(values) = value else {
                return Err(format!("`roles.{name}` must be a section, as [roles.{name}]"));
            };
            if !is_role_name(&name) {
                return Err(format!(
                    "`roles.{name}` is no role: a name is of a-z, 0-9, _ and -, a letter first"
                ));
            }
            let mut role = RoleAsked::of(&name);
            for (key, value) in values {
                set(&mut role, "roles", (&key, &value))?;
            }
            Ok(role)
        })
        .collect()
}

/// Takes one value of a role in `section`.
fn set(role: &mut RoleAsked, section: &str, (key, value): (&str, &Value)) -> Result<(), String> {
    let name = format!("{section}.{}.{key}", role.name);
    let text = match value {
        // Nobody writes a temperature in quotes.
        Value::Float(number) => Some(number.to_string()),
        other => plain(other),
    };
    let text = text.as_deref().unwrap_or_default();
    let (done, allowed) = match key {
        "model" => (text.parse().ok().map(|model| role.model = Some(model)), MODEL),
        "effort" => (text.parse().ok().map(|effort| role.effort = Some(effort)), "low, medium, high"),
        "temperature" => {
            (temperature_milli(text).map(|milli| role.temperature_milli = Some(milli)), TEMPERATURE)
        }
        "context_tokens_max" => {
            let tokens = text.parse().ok().filter(|tokens| (1000..=10_000_000).contains(tokens));
            (
                tokens.map(|tokens| role.context_tokens_max = Some(tokens)),
                "a whole number from 1000 to 10000000",
            )
        }
        _ => return Err(format!("there is no setting `{name}`; a role has {}", KEYS.join(", "))),
    };
    done.ok_or_else(|| format!("`{name}` is not {allowed}"))
}

/// Names that no engine knows.
pub(super) fn check(roles: &[RoleAsked], defined: &[RoleAsked]) -> Result<(), String> {
    let engines = docket_worker::engine::engines();
    let mut known: Vec<String> =
        engines.iter().flat_map(|engine| engine.roles()).map(|role| role.name).collect();
    known.extend(defined.iter().map(|role| role.name.clone()));
    known.sort_unstable();
    known.dedup();
    match roles.iter().find(|role| !known.contains(&role.name)) {
        None => Ok(()),
        Some(role) => {
            Err(format!("`roles.{}`: no engine has such a role; there are {}", role.name, known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<RoleAsked>, String> {
        read(text.parse().expect("TOML"))
    }

    #[test]
    fn what_is_said_of_a_role_is_read_or_refused_by_its_key() {
        let roles = of("[planner]\nmodel = \"openai:o3\"\ntemperature = 0.2\neffort = \"high\"\n\
                        [executor]\ncontext_tokens_max = 24_000\ntemperature = \"1\"")
        .expect("legal");
        let planner = roles.iter().find(|role| role.name == "planner").expect("is there");
        assert_eq!(planner.model.as_ref().map(ToString::to_string).as_deref(), Some("openai:o3"));
        assert_eq!((planner.temperature_milli, planner.effort.is_some()), (Some(200), true));
        let executor = roles.iter().find(|role| role.name == "executor").expect("is there");
        assert_eq!((executor.temperature_milli, executor.context_tokens_max), (Some(1000), Some(24_000)));
        for (text, told) in [
            ("planner = 1", "`roles.planner` must be a section"),
            ("[Planner]", "`roles.Planner` is no role"),
            ("[planner]\nmodel = \"o3\"", "`roles.planner.model` is not anthropic:NAME"),
            ("[planner]\neffort = \"much\"", "`roles.planner.effort` is not low, medium, high"),
            ("[planner]\ntemperature = 2.5", "`roles.planner.temperature` is not"),
            (
                "[planner]\ncontext_tokens_max = 10",
                "`roles.planner.context_tokens_max` is not a whole number",
            ),
            (
                "[planner]\nprompt = \"x\"",
                "there is no setting `roles.planner.prompt`; a role has model, effort",
            ),
        ] {
            assert!(of(text).is_err_and(|error| error.starts_with(told)), "{text}");
        }
    }

    #[test]
    fn a_role_of_no_engine_is_told_with_those_that_there_are() {
        let told = check(&[RoleAsked::of("plumber")], &[]).expect_err("nobody has one");
        assert!(told.starts_with("`roles.plumber`: ") && told.contains("planner"), "{told}");
        assert_eq!(
            check(&[RoleAsked::of("planner"), RoleAsked::of("plumber")], &[RoleAsked::of("plumber")]),
            Ok(())
        );
    }
}
