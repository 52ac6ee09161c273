//! Events that create and revoke API tokens.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{BlobHash, ParseIdError, Timestamp, deserialize_from_text};

/// Maximum length of a token's name, in bytes. It is recorded in every event that its holder causes.
pub const TOKEN_NAME_BYTES_MAX: usize = 64;

/// Maximum number of valid tokens. Each request is compared with all of them.
pub const TOKENS_MAX: usize = 1000;

/// Role of an API token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// Everything except a run's own appends.
    Admin,
    /// Submits, cancels, retries, tells, resumes; reads.
    Submit,
    /// Leases, heartbeats, releases.
    Worker,
    /// Reads tasks, runs and events.
    Read,
}

impl TokenRole {
    /// All roles, in declaration order.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Submit, Self::Worker, Self::Read];

    /// Returns the role's name, as in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Submit => "submit",
            Self::Worker => "worker",
            Self::Read => "read",
        }
    }
}

/// A token's name: letters, digits, `.`, `_`, `-`; at most [`TOKEN_NAME_BYTES_MAX`] bytes. A new one starts
/// with a letter or digit ([`TokenName::is_valid_for_creation`]), because other names conflict with path
/// components or flags. Old logs may contain such names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = "^[A-Za-z0-9._-]{1,64}$"))]
pub struct TokenName(String);

impl TokenName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a token with this name may be created.
    pub fn is_valid_for_creation(&self) -> bool {
        self.0.starts_with(|first: char| first.is_ascii_alphanumeric())
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TokenName {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > TOKEN_NAME_BYTES_MAX || !text.bytes().all(legal) {
            return Err(ParseIdError::new("token name (letters, digits, . _ -; at most 64)", text));
        }
        Ok(Self(text.to_owned()))
    }
}

deserialize_from_text!(TokenName);

/// A token was created. Recorded in `system/tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCreated {
    /// The token's name: identifies its holder in the log.
    pub name: TokenName,
    /// The token's role.
    pub role: TokenRole,
    /// BLAKE3 hash of the token.
    pub hash: BlobHash,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Who created it.
    pub by: String,
}

/// A token was revoked. Recorded in `system/tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenRevoked {
    /// The token's name.
    pub name: TokenName,
    /// Who revoked it.
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_names_are_plain_words() {
        for bad in ["", "a b", "a/b", "ü", "a\n", &"x".repeat(65), "'; DROP"] {
            assert!(bad.parse::<TokenName>().is_err(), "{bad}");
        }
        assert!("ci-2_b.X".parse::<TokenName>().is_ok());
        for role in TokenRole::ALL {
            assert_eq!(serde_json::to_value(role).expect("json"), role.as_str());
        }
    }
}
