//! Costs from hand-made logs: each case fails where money is counted otherwise.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    ids::{DecisionHash, EventHash, RunId, Seq, TaskId, Timestamp, Turn},
    message::{CallId, ModelRef, Prices, StopReason, Usage},
    run::{
        ForkWhy, Forked, ModelAnswered, ModelFailed, ModelRequested, ModelTerms, Models, OtherModel, Purpose,
        RunEvent,
    },
};

const RUN: RunId = RunId(Uuid::from_u128(2));
const TASK: TaskId = TaskId(Uuid::from_u128(1));

fn model(name: &str) -> ModelRef {
    ModelRef { provider: "anthropic".to_owned(), name: name.to_owned(), base_url: None }
}

fn terms(input_nusd: u64) -> ModelTerms {
    let prices = Prices {
        input_nusd,
        output_nusd: input_nusd * 5,
        cache_read_nusd: input_nusd / 10,
        cache_write_nusd: input_nusd + input_nusd / 4,
    };
    ModelTerms { prices, priced: true, ..ModelTerms::default() }
}

/// `strong` at 1000 a token, and a cheap model that looks around at 100.
fn models() -> Models {
    let cheap = OtherModel { model: model("cheap"), terms: terms(100) };
    Models { explore: Some(Box::new(cheap)), ..Models::only(model("strong"), terms(1000)) }
}

fn started(models: Models) -> RunEvent {
    let RunEvent::RunStarted(started) = crate::run::tests::started() else { panic!("it begins a run") };
    crate::run::RunStarted { models, ..started }.into()
}

fn asked(of: &str, purpose: Purpose, role: Option<&str>) -> RunEvent {
    ModelRequested {
        call: CallId("m1-1".to_owned()),
        purpose,
        model: model(of),
        attempt: 1,
        decision: DecisionHash::ZERO,
        request: DecisionHash::ZERO,
        request_bytes: 1,
        nudge: None,
        worst_case_nusd: 0,
        output_tokens_max: None,
        role: role.map(str::to_owned),
    }
    .into()
}

fn usage() -> Usage {
    Usage {
        input_tokens: 10,
        output_tokens: 2,
        cache_read_tokens: 100,
        cache_write_tokens: 4,
        estimated: false,
    }
}

fn answered(cost_nusd: u64) -> RunEvent {
    ModelAnswered {
        call: CallId("m1-1".to_owned()),
        parts: Vec::new(),
        stop: StopReason::EndTurn,
        usage: usage(),
        cost_nusd,
        first_byte_ms: 5,
        total_ms: 40,
    }
    .into()
}

fn failed() -> RunEvent {
    ModelFailed {
        call: CallId("m1-1".to_owned()),
        error: "cut_stream".to_owned(),
        message: String::new(),
        retry_in_ms: None,
        retry_after_ms: None,
        needs_person: false,
        duration_ms: 30,
    }
    .into()
}

fn cost(events: Vec<RunEvent>) -> RunCost {
    let mut fold = CostFold::default();
    for (nth, event) in (1..).zip(events) {
        fold.take(Timestamp(nth), Turn(1), event);
    }
    let (calls, strong) = fold.finish();
    RunCost::of((RUN, TASK), strong, calls)
}

const DECIDE: Purpose = Purpose::Decide;

#[test]
fn cache_reads_and_writes_are_priced_each_at_its_own_and_savings_are_against_the_main_model() {
    let cheap = terms(100).prices.cost_nusd(usage());
    let strong = terms(1000).prices.cost_nusd(usage());
    assert_eq!(
        (cheap, strong),
        (3500, 35_000),
        "10 in, 2 out at five times, 100 read at a tenth, 4 written at 1.25"
    );
    let cost = cost(vec![
        started(models()),
        asked("cheap", DECIDE, None),
        answered(cheap),
        asked("strong", DECIDE, None),
        answered(strong),
    ]);
    let report = CostReport::of(&[cost], CostBy::Model);
    assert_eq!(report.lines.len(), 2);
    assert_eq!((report.total.cost_nusd, report.total.usage.cache_read_tokens), (38_500, 200));
    let savings = &report.savings;
    assert_eq!((savings.cost_nusd, savings.strong_nusd, savings.saved_nusd), (38_500, 70_000, 31_500));
    assert_eq!(
        (savings.saved_percent, savings.strong.as_slice()),
        (Some(45.0), &["anthropic:strong".to_owned()][..])
    );
}

/// A piece that was given away to a cheap model is compared with the model that would have done it otherwise (D7).
#[test]
fn a_piece_is_compared_with_the_model_at_the_top() {
    let cheap = terms(100).prices.cost_nusd(usage());
    let mut fold = CostFold::default();
    fold.compare_with(models());
    let own = Models::only(model("cheap"), terms(100));
    for (nth, event) in (1..).zip([started(own), asked("cheap", DECIDE, None), answered(cheap)]) {
        fold.take(Timestamp(nth), Turn(1), event);
    }
    let (calls, strong) = fold.finish();
    let report = CostReport::of(&[RunCost::of((RUN, TASK), strong, calls)], CostBy::Model);
    let savings = &report.savings;
    assert_eq!((savings.cost_nusd, savings.strong_nusd), (3500, 35_000));
    assert_eq!(savings.strong, ["anthropic:strong"]);
}

#[test]
fn a_dearer_model_saves_less_than_nothing() {
    let mut dear = models();
    dear.explore = Some(Box::new(OtherModel { model: model("dear"), terms: terms(2000) }));
    let cost = cost(vec![started(dear), asked("dear", DECIDE, None), answered(70_000)]);
    let savings = CostReport::of(&[cost], CostBy::Role).savings;
    assert_eq!((savings.saved_nusd, savings.saved_percent), (-35_000, Some(-100.0)));
}

#[test]
fn a_call_without_a_price_is_unknown_and_compares_with_nothing() {
    let mut unpriced = models();
    unpriced.explore = Some(Box::new(OtherModel { model: model("new"), terms: ModelTerms::default() }));
    // One that the run pinned without a price, and one that it did not pin at all: whatever the event says.
    for name in ["new", "stranger"] {
        let cost = cost(vec![started(unpriced.clone()), asked(name, DECIDE, None), answered(0)]);
        let report = CostReport::of(&[cost], CostBy::Call);
        assert_eq!(
            (report.total.answered, report.total.unpriced, report.total.is_whole()),
            (1, 1, false),
            "{name}"
        );
        assert_eq!((report.savings.compared, report.savings.not_compared), (0, 1));
        let call = report.lines[0].call.as_ref().expect("by call");
        assert_eq!(call.cost_nusd, None);
        let text = serde_json::to_string(&CostExport::from(call)).expect("a line");
        assert_eq!(
            text,
            format!(
                r#"{{"ts":"1970-01-01T00:00:00.000003Z","role":"agent","model":"anthropic:{name}","tokens_in":114,"tokens_out":2,"cost_usd":null}}"#
            )
        );
    }
    // Without the main model's price what it would have cost is unknown, and what was paid is not.
    let main = Models { terms: ModelTerms::default(), ..models() };
    let report = CostReport::of(
        &[cost(vec![started(main), asked("cheap", DECIDE, None), answered(3500)])],
        CostBy::Run,
    );
    assert_eq!((report.total.cost_nusd, report.total.unpriced, report.savings.compared), (3500, 0, 0));
}

#[test]
fn a_failed_call_counts_with_its_time_and_without_a_bill_and_an_open_one_stays_open() {
    let cost = cost(vec![
        started(models()),
        asked("strong", DECIDE, None),
        failed(),
        asked("strong", DECIDE, None),
        answered(35_000),
        asked("strong", DECIDE, None),
    ]);
    let sums = cost.sums();
    assert_eq!((sums.answered, sums.failed, sums.open, sums.calls()), (1, 1, 1, 3));
    assert_eq!((sums.cost_nusd, sums.latency_ms, sums.unpriced, sums.compared), (35_000, 70, 0, 1));
    let export = CostExport::from(&cost.calls[0]);
    assert_eq!((export.tokens_in, export.cost_usd), (None, None));
    assert_eq!(
        (cost.calls[0].at, cost.calls[2].at),
        (Timestamp(3), Timestamp(6)),
        "ended; asked, while open"
    );
}

#[test]
fn a_role_is_the_engines_else_what_the_call_is_for() {
    let cost = cost(vec![
        started(models()),
        asked("cheap", DECIDE, Some("coder")),
        answered(3500),
        asked("strong", Purpose::Compact, None),
        answered(35_000),
        asked("cheap", Purpose::Review, Some("coder")),
        answered(3500),
        asked("cheap", DECIDE, None),
        answered(3500),
    ]);
    let roles: Vec<(&str, u64)> =
        cost.rows.iter().map(|row| (row.role.as_str(), row.sums.answered)).collect();
    assert_eq!(roles, [("coder", 2), ("compact", 1), ("agent", 1)]);
    let lines = |by| CostReport::of(std::slice::from_ref(&cost), by).lines.len();
    assert_eq!((lines(CostBy::Role), lines(CostBy::Model), lines(CostBy::RoleModel)), (3, 2, 3));
    assert_eq!((lines(CostBy::Run), lines(CostBy::Task), lines(CostBy::Call)), (1, 1, 4));
}

#[test]
fn a_fork_pays_for_its_own_calls_at_its_own_prices() {
    let forked = |models| -> RunEvent {
        Forked {
            run: RunId(Uuid::from_u128(9)),
            task: TASK,
            parent: RUN,
            seq: Seq(3),
            hash: EventHash([0; 32]),
            turn: Turn(1),
            why: ForkWhy::Fork,
            engine: None,
            models,
            hint: None,
        }
        .into()
    };
    let mut fold = CostFold::default();
    fold.inherit(&started(models()));
    fold.take(Timestamp(1), Turn(1), forked(None));
    fold.take(Timestamp(2), Turn(2), asked("cheap", DECIDE, None));
    fold.take(Timestamp(3), Turn(2), answered(3500));
    let (calls, strong) = fold.finish();
    assert_eq!(
        (calls.len(), calls[0].cost_nusd, calls[0].strong_nusd),
        (1, Some(3500), Some(35_000)),
        "inherited"
    );
    assert_eq!(strong, Some(model("strong")));
    let mut fold = CostFold::default();
    fold.inherit(&started(models()));
    fold.take(Timestamp(1), Turn(1), forked(Some(Models::only(model("other"), terms(10)))));
    fold.take(Timestamp(2), Turn(2), asked("cheap", DECIDE, None));
    fold.take(Timestamp(3), Turn(2), answered(0));
    assert_eq!(fold.finish().0[0].cost_nusd, None, "the fork's models take the place of its parent's");
}

proptest! {
    /// However runs are cut into lines, and however often one comes, the lines add up to the total and that to the calls.
    #[test]
    fn lines_add_up_whatever_makes_them(calls in proptest::collection::vec((0..3_u8, 0..3_u8, 0..5_u8), 0..20), twice: bool) {
        let mut events = vec![started(models())];
        let mut money = 0;
        for (of, role, end) in calls {
            let of = ["cheap", "strong", "stranger"][usize::from(of)];
            events.push(asked(of, DECIDE, [None, Some("coder"), Some("tester")][usize::from(role)]));
            let paid = match of { "cheap" => 3500, "strong" => 35_000, _ => 0 };
            match end {
                0 => events.push(failed()),
                1 => {}
                _ => { events.push(answered(paid)); money += paid; }
            }
        }
        let cost = cost(events);
        let runs = if twice { vec![cost.clone(), cost.clone()] } else { vec![cost.clone()] };
        for by in [CostBy::RoleModel, CostBy::Role, CostBy::Model, CostBy::Run, CostBy::Task, CostBy::Call] {
            let report = CostReport::of(&runs, by);
            let sum = report.lines.iter().fold(CostSums::default(), |all, line| all.plus(line.sums));
            prop_assert_eq!(sum, report.total);
            prop_assert_eq!(report.total.cost_nusd, money);
            prop_assert_eq!(report.total.calls(), cost.calls.len() as u64);
        }
    }
}
