//! Checks that a run's budget covers at least its first model call.

use docket_worker::{
    engine::{self, FirstCallTokens, first_call_tokens_min},
    model::PriceTable,
};

use crate::{
    context::CliContext,
    output::{
        display::format_money,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    tasks::task_args::{PreparedTask, TaskArgs},
};

/// Rejects a budget below the first model call: every run of the task, whose text is `text`, would fail at its
/// start.
///
/// # Errors
/// Fails with a usage error that names the flag or setting and the minimum.
pub(crate) fn check_budget(
    cx: &CliContext,
    args: &TaskArgs,
    asked: &PreparedTask,
    text: &str,
) -> CliResult<()> {
    let Some(engine) = engine::newest_engine(args.engine_name(cx)) else { return Ok(()) };
    let tools = args.tools.unwrap_or(cx.config.run_defaults.tool_set);
    let call = first_call_tokens_min(&*engine, tools, text);
    let tokens = args.max_tokens.unwrap_or(cx.config.run_defaults.tokens_max);
    if let Some(least) = tokens_needed_if_short(tokens, call) {
        let field = if args.max_tokens.is_some() { "--max-tokens" } else { "`run.tokens_max`" };
        return budget_too_small(field, &format!("{tokens} tokens"), &format!("{least} tokens"));
    }
    let table = PriceTable::load(cx.config.prices_toml.as_deref()).fail_as(ExitKind::Usage)?;
    let listed = table.entry_for(asked.first_model());
    let cost = args.max_cost.unwrap_or(cx.config.run_defaults.cost_max_nusd);
    let prices = (listed.prices.input_nusd, listed.prices.output_nusd);
    match cost_needed_if_short(cost, call, prices).filter(|_| listed.is_known) {
        Some(least) => {
            let field = if args.max_cost.is_some() { "--max-cost" } else { "`run.cost_max`" };
            budget_too_small(field, &format_money(cost), &format_money(least))
        }
        None => Ok(()),
    }
}

fn budget_too_small(field: &str, budget: &str, least: &str) -> CliResult<()> {
    let message = format!(
        "{field}: a budget of {budget} does not cover one model call of this task, so every run would fail at its start; give \
         at least {least}"
    );
    Err(CliError::new(ExitKind::Usage, message))
}

/// Returns the minimum token budget if the budget is too low. 0 = no budget.
fn tokens_needed_if_short(budget: u64, call: FirstCallTokens) -> Option<u64> {
    let least = call.request + call.answer;
    (budget > 0 && budget < least).then_some(least)
}

/// Returns the minimum cost budget in nano-dollars if the budget is too low. 0 = no budget.
fn cost_needed_if_short(
    budget: u64,
    call: FirstCallTokens,
    (input_nusd, output_nusd): (u64, u64),
) -> Option<u64> {
    let least =
        call.request.saturating_mul(input_nusd).saturating_add(call.answer.saturating_mul(output_nusd));
    (budget > 0 && budget < least).then_some(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_below_the_first_call_is_short_and_zero_is_unlimited() {
        let call = FirstCallTokens { request: 1000, answer: 256 };
        assert_eq!(tokens_needed_if_short(0, call), None);
        assert_eq!(tokens_needed_if_short(1255, call), Some(1256));
        assert_eq!(tokens_needed_if_short(1256, call), None);
        assert_eq!(cost_needed_if_short(0, call, (3, 10)), None);
        assert_eq!(cost_needed_if_short(5559, call, (3, 10)), Some(5560));
        assert_eq!(cost_needed_if_short(5560, call, (3, 10)), None);
        assert_eq!(cost_needed_if_short(1, call, (0, 0)), None, "a free model");
    }
}
