//! Bodies about API tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::Timestamp,
    system::{TokenName, TokenRecord, TokenRole},
};

/// Longest life of a token that expires, in milliseconds: ten years.
pub const TOKEN_LIFETIME_MS_MAX: u64 = 10 * 365 * 24 * 3_600_000;

/// `POST /v1/tokens`: makes a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// Its name. It stands in the log for what its holder does.
    pub name: TokenName,
    /// What it is good for.
    pub role: TokenRole,
    /// How long it is good, at most [`TOKEN_LIFE_MS_MAX`]; none = until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
}

/// A token that was made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedToken {
    /// What is known of it.
    pub token: TokenView,
    /// The token itself. This is the one time that it is told: the coordinator keeps its hash alone.
    pub secret: String,
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("token", &self.token).finish_non_exhaustive()
    }
}

/// `POST /v1/tokens/{name}/revoke`: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RevokeTokenRequest {}

/// `GET /v1/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenList {
    /// The last token of each name, in order of the names.
    pub tokens: Vec<TokenView>,
}

/// `GET /v1/whoami`: whose token the request bears.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhoamiResponse {
    /// The token's name, as it stands in the log.
    pub name: String,
    /// What it is good for.
    pub role: TokenRole,
}

/// A token, without itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    /// Its name.
    pub name: TokenName,
    /// What it is good for.
    pub role: TokenRole,
    /// `good`, `expired` or `revoked`.
    pub state: TokenState,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<String>,
}

/// What a token is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// It is accepted.
    Good,
    /// Its time is over.
    Expired,
    /// Somebody ended it.
    Revoked,
}

impl TokenState {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl TokenView {
    /// What is told of a token at `now`.
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
