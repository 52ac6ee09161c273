//! Models that stay away, or are refused for good, by the rules that runs pin today: given this log, that.

use docket_schema::{
    message::ModelRef,
    run::{BY_CLOCK, BlockerAnswered, Effort, FailureKind, Models, RunEvent, RunOutcome, RunSettings},
};
use serde_json::json;

use super::{
    Act, Manner,
    models_tests::{Play, edit, model, other, read, settings},
};

use crate::run::announce;

fn today() -> RunSettings {
    RunSettings { fallback_turns: 2, model_rules: 1, rest_at_outage: true, ..settings() }
}

#[test]
fn every_lasting_outage_is_stood_in_for() {
    for error in ["cut_stream", "timeout", "connect", "server", "overloaded"] {
        let mut play = Play::of(today(), None, other("spare", 100_000));
        play.fails(error, Some(70)).check("ask main attempt 2 wait 70");
        play.fails(error, Some(70)).check("ask spare attempt 3 wait 0");
        // One that comes and goes: after the last attempt that its kind has.
        let mut once = Play::of(today(), None, other("spare", 100_000));
        once.fails(error, None).check("ask spare attempt 2 wait 0");
    }
    let mut mixed = Play::of(today(), None, other("spare", 100_000));
    mixed.fails("timeout", Some(1)).fails("cut_stream", Some(1)).check("ask spare attempt 3 wait 0");
}

#[test]
fn who_stands_in_keeps_some_turns_and_then_the_model_itself_is_tried_once() {
    let mut play = Play::of(today(), None, other("spare", 100_000));
    play.fails("overloaded", Some(70)).fails("overloaded", Some(70));
    for _ in 0..2 {
        assert!(play.gist().starts_with("ask spare"), "{}", play.gist());
        play.calls(&[read()]);
    }
    play.check("ask main attempt 1 wait 0");
    play.fails("overloaded", Some(70)).check("ask spare attempt 2 wait 0");
    play.calls(&[read()]);
    play.check("ask spare attempt 1 wait 0");
    play.calls(&[edit()]);
    play.check("ask main attempt 1 wait 0");
    play.calls(&[read()]);
    // It is back, with its patience.
    play.check("ask main attempt 1 wait 0");
    play.fails("overloaded", Some(70)).check("ask main attempt 2 wait 70");
}

#[test]
fn who_wants_to_be_left_alone_is() {
    let mut play = Play::of(today(), None, other("spare", 100_000));
    // A tool takes a second, an answer two: after three turns nine of the ten seconds have passed.
    play.fails("rate_limited", Some(10_000)).wants_rest("rate_limited", Some(10_000), Some(10_000));
    for _ in 0..4 {
        assert!(play.gist().starts_with("ask spare"), "{}", play.gist());
        play.answers("", &[read()], |answer| answer.total_ms = 2000);
        play.runs();
    }
    play.check("ask main attempt 1 wait 0");
    // Also where that is longer than anybody waits, and the first failure the last.
    let mut long = Play::of(today(), None, other("spare", 100_000));
    long.wants_rest("rate_limited", None, Some(12_000));
    for _ in 0..4 {
        assert!(long.gist().starts_with("ask spare"), "{}", long.gist());
        long.answers("", &[read()], |answer| answer.total_ms = 2000);
        long.runs();
    }
    long.check("ask main attempt 1 wait 0");
}

#[test]
fn where_the_one_that_stands_in_is_away_too_the_model_itself_is_tried() {
    let mut play = Play::of(today(), None, other("spare", 100_000));
    play.fails("overloaded", Some(1)).fails("overloaded", Some(1));
    play.calls(&[read()]);
    play.fails("timeout", Some(5)).check("ask spare attempt 2 wait 5");
    play.fails("timeout", Some(5)).check("ask main attempt 3 wait 0");
    play.calls(&[read()]);
    play.check("ask main attempt 1 wait 0");
    // And where both stay away it rests, as it does without a second model.
    let mut both = Play::of(today(), None, other("spare", 100_000));
    while both.gist().starts_with("ask") {
        both.fails("connect", Some(1));
    }
    let Act::Block { .. } = both.0.decide().act else { panic!("{}", both.gist()) };
}

#[test]
fn only_a_wait_that_is_kept_uses_up_time() {
    let timed = || RunSettings { time_max_ms: 60_000, ..today() };
    // Who stands in is asked at once: the half minute is not waited.
    let mut play = Play::of(timed(), None, other("spare", 100_000));
    play.fails("overloaded", Some(29_000)).fails("overloaded", Some(29_000));
    assert_eq!(play.0.state.asking.worked_ms, 4000 + 29_000, "two failures of two seconds and one wait");
    play.check("ask spare attempt 3 wait 0");
    play.calls(&[read()]);
    assert_eq!(play.0.state.asking.worked_ms, 4000 + 29_000 + 1000);
    // A wait that would go beyond the budget is not begun.
    let mut alone = Play::of(timed(), None, None);
    alone.fails("overloaded", Some(50_000)).check("ask main attempt 2 wait 50000");
    alone.fails("overloaded", Some(50_000));
    assert!(alone.gist().starts_with("failed Limit: the budget of time"), "{}", alone.gist());
}

#[test]
fn a_budget_of_money_ends_where_somebody_goes_on_with_a_model_without_a_price() {
    let mut play = Play::of(RunSettings { cost_max_nusd: 1_000_000_000, ..today() }, None, None);
    play.calls(&[read()]);
    play.check("ask main attempt 1 wait 0");
    play.is_forked(Some(Models::only(model("next"), docket_schema::run::ModelTerms::default())));
    let Act::End { result: RunOutcome::Failed { why, message }, .. } = play.0.decide().act else {
        panic!("{}", play.gist())
    };
    assert_eq!(why, FailureKind::Configuration);
    assert!(message.contains("no price is known for anthropic:next"), "{message}");
}

#[test]
fn rests_at_an_outage_are_counted_until_somebody_answers() {
    let mut play = Play::of(today(), None, None);
    let rests = |play: &mut Play| {
        while play.gist().starts_with("ask") {
            play.fails("connect", Some(1));
        }
        let (_, event) = announce(&play.0.state, &play.0.decide(), None).pop().expect("an intent");
        let RunEvent::RunBlocked(blocked) = event else { panic!("{event:?}") };
        play.0.push(blocked.clone());
        blocked.outages
    };
    let wakes = |play: &mut Play, by: &str| {
        play.0.push(BlockerAnswered { text: "".into(), by: by.into() });
    };
    assert_eq!(rests(&mut play), 1);
    wakes(&mut play, BY_CLOCK);
    assert_eq!(rests(&mut play), 2);
    wakes(&mut play, "me");
    assert_eq!(rests(&mut play), 1);
    wakes(&mut play, BY_CLOCK);
    play.calls(&[read()]);
    assert_eq!(rests(&mut play), 1);
    // Where a person is wanted no clock helps, and by the first rules none is asked.
    let mut old = Play::of(RunSettings { rest_at_outage: true, ..settings() }, None, None);
    assert_eq!(rests(&mut old), 0);
}

#[test]
fn an_explore_model_that_is_refused_for_good_is_done_without() {
    for error in ["invalid_request", "protocol"] {
        let mut play = Play::of(today(), other("cheap", 100_000), other("spare", 100_000));
        play.fails(error, None).check("ask main attempt 2 wait 0");
        assert_eq!(play.calls(&[edit()]), ["allowed"]);
        play.check("ask main attempt 1 wait 0");
        // Also where it had answered before.
        let mut later = Play::of(today(), other("cheap", 100_000), None);
        later.calls(&[read()]);
        later.fails(error, None).check("ask main attempt 2 wait 0");
    }
    // By the first rules the run ends.
    let mut old = Play::of(settings(), other("cheap", 100_000), None);
    old.fails("invalid_request", None).check("failed Model: busy");
}

#[test]
fn one_that_stands_in_and_is_refused_for_good_is_not_asked_again() {
    let mut play = Play::of(today(), None, other("spare", 100_000));
    play.fails("overloaded", Some(1)).fails("overloaded", Some(1)).check("ask spare attempt 3 wait 0");
    play.fails("invalid_request", None).check("ask main attempt 4 wait 0");
    play.calls(&[read()]);
    play.fails("overloaded", Some(1)).fails("overloaded", Some(1)).check("ask main attempt 3 wait 1");
}

#[test]
fn a_main_model_that_never_answered_and_is_refused_ends_the_task() {
    let ends = |play: &Play| match play.0.decide().act {
        Act::End { result: RunOutcome::Failed { why, message }, .. } => (why, message),
        other => panic!("{other:?}"),
    };
    for error in ["invalid_request", "protocol", "context_too_long"] {
        let mut play = Play::of(today(), None, other("spare", 100_000));
        play.fails(error, None);
        let (why, message) = ends(&play);
        assert_eq!(why, FailureKind::Configuration, "{error}");
        assert!(message.starts_with("busy") && message.contains("docket retry"), "{message}");
        // What was taken before may be taken again: the next run tries.
        let mut later = Play::of(today(), None, None);
        later.calls(&[read()]);
        later.fails(error, None);
        assert_eq!(ends(&later).0, FailureKind::Model, "{error}");
        // Nobody answered but the one that explores.
        let mut explored = Play::of(today(), other("cheap", 100_000), None);
        explored.calls(&[edit()]);
        explored.fails(error, None);
        assert_eq!(ends(&explored).0, FailureKind::Configuration, "{error}");
    }
}

#[test]
fn effort_and_temperature_are_the_main_models_and_others_have_their_own() {
    let manner = |effort, temperature_milli| Manner { effort, temperature_milli, ..Manner::default() };
    let asked = RunSettings { effort: Some(Effort::High), temperature_milli: Some(200), ..today() };
    let mut cheap = other("cheap", 100_000).expect("one");
    cheap.terms.effort = Some(Effort::Low);
    let mut play = Play::of(asked, Some(cheap), None);
    assert_eq!(play.next_call().manner, manner(Some(Effort::Low), None));
    play.calls(&[edit()]);
    // Results are brought, and the calls were made without a thought of this model.
    let bringing = Manner { thought: Some(false), ..manner(Some(Effort::High), Some(200)) };
    assert_eq!(play.next_call().manner, bringing);
    // Without any the decision is to the byte what it was before there were manners.
    let plain = Play::of(settings(), None, None).next_call();
    assert_eq!(plain.manner, Manner::default());
    assert_eq!(json!(plain).get("manner"), None);
    // A run that goes on with another model keeps what was asked of its main one.
    let mut terms = docket_schema::run::ModelTerms { effort: Some(Effort::Low), ..Default::default() };
    terms.completion_tokens = true;
    let next: ModelRef = model("next");
    play.is_forked(Some(Models::only(next, terms)));
    let forked = play.next_call().manner;
    assert_eq!((forked.effort, forked.completion_tokens), (Some(Effort::High), true));
}
