//! The error for a patch that is refused.

/// Why a patch cannot be parsed as edits of one file. `Display` is written for the model that wrote
/// the patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Nothing was changed: {message}")]
pub struct PatchParseError {
    /// The reason and the remedy.
    pub message: String,
}

impl PatchParseError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
