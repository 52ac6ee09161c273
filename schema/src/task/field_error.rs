//! What is wrong with a task that is asked for.

/// A field that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` must be {must}")]
pub struct FieldError {
    /// The field.
    pub field: &'static str,
    /// What it must be.
    pub must: &'static str,
}
