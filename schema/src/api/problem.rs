//! Errors as the API says them: RFC 9457 problem details with stable codes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Envelope, Head},
    ids::Epoch,
    problem_code::ProblemCode,
};

/// An error body: RFC 9457 problem details. `type` is `https://docket.dev/problems/CODE`'s CODE
/// part as a relative reference; every code has a row in `coordinator/ERRORS.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemDetails {
    /// `/problems/CODE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Stable code for programs.
    pub code: ProblemCode,
    /// What kind of thing went wrong.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What went wrong here, and what helps.
    pub detail: String,
    /// The field of the request that is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// For `wrong_seq`: the head as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// For `wrong_seq`: the events after the expected one, at most [`PAGE_EVENTS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Envelope>,
    /// For `fenced` and `lease_expired`: the epoch in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

impl ProblemCode {
    /// A problem of this code.
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
