//! Sums over a run.

use super::delegation::ChildSpending;
use crate::message::TokenUsage;

/// Sums over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTotals {
    /// Tokens.
    pub usage: TokenUsage,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// Model calls that were answered.
    pub model_calls: u32,
    /// Model calls that failed.
    pub model_failures: u32,
    /// Tool calls with a result.
    pub tool_calls: u32,
    /// Tool calls that failed or were refused.
    pub tool_errors: u32,
    /// Of these, the ones that policy refused.
    pub denials: u32,
    /// What children used, as they answered: no part of the sums above.
    pub children: ChildSpending,
}
