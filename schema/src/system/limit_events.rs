//! Events that set the rate limits of model providers, shared by all workers.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::ParseIdError;

/// Maximum number of providers with limits.
pub const LIMITS_MAX: usize = 100;

/// Maximum length of a provider's name, in bytes.
const PROVIDER_BYTES_MAX: usize = 64;

/// Whether this is a valid provider name, such as `openai`.
pub fn is_provider_name(name: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.len() <= PROVIDER_BYTES_MAX && name.bytes().all(legal)
}

/// A rate: `50/m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// The count; at least 1.
    pub count: u64,
    /// The period in milliseconds; at least 1, at most a day.
    pub per_ms: u64,
}

impl RateLimit {
    /// Maximum period of a rate, a day.
    pub const PER_MS_MAX: u64 = 86_400_000;

    /// Whether the rate is valid.
    pub const fn is_valid(self) -> bool {
        self.count > 0 && self.per_ms > 0 && self.per_ms <= Self::PER_MS_MAX
    }

    /// Returns the time that `units` take at this rate, in microseconds, rounded up.
    pub fn duration_us(self, units: u64) -> i64 {
        let us = (u128::from(units) * u128::from(self.per_ms) * 1000).div_ceil(u128::from(self.count.max(1)));
        i64::try_from(us).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.per_ms {
            1000 => write!(f, "{}/s", self.count),
            60_000 => write!(f, "{}/m", self.count),
            3_600_000 => write!(f, "{}/h", self.count),
            ms => write!(f, "{}/{ms}ms", self.count),
        }
    }
}

impl FromStr for RateLimit {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let read = || {
            let (count, unit) = text.split_once('/')?;
            let per_ms = match unit {
                "s" => 1000,
                "m" => 60_000,
                "h" => 3_600_000,
                other => other.strip_suffix("ms")?.parse().ok()?,
            };
            Some(Self { count: count.parse().ok()?, per_ms }).filter(|rate| rate.is_valid())
        };
        read().ok_or_else(|| {
            ParseIdError::new("rate (a number per second, minute or hour, such as 50/m)", text)
        })
    }
}

/// Rate limits of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderLimits {
    /// Requests; none means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RateLimit>,
    /// Tokens of requests and replies; none means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<RateLimit>,
    /// Concurrent calls, at least 1; none means unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
}

/// The time a permit uses of a provider's rates, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermitCost {
    /// For the request itself.
    pub requests_us: i64,
    /// For its estimated tokens.
    pub tokens_us: i64,
    /// For the difference between the previous call's actual and estimated tokens; negative if it used fewer.
    pub correction_us: i64,
    /// Maximum number of concurrent calls, including this one.
    pub concurrent: Option<u32>,
}

impl fmt::Display for ProviderLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: Option<RateLimit>, what| rate.map(|rate| format!("{rate} {what}"));
        let at_a_time = self.concurrent.map(|max| format!("{max} at a time"));
        let all = [rate(self.requests, "requests"), rate(self.tokens, "tokens"), at_a_time];
        f.write_str(&all.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl ProviderLimits {
    /// Whether the rates are valid and at least one is set.
    pub fn is_valid(&self) -> bool {
        let rates = [self.requests, self.tokens];
        let any = rates.iter().any(Option::is_some) || self.concurrent.is_some();
        any && rates.into_iter().flatten().all(RateLimit::is_valid) && self.concurrent != Some(0)
    }

    /// Returns the cost of a request with this many tokens.
    pub fn permit_cost(&self, tokens: u64, correction: i64) -> PermitCost {
        let of = |rate: Option<RateLimit>, units| rate.map_or(0, |rate| rate.duration_us(units));
        let corrected = of(self.tokens, correction.unsigned_abs());
        PermitCost {
            requests_us: of(self.requests, 1),
            tokens_us: of(self.tokens, tokens),
            correction_us: if correction < 0 { -corrected } else { corrected },
            concurrent: self.concurrent,
        }
    }
}

/// The rate limits of a provider were set, as a whole. Recorded in `system/limits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitSet {
    /// The provider, such as `openai`.
    pub provider: String,
    /// The new limits.
    pub limits: ProviderLimits,
    /// Who set them.
    pub by: String,
}

/// The rate limits of a provider were removed. Recorded in `system/limits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitRemoved {
    /// The provider.
    pub provider: String,
    /// Who removed them.
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limits_round_trip_and_have_a_duration() {
        for (text, count, per_ms) in
            [("50/m", 50, 60_000), ("5/s", 5, 1000), ("1/h", 1, 3_600_000), ("7/250ms", 7, 250)]
        {
            let rate: RateLimit = text.parse().expect("a rate");
            assert_eq!((rate, rate.to_string().as_str()), (RateLimit { count, per_ms }, text));
        }
        for bad in ["", "5", "5/", "/s", "0/s", "5/d", "-1/s", "5/0ms", "5/86400001ms"] {
            assert!(bad.parse::<RateLimit>().is_err(), "{bad}");
        }
        let limits =
            ProviderLimits { requests: "3/s".parse().ok(), tokens: "60000/m".parse().ok(), concurrent: None };
        let cost = limits.permit_cost(500, -100);
        assert_eq!((cost.requests_us, cost.tokens_us, cost.correction_us), (333_334, 500_000, -100_000));
        assert!(ProviderLimits { concurrent: Some(1), ..ProviderLimits::default() }.is_valid());
        assert!(!ProviderLimits { concurrent: Some(0), ..limits }.is_valid());
        assert!(limits.is_valid() && !ProviderLimits::default().is_valid());
    }
}
