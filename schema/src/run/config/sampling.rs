//! Sampling options: reasoning effort and temperature.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reasoning effort of a model, in the terms that all providers support.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
}

impl ReasoningEffort {
    /// Returns the name used in requests and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

impl FromStr for ReasoningEffort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "low" => Ok(Self::Low),
            "medium" => Ok(Self::Medium),
            "high" => Ok(Self::High),
            _ => Err("it must be low, medium or high"),
        }
    }
}

/// Parses a sampling temperature as thousandths: from 0 to 2, with at most three decimals.
pub fn parse_temperature_milli(text: &str) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    let milli = whole.parse::<u32>().ok()?.checked_mul(1000)?;
    let milli = milli.checked_add(format!("{fraction:0<3}").parse().ok()?)?;
    (milli <= 2000).then_some(milli)
}
