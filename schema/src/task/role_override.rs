//! Role overrides: a task's settings for the roles of its engine, such as their models, and, for engines with
//! a registry, their definitions. Given with the submit; the run pins the result.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field_error::FieldError;
use crate::{
    message::ModelRef,
    run::{ROLE_NAME_BYTES_MAX, ReasoningEffort, WriteScope},
};

/// Maximum number of roles a task may list. Each takes part in every round of a run.
pub const ROLE_OVERRIDES_MAX: usize = 32;
/// Maximum size of a task's role overrides, in bytes of JSON; they are part of the submit event, in addition
/// to the text.
pub const ROLE_OVERRIDES_BYTES_MAX: usize = 64 * 1024;

/// A role override. See the module documentation. Absent fields keep the engine's values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleOverride {
    /// The role.
    pub name: String,
    /// The role's model; none means the task's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Reasoning effort; none means the model's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Sampling temperature in thousandths, at most 2000; none means the model's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Maximum number of tokens of a file in its context; none means as many as fit the model's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens_max: Option<u64>,
    /// The role's prompt, for engines with a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The names of its tools, for engines with a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// JSON Schema for its replies, for engines with a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<serde_json::Value>,
    /// The role that it follows; only for a role that is not in the registry, and required there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The files that its tools may write; for engines with a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<WriteScope>,
}

impl RoleOverride {
    /// Creates an empty override of a role.
    pub fn for_role(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Whether it defines the role, and not only its model and sampling.
    pub const fn defines_role(&self) -> bool {
        self.prompt.is_some()
            || self.tools.is_some()
            || self.answer.is_some()
            || self.after.is_some()
            || self.writes.is_some()
    }
}

/// Whether this is a valid role name. It is used in keys of settings, in flags and in schemas.
pub fn is_role_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    name.len() <= ROLE_NAME_BYTES_MAX
        && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && name.bytes().all(legal)
}

/// Validates what the types do not express. Only a worker knows whether the roles exist.
///
/// # Errors
///
/// [`FieldError`] with the invalid field and its requirement.
pub(super) fn check_role_overrides(roles: &[RoleOverride]) -> Result<(), FieldError> {
    let fail = |field, must| Err(FieldError { field, must });
    if roles.len() > ROLE_OVERRIDES_MAX {
        return fail("roles", "at most 32 roles");
    }
    if !roles.iter().all(|role| is_role_name(&role.name)) {
        return fail("roles.name", "1 to 64 of a-z, 0-9, _ and -, a letter first");
    }
    let names: BTreeSet<&str> = roles.iter().map(|role| role.name.as_str()).collect();
    if names.len() < roles.len() {
        return fail("roles.name", "unique");
    }
    if roles.iter().any(|role| role.temperature_milli.is_some_and(|milli| milli > 2000)) {
        return fail("roles.temperature_milli", "from 0 to 2000");
    }
    let bytes = serde_json::to_vec(roles).map_or(usize::MAX, |json| json.len());
    if bytes > ROLE_OVERRIDES_BYTES_MAX {
        return fail("roles", "at most 65536 bytes of JSON");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_overrides_are_bounded_and_have_valid_names() {
        let of = |name: &str| RoleOverride::for_role(name);
        assert_eq!(check_role_overrides(&[of("coder"), of("doc-writer_2")]), Ok(()));
        let hot = RoleOverride { temperature_milli: Some(2001), ..of("coder") };
        let long = RoleOverride { prompt: Some("x".repeat(ROLE_OVERRIDES_BYTES_MAX)), ..of("coder") };
        let many = (0..=ROLE_OVERRIDES_MAX).map(|nth| of(&format!("r{nth}"))).collect();
        for (roles, field) in [
            (vec![of("coder"), of("coder")], "roles.name"),
            (vec![of("")], "roles.name"),
            (vec![of("Coder")], "roles.name"),
            (vec![of(&"x".repeat(65))], "roles.name"),
            (vec![hot], "roles.temperature_milli"),
            (vec![long], "roles"),
            (many, "roles"),
        ] {
            assert_eq!(check_role_overrides(&roles).map_err(|error| error.field), Err(field));
        }
    }
}
