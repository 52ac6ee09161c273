//! What a run's settings say of work whose final checks did not run.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What becomes of a run whose work is done and whose final checks did not run. A project without any check completes
/// unverified under each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnverifiedPolicy {
    /// A person is asked.
    #[default]
    Ask,
    /// It completes, unverified.
    Complete,
    /// It fails.
    Fail,
}

impl UnverifiedPolicy {
    /// Whether it is the usual one.
    #[must_use]
    pub fn is_ask(&self) -> bool {
        *self == Self::Ask
    }
}

impl FromStr for UnverifiedPolicy {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ask" => Ok(Self::Ask),
            "complete" => Ok(Self::Complete),
            "fail" => Ok(Self::Fail),
            _ => Err("it must be ask, complete or fail"),
        }
    }
}
