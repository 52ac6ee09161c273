//! What the runs of a batch may use together, as the log has it.
//!
//! The stream `system/budgets` holds what was set and when it was used up. What was used stands in the streams of the
//! runs: each answer of a model says its tokens and its cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::BatchId, message::TokenUsage};

/// What the runs of a batch may use together; without either there is no budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Tokens, of requests and answers. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Nano-dollars, by the prices that each run pins. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_nusd: Option<u64>,
}

impl Budget {
    /// Most of either: what a row holds.
    pub const MAX: u64 = i64::MAX as u64;

    /// These amounts, and where one is not named the other's.
    #[must_use]
    pub fn or(self, rest: Self) -> Self {
        Self { tokens: self.tokens.or(rest.tokens), cost_nusd: self.cost_nusd.or(rest.cost_nusd) }
    }

    /// Whether nothing is set.
    pub const fn is_none(self) -> bool {
        self.tokens.is_none() && self.cost_nusd.is_none()
    }

    /// Whether what is set is an amount.
    pub fn is_valid(self) -> bool {
        [self.tokens, self.cost_nusd].into_iter().flatten().all(|most| (1..=Self::MAX).contains(&most))
    }
}

/// What was used of tokens and money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchSpending {
    /// Tokens, of requests and answers.
    pub tokens: u64,
    /// Nano-dollars.
    pub cost_nusd: u64,
}

impl BatchSpending {
    /// What an answer had.
    pub const fn from_usage(usage: TokenUsage, cost_nusd: u64) -> Self {
        Self { tokens: usage.request_tokens().saturating_add(usage.output_tokens), cost_nusd }
    }

    /// Sums, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_nusd: self.cost_nusd.saturating_add(other.cost_nusd),
        }
    }
}

/// What a call of a model may use at most, before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxCallCost {
    /// Tokens of the request, and of the longest answer that it allows.
    pub tokens: u64,
    /// Nano-dollars; none where nobody knows the model's price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nusd: Option<u64>,
}

/// Somebody set what a batch may use: all of it. Whatever was used up before, its runs go on. Stands in `system/budgets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetSet {
    /// The batch.
    pub batch: BatchId,
    /// From here on.
    pub budget: Budget,
    /// Who.
    pub by: String,
    /// A file that was imported says so, and no person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_file: bool,
}

/// A batch's budget does not pay for a run's next call: no more tasks of it begin, and those that run stop before their
/// next call, until the budget is set anew. Stands in `system/budgets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetSpent {
    /// The batch.
    pub batch: BatchId,
    /// What was set.
    pub budget: Budget,
    /// What was used, and what was wanted: one line for a person.
    pub message: String,
}
