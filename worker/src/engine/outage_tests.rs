//! Models that stay unavailable or are permanently refused, by the rules that runs pin today: given this log, expect
//! that decision.

use docket_schema::{
    message::ModelRef,
    run::{
        BY_OUTAGE_TIMER, BlockerAnswered, FailureKind, ReasoningEffort, RunEvent, RunModels, RunOutcome,
        RunSettings,
    },
};
use serde_json::json;

use super::{
    Action, SamplingOptions,
    models_tests::{ModelScenario, edit_call, model, model_settings, other_model, read_call},
};

use crate::run::intent_events;

fn current_settings() -> RunSettings {
    RunSettings { fallback_turns: 2, model_rules: 1, rest_at_outage: true, ..model_settings() }
}

#[test]
fn fallback_replaces_a_model_in_any_lasting_outage() {
    for error in ["cut_stream", "timeout", "connect", "server", "overloaded"] {
        let mut play = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
        play.fail_call(error, Some(70)).assert_next("ask main attempt 2 wait 70");
        play.fail_call(error, Some(70)).assert_next("ask spare attempt 3 wait 0");
        // An intermittent one: after the last attempt allowed for its kind.
        let mut once = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
        once.fail_call(error, None).assert_next("ask spare attempt 2 wait 0");
    }
    let mut mixed = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
    mixed
        .fail_call("timeout", Some(1))
        .fail_call("cut_stream", Some(1))
        .assert_next("ask spare attempt 3 wait 0");
}

#[test]
fn fallback_keeps_some_turns_then_the_original_model_is_tried_once() {
    let mut play = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
    play.fail_call("overloaded", Some(70)).fail_call("overloaded", Some(70));
    for _ in 0..2 {
        assert!(play.describe_next().starts_with("ask spare"), "{}", play.describe_next());
        play.answer_with_calls(&[read_call()]);
    }
    play.assert_next("ask main attempt 1 wait 0");
    play.fail_call("overloaded", Some(70)).assert_next("ask spare attempt 2 wait 0");
    play.answer_with_calls(&[read_call()]);
    play.assert_next("ask spare attempt 1 wait 0");
    play.answer_with_calls(&[edit_call()]);
    play.assert_next("ask main attempt 1 wait 0");
    play.answer_with_calls(&[read_call()]);
    // It is back, with its retries restored.
    play.assert_next("ask main attempt 1 wait 0");
    play.fail_call("overloaded", Some(70)).assert_next("ask main attempt 2 wait 70");
}

#[test]
fn retry_after_is_respected_before_trying_a_model_again() {
    let mut play = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
    // A tool takes a second, a reply two: after three turns nine of the ten seconds have passed.
    play.fail_call("rate_limited", Some(10_000)).fail_with_retry_after(
        "rate_limited",
        Some(10_000),
        Some(10_000),
    );
    for _ in 0..4 {
        assert!(play.describe_next().starts_with("ask spare"), "{}", play.describe_next());
        play.answer_with("", &[read_call()], |answer| answer.total_ms = 2000);
        play.run_calls();
    }
    play.assert_next("ask main attempt 1 wait 0");
    // Even if that exceeds the longest wait, and the first failure is the last.
    let mut long = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
    long.fail_with_retry_after("rate_limited", None, Some(12_000));
    for _ in 0..4 {
        assert!(long.describe_next().starts_with("ask spare"), "{}", long.describe_next());
        long.answer_with("", &[read_call()], |answer| answer.total_ms = 2000);
        long.run_calls();
    }
    long.assert_next("ask main attempt 1 wait 0");
}

#[test]
fn original_model_is_tried_if_the_fallback_is_down_too() {
    let mut play = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
    play.fail_call("overloaded", Some(1)).fail_call("overloaded", Some(1));
    play.answer_with_calls(&[read_call()]);
    play.fail_call("timeout", Some(5)).assert_next("ask spare attempt 2 wait 5");
    play.fail_call("timeout", Some(5)).assert_next("ask main attempt 3 wait 0");
    play.answer_with_calls(&[read_call()]);
    play.assert_next("ask main attempt 1 wait 0");
    // If both stay unavailable it rests, as it does without a second model.
    let mut both = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
    while both.describe_next().starts_with("ask") {
        both.fail_call("connect", Some(1));
    }
    let Action::Block { .. } = both.0.decide().act else { panic!("{}", both.describe_next()) };
}

#[test]
fn only_completed_waits_count_against_the_time_budget() {
    let timed = || RunSettings { time_max_ms: 60_000, ..current_settings() };
    // The fallback is called at once, without the half-minute wait.
    let mut play = ModelScenario::new(timed(), None, other_model("spare", 100_000));
    play.fail_call("overloaded", Some(29_000)).fail_call("overloaded", Some(29_000));
    assert_eq!(
        play.0.state.model_attempts.worked_ms,
        4000 + 29_000,
        "two failures of two seconds and one wait"
    );
    play.assert_next("ask spare attempt 3 wait 0");
    play.answer_with_calls(&[read_call()]);
    assert_eq!(play.0.state.model_attempts.worked_ms, 4000 + 29_000 + 1000);
    // A wait that would exceed the budget is not begun.
    let mut alone = ModelScenario::new(timed(), None, None);
    alone.fail_call("overloaded", Some(50_000)).assert_next("ask main attempt 2 wait 50000");
    alone.fail_call("overloaded", Some(50_000));
    assert!(
        alone.describe_next().starts_with("failed Limit: the budget of time"),
        "{}",
        alone.describe_next()
    );
}

#[test]
fn continuing_with_an_unpriced_model_fails_a_money_budget() {
    let mut play =
        ModelScenario::new(RunSettings { cost_max_nusd: 1_000_000_000, ..current_settings() }, None, None);
    play.answer_with_calls(&[read_call()]);
    play.assert_next("ask main attempt 1 wait 0");
    play.fork_run(Some(RunModels::single_model(model("next"), docket_schema::run::ModelTerms::default())));
    let Action::End { result: RunOutcome::Failed { why, message }, .. } = play.0.decide().act else {
        panic!("{}", play.describe_next())
    };
    assert_eq!(why, FailureKind::Configuration);
    assert!(message.contains("no price is known for anthropic:next"), "{message}");
}

#[test]
fn outage_waits_are_counted_until_a_model_answers() {
    let mut play = ModelScenario::new(current_settings(), None, None);
    let rests = |play: &mut ModelScenario| {
        while play.describe_next().starts_with("ask") {
            play.fail_call("connect", Some(1));
        }
        let (_, event) = intent_events(&play.0.state, &play.0.decide(), None).pop().expect("an intent");
        let RunEvent::RunBlocked(blocked) = event else { panic!("{event:?}") };
        play.0.push(blocked.clone());
        blocked.outages
    };
    let wakes = |play: &mut ModelScenario, by: &str| {
        play.0.push(BlockerAnswered { text: "".into(), by: by.into() });
    };
    assert_eq!(rests(&mut play), 1);
    wakes(&mut play, BY_OUTAGE_TIMER);
    assert_eq!(rests(&mut play), 2);
    wakes(&mut play, "me");
    assert_eq!(rests(&mut play), 1);
    wakes(&mut play, BY_OUTAGE_TIMER);
    play.answer_with_calls(&[read_call()]);
    assert_eq!(rests(&mut play), 1);
    // If a person is needed no clock helps, and under the first rules none is used.
    let mut old = ModelScenario::new(RunSettings { rest_at_outage: true, ..model_settings() }, None, None);
    assert_eq!(rests(&mut old), 0);
}

#[test]
fn permanently_refused_explore_model_is_skipped() {
    for error in ["invalid_request", "protocol"] {
        let mut play = ModelScenario::new(
            current_settings(),
            other_model("cheap", 100_000),
            other_model("spare", 100_000),
        );
        play.fail_call(error, None).assert_next("ask main attempt 2 wait 0");
        assert_eq!(play.answer_with_calls(&[edit_call()]), ["allowed"]);
        play.assert_next("ask main attempt 1 wait 0");
        // Even if it had replied before.
        let mut later = ModelScenario::new(current_settings(), other_model("cheap", 100_000), None);
        later.answer_with_calls(&[read_call()]);
        later.fail_call(error, None).assert_next("ask main attempt 2 wait 0");
    }
    // Under the first rules the run ends.
    let mut old = ModelScenario::new(model_settings(), other_model("cheap", 100_000), None);
    old.fail_call("invalid_request", None).assert_next("failed Model: busy");
}

#[test]
fn permanently_refused_fallback_is_not_called_again() {
    let mut play = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
    play.fail_call("overloaded", Some(1))
        .fail_call("overloaded", Some(1))
        .assert_next("ask spare attempt 3 wait 0");
    play.fail_call("invalid_request", None).assert_next("ask main attempt 4 wait 0");
    play.answer_with_calls(&[read_call()]);
    play.fail_call("overloaded", Some(1))
        .fail_call("overloaded", Some(1))
        .assert_next("ask main attempt 3 wait 1");
}

#[test]
fn main_model_refused_before_any_answer_fails_the_run() {
    let ends = |play: &ModelScenario| match play.0.decide().act {
        Action::End { result: RunOutcome::Failed { why, message }, .. } => (why, message),
        other => panic!("{other:?}"),
    };
    for error in ["invalid_request", "protocol", "context_too_long"] {
        let mut play = ModelScenario::new(current_settings(), None, other_model("spare", 100_000));
        play.fail_call(error, None);
        let (why, message) = ends(&play);
        assert_eq!(why, FailureKind::Configuration, "{error}");
        assert!(message.starts_with("busy") && message.contains("docket retry"), "{message}");
        // A key that was accepted before may be accepted again: the next run tries.
        let mut later = ModelScenario::new(current_settings(), None, None);
        later.answer_with_calls(&[read_call()]);
        later.fail_call(error, None);
        assert_eq!(ends(&later).0, FailureKind::Model, "{error}");
        // Only the explore model has replied.
        let mut explored = ModelScenario::new(current_settings(), other_model("cheap", 100_000), None);
        explored.answer_with_calls(&[edit_call()]);
        explored.fail_call(error, None);
        assert_eq!(ends(&explored).0, FailureKind::Configuration, "{error}");
    }
}

#[test]
fn effort_and_temperature_apply_to_the_main_model_only() {
    let manner = |effort, temperature_milli| SamplingOptions {
        effort,
        temperature_milli,
        ..SamplingOptions::default()
    };
    let asked = RunSettings {
        effort: Some(ReasoningEffort::High),
        temperature_milli: Some(200),
        ..current_settings()
    };
    let mut cheap = other_model("cheap", 100_000).expect("one");
    cheap.terms.effort = Some(ReasoningEffort::Low);
    let mut play = ModelScenario::new(asked, Some(cheap), None);
    assert_eq!(play.next_call().manner, manner(Some(ReasoningEffort::Low), None));
    play.answer_with_calls(&[edit_call()]);
    // Results are sent, and the calls were made without reasoning of this model.
    let bringing = SamplingOptions { thought: Some(false), ..manner(Some(ReasoningEffort::High), Some(200)) };
    assert_eq!(play.next_call().manner, bringing);
    // Without options the decision is byte-identical to the one before they existed.
    let plain = ModelScenario::new(model_settings(), None, None).next_call();
    assert_eq!(plain.manner, SamplingOptions::default());
    assert_eq!(json!(plain).get("manner"), None);
    // A run that continues with another model keeps the options of its main one.
    let mut terms =
        docket_schema::run::ModelTerms { effort: Some(ReasoningEffort::Low), ..Default::default() };
    terms.completion_tokens = true;
    let next: ModelRef = model("next");
    play.fork_run(Some(RunModels::single_model(next, terms)));
    let forked = play.next_call().manner;
    assert_eq!((forked.effort, forked.completion_tokens), (Some(ReasoningEffort::High), true));
}
