//! Which model is asked, what a budget pays for, and what the end of an answer means: given this log, that.

use docket_schema::{
    ids::{DecisionHash, Epoch, EventHash, Seq},
    message::{CallId, ModelRef, Part, Prices, StopReason, ToolUse, Usage},
    run::{
        BlockerAnswered, EventMeta, ForkWhy, Forked, ModelAnswered, ModelFailed, ModelRequested, ModelTerms,
        Models, OtherModel, RunSettings, ToolFinished, ToolRequested, ToolStatus, Verdict,
    },
    tool::ToolFacts,
};
use serde_json::{Value, json};

use super::{
    Act, ModelCall,
    react_tests::{Log, SETTINGS, gist},
};

const PRICES: Prices =
    Prices { input_nusd: 1000, output_nusd: 5000, cache_read_nusd: 100, cache_write_nusd: 1250 };

pub(super) fn model(name: &str) -> ModelRef {
    format!("anthropic:{name}").parse().expect("a model")
}

pub(super) fn other(name: &str, context_tokens: u64) -> Option<Box<OtherModel>> {
    let terms = ModelTerms { context_tokens, output_tokens_max: 50, ..ModelTerms::default() };
    Some(Box::new(OtherModel { model: model(name), terms }))
}

pub(super) fn settings() -> RunSettings {
    RunSettings {
        turns_max: 20,
        corrections_max: 3,
        fallback_after: 2,
        heed_stops: true,
        output_tokens_max: 1000,
        ..SETTINGS
    }
}

/// A log, and what its calls come to.
pub(super) struct Play(pub(super) Log, String);

impl Play {
    pub(super) fn of(
        settings: RunSettings,
        explore: Option<Box<OtherModel>>,
        fallback: Option<Box<OtherModel>>,
    ) -> Self {
        let terms =
            ModelTerms { context_tokens: 100_000, prices: PRICES, priced: true, ..ModelTerms::default() };
        let models = Models { explore, fallback, ..Models::only(model("main"), terms) };
        Self(Log::with_models(settings, &["tests"], "namespaces", models), "ok".to_owned())
    }

    pub(super) fn gist(&self) -> String {
        match self.0.decide().act {
            Act::CallModel(call) => {
                let nudge = call.nudge.as_ref().map_or(String::new(), |_| " nudged".to_owned());
                format!("ask {} attempt {} wait {}{nudge}", call.model.name, call.attempt, call.wait_ms)
            }
            _ => gist(&self.0.decide()),
        }
    }

    pub(super) fn next_call(&self) -> ModelCall {
        match self.0.decide().act {
            Act::CallModel(call) => *call,
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self) -> ModelCall {
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

    pub(super) fn answers(
        &mut self,
        text: &str,
        tools: &[(&str, Value)],
        how: impl FnOnce(&mut ModelAnswered),
    ) -> &mut Self {
        let asked = self.ask();
        let mut parts = if text.is_empty() { vec![] } else { vec![Part::Text { text: text.into() }] };
        parts.extend(tools.iter().enumerate().map(|(at, (name, args))| {
            let call = CallId::tool(asked.turn, at);
            Part::ToolUse(ToolUse { call, name: (*name).to_owned(), args: args.clone(), malformed: None })
        }));
        let mut answered = ModelAnswered {
            call: asked.call,
            parts,
            stop: if tools.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse },
            usage: Usage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        };
        how(&mut answered);
        self.0.push(answered);
        self
    }

    fn says(&mut self, text: &str) -> &mut Self {
        self.answers(text, &[], |_| {})
    }

    /// It calls tools, and they run as planned; the verdicts.
    pub(super) fn calls(&mut self, tools: &[(&str, Value)]) -> Vec<&'static str> {
        self.answers("", tools, |_| {});
        self.runs()
    }

    pub(super) fn runs(&mut self) -> Vec<&'static str> {
        let decision = self.0.decide();
        let Act::RunTools(batch) = decision.act else { panic!("no tools are planned") };
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
            let allowed = matches!(tool.policy, Verdict::Allow { .. });
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

    pub(super) fn fails(&mut self, error: &str, retry_in_ms: Option<u64>) -> &mut Self {
        self.wants_rest(error, retry_in_ms, None)
    }

    /// It fails, and says how long it wants to be left alone.
    pub(super) fn wants_rest(
        &mut self,
        error: &str,
        retry_in_ms: Option<u64>,
        retry_after_ms: Option<u64>,
    ) -> &mut Self {
        let call = self.ask().call;
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

    /// Somebody goes on with it, maybe with another model.
    pub(super) fn is_forked(&mut self, models: Option<Models>) -> &mut Self {
        let state = &mut self.0.state;
        let (task, run) = state.pins.as_deref().map(|pins| (pins.task, pins.run)).expect("begun");
        let (seq, hash, turn) = (state.seq, state.hash, state.turn);
        let (why, parent) = (ForkWhy::Resume, run);
        let forked = Forked { run, task, parent, seq, hash, turn, why, engine: None, models, hint: None };
        let meta = EventMeta { seq: Seq(1), hash: EventHash::ZERO, turn, epoch: Epoch(2) };
        state.apply(meta, forked.into()).expect("legal");
        self
    }

    pub(super) fn check(&self, then: &str) -> &Self {
        assert_eq!(self.gist(), then);
        self
    }
}

pub(super) fn read() -> (&'static str, Value) {
    ("read_file", json!({ "path": "a" }))
}

pub(super) fn edit() -> (&'static str, Value) {
    ("edit_file", json!({ "path": "a", "edits": [] }))
}

#[test]
fn the_cheap_model_looks_around_and_the_main_one_changes() {
    let mut play = Play::of(settings(), other("cheap", 100_000), None);
    play.check("ask cheap attempt 1 wait 0");
    assert_eq!(play.next_call().output_tokens_max, 50, "its own limit");
    assert_eq!(play.calls(&[read(), read()]), ["allowed", "allowed"]);
    play.check("ask cheap attempt 1 wait 0");
    // What it wants to write is left to the other: its reads are done all the same.
    assert_eq!(play.calls(&[read(), edit()]), ["allowed", "denied"]);
    play.check("ask main attempt 1 wait 0");
    assert_eq!(play.next_call().output_tokens_max, 1000);
    // For good: neither reading again nor a failed change brings the cheap one back.
    assert_eq!(play.calls(&[read()]), ["allowed"]);
    play.check("ask main attempt 1 wait 0");
    assert_eq!(play.calls(&[edit()]), ["allowed"]);
    play.check("ask main attempt 1 wait 0");
}

#[test]
fn who_only_looks_around_does_not_end_the_run() {
    for said in ["All is well.", "BLOCKED: which one?", ""] {
        let mut play = Play::of(settings(), other("cheap", 100_000), None);
        play.says(said).check("ask main attempt 1 wait 0 nudged");
        if said.is_empty() {
            // The main one's first word, and nothing was done yet.
            play.says("Done.").check("ask main attempt 1 wait 0 nudged");
        }
        play.says("Done.");
        assert!(play.gist().starts_with("gates"), "{said}");
    }
    let mut refused = Play::of(settings(), other("cheap", 100_000), None);
    refused.answers("No.", &[], |answer| answer.stop = StopReason::Refusal);
    refused.check("ask main attempt 1 wait 0 nudged");
}

#[test]
fn looking_around_ends_with_its_window_and_with_half_of_the_turns() {
    let small = Play::of(settings(), other("cheap", 2), None);
    small.check("ask main attempt 1 wait 0");
    let mut long = Play::of(RunSettings { turns_max: 4, ..settings() }, other("cheap", 100_000), None);
    for _ in 0..2 {
        long.check("ask cheap attempt 1 wait 0");
        long.calls(&[read()]);
    }
    long.check("ask main attempt 1 wait 0");
    // What is too long for it is not made shorter where the other takes it.
    let mut refused = Play::of(settings(), other("cheap", 100_000), None);
    refused.fails("context_too_long", None).check("ask main attempt 2 wait 0");
}

#[test]
fn a_model_that_stays_overloaded_is_stood_in_for() {
    let mut play = Play::of(settings(), None, other("spare", 100_000));
    play.fails("overloaded", Some(70)).check("ask main attempt 2 wait 70");
    play.fails("rate_limited", Some(90)).check("ask spare attempt 3 wait 0");
    play.fails("server", Some(5)).check("ask spare attempt 4 wait 5");
    play.calls(&[edit()]);
    // The next turn tries the model itself, once.
    play.check("ask main attempt 1 wait 0");
    play.fails("overloaded", Some(70)).check("ask spare attempt 2 wait 0");
    play.calls(&[read()]);
    play.check("ask main attempt 1 wait 0");
    // It is back: from here on it has its patience again.
    play.calls(&[read()]);
    play.fails("overloaded", Some(70)).check("ask main attempt 2 wait 70");
}

#[test]
fn only_overload_is_stood_in_for_and_not_for_ever() {
    for (error, then) in [
        ("invalid_request", "failed Model: busy"),
        ("protocol", "failed Model: busy"),
        // The provider wants to be left alone for longer than anybody waits.
        ("rate_limited", "ask spare attempt 2 wait 0"),
    ] {
        let mut play = Play::of(settings(), None, other("spare", 100_000));
        play.fails(error, None).check(then);
    }
    let mut away = Play::of(settings(), None, other("spare", 100_000));
    away.fails("rate_limited", None).fails("overloaded", Some(8)).check("ask spare attempt 3 wait 8");
    let mut cut = Play::of(settings(), None, other("spare", 100_000));
    cut.fails("cut_stream", Some(1)).fails("cut_stream", Some(1)).check("ask main attempt 3 wait 1");
    let mut both = Play::of(settings(), None, other("spare", 100_000));
    both.fails("overloaded", Some(1)).fails("overloaded", Some(1));
    for attempt in 3..=5 {
        both.check(&format!("ask spare attempt {attempt} wait {}", if attempt == 3 { 0 } else { 1 }));
        both.fails("overloaded", Some(1));
    }
    both.check("failed Model: 3 attempts failed; the last one: busy");
    let mut alone = Play::of(settings(), None, None);
    alone.fails("overloaded", Some(1)).fails("overloaded", Some(1)).check("ask main attempt 3 wait 1");
    let mut never = Play::of(RunSettings { fallback_after: 0, ..settings() }, None, other("spare", 100_000));
    never.fails("overloaded", Some(1)).fails("overloaded", Some(1)).check("ask main attempt 3 wait 1");
}

#[test]
fn the_main_model_stands_in_for_one_that_explores_where_no_other_does() {
    let mut play = Play::of(settings(), other("cheap", 100_000), None);
    play.fails("overloaded", Some(1)).fails("overloaded", Some(1)).check("ask main attempt 3 wait 0");
    assert_eq!(play.calls(&[edit()]), ["allowed"], "it is the main one that answered");
    let mut spare = Play::of(settings(), other("cheap", 100_000), other("spare", 100_000));
    spare.fails("overloaded", Some(1)).fails("overloaded", Some(1)).check("ask spare attempt 3 wait 0");
    assert_eq!(spare.calls(&[edit()]), ["denied"], "in place of one that only explores");
    spare.check("ask main attempt 1 wait 0");
}

#[test]
fn a_budget_of_tokens_is_kept_before_the_call_and_bounds_its_answer() {
    let mut play = Play::of(RunSettings { tokens_max: 2000, ..settings() }, None, None);
    let first = play.next_call().output_tokens_max;
    assert_eq!(first, 1000, "all of it fits");
    play.answers("", &[read()], |answer| {
        answer.usage =
            Usage { input_tokens: 100, cache_read_tokens: 500, output_tokens: 200, ..Usage::default() };
    });
    play.runs();
    // 800 are used; the next request has those and a few more.
    let next = play.next_call().output_tokens_max;
    assert!((300..400).contains(&next), "{next}");
    play.answers("", &[read()], |answer| {
        answer.usage = Usage { input_tokens: 850, output_tokens: 100, ..Usage::default() };
    });
    play.runs();
    let end = play.gist();
    assert!(
        end.starts_with(
            "failed Limit: the budget of 2000 tokens does not pay for another call: 1750 are used"
        ),
        "{end}"
    );
}

#[test]
fn whoever_goes_on_with_a_run_has_budgets_of_its_own() {
    let mut play = Play::of(RunSettings { tokens_max: 2000, ..settings() }, None, None);
    play.answers("", &[read()], |answer| answer.usage = Usage { input_tokens: 1900, ..Usage::default() });
    play.runs();
    assert!(play.gist().starts_with("failed Limit"), "{}", play.gist());
    // Of 2000 the request takes 1900 and what came since: too little is left for an answer.
    assert!(
        play.is_forked(None)
            .gist()
            .starts_with("failed Limit: the budget of 2000 tokens does not pay for another call: 0 are")
    );
    let mut time = Play::of(RunSettings { time_max_ms: 1000, ..settings() }, None, None);
    time.calls(&[read()]);
    assert!(time.gist().starts_with("failed Limit"), "{}", time.gist());
    time.is_forked(None).check("ask main attempt 1 wait 0");
}

#[test]
fn a_model_that_stands_in_is_asked_within_its_own_window() {
    let mut play = Play::of(settings(), None, other("spare", 6000));
    play.1 = "a long result\n".repeat(200);
    for _ in 0..9 {
        play.calls(&[read()]);
    }
    play.check("ask main attempt 1 wait 0");
    play.fails("overloaded", Some(1)).fails("overloaded", Some(1));
    assert!(play.gist().starts_with("compact "), "{}", play.gist());
    let mut large = Play::of(settings(), None, other("spare", 60_000));
    large.1 = "a long result\n".repeat(200);
    for _ in 0..9 {
        large.calls(&[read()]);
    }
    large.fails("overloaded", Some(1)).fails("overloaded", Some(1)).check("ask spare attempt 3 wait 0");
}

#[test]
fn a_budget_of_money_counts_what_a_cache_spares() {
    let spent = |usage: Usage, cost_nusd: u64, max: u64| {
        let mut play = Play::of(RunSettings { cost_max_nusd: max, ..settings() }, None, None);
        play.answers("", &[read()], |answer| (answer.usage, answer.cost_nusd) = (usage, cost_nusd));
        play.runs();
        play
    };
    // 10 000 tokens at 1000 nano-dollars and the shortest answer, 256 at 5000: 11.28 million and a little.
    let usage = Usage { input_tokens: 10_000, ..Usage::default() };
    let broke = spent(usage, 10_000_000, 21_000_000).gist();
    assert!(
        broke
            .starts_with("failed Limit: the budget of $0.021 does not pay for another call: $0.010 is spent"),
        "{broke}"
    );
    let pays = spent(usage, 10_000_000, 22_000_000).next_call().output_tokens_max;
    assert!((256..400).contains(&pays), "as long as the rest pays for: {pays}");
    // The same tokens from a cache cost a tenth.
    let cached = Usage { cache_read_tokens: 10_000, ..Usage::default() };
    assert_eq!(spent(cached, 10_000_000, 21_000_000).next_call().output_tokens_max, 1000);
    // Nothing is asked where not even the first call is paid for.
    let poor = Play::of(RunSettings { cost_max_nusd: 1000, ..settings() }, None, None).gist();
    assert!(poor.starts_with("failed Limit: the budget of $0.000001 "), "{poor}");
}

#[test]
fn a_budget_of_time_counts_work_and_waits_for_the_model() {
    let mut play = Play::of(RunSettings { time_max_ms: 10_000, ..settings() }, None, None);
    play.fails("overloaded", Some(3000)).check("ask main attempt 2 wait 3000");
    play.answers("", &[read()], |answer| answer.total_ms = 3000);
    play.runs();
    play.check("ask main attempt 1 wait 0");
    play.calls(&[read()]);
    let end = play.gist();
    assert!(end.starts_with("failed Limit: the budget of time is used up: 10 s of 10 s"), "{end}");
}

#[test]
fn a_budget_of_turns_is_kept_before_the_call() {
    let mut play = Play::of(RunSettings { turns_max: 2, ..settings() }, None, None);
    for _ in 0..2 {
        play.check("ask main attempt 1 wait 0");
        play.calls(&[read()]);
    }
    play.check("failed TurnLimit: the cap of 2 turns is reached");
}

#[test]
fn a_refusal_asks_a_person_at_once() {
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
        let mut play = Play::of(settings(), None, None);
        play.answers(said, &[], |answer| answer.stop = StopReason::Refusal);
        let Act::Block { question: asked, why, .. } = play.0.decide().act else { panic!("{}", play.gist()) };
        assert_eq!(asked, question.into());
        play.0.push(docket_schema::run::RunBlocked {
            question: asked,
            why,
            outages: 0,
            about: None,
            decision: DecisionHash::ZERO,
        });
        play.0.push(BlockerAnswered { text: "It is our own server.".into(), by: "me".into() });
        play.check(then);
    }
    // Another model is asked in its place; the same one stands by what it said.
    for (models, then) in [
        (None, "block for another reason"),
        (Some(Models::only(model("other"), ModelTerms::default())), "ask other attempt 1 wait 0 nudged"),
    ] {
        let mut play = Play::of(settings(), None, None);
        play.answers("No.", &[], |answer| answer.stop = StopReason::Refusal);
        play.is_forked(models).check(then);
    }
    // A log that began before refusals were heeded decides as it did.
    let mut old = Play::of(SETTINGS, None, None);
    old.answers("I cannot do that.", &[], |answer| answer.stop = StopReason::Refusal);
    old.check("gates g1-0");
}

#[test]
fn a_cut_answer_is_no_claim_to_be_done() {
    for (said, stop) in [
        ("First I will", StopReason::MaxTokens),
        ("", StopReason::MaxTokens),
        ("First I", StopReason::Other("model_context_window_exceeded".to_owned())),
    ] {
        let mut play = Play::of(settings(), None, None);
        let cut = |play: &mut Play| drop(play.answers(said, &[], |answer| answer.stop = stop.clone()).gist());
        cut(&mut play);
        play.check("ask main attempt 1 wait 0 nudged");
        assert!(play.next_call().nudge.is_some_and(|words| words.contains("smaller parts")));
        cut(&mut play);
        let end = play.gist();
        assert!(
            end.starts_with("failed Model: 2 answers in a row were cut at the limit of 1000 tokens"),
            "{end}"
        );
    }
    // A call that was whole is run, whatever cut the answer behind it.
    let mut call = Play::of(settings(), None, None);
    call.answers("", &[read()], |answer| answer.stop = StopReason::MaxTokens);
    assert_eq!(call.runs(), ["allowed"]);
    call.check("ask main attempt 1 wait 0");
    let mut old = Play::of(SETTINGS, None, None);
    old.answers("First I will", &[], |answer| answer.stop = StopReason::MaxTokens);
    old.check("gates g1-0");
}
