//! Request and response bodies for API tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::Timestamp,
    system::{TokenName, TokenRecord, TokenRole},
};

/// Maximum lifetime of an expiring token, in milliseconds: ten years.
pub const TOKEN_LIFETIME_MS_MAX: u64 = 10 * 365 * 24 * 3_600_000;

/// `POST /v1/tokens`: creates a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// The token's name. The log records it with everything done with the token.
    pub name: TokenName,
    /// The token's role.
    pub role: TokenRole,
    /// Lifetime in milliseconds, at most [`TOKEN_LIFETIME_MS_MAX`]; if absent, the token is valid until it is
    /// revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// A newly created token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedToken {
    /// The token's metadata.
    pub token: TokenView,
    /// The token itself. It is shown only here, because the coordinator stores only its hash.
    pub secret: String,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("token", &self.token).finish_non_exhaustive()
    }
}

/// `POST /v1/tokens/{name}/revoke`: the body is an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevokeTokenRequest {}

/// `GET /v1/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenList {
    /// The latest token of each name, ordered by name.
    pub tokens: Vec<TokenView>,
}

/// `GET /v1/whoami`: the identity of the request's token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhoamiResponse {
    /// The token's name, as recorded in the log.
    pub name: String,
    /// The token's role.
    pub role: TokenRole,
}

/// A token's metadata, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    /// The token's name.
    pub name: TokenName,
    /// The token's role.
    pub role: TokenRole,
    /// `good`, `expired` or `revoked`.
    pub state: TokenState,
    /// When it was created.
    pub created_at: Timestamp,
    /// Who created it.
    pub created_by: String,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// Who revoked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
}

/// Validity of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// The token is accepted.
    Good,
    /// The token has expired.
    Expired,
    /// The token was revoked.
    Revoked,
}

impl TokenState {
    /// Returns the state's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl TokenView {
    /// Builds the view of a token at time `now`.
    pub fn from_record(record: &TokenRecord, now: Timestamp) -> Self {
        let made = &record.created;
        let state = match &record.revoked {
            Some(_) => TokenState::Revoked,
            None if record.is_valid_at(now) => TokenState::Good,
            None => TokenState::Expired,
        };
        Self {
            name: made.name.clone(),
            role: made.role,
            state,
            created_at: record.created_at,
            created_by: made.by.clone(),
            expires_at: made.expires_at,
            revoked_at: record.revoked.as_ref().map(|(at, _)| *at),
            revoked_by: record.revoked.as_ref().map(|(_, by)| by.clone()),
        }
    }
}
