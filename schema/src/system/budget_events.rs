//! Budgets that the runs of a batch share.
//!
//! The stream `system/budgets` records when a budget was set and when it was used up. The usage itself is
//! recorded in the streams of the runs: each answer of a model has its tokens and cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::BatchId, message::TokenUsage};

/// The budget that the runs of a batch share; without either amount there is no budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Budget {
    /// Tokens of requests and replies. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Nano-dollars, by the prices that each run pins. At least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_nusd: Option<u64>,
}

impl Budget {
    /// Maximum of either amount: what a database column can store.
    pub const MAX: u64 = i64::MAX as u64;

    /// Returns these amounts, with missing ones taken from `rest`.
    #[must_use]
    pub fn or(self, rest: Self) -> Self {
        Self { tokens: self.tokens.or(rest.tokens), cost_nusd: self.cost_nusd.or(rest.cost_nusd) }
    }

    /// Whether no amount is set.
    pub const fn is_none(self) -> bool {
        self.tokens.is_none() && self.cost_nusd.is_none()
    }

    /// Whether the amounts are valid.
    pub fn is_valid(self) -> bool {
        [self.tokens, self.cost_nusd].into_iter().flatten().all(|most| (1..=Self::MAX).contains(&most))
    }
}

/// Tokens and money used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchSpending {
    /// Tokens of requests and replies.
    pub tokens: u64,
    /// Nano-dollars.
    pub cost_nusd: u64,
}

impl BatchSpending {
    /// Returns the usage of one answer.
    pub const fn from_usage(usage: TokenUsage, cost_nusd: u64) -> Self {
        Self { tokens: usage.request_tokens().saturating_add(usage.output_tokens), cost_nusd }
    }

    /// Returns the sum, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_nusd: self.cost_nusd.saturating_add(other.cost_nusd),
        }
    }
}

/// Maximum usage of a model call, estimated before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxCallCost {
    /// Tokens of the request and of the longest reply that it allows.
    pub tokens: u64,
    /// Cost in nano-dollars; none if the model's price is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nusd: Option<u64>,
}

/// A batch's budget was set, as a whole. Its runs continue even if the budget was used up before. Recorded in
/// `system/budgets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetSet {
    /// The batch.
    pub batch: BatchId,
    /// The new budget.
    pub budget: Budget,
    /// Who set it.
    pub by: String,
    /// Whether it comes from an imported file and not from a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_file: bool,
}

/// A batch's budget does not cover a run's next call: no more of its tasks start, and running ones stop
/// before their next call, until the budget is set again. Recorded in `system/budgets`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BudgetSpent {
    /// The batch.
    pub batch: BatchId,
    /// The budget at that time.
    pub budget: Budget,
    /// One line for people: what was used, and what the call needed.
    pub message: String,
}
