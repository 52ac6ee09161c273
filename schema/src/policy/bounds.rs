//! Size limits of a policy, and the error of an invalid one.

use serde::Deserialize as _;

/// Maximum number of patterns and examples in one rule.
pub const PARTS_MAX: usize = 100;
/// Maximum number of characters of a name, pattern, example or text of a rule.
pub const TEXT_CHARS_MAX: usize = 400;

/// An invalid policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {must}")]
pub struct PolicyError {
    /// The field, such as `rules[2].paths[0]`.
    pub field: String,
    /// The requirement it violates.
    pub must: String,
}

impl PolicyError {
    /// Creates the error for `field`.
    pub fn new(field: impl Into<String>, must: impl Into<String>) -> Self {
        Self { field: field.into(), must: must.into() }
    }
}

/// Checks a field that is a list of patterns or names.
pub(super) fn check_texts(field: &str, list: &[String]) -> Result<(), PolicyError> {
    if list.len() > PARTS_MAX {
        return Err(PolicyError::new(field, format!("may have at most {PARTS_MAX} entries")));
    }
    match list.iter().position(|text| text.trim().is_empty() || text.chars().count() > TEXT_CHARS_MAX) {
        Some(bad) => {
            let must = format!("must be 1 to {TEXT_CHARS_MAX} characters");
            Err(PolicyError::new(format!("{field}[{bad}]"), must))
        }
        None => Ok(()),
    }
}

/// Rejects an empty list: its author would have meant "nothing", but it would match everything.
pub(super) fn some_or_left_out<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let list = Vec::<String>::deserialize(from)?;
    if list.is_empty() {
        return Err(serde::de::Error::custom("the list must not be empty: omit the field to mean any"));
    }
    Ok(list)
}
