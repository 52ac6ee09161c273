//! Decides whether a batch's budget covers one more model call of one of its runs.
//!
//! A call is allowed if its maximum use fits into the remaining budget after subtracting the maximum use of
//! the calls in progress, so that concurrent calls cannot overdraw the budget. The unused part becomes
//! available when they end.

use docket_schema::system::{BatchSpending, Budget, MaxCallCost};

/// Budget decision for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BudgetDecision {
    /// The budget covers it.
    Affordable,
    /// Covered only if the calls in progress use less than their maximum; one of them ends soon.
    MaybeAfterRunningCalls,
    /// Not covered; a line with the amounts used and requested.
    OverBudget(String),
    /// Unknown: the budget limits cost and the call's model has no price.
    Unpriced,
}

/// Checks a call against the budget. `used` is the total of ended calls, `under_way` the maximum use of calls
/// in progress.
pub fn check_budget(
    budget: Budget,
    used: BatchSpending,
    under_way: BatchSpending,
    call: MaxCallCost,
) -> BudgetDecision {
    let fits = |most: Option<u64>, used: u64, wanted: u64| {
        most.is_none_or(|most| used.checked_add(wanted).is_some_and(|all| all <= most))
    };
    let cost_nusd = match (budget.cost_nusd, call.cost_nusd) {
        (Some(_), None) => return BudgetDecision::Unpriced,
        (_, cost) => cost.unwrap_or(0),
    };
    if !fits(budget.tokens, used.tokens, call.tokens) {
        let most = budget.tokens.unwrap_or_default();
        return BudgetDecision::OverBudget(format!(
            "{} of {most} tokens are used, and the next call may take {}",
            used.tokens, call.tokens
        ));
    }
    if !fits(budget.cost_nusd, used.cost_nusd, cost_nusd) {
        let most = budget.cost_nusd.unwrap_or_default();
        let (used, most, call) =
            (format_dollars(used.cost_nusd), format_dollars(most), format_dollars(cost_nusd));
        return BudgetDecision::OverBudget(format!(
            "{used} of {most} is spent, and the next call may cost {call}"
        ));
    }
    let all = used.plus(under_way);
    if fits(budget.tokens, all.tokens, call.tokens) && fits(budget.cost_nusd, all.cost_nusd, cost_nusd) {
        BudgetDecision::Affordable
    } else {
        BudgetDecision::MaybeAfterRunningCalls
    }
}

/// Formats dollars to a tenth of a cent, rounded up.
fn format_dollars(nusd: u64) -> String {
    let thousandths = nusd.div_ceil(1_000_000);
    format!("${}.{:03}", thousandths / 1000, thousandths % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn spending(tokens: u64, cost_nusd: u64) -> BatchSpending {
        BatchSpending { tokens, cost_nusd }
    }

    #[test]
    fn call_must_fit_the_rest_of_every_limit() {
        let both = Budget { tokens: Some(1000), cost_nusd: Some(2_000_000_000) };
        let none = spending(0, 0);
        for (used, under_way, tokens, cost, expected) in [
            (none, none, 1000, Some(2_000_000_000), Some(true)),
            (none, none, 1001, Some(0), None),
            (none, none, 0, Some(2_000_000_001), None),
            (spending(600, 0), none, 400, Some(0), Some(true)),
            (spending(600, 0), none, 401, Some(0), None),
            (spending(300, 0), spending(300, 0), 400, Some(0), Some(true)),
            (spending(300, 0), spending(301, 0), 400, Some(0), Some(false)),
            (spending(0, 5), spending(0, 1_999_999_990), 1, Some(6), Some(false)),
            (spending(u64::MAX, 0), none, 1, Some(0), None),
            (none, none, 1, None, None),
        ] {
            let got = match check_budget(both, used, under_way, MaxCallCost { tokens, cost_nusd: cost }) {
                BudgetDecision::Affordable => Some(true),
                BudgetDecision::MaybeAfterRunningCalls => Some(false),
                BudgetDecision::OverBudget(message) => {
                    assert!(!message.contains('\n') && !message.is_empty());
                    None
                }
                BudgetDecision::Unpriced => {
                    assert_eq!(cost, None);
                    None
                }
            };
            assert_eq!(got, expected, "{used:?} {under_way:?} {tokens} {cost:?}");
        }
        assert_eq!(
            check_budget(both, none, none, MaxCallCost { tokens: 1, cost_nusd: None }),
            BudgetDecision::Unpriced
        );
        let tokens = Budget { tokens: Some(10), cost_nusd: None };
        assert_eq!(
            check_budget(tokens, none, none, MaxCallCost { tokens: 10, cost_nusd: None }),
            BudgetDecision::Affordable
        );
        let BudgetDecision::OverBudget(said) = check_budget(
            both,
            spending(0, 1_999_000_000),
            none,
            MaxCallCost { tokens: 1, cost_nusd: Some(2_500_001) },
        ) else {
            panic!("it does not fit")
        };
        assert_eq!(said, "$1.999 of $2.000 is spent, and the next call may cost $0.003");
    }
}
