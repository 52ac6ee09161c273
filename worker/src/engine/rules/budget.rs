//! Budgets of tokens, money and time: checks whether a model call fits before it is made. Pure.
//!
//! A call is made if the estimated cost of its request and a short reply fit into the remaining budget, and its reply
//! is limited to what the rest covers. The estimate uses the model's last count, plus a rule for newer content; a
//! provider that cached the last request is assumed to still have it. Time is recorded time: of model calls with
//! their waits, of tools and of checks. A run that waits for a person or for a worker uses none.

use docket_schema::{
    message::{TokenPrices, TokenUsage},
    run::{CallPurpose, FailureKind, RunOutcome, RunStarted, RunState},
    system::MaxCallCost,
    tool::ToolSet,
};

use crate::engine::{
    core::{
        decision::{Action, Decision, ModelCall},
        definition::Engine,
        model_choice,
        request_size::estimate_tokens,
    },
    prompt,
};
use crate::tools;

/// Tokens of the shortest reply worth requesting: a sentence and a call.
const ANSWER_TOKENS_MIN: u32 = 256;

/// Returns the minimum token budget of a run, without which it would end before its first call: the smallest first
/// request of a task, by the rule that applies before a model has counted, plus the shortest reply. A real request is
/// larger, because the project is part of its prompt; roles may have other prompts, so for an engine with roles only
/// the task's text is counted.
pub fn first_call_tokens_min(engine: &dyn Engine, tools: ToolSet, text: &str) -> FirstCallTokens {
    let chars = text.char_indices().nth(prompt::TASK_CHARS_MAX);
    let task = chars.map_or(text.len(), |(end, _)| end);
    let prompts = if engine.default_roles().is_empty() {
        let specs = tools::tool_specs(engine.tool_set().unwrap_or(tools));
        let system = prompt::system_prompt(&specs, &prompt::ProjectLayer::default()).len();
        system + serde_json::to_vec(&specs).expect("tool specifications have string keys only").len()
    } else {
        0
    };
    let request = estimate_tokens((prompts + task) as u64);
    FirstCallTokens { request, answer: u64::from(ANSWER_TOKENS_MIN) }
}

/// Minimum tokens of a first call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstCallTokens {
    /// Its request.
    pub request: u64,
    /// The shortest reply worth requesting.
    pub answer: u64,
}

/// Applies the budgets to an engine's decision: only calls they cover are made.
pub(in crate::engine) fn decide_within_budget(
    run: &RunState,
    next: impl FnOnce(&RunStarted) -> Decision,
) -> Decision {
    let Some(pins) = run.pins.as_deref() else {
        return Decision::fail_run(run, FailureKind::Environment, "the run has no start");
    };
    let Decision { phase, act } = next(pins);
    match act {
        Action::CallModel(call) => match fit_to_budget(run, pins, *call) {
            Ok(call) => Decision { phase, act: Action::CallModel(Box::new(call)) },
            Err(result) => Decision::end_run(run, result),
        },
        act @ (Action::RunTools(_)
        | Action::RunGates(_)
        | Action::Compact(_)
        | Action::Conclude(_)
        | Action::Pause
        | Action::Block { .. }
        | Action::End { .. }) => Decision { phase, act },
    }
}

/// Returns the call with a reply length that the budgets cover.
///
/// # Errors
/// It would exceed one of them: how the run ends.
pub(in crate::engine) fn fit_to_budget(
    run: &RunState,
    pins: &RunStarted,
    mut call: ModelCall,
) -> Result<ModelCall, RunOutcome> {
    let settings = &pins.settings;
    let spent = run.model_attempts.spending(&run.totals);
    if settings.model_rules > 0 && settings.cost_max_nusd > 0 && !pins.models.terms_for(&call.model).priced {
        // A fork continued the run with another model.
        let message = crate::model::unknown_price_message(&call.model);
        return Err(RunOutcome::Failed { why: FailureKind::Configuration, message });
    }
    // The wait before a call is part of its time; under the first rules it was counted when it was requested.
    let wait_ms = if settings.model_rules > 0 { call.wait_ms } else { 0 };
    if settings.time_max_ms > 0 && spent.worked_ms.saturating_add(wait_ms) >= settings.time_max_ms {
        let (took, allowed) = (spent.worked_ms / 1000, settings.time_max_ms / 1000);
        let waits = match wait_ms {
            0 => String::new(),
            ms => format!(", and the next call would wait {} s", ms.div_ceil(1000)),
        };
        return over_budget(&format!("the budget of time is used up: {took} s of {allowed} s{waits}"));
    }
    if settings.tokens_max == 0 && settings.cost_max_nusd == 0 {
        return Ok(call);
    }
    let request = request_tokens(run, pins, &call);
    let shortest = ANSWER_TOKENS_MIN.min(call.output_tokens_max);
    if settings.tokens_max > 0 {
        let left = settings.tokens_max.saturating_sub(spent.tokens);
        match left.checked_sub(request).filter(|rest| *rest >= u64::from(shortest)) {
            Some(rest) => call.output_tokens_max = cap_tokens(call.output_tokens_max, rest),
            None => {
                return over_budget(&format!(
                    "the budget of {} tokens does not pay for another call: {} are used, and the next request has \
                     about {request}",
                    settings.tokens_max, spent.tokens
                ));
            }
        }
    }
    if settings.cost_max_nusd > 0 {
        let prices = pins.models.terms_for(&call.model).prices;
        let left = settings.cost_max_nusd.saturating_sub(spent.cost_nusd);
        let asking = estimate_request_nusd(run, &call, prices, request);
        let answer = u64::from(shortest).saturating_mul(prices.output_nusd);
        match left.checked_sub(asking).filter(|rest| *rest >= answer) {
            Some(rest) => {
                if let Some(tokens) = rest.checked_div(prices.output_nusd) {
                    call.output_tokens_max = cap_tokens(call.output_tokens_max, tokens);
                }
            }
            None => {
                return over_budget(&format!(
                    "the budget of {} does not pay for another call: {} is spent, and the next request costs about {}",
                    format_dollars(settings.cost_max_nusd),
                    format_dollars(spent.cost_nusd),
                    format_dollars(asking)
                ));
            }
        }
    }
    Ok(call)
}

/// Returns the most a call may use: the longest reply it allows, and a rather high estimate of its request. For
/// shared budgets.
pub(crate) fn max_call_cost(run: &RunState, pins: &RunStarted, call: &ModelCall) -> MaxCallCost {
    let terms = pins.models.terms_for(&call.model);
    let request = request_tokens(run, pins, call);
    let answer = u64::from(call.output_tokens_max);
    let cost_nusd = estimate_request_nusd(run, call, terms.prices, request)
        .saturating_add(answer.saturating_mul(terms.prices.output_nusd));
    MaxCallCost { tokens: request.saturating_add(answer), cost_nusd: terms.priced.then_some(cost_nusd) }
}

fn over_budget(message: &str) -> Result<ModelCall, RunOutcome> {
    let message = format!("{message}; a budget is each run's own, and `docket resume` begins another");
    Err(RunOutcome::Failed { why: FailureKind::Limit, message })
}

fn cap_tokens(tokens: u32, rest: u64) -> u32 {
    u32::try_from(rest).map_or(tokens, |rest| tokens.min(rest))
}

fn request_tokens(run: &RunState, pins: &RunStarted, call: &ModelCall) -> u64 {
    match call.purpose {
        CallPurpose::Compact => estimate_tokens(run.prompt_bytes() + call.messages.bytes()),
        CallPurpose::Decide | CallPurpose::Plan | CallPurpose::Review => {
            model_choice::request_size(run, pins).current_tokens()
        }
    }
}

/// Estimates the cost of the request, rather high than low.
fn estimate_request_nusd(run: &RunState, call: &ModelCall, prices: TokenPrices, tokens: u64) -> u64 {
    let TokenUsage { input_tokens, cache_read_tokens, cache_write_tokens, .. } = run.model_attempts.usage;
    let caches = cache_read_tokens + cache_write_tokens > 0;
    let goes_on =
        call.purpose == CallPurpose::Decide && run.model_attempts.answered_by.as_ref() == Some(&call.model);
    let new_nusd = if caches { prices.input_nusd.max(prices.cache_write_nusd) } else { prices.input_nusd };
    let known = if caches && goes_on {
        input_tokens.saturating_add(cache_read_tokens).saturating_add(cache_write_tokens).min(tokens)
    } else {
        0
    };
    let cached = known.saturating_mul(prices.cache_read_nusd.min(prices.input_nusd));
    cached.saturating_add((tokens - known).saturating_mul(new_nusd))
}

fn format_dollars(nusd: u64) -> String {
    // Tenths of a cent, rounded up: spending is never understated.
    if (1..1_000_000).contains(&nusd) {
        return format!("$0.{nusd:09}").trim_end_matches('0').to_owned();
    }
    let thousandths = nusd.div_ceil(1_000_000);
    format!("${}.{:03}", thousandths / 1000, thousandths % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine;

    #[test]
    fn first_call_minimum_grows_with_tools_and_text_and_is_smallest_with_roles() {
        let of = |name: &str, tools, text: &str| {
            first_call_tokens_min(&*engine::newest_engine(name).expect("an engine"), tools, text)
        };
        let core = of("react", ToolSet::Core, "Fix it");
        assert!(core.request > 500 && core.answer == 256, "{core:?}");
        assert!(of("react", ToolSet::Wide, "Fix it").request > core.request);
        assert!(of("react", ToolSet::Core, &"word ".repeat(500)).request > core.request + 500);
        let cut = "x".repeat(prompt::TASK_CHARS_MAX);
        assert_eq!(
            of("react", ToolSet::Core, &cut),
            of("react", ToolSet::Core, &cut.repeat(2)),
            "as it is shown"
        );
        assert!(of("plan", ToolSet::Core, "Fix it").request < 10);
    }
}
