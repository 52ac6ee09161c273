//! Totals over a run.

use super::delegation::ChildSpending;
use crate::message::TokenUsage;

/// Totals over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTotals {
    /// Tokens.
    pub usage: TokenUsage,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// Answered model calls.
    pub model_calls: u32,
    /// Failed model calls.
    pub model_failures: u32,
    /// Tool calls with a result.
    pub tool_calls: u32,
    /// Tool calls that failed or were refused.
    pub tool_errors: u32,
    /// Tool calls refused by policy.
    pub denials: u32,
    /// Resources used by children; not included in the totals above.
    pub children: ChildSpending,
}
