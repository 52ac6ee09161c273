//! Decides when engine `sop` has one turn left (E6). Pure.

use docket_schema::run::{RunStarted, RunState};

use super::super::core::{limits::turns_allowed, model_choice};

/// Share of a budget of time, tokens or money, in percent, from which on one turn is left. The rest covers that turn.
const NEAR_PERCENT: u128 = 90;
/// Tokens of a reply that ends the work.
const LAST_ANSWER_TOKENS: u64 = 1024;

/// Returns the part of a time budget that may be used before the last turn, in milliseconds.
pub(super) fn time_before_last_turn(budget_ms: u64) -> u64 {
    let share = (u128::from(budget_ms) * NEAR_PERCENT).div_ceil(100);
    u64::try_from(share).unwrap_or(budget_ms)
}

/// Returns why a turn is the last one.
pub(super) fn nearly_used_up_message(budget: &str) -> String {
    format!("the budget of {budget} is nearly used up")
}

/// Returns a limit that leaves one turn.
pub(super) fn find_near_limit(run: &RunState, pins: &RunStarted) -> Option<String> {
    let cap = turns_allowed(run, &pins.settings);
    if run.turn.0.saturating_add(1) >= cap {
        return Some(format!("the cap of {cap} turns is reached"));
    }
    let (spent, settings) = (run.model_attempts.spending(&run.totals), &pins.settings);
    // The need of one turn: known for tokens, and for money about the cost of a call so far.
    let tokens = model_choice::request_size(run, pins).current_tokens().saturating_add(LAST_ANSWER_TOKENS);
    let money = run.totals.cost_nusd / u64::from(run.totals.model_calls.max(1));
    let budgets = [
        ("time", settings.time_max_ms, spent.worked_ms, 0),
        ("tokens", settings.tokens_max, spent.tokens, tokens),
        ("money", settings.cost_max_nusd, spent.cost_nusd, money),
    ];
    let near = budgets.into_iter().find(|(_, max, spent, turn)| is_nearly_used_up(*max, *spent, *turn));
    near.map(|(name, ..)| nearly_used_up_message(name))
}

/// Whether a budget covers one more turn, but not two.
pub(super) fn is_nearly_used_up(max: u64, spent: u64, turn: u64) -> bool {
    let share = u128::from(spent) * 100 >= u128::from(max) * NEAR_PERCENT;
    max > 0 && (share || max.saturating_sub(spent) < turn.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::is_nearly_used_up;

    #[test]
    fn limit_is_near_when_two_turns_do_not_fit() {
        for (max, spent, turn, near) in [
            (0, u64::MAX, 9, false),
            (100, 0, 10, false),
            (100, 80, 10, false),
            (100, 81, 10, true),
            (100, 89, 0, false),
            (100, 90, 0, true),
            (7, 6, 0, false),
            (7, 7, 0, true),
            (u64::MAX, u64::MAX / 100, u64::MAX / 2, true),
        ] {
            assert_eq!(is_nearly_used_up(max, spent, turn), near, "{spent} of {max}, {turn} a turn");
        }
    }
}
