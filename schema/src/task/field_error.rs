//! Validation error of a submitted task.

/// A field that breaks a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` must be {must}")]
pub struct FieldError {
    /// The field.
    pub field: &'static str,
    /// The requirement it violates.
    pub must: &'static str,
}
