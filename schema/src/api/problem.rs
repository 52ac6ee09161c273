//! API errors: RFC 9457 problem details with stable codes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Envelope, Head},
    ids::Epoch,
    problem_code::ProblemCode,
};

/// An error body: RFC 9457 problem details. `type` is the `CODE` part of `https://docket.dev/problems/CODE`
/// as a relative reference; every code is documented in `coordinator/ERRORS.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemDetails {
    /// `/problems/CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Stable, machine-readable code.
    pub code: ProblemCode,
    /// Short summary of the kind of error.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What happened and what to do about it.
    pub detail: String,
    /// The request field that caused the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// For `wrong_seq`: the actual head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// For `wrong_seq`: the events after the expected one, at most [`PAGE_EVENTS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Envelope>,
    /// For `fenced` and `lease_expired`: the current epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

impl ProblemCode {
    /// Creates a problem with this code.
    pub fn to_problem(self, detail: impl Into<String>) -> ProblemDetails {
        let (code, status, title) = self.code_status_title();
        ProblemDetails {
            kind: format!("/problems/{code}"),
            code: self,
            title: title.to_owned(),
            status,
            detail: detail.into(),
            field: None,
            head: None,
            missing: Vec::new(),
            epoch: None,
        }
    }
}
