//! API tokens: the events that make and revoke them.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{BlobHash, ParseIdError, Timestamp, deserialize_from_text};

/// Longest name of a token, in bytes: it stands in every event that its holder causes.
pub const TOKEN_NAME_BYTES_MAX: usize = 64;

/// Most tokens in force at once: each request is compared with all of them.
pub const TOKENS_MAX: usize = 1000;

/// What an API token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// Everything but a run's own appends.
    Admin,
    /// Submits, cancels, retries, tells, resumes; reads.
    Submit,
    /// Leases, heartbeats, gives back.
    Worker,
    /// Reads tasks, runs and events.
    Read,
}

impl TokenRole {
    /// All roles, in declaration order.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Submit, Self::Worker, Self::Read];

    /// The role's name, as in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Submit => "submit",
            Self::Worker => "worker",
            Self::Read => "read",
        }
    }
}

/// A token's name: letters, digits, `.`, `_`, `-`; at most [`TOKEN_NAME_BYTES_MAX`] bytes. A new one begins with a
/// letter or digit ([`TokenName::is_new`]): others are a path's own words, or a flag. Old logs may hold such.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = "^[A-Za-z0-9._-]{1,64}$"))]
pub struct TokenName(String);

impl TokenName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a token may be made of this name.
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

/// A token was made. Stands in `system/tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCreated {
    /// Its name: stands in the log as who submitted, told or cancelled.
    pub name: TokenName,
    /// What it is good for.
    pub role: TokenRole,
    /// BLAKE3 of it.
    pub hash: BlobHash,
    /// From when on it is good for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Who made it.
    pub by: String,
}

/// A token was revoked. Stands in `system/tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenRevoked {
    /// Its name.
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
