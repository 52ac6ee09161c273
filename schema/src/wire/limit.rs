//! Bodies about how fast model providers may be asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::Timestamp, system::ProviderLimits};

/// Longest wait that a permit tells, in milliseconds: whoever waits asks again after it, and finds what was changed.
pub const PERMIT_WAIT_MS_MAX: u64 = 10_000;

/// `GET /v1/limits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitList {
    /// By provider.
    pub limits: Vec<LimitView>,
}

/// What is set for a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitView {
    /// The provider.
    pub provider: String,
    /// How fast it may be asked, by all workers together.
    pub limits: ProviderLimits,
    /// Who set it.
    pub by: String,
    /// When.
    pub set_at: Timestamp,
}

/// `POST /v1/limits/{provider}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLimitRequest {
    /// All of it, at least one rate.
    pub limits: ProviderLimits,
}

/// `POST /v1/limits/{provider}/remove`: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveLimitRequest {}

/// `POST /v1/runs/{id}/permit`: a run is about to ask a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PermitRequest {
    /// Whose model.
    pub provider: String,
    /// Tokens that request and answer are likely to have.
    pub tokens: u64,
    /// Tokens that the call before had beyond what it was taken for; below zero where it had fewer.
    #[serde(default)]
    pub correction: i64,
}

/// Whether it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermitResponse {
    /// It may, once `wait_ms` are over; without, it asks again then, with the same correction.
    pub granted: bool,
    /// How long to wait first, at most [`PERMIT_WAIT_MS_MAX`].
    pub wait_ms: u64,
}
