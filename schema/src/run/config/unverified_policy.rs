//! Setting for work whose final checks did not run.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a run ends whose work is done but whose final checks did not run. A project without any checks always
/// completes unverified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnverifiedPolicy {
    /// A person is asked.
    #[default]
    Ask,
    /// The run completes unverified.
    Complete,
    /// The run fails.
    Fail,
}

impl UnverifiedPolicy {
    /// Whether it is the default.
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
