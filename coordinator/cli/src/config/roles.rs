//! Settings of roles: `[roles.NAME]` sets model and options of a role, `[team.roles.NAME]` defines a role of
//! the `team` engine.

use std::path::{Path, PathBuf};

use docket_schema::{
    run::parse_temperature_milli,
    task::{RoleOverride, is_role_name},
};
use docket_worker::engine::{
    RoleError, TeamEngine, resolve_roles,
    team::role_registry::{ROLE_KEYS, set_role_key},
};
use toml::{Table, Value};

use super::{amounts::ALLOWED_TEMPERATURE, keys::ALLOWED_MODEL, to_env_text};
use crate::output::display::collapse_whitespace;

/// The keys that a role has in every engine.
const COMMON_ROLE_KEYS: [&str; 4] = ["model", "effort", "temperature", "context_tokens_max"];

/// Reads `[roles]`.
///
/// # Errors
/// Returns a message that names the invalid key and what it must be.
pub(super) fn parse_roles(table: Table) -> Result<Vec<RoleOverride>, String> {
    parse_role_sections(table, "roles", |role, key, value| {
        set_common_key(role, "roles", (key, value)).unwrap_or_else(|| {
            Err(format!(
                "unknown setting `roles.{}.{key}`; a role has {}",
                role.name,
                COMMON_ROLE_KEYS.join(", ")
            ))
        })
    })
}

/// The contents of `[team]`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TeamConfig {
    /// Roles that are added or changed.
    pub(crate) roles: Vec<RoleOverride>,
    /// A file with more roles, relative to the folder of the settings file.
    pub(super) registry: Option<PathBuf>,
}

impl TeamConfig {
    /// Reads `[team]`.
    ///
    /// # Errors
    /// Returns a message that names the invalid key and what it must be.
    pub(super) fn from_table(table: Table) -> Result<Self, String> {
        let mut team = Self::default();
        for (key, value) in table {
            match (key.as_str(), value) {
                ("roles", Value::Table(roles)) => team.roles = parse_team_roles(roles)?,
                ("registry", Value::String(file)) if !file.is_empty() => team.registry = Some(file.into()),
                ("registry", _) => return Err("`team.registry` is not the name of a file".to_owned()),
                ("roles", _) => {
                    return Err("`team.roles` must be sections, such as [team.roles.NAME]".to_owned());
                }
                _ => {
                    return Err(format!(
                        "unknown setting `team.{key}`; [team] has team.registry, [team.roles.NAME]"
                    ));
                }
            }
        }
        Ok(team)
    }

    /// Adds the roles of the registry file; a relative name is resolved against the folder of `settings`.
    ///
    /// # Errors
    /// Fails when the file cannot be read or is invalid; the message starts with the file's name.
    pub(super) fn load_registry(&mut self, settings: &Path) -> Result<(), String> {
        let Some(file) = self.registry.take() else { return Ok(()) };
        let file = settings.parent().map_or_else(|| file.clone(), |folder| folder.join(&file));
        let fail = |message: String| format!("{}: {message}", file.display());
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("`team.registry`: cannot read {} ({error})", file.display()))?;
        let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
            fail(format!("not valid TOML ({})", collapse_whitespace(error.message())))
        })?;
        let roles = match table.remove("team") {
            Some(Value::Table(mut team)) if team.len() == 1 => team.remove("roles"),
            Some(_) | None => None,
        };
        let (Some(Value::Table(roles)), true) = (roles, table.is_empty()) else {
            return Err(fail("must contain [team.roles.NAME] and nothing else".to_owned()));
        };
        for role in parse_team_roles(roles).map_err(fail)? {
            if self.roles.iter().any(|known| known.name == role.name) {
                return Err(fail(format!(
                    "`team.roles.{}` is also defined in {}",
                    role.name,
                    settings.display()
                )));
            }
            self.roles.push(role);
        }
        Ok(())
    }

    /// Checks that these roles form a valid team.
    ///
    /// # Errors
    /// Returns a message that names the invalid key and what it must be.
    pub(super) fn validate(&self) -> Result<(), String> {
        let told = |error: RoleError| match error {
            RoleError::Value { role, key, must } => format!("`team.roles.{role}.{key}` must be {must}"),
            RoleError::Unknown { role, known, .. } => format!(
                "`team.roles.{role}`: the team has no such role, and nothing defines it (prompt, after); it has {}",
                known.join(", ")
            ),
            other @ (RoleError::Key { .. } | RoleError::Fixed { .. }) => format!("[team]: {other}"),
        };
        if let Some(role) = self.roles.iter().find(|role| role.context_tokens_max.is_some()) {
            return Err(context_cap_error(&format!("team.roles.{}", role.name)));
        }
        resolve_roles(&TeamEngine, &self.roles).map(drop).map_err(told)
    }
}

/// Parses the sections of `[team.roles]`: definitions of roles, and their models and options.
fn parse_team_roles(table: Table) -> Result<Vec<RoleOverride>, String> {
    parse_role_sections(table, "team.roles", |role, key, value| {
        if let Some(done) = set_common_key(role, "team.roles", (key, value)) {
            return done;
        }
        match set_role_key(role, key, value) {
            Ok(()) => Ok(()),
            Err(RoleError::Value { role, key, must }) => {
                Err(format!("`team.roles.{role}.{key}` must be {must}"))
            }
            Err(RoleError::Key { .. } | RoleError::Fixed { .. } | RoleError::Unknown { .. }) => Err(format!(
                "unknown setting `team.roles.{}.{key}`; a role has {}, {}",
                role.name,
                ROLE_KEYS.join(", "),
                COMMON_ROLE_KEYS.join(", ")
            )),
        }
    })
}

/// Parses the sections of roles, value by value.
fn parse_role_sections(
    table: Table,
    section: &str,
    mut take: impl FnMut(&mut RoleOverride, &str, &Value) -> Result<(), String>,
) -> Result<Vec<RoleOverride>, String> {
    table
        .into_iter()
        .map(|(name, value)| {
            let Value::Table(values) = value else {
                return Err(format!("`{section}.{name}` must be a section: [{section}.{name}]"));
            };
            if !is_role_name(&name) {
                return Err(format!(
                    "`{section}.{name}` is not a valid role name: a-z, 0-9, _ and -, starting with a letter"
                ));
            }
            let mut role = RoleOverride::for_role(&name);
            values.iter().try_for_each(|(key, value)| take(&mut role, key, value))?;
            Ok(role)
        })
        .collect()
}

/// Stores one value of a role in `section`; `None` = the key is not one of [`COMMON_ROLE_KEYS`].
fn set_common_key(
    role: &mut RoleOverride,
    section: &str,
    (key, value): (&str, &Value),
) -> Option<Result<(), String>> {
    let name = format!("{section}.{}.{key}", role.name);
    let text = match value {
        // A temperature is normally a TOML number, not a string.
        Value::Float(number) => Some(number.to_string()),
        other => to_env_text(other),
    };
    let text = text.as_deref().unwrap_or_default();
    let (done, allowed) = match key {
        "model" => (text.parse().ok().map(|model| role.model = Some(model)), ALLOWED_MODEL),
        "effort" => (text.parse().ok().map(|effort| role.effort = Some(effort)), "low, medium, high"),
        "temperature" => (
            parse_temperature_milli(text).map(|milli| role.temperature_milli = Some(milli)),
            ALLOWED_TEMPERATURE,
        ),
        "context_tokens_max" => {
            let tokens = text.parse().ok().filter(|tokens| (1000..=10_000_000).contains(tokens));
            (
                tokens.map(|tokens| role.context_tokens_max = Some(tokens)),
                "a whole number from 1000 to 10000000",
            )
        }
        _ => return None,
    };
    Some(done.ok_or_else(|| format!("`{name}` is not {allowed}")))
}

/// The roles that receive one file and reply with a patch: `plan`'s executor and `architect`'s coder. The
/// context of other roles is their own conversation, which grows and is compacted.
const PATCHING_ROLES: [&str; 2] = ["executor", "coder"];

fn context_cap_error(section: &str) -> String {
    let who = PATCHING_ROLES.join(" and ");
    format!("`{section}.context_tokens_max`: only roles that reply with patches have this limit: {who}")
}

/// Rejects roles that no engine has, and keys that a role cannot have.
pub(super) fn check_role_names(roles: &[RoleOverride], defined: &[RoleOverride]) -> Result<(), String> {
    let engines = docket_worker::engine::all_engines();
    let mut known: Vec<String> =
        engines.iter().flat_map(|engine| engine.default_roles()).map(|role| role.name).collect();
    known.extend(defined.iter().map(|role| role.name.clone()));
    known.sort_unstable();
    known.dedup();
    let capped =
        |role: &&RoleOverride| role.context_tokens_max.is_some() && !PATCHING_ROLES.contains(&&*role.name);
    if let Some(RoleOverride { name, .. }) = roles.iter().find(capped) {
        return Err(context_cap_error(&format!("roles.{name}")));
    }
    match roles.iter().find(|role| !known.contains(&role.name)) {
        None => Ok(()),
        Some(role) => Err(format!(
            "`roles.{}`: no engine has such a role; the roles are {}",
            role.name,
            known.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_role_text(text: &str) -> Result<Vec<RoleOverride>, String> {
        parse_roles(text.parse().expect("TOML"))
    }

    #[test]
    fn role_settings_are_parsed_or_rejected_by_key() {
        let roles = parse_role_text(
            "[planner]\nmodel = \"openai:o3\"\ntemperature = 0.2\neffort = \"high\"\n\
                        [executor]\ncontext_tokens_max = 24_000\ntemperature = \"1\"",
        )
        .expect("legal");
        let planner = roles.iter().find(|role| role.name == "planner").expect("is there");
        assert_eq!(planner.model.as_ref().map(ToString::to_string).as_deref(), Some("openai:o3"));
        assert_eq!((planner.temperature_milli, planner.effort.is_some()), (Some(200), true));
        let executor = roles.iter().find(|role| role.name == "executor").expect("is there");
        assert_eq!((executor.temperature_milli, executor.context_tokens_max), (Some(1000), Some(24_000)));
        for (text, told) in [
            ("planner = 1", "`roles.planner` must be a section"),
            ("[Planner]", "`roles.Planner` is not a valid role name"),
            ("[planner]\nmodel = \"o3\"", "`roles.planner.model` is not anthropic:NAME"),
            ("[planner]\neffort = \"much\"", "`roles.planner.effort` is not low, medium, high"),
            ("[planner]\ntemperature = 2.5", "`roles.planner.temperature` is not"),
            (
                "[planner]\ncontext_tokens_max = 10",
                "`roles.planner.context_tokens_max` is not a whole number",
            ),
            ("[planner]\nprompt = \"x\"", "unknown setting `roles.planner.prompt`; a role has model, effort"),
        ] {
            assert!(parse_role_text(text).is_err_and(|error| error.starts_with(told)), "{text}");
        }
    }

    #[test]
    fn unknown_role_error_lists_known_roles() {
        let told =
            check_role_names(&[RoleOverride::for_role("plumber")], &[]).expect_err("no engine has this role");
        assert!(told.starts_with("`roles.plumber`: ") && told.contains("planner"), "{told}");
        assert_eq!(
            check_role_names(
                &[RoleOverride::for_role("planner"), RoleOverride::for_role("plumber")],
                &[RoleOverride::for_role("plumber")]
            ),
            Ok(())
        );
    }

    #[test]
    fn context_cap_is_only_allowed_for_patching_roles() {
        let capped = |text: &str| check_role_names(&parse_role_text(text).expect("legal"), &[]);
        assert_eq!(capped("[coder]\ncontext_tokens_max = 24_000"), Ok(()));
        let told = capped("[reviewer]\ncontext_tokens_max = 24_000").expect_err("it does nothing there");
        assert!(told.starts_with("`roles.reviewer.context_tokens_max`: only"), "{told}");
        let told = parse_team_text(&format!("{WRITER}context_tokens_max = 24_000")).expect_err("nor there");
        assert!(told.starts_with("`team.roles.writer.context_tokens_max`: only"), "{told}");
    }

    fn parse_team_text(text: &str) -> Result<TeamConfig, String> {
        let team = TeamConfig::from_table(text.parse().expect("TOML"))?;
        team.validate().map(|()| team)
    }

    const WRITER: &str = "[roles.writer]\nprompt = \"You write.\"\nafter = \"coder\"\n";

    #[test]
    fn team_roles_are_added_changed_or_rejected_by_key() {
        let read = parse_team_text(&format!(
            "{WRITER}model = \"openai:w\"\ntools = [\"read_file\"]\nanswer = {{ type = \"object\" }}\n[roles.coder]\nprompt = \"x\""
        ))
        .expect("legal");
        let writer = read.roles.iter().find(|role| role.name == "writer").expect("is there");
        assert_eq!((writer.after.as_deref(), writer.model.is_some()), (Some("coder"), true));
        for (text, told) in [
            ("[roles.writer]\nprompt = \"x\"".to_owned(), "`team.roles.writer.after` must be given"),
            (
                "[roles.writer]\nmodel = \"openai:x\"".to_owned(),
                "`team.roles.writer`: the team has no such role",
            ),
            (format!("{WRITER}tools = [\"fly\"]"), "`team.roles.writer.tools` must be a list of read_file"),
            (format!("{WRITER}tools = \"fly\""), "`team.roles.writer.tools` must be a list of names"),
            (
                format!("{WRITER}answer = {{ typ = 1 }}"),
                "`team.roles.writer.answer` must be a JSON Schema: at `#/typ`",
            ),
            (format!("{WRITER}effort = \"x\""), "`team.roles.writer.effort` is not low"),
            (
                format!("{WRITER}promt = \"x\""),
                "unknown setting `team.roles.writer.promt`; a role has prompt, tools",
            ),
            ("[roles.coder]\nafter = \"tester\"".to_owned(), "`team.roles.coder.after` must be left out"),
            ("registry = 1".to_owned(), "`team.registry` is not"),
            ("rolls = 1".to_owned(), "unknown setting `team.rolls`"),
        ] {
            let error = parse_team_text(&text).expect_err(&text);
            assert!(error.starts_with(told), "{error}");
        }
    }

    #[test]
    fn contributing_example_adds_a_role_in_order() {
        let text = include_str!("../../../../CONTRIBUTING.md");
        let example =
            text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let mut table: Table = example.parse().expect("TOML");
        let Some(Value::Table(values)) = table.remove("team") else { panic!("[team.roles.NAME]: {table}") };
        let read = TeamConfig::from_table(values).expect("reads");
        let names: Vec<String> = resolve_roles(&TeamEngine, &read.roles)
            .expect("can be")
            .into_iter()
            .map(|role| role.name)
            .collect();
        assert_eq!(names, ["orchestrator", "architect", "coder", "documenter", "tester", "reviewer"]);
        assert_eq!((read.roles[0].temperature_milli, read.validate()), (Some(200), Ok(())));
    }

    #[test]
    fn registry_file_is_relative_to_settings_and_roles_are_not_duplicated() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = folder.path().join("docket.toml");
        let with = |own: &str, file: &str| {
            std::fs::write(folder.path().join("team.toml"), file).expect("writes");
            let mut team = parse_team_text(&format!("registry = \"team.toml\"\n{own}"))?;
            team.load_registry(&settings).map(|()| team.roles.len())
        };
        let file = WRITER.replace("[roles", "[team.roles");
        assert_eq!(with("", &file), Ok(1));
        assert_eq!(with("[roles.coder]\nprompt = \"x\"", &file), Ok(2));
        assert!(
            with(WRITER, &file).is_err_and(|error| error.contains("`team.roles.writer` is also defined in"))
        );
        assert!(with("", WRITER).is_err_and(|error| error.contains("[team.roles.NAME] and nothing else")));
        assert!(
            with("", "[team.roles.a]\nx = 1")
                .is_err_and(|error| error.contains("team.toml: unknown setting"))
        );
        std::fs::remove_file(folder.path().join("team.toml")).expect("is there");
        let mut team = parse_team_text("registry = \"team.toml\"").expect("reads");
        assert!(team.load_registry(&settings).is_err_and(|error| error.starts_with("`team.registry`: ")));
    }
}
