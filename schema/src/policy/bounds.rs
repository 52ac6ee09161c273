//! How large a policy may be, and the error of one that is larger or says nothing.

use serde::Deserialize as _;

/// Patterns and examples of one rule at most.
pub const PARTS_MAX: usize = 100;
/// Characters of a name, a pattern, an example or a text of a rule.
pub const TEXT_CHARS_MAX: usize = 400;

/// A policy that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {must}")]
pub struct PolicyError {
    /// The field, as `rules[2].paths[0]`.
    pub field: String,
    /// What it must be.
    pub must: String,
}

impl PolicyError {
    /// That `field` must be otherwise.
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

/// A list that stands there and is empty was meant as nothing, and would hold as anything: it is refused.
pub(super) fn some_or_left_out<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let list = Vec::<String>::deserialize(from)?;
    if list.is_empty() {
        return Err(serde::de::Error::custom("an empty list is none: leave the field out to mean any"));
    }
    Ok(list)
}
