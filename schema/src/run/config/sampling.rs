//! How a model is asked to answer: how hard it thinks, and its sampling temperature.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How hard a model thinks before it answers, in the words that all providers know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// Briefly.
    Low,
    /// Between the two.
    Medium,
    /// At length.
    High,
}

impl ReasoningEffort {
    /// Its name, in requests as in logs.
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

/// A sampling temperature in thousandths: from 0 to 2, with at most three decimals.
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
