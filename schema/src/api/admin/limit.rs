//! Bodies about how fast model providers may be asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::Timestamp,
    system::{MaxCallCost, ProviderLimits},
};

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
    /// The call is not announced yet: whether the budget of the task's batch pays for it, and nothing else, is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<MaxCallCost>,
}

/// Whether it may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PermitResponse {
    /// It may, once `wait_ms` are over; without, it asks again then, with the same correction.
    pub granted: bool,
    /// How long to wait first, at most [`PERMIT_WAIT_MS_MAX`].
    pub wait_ms: u64,
    /// Its batch has used up what it may: one line for a person. The run rests until that is raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    /// That is so of this run's calls alone, and for as long as it goes on: it ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

impl PermitResponse {
    /// It may at once.
    pub const GRANTED: Self = Self { granted: true, wait_ms: 0, over: None, alone: false };
}
