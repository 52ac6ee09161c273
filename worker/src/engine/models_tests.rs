//! Which model is called, what a budget covers, and how the end of a reply is read: given this log, expect that
//! decision.

use docket_schema::{
    ids::{DecisionHash, Epoch, EventHash, Seq},
    message::{CallId, MessagePart, ModelRef, StopReason, TokenPrices, TokenUsage, ToolUse},
    run::{
        BlockerAnswered, EventMeta, ForkReason, Forked, ModelAnswered, ModelFailed, ModelRequested,
        ModelTerms, OtherModel, PolicyVerdict, RunModels, RunSettings, ToolFinished, ToolRequested,
        ToolStatus,
    },
    tool::ToolFacts,
};
use serde_json::{Value, json};

use super::{
    Action, ModelCall,
    react_tests::{SETTINGS, TestLog, describe_decision},
};

const PRICES: TokenPrices =
    TokenPrices { input_nusd: 1000, output_nusd: 5000, cache_read_nusd: 100, cache_write_nusd: 1250 };

pub(super) fn model(name: &str) -> ModelRef {
    format!("anthropic:{name}").parse().expect("a model")
}

pub(super) fn other_model(name: &str, context_tokens: u64) -> Option<Box<OtherModel>> {
    let terms = ModelTerms { context_tokens, output_tokens_max: 50, ..ModelTerms::default() };
    Some(Box::new(OtherModel { model: model(name), terms }))
}

pub(super) fn model_settings() -> RunSettings {
    RunSettings {
        turns_max: 20,
        corrections_max: 3,
        fallback_after: 2,
        heed_stops: true,
        output_tokens_max: 1000,
        ..SETTINGS
    }
}

/// A log, and the results of its calls.
pub(super) struct ModelScenario(pub(super) TestLog, String);

impl ModelScenario {
    pub(super) fn new(
        settings: RunSettings,
        explore: Option<Box<OtherModel>>,
        fallback: Option<Box<OtherModel>>,
    ) -> Self {
        let terms =
            ModelTerms { context_tokens: 100_000, prices: PRICES, priced: true, ..ModelTerms::default() };
        let models = RunModels { explore, fallback, ..RunModels::single_model(model("main"), terms) };
        Self(TestLog::with_models(settings, &["tests"], "namespaces", models), "ok".to_owned())
    }

    pub(super) fn describe_next(&self) -> String {
        match self.0.decide().act {
            Action::CallModel(call) => {
                let nudge = call.nudge.as_ref().map_or(String::new(), |_| " nudged".to_owned());
                format!("ask {} attempt {} wait {}{nudge}", call.model.name, call.attempt, call.wait_ms)
            }
            _ => describe_decision(&self.0.decide()),
        }
    }

    pub(super) fn next_call(&self) -> ModelCall {
        match self.0.decide().act {
            Action::CallModel(call) => *call,
            other => panic!("{other:?}"),
        }
    }

    fn request_model(&mut self) -> ModelCall {
        let call = self.next_call();
        self.0.push(ModelRequested {
            call: call.call.clone(),
            purpose: call.purpose,
            model: call.model.clone(),
            attempt: call.attempt,
            decision: DecisionHash::ZERO,
            request: DecisionHash::ZERO,
            request_bytes: 0,
            nudge: call.nudge.clone(),
            worst_case_nusd: 0,
            output_tokens_max: None,
            role: None,
        });
        call
    }

    pub(super) fn answer_with(
        &mut self,
        text: &str,
        tools: &[(&str, Value)],
        how: impl FnOnce(&mut ModelAnswered),
    ) -> &mut Self {
        let asked = self.request_model();
        let mut parts = if text.is_empty() { vec![] } else { vec![MessagePart::Text { text: text.into() }] };
        parts.extend(tools.iter().enumerate().map(|(at, (name, args))| {
            let call = CallId::for_tool(asked.turn, at);
            MessagePart::ToolUse(ToolUse {
                call,
                name: (*name).to_owned(),
                args: args.clone(),
                malformed: None,
            })
        }));
        let mut answered = ModelAnswered {
            call: asked.call,
            parts,
            stop: if tools.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse },
            usage: TokenUsage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        };
        how(&mut answered);
        self.0.push(answered);
        self
    }

    fn answer_text(&mut self, text: &str) -> &mut Self {
        self.answer_with(text, &[], |_| {})
    }

    /// It calls tools, and they run as planned; returns the verdicts.
    pub(super) fn answer_with_calls(&mut self, tools: &[(&str, Value)]) -> Vec<&'static str> {
        self.answer_with("", tools, |_| {});
        self.run_calls()
    }

    pub(super) fn run_calls(&mut self) -> Vec<&'static str> {
        let decision = self.0.decide();
        let Action::RunTools(batch) = decision.act else { panic!("no tools are planned") };
        if decision.phase != self.0.state.phase {
            self.0.push(docket_schema::run::PhaseChanged { phase: decision.phase });
        }
        for tool in &batch {
            self.0.push(ToolRequested {
                call: tool.call.clone(),
                tool: tool.tool.clone(),
                class: tool.class,
                policy: tool.policy.clone(),
                labels: vec![],
                decision: DecisionHash::ZERO,
            });
        }
        let run = |tool: super::PlannedTool| {
            let allowed = matches!(tool.policy, PolicyVerdict::Allow { .. });
            self.0.push(ToolFinished {
                call: tool.call,
                status: if allowed { ToolStatus::Ok } else { ToolStatus::Refused },
                content: self.1.as_str().into(),
                full: None,
                facts: ToolFacts::default(),
                duration_ms: 1000,
            });
            if allowed { "allowed" } else { "denied" }
        };
        batch.into_iter().map(run).collect()
    }

    pub(super) fn fail_call(&mut self, error: &str, retry_in_ms: Option<u64>) -> &mut Self {
        self.fail_with_retry_after(error, retry_in_ms, None)
    }

    /// It fails with a retry delay.
    pub(super) fn fail_with_retry_after(
        &mut self,
        error: &str,
        retry_in_ms: Option<u64>,
        retry_after_ms: Option<u64>,
    ) -> &mut Self {
        let call = self.request_model().call;
        let (error, message) = (error.into(), "busy".into());
        self.0.push(ModelFailed {
            call,
            error,
            message,
            retry_in_ms,
            retry_after_ms,
            needs_person: false,
            duration_ms: 2000,
        });
        self
    }

    /// A person continues the run, possibly with another model.
    pub(super) fn fork_run(&mut self, models: Option<RunModels>) -> &mut Self {
        let state = &mut self.0.state;
        let (task, run) = state.pins.as_deref().map(|pins| (pins.task, pins.run)).expect("begun");
        let (seq, hash, turn) = (state.seq, state.hash, state.turn);
        let (why, parent) = (ForkReason::Resume, run);
        let forked = Forked { run, task, parent, seq, hash, turn, why, engine: None, models, hint: None };
        let meta = EventMeta { seq: Seq(1), hash: EventHash::ZERO, turn, epoch: Epoch(2) };
        state.apply(meta, forked.into()).expect("legal");
        self
    }

    pub(super) fn assert_next(&self, then: &str) -> &Self {
        assert_eq!(self.describe_next(), then);
        self
    }
}

pub(super) fn read_call() -> (&'static str, Value) {
    ("read_file", json!({ "path": "a" }))
}

pub(super) fn edit_call() -> (&'static str, Value) {
    ("edit_file", json!({ "path": "a", "edits": [] }))
}

#[test]
fn explore_model_reads_and_main_model_edits() {
    let mut play = ModelScenario::new(model_settings(), other_model("cheap", 100_000), None);
    play.assert_next("ask cheap attempt 1 wait 0");
    assert_eq!(play.next_call().output_tokens_max, 50, "its own limit");
    assert_eq!(play.answer_with_calls(&[read_call(), read_call()]), ["allowed", "allowed"]);
    play.assert_next("ask cheap attempt 1 wait 0");
    // Its writes are left to the other model; its reads are done all the same.
    assert_eq!(play.answer_with_calls(&[read_call(), edit_call()]), ["allowed", "denied"]);
    play.assert_next("ask main attempt 1 wait 0");
    assert_eq!(play.next_call().output_tokens_max, 1000);
    // Permanently: neither another read nor a failed change brings the cheap one back.
    assert_eq!(play.answer_with_calls(&[read_call()]), ["allowed"]);
    play.assert_next("ask main attempt 1 wait 0");
    assert_eq!(play.answer_with_calls(&[edit_call()]), ["allowed"]);
    play.assert_next("ask main attempt 1 wait 0");
}

#[test]
fn explore_model_cannot_end_the_run() {
    for said in ["All is well.", "BLOCKED: which one?", ""] {
        let mut play = ModelScenario::new(model_settings(), other_model("cheap", 100_000), None);
        play.answer_text(said).assert_next("ask main attempt 1 wait 0 nudged");
        if said.is_empty() {
            // The main model's first reply, before anything was done.
            play.answer_text("Done.").assert_next("ask main attempt 1 wait 0 nudged");
        }
        play.answer_text("Done.");
        assert!(play.describe_next().starts_with("gates"), "{said}");
    }
    let mut refused = ModelScenario::new(model_settings(), other_model("cheap", 100_000), None);
    refused.answer_with("No.", &[], |answer| answer.stop = StopReason::Refusal);
    refused.assert_next("ask main attempt 1 wait 0 nudged");
}

#[test]
fn exploring_ends_at_the_context_window_or_half_of_the_turns() {
    let small = ModelScenario::new(model_settings(), other_model("cheap", 2), None);
    small.assert_next("ask main attempt 1 wait 0");
    let mut long = ModelScenario::new(
        RunSettings { turns_max: 4, ..model_settings() },
        other_model("cheap", 100_000),
        None,
    );
    for _ in 0..2 {
        long.assert_next("ask cheap attempt 1 wait 0");
        long.answer_with_calls(&[read_call()]);
    }
    long.assert_next("ask main attempt 1 wait 0");
    // A conversation too long for it is not shortened if the other model can take it.
    let mut refused = ModelScenario::new(model_settings(), other_model("cheap", 100_000), None);
    refused.fail_call("context_too_long", None).assert_next("ask main attempt 2 wait 0");
}

#[test]
fn fallback_replaces_a_model_that_stays_overloaded() {
    let mut play = ModelScenario::new(model_settings(), None, other_model("spare", 100_000));
    play.fail_call("overloaded", Some(70)).assert_next("ask main attempt 2 wait 70");
    play.fail_call("rate_limited", Some(90)).assert_next("ask spare attempt 3 wait 0");
    play.fail_call("server", Some(5)).assert_next("ask spare attempt 4 wait 5");
    play.answer_with_calls(&[edit_call()]);
    // The next turn tries the model itself, once.
    play.assert_next("ask main attempt 1 wait 0");
    play.fail_call("overloaded", Some(70)).assert_next("ask spare attempt 2 wait 0");
    play.answer_with_calls(&[read_call()]);
    play.assert_next("ask main attempt 1 wait 0");
    // It is back, and its retries are restored.
    play.answer_with_calls(&[read_call()]);
    play.fail_call("overloaded", Some(70)).assert_next("ask main attempt 2 wait 70");
}

#[test]
fn fallback_is_used_only_for_overload_and_not_forever() {
    for (error, then) in [
        ("invalid_request", "failed Model: busy"),
        ("protocol", "failed Model: busy"),
        // The provider's retry delay exceeds the longest wait.
        ("rate_limited", "ask spare attempt 2 wait 0"),
    ] {
        let mut play = ModelScenario::new(model_settings(), None, other_model("spare", 100_000));
        play.fail_call(error, None).assert_next(then);
    }
    let mut away = ModelScenario::new(model_settings(), None, other_model("spare", 100_000));
    away.fail_call("rate_limited", None)
        .fail_call("overloaded", Some(8))
        .assert_next("ask spare attempt 3 wait 8");
    let mut cut = ModelScenario::new(model_settings(), None, other_model("spare", 100_000));
    cut.fail_call("cut_stream", Some(1))
        .fail_call("cut_stream", Some(1))
        .assert_next("ask main attempt 3 wait 1");
    let mut both = ModelScenario::new(model_settings(), None, other_model("spare", 100_000));
    both.fail_call("overloaded", Some(1)).fail_call("overloaded", Some(1));
    for attempt in 3..=5 {
        both.assert_next(&format!("ask spare attempt {attempt} wait {}", if attempt == 3 { 0 } else { 1 }));
        both.fail_call("overloaded", Some(1));
    }
    both.assert_next("failed Model: 3 attempts failed; the last one: busy");
    let mut alone = ModelScenario::new(model_settings(), None, None);
    alone
        .fail_call("overloaded", Some(1))
        .fail_call("overloaded", Some(1))
        .assert_next("ask main attempt 3 wait 1");
    let mut never = ModelScenario::new(
        RunSettings { fallback_after: 0, ..model_settings() },
        None,
        other_model("spare", 100_000),
    );
    never
        .fail_call("overloaded", Some(1))
        .fail_call("overloaded", Some(1))
        .assert_next("ask main attempt 3 wait 1");
}

#[test]
fn main_model_replaces_the_explore_model_without_a_fallback() {
    let mut play = ModelScenario::new(model_settings(), other_model("cheap", 100_000), None);
    play.fail_call("overloaded", Some(1))
        .fail_call("overloaded", Some(1))
        .assert_next("ask main attempt 3 wait 0");
    assert_eq!(play.answer_with_calls(&[edit_call()]), ["allowed"], "it is the main one that answered");
    let mut spare =
        ModelScenario::new(model_settings(), other_model("cheap", 100_000), other_model("spare", 100_000));
    spare
        .fail_call("overloaded", Some(1))
        .fail_call("overloaded", Some(1))
        .assert_next("ask spare attempt 3 wait 0");
    assert_eq!(spare.answer_with_calls(&[edit_call()]), ["denied"], "in place of one that only explores");
    spare.assert_next("ask main attempt 1 wait 0");
}

#[test]
fn token_budget_is_checked_before_the_call_and_caps_its_answer() {
    let mut play = ModelScenario::new(RunSettings { tokens_max: 2000, ..model_settings() }, None, None);
    let first = play.next_call().output_tokens_max;
    assert_eq!(first, 1000, "all of it fits");
    play.answer_with("", &[read_call()], |answer| {
        answer.usage = TokenUsage {
            input_tokens: 100,
            cache_read_tokens: 500,
            output_tokens: 200,
            ..TokenUsage::default()
        };
    });
    play.run_calls();
    // 800 are used; the next request has those and a few more.
    let next = play.next_call().output_tokens_max;
    assert!((300..400).contains(&next), "{next}");
    play.answer_with("", &[read_call()], |answer| {
        answer.usage = TokenUsage { input_tokens: 850, output_tokens: 100, ..TokenUsage::default() };
    });
    play.run_calls();
    let end = play.describe_next();
    assert!(
        end.starts_with(
            "failed Limit: the budget of 2000 tokens does not pay for another call: 1750 are used"
        ),
        "{end}"
    );
}

#[test]
fn forked_run_has_its_own_budgets() {
    let mut play = ModelScenario::new(RunSettings { tokens_max: 2000, ..model_settings() }, None, None);
    play.answer_with("", &[read_call()], |answer| {
        answer.usage = TokenUsage { input_tokens: 1900, ..TokenUsage::default() }
    });
    play.run_calls();
    assert!(play.describe_next().starts_with("failed Limit"), "{}", play.describe_next());
    // Of 2000 the request takes 1900 and the newer content: too little is left for a reply.
    assert!(
        play.fork_run(None)
            .describe_next()
            .starts_with("failed Limit: the budget of 2000 tokens does not pay for another call: 0 are")
    );
    let mut time = ModelScenario::new(RunSettings { time_max_ms: 1000, ..model_settings() }, None, None);
    time.answer_with_calls(&[read_call()]);
    assert!(time.describe_next().starts_with("failed Limit"), "{}", time.describe_next());
    time.fork_run(None).assert_next("ask main attempt 1 wait 0");
}

#[test]
fn fallback_request_fits_its_own_context_window() {
    let mut play = ModelScenario::new(model_settings(), None, other_model("spare", 6000));
    play.1 = "a long result\n".repeat(200);
    for _ in 0..9 {
        play.answer_with_calls(&[read_call()]);
    }
    play.assert_next("ask main attempt 1 wait 0");
    play.fail_call("overloaded", Some(1)).fail_call("overloaded", Some(1));
    assert!(play.describe_next().starts_with("compact "), "{}", play.describe_next());
    let mut large = ModelScenario::new(model_settings(), None, other_model("spare", 60_000));
    large.1 = "a long result\n".repeat(200);
    for _ in 0..9 {
        large.answer_with_calls(&[read_call()]);
    }
    large
        .fail_call("overloaded", Some(1))
        .fail_call("overloaded", Some(1))
        .assert_next("ask spare attempt 3 wait 0");
}

#[test]
fn money_budget_counts_cache_savings() {
    let spent = |usage: TokenUsage, cost_nusd: u64, max: u64| {
        let mut play = ModelScenario::new(RunSettings { cost_max_nusd: max, ..model_settings() }, None, None);
        play.answer_with("", &[read_call()], |answer| (answer.usage, answer.cost_nusd) = (usage, cost_nusd));
        play.run_calls();
        play
    };
    // 10 000 tokens at 1000 nano-dollars and the shortest reply, 256 at 5000: 11.28 million and a little.
    let usage = TokenUsage { input_tokens: 10_000, ..TokenUsage::default() };
    let broke = spent(usage, 10_000_000, 21_000_000).describe_next();
    assert!(
        broke
            .starts_with("failed Limit: the budget of $0.021 does not pay for another call: $0.010 is spent"),
        "{broke}"
    );
    let pays = spent(usage, 10_000_000, 22_000_000).next_call().output_tokens_max;
    assert!((256..400).contains(&pays), "as long as the rest pays for: {pays}");
    // The same tokens from a cache cost a tenth.
    let cached = TokenUsage { cache_read_tokens: 10_000, ..TokenUsage::default() };
    assert_eq!(spent(cached, 10_000_000, 21_000_000).next_call().output_tokens_max, 1000);
    // No call is made if not even the first one is covered.
    let poor = ModelScenario::new(RunSettings { cost_max_nusd: 1000, ..model_settings() }, None, None)
        .describe_next();
    assert!(poor.starts_with("failed Limit: the budget of $0.000001 "), "{poor}");
}

#[test]
fn time_budget_counts_work_and_model_waits() {
    let mut play = ModelScenario::new(RunSettings { time_max_ms: 10_000, ..model_settings() }, None, None);
    play.fail_call("overloaded", Some(3000)).assert_next("ask main attempt 2 wait 3000");
    play.answer_with("", &[read_call()], |answer| answer.total_ms = 3000);
    play.run_calls();
    play.assert_next("ask main attempt 1 wait 0");
    play.answer_with_calls(&[read_call()]);
    let end = play.describe_next();
    assert!(end.starts_with("failed Limit: the budget of time is used up: 10 s of 10 s"), "{end}");
}

#[test]
fn turn_budget_is_checked_before_the_call() {
    let mut play = ModelScenario::new(RunSettings { turns_max: 2, ..model_settings() }, None, None);
    for _ in 0..2 {
        play.assert_next("ask main attempt 1 wait 0");
        play.answer_with_calls(&[read_call()]);
    }
    play.assert_next("failed TurnLimit: the cap of 2 turns is reached");
}

#[test]
fn refusal_asks_a_person_at_once() {
    for (said, question, then) in [
        (
            "I cannot do that.",
            "The model refuses to go on with the task: I cannot do that.",
            "ask main attempt 1 wait 0",
        ),
        (
            "",
            "The model refuses to go on with the task, without a word of why",
            "ask main attempt 1 wait 0 nudged",
        ),
    ] {
        let mut play = ModelScenario::new(model_settings(), None, None);
        play.answer_with(said, &[], |answer| answer.stop = StopReason::Refusal);
        let Action::Block { question: asked, why, .. } = play.0.decide().act else {
            panic!("{}", play.describe_next())
        };
        assert_eq!(asked, question.into());
        play.0.push(docket_schema::run::RunBlocked {
            question: asked,
            why,
            outages: 0,
            about: None,
            decision: DecisionHash::ZERO,
        });
        play.0.push(BlockerAnswered { text: "It is our own server.".into(), by: "me".into() });
        play.assert_next(then);
    }
    // Another model is called instead; the same one would repeat its refusal.
    for (models, then) in [
        (None, "block for another reason"),
        (
            Some(RunModels::single_model(model("other"), ModelTerms::default())),
            "ask other attempt 1 wait 0 nudged",
        ),
    ] {
        let mut play = ModelScenario::new(model_settings(), None, None);
        play.answer_with("No.", &[], |answer| answer.stop = StopReason::Refusal);
        play.fork_run(models).assert_next(then);
    }
    // A log that began before refusals were handled decides as it did.
    let mut old = ModelScenario::new(SETTINGS, None, None);
    old.answer_with("I cannot do that.", &[], |answer| answer.stop = StopReason::Refusal);
    old.assert_next("gates g1-0");
}

#[test]
fn truncated_answer_does_not_count_as_done() {
    for (said, stop) in [
        ("First I will", StopReason::MaxTokens),
        ("", StopReason::MaxTokens),
        ("First I", StopReason::Other("model_context_window_exceeded".to_owned())),
    ] {
        let mut play = ModelScenario::new(model_settings(), None, None);
        let cut = |play: &mut ModelScenario| {
            drop(play.answer_with(said, &[], |answer| answer.stop = stop.clone()).describe_next())
        };
        cut(&mut play);
        play.assert_next("ask main attempt 1 wait 0 nudged");
        assert!(play.next_call().nudge.is_some_and(|words| words.contains("smaller parts")));
        cut(&mut play);
        let end = play.describe_next();
        assert!(
            end.starts_with("failed Model: 2 answers in a row were cut at the limit of 1000 tokens"),
            "{end}"
        );
    }
    // A complete call is run, whatever cut off the reply after it.
    let mut call = ModelScenario::new(model_settings(), None, None);
    call.answer_with("", &[read_call()], |answer| answer.stop = StopReason::MaxTokens);
    assert_eq!(call.run_calls(), ["allowed"]);
    call.assert_next("ask main attempt 1 wait 0");
    let mut old = ModelScenario::new(SETTINGS, None, None);
    old.answer_with("First I will", &[], |answer| answer.stop = StopReason::MaxTokens);
    old.assert_next("gates g1-0");
}
