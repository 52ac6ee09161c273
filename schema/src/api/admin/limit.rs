//! Request and response bodies for rate limits of model providers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::Timestamp,
    system::{MaxCallCost, ProviderLimits},
};

/// Maximum wait that a permit response returns, in milliseconds. A client asks again after it and then sees
/// changed limits.
pub const PERMIT_WAIT_MS_MAX: u64 = 10_000;

/// `GET /v1/limits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitList {
    /// The limits, ordered by provider.
    pub limits: Vec<LimitView>,
}

/// The rate limits set for a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitView {
    /// The provider.
    pub provider: String,
    /// The limits that all workers share.
    pub limits: ProviderLimits,
    /// Who set them.
    pub by: String,
    /// When they were set.
    pub set_at: Timestamp,
}

/// `POST /v1/limits/{provider}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetLimitRequest {
    /// The complete limits; at least one rate must be set.
    pub limits: ProviderLimits,
}

/// `POST /v1/limits/{provider}/remove`: the body is an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveLimitRequest {}

/// `POST /v1/runs/{id}/permit`: requests a permit for a model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PermitRequest {
    /// The model's provider.
    pub provider: String,
    /// Estimated number of tokens of the request and its reply.
    pub tokens: u64,
    /// Tokens the previous call used beyond its estimate; negative if it used fewer.
    #[serde(default)]
    pub correction: i64,
    /// Maximum cost of a call whose intent is not recorded yet. If set, only the batch budget is checked, not
    /// the rate limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<MaxCallCost>,
}

/// Whether the call is permitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermitResponse {
    /// Whether the call may start after `wait_ms`. If false, the run asks again after that time, with the
    /// same correction.
    pub granted: bool,
    /// How long to wait first, in milliseconds; at most [`PERMIT_WAIT_MS_MAX`].
    pub wait_ms: u64,
    /// One line for people if the batch budget is used up. The run waits until the budget is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// The budget cannot be checked because the price of the model is unknown. This concerns only this run,
    /// and waiting does not help, so the run ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

impl PermitResponse {
    /// Permission to start at once.
    pub const GRANTED: Self = Self { granted: true, wait_ms: 0, over: None, alone: false };
}
