//! Costs from handwritten logs: each case fails if money is counted differently.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    ids::{DecisionHash, EventHash, RunId, Seq, TaskId, Timestamp, Turn},
    message::{CallId, ModelRef, StopReason, TokenPrices, TokenUsage},
    run::{
        CallPurpose, ForkReason, Forked, ModelAnswered, ModelFailed, ModelRequested, ModelTerms, OtherModel,
        RunEvent, RunModels,
    },
};

const RUN: RunId = RunId(Uuid::from_u128(2));
const TASK: TaskId = TaskId(Uuid::from_u128(1));

fn model(name: &str) -> ModelRef {
    ModelRef { provider: "anthropic".to_owned(), name: name.to_owned(), base_url: None }
}

fn terms(input_nusd: u64) -> ModelTerms {
    let prices = TokenPrices {
        input_nusd,
        output_nusd: input_nusd * 5,
        cache_read_nusd: input_nusd / 10,
        cache_write_nusd: input_nusd + input_nusd / 4,
    };
    ModelTerms { prices, priced: true, ..ModelTerms::default() }
}

/// `strong` at 1000 per token, and a cheap exploring model at 100.
fn models() -> RunModels {
    let cheap = OtherModel { model: model("cheap"), terms: terms(100) };
    RunModels { explore: Some(Box::new(cheap)), ..RunModels::single_model(model("strong"), terms(1000)) }
}

fn run_started(models: RunModels) -> RunEvent {
    let RunEvent::RunStarted(started) = crate::run::tests::run_started() else { panic!("it begins a run") };
    crate::run::RunStarted { models, ..started }.into()
}

fn model_requested(of: &str, purpose: CallPurpose, role: Option<&str>) -> RunEvent {
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

fn usage() -> TokenUsage {
    TokenUsage {
        input_tokens: 10,
        output_tokens: 2,
        cache_read_tokens: 100,
        cache_write_tokens: 4,
        estimated: false,
    }
}

fn model_answered(cost_nusd: u64) -> RunEvent {
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

fn model_failed() -> RunEvent {
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

fn fold_cost(events: Vec<RunEvent>) -> RunCost {
    let mut fold = CostFold::default();
    for (nth, event) in (1..).zip(events) {
        fold.apply_event(Timestamp(nth), Turn(1), event);
    }
    let (calls, strong) = fold.finish();
    RunCost::from_calls((RUN, TASK), strong, calls)
}

const DECIDE: CallPurpose = CallPurpose::Decide;

#[test]
fn cache_reads_and_writes_are_priced_each_at_its_own_and_savings_are_against_the_main_model() {
    let cheap = terms(100).prices.cost_nusd(usage());
    let strong = terms(1000).prices.cost_nusd(usage());
    assert_eq!(
        (cheap, strong),
        (3500, 35_000),
        "10 in, 2 out at five times, 100 read at a tenth, 4 written at 1.25"
    );
    let cost = fold_cost(vec![
        run_started(models()),
        model_requested("cheap", DECIDE, None),
        model_answered(cheap),
        model_requested("strong", DECIDE, None),
        model_answered(strong),
    ]);
    let report = CostReport::from_runs(&[cost], CostGrouping::Model);
    assert_eq!(report.lines.len(), 2);
    assert_eq!((report.total.cost_nusd, report.total.usage.cache_read_tokens), (38_500, 200));
    let savings = &report.savings;
    assert_eq!((savings.cost_nusd, savings.strong_nusd, savings.saved_nusd), (38_500, 70_000, 31_500));
    assert_eq!(
        (savings.saved_percent, savings.strong.as_slice()),
        (Some(45.0), &["anthropic:strong".to_owned()][..])
    );
}

/// Work delegated to a cheap model is compared with the model that would have done it otherwise (D7).
#[test]
fn delegated_run_is_compared_with_the_root_main_model() {
    let cheap = terms(100).prices.cost_nusd(usage());
    let mut fold = CostFold::default();
    fold.compare_with(models());
    let own = RunModels::single_model(model("cheap"), terms(100));
    for (nth, event) in
        (1..).zip([run_started(own), model_requested("cheap", DECIDE, None), model_answered(cheap)])
    {
        fold.apply_event(Timestamp(nth), Turn(1), event);
    }
    let (calls, strong) = fold.finish();
    let report =
        CostReport::from_runs(&[RunCost::from_calls((RUN, TASK), strong, calls)], CostGrouping::Model);
    let savings = &report.savings;
    assert_eq!((savings.cost_nusd, savings.strong_nusd), (3500, 35_000));
    assert_eq!(savings.strong, ["anthropic:strong"]);
}

#[test]
fn more_expensive_model_has_negative_savings() {
    let mut dear = models();
    dear.explore = Some(Box::new(OtherModel { model: model("dear"), terms: terms(2000) }));
    let cost =
        fold_cost(vec![run_started(dear), model_requested("dear", DECIDE, None), model_answered(70_000)]);
    let savings = CostReport::from_runs(&[cost], CostGrouping::Role).savings;
    assert_eq!((savings.saved_nusd, savings.saved_percent), (-35_000, Some(-100.0)));
}

#[test]
fn unpriced_call_has_unknown_cost_and_no_comparison() {
    let mut unpriced = models();
    unpriced.explore = Some(Box::new(OtherModel { model: model("new"), terms: ModelTerms::default() }));
    // One pinned without a price, and one not pinned at all, whatever the event says.
    for name in ["new", "stranger"] {
        let cost = fold_cost(vec![
            run_started(unpriced.clone()),
            model_requested(name, DECIDE, None),
            model_answered(0),
        ]);
        let report = CostReport::from_runs(&[cost], CostGrouping::Call);
        assert_eq!(
            (report.total.answered, report.total.unpriced, report.total.is_fully_priced()),
            (1, 1, false),
            "{name}"
        );
        assert_eq!((report.savings.compared, report.savings.not_compared), (0, 1));
        let call = report.lines[0].call.as_ref().expect("by call");
        assert_eq!(call.cost_nusd, None);
        let text = serde_json::to_string(&CostExportLine::from(call)).expect("a line");
        assert_eq!(
            text,
            format!(
                r#"{{"ts":"1970-01-01T00:00:00.000003Z","role":"agent","model":"anthropic:{name}","tokens_in":114,"tokens_out":2,"cost_usd":null}}"#
            )
        );
    }
    // Without the main model's price the comparison is unknown, but the actual cost is not.
    let main = RunModels { terms: ModelTerms::default(), ..models() };
    let report = CostReport::from_runs(
        &[fold_cost(vec![run_started(main), model_requested("cheap", DECIDE, None), model_answered(3500)])],
        CostGrouping::Run,
    );
    assert_eq!((report.total.cost_nusd, report.total.unpriced, report.savings.compared), (3500, 0, 0));
}

#[test]
fn failed_call_has_time_but_no_cost_and_open_call_stays_open() {
    let cost = fold_cost(vec![
        run_started(models()),
        model_requested("strong", DECIDE, None),
        model_failed(),
        model_requested("strong", DECIDE, None),
        model_answered(35_000),
        model_requested("strong", DECIDE, None),
    ]);
    let sums = cost.total();
    assert_eq!((sums.answered, sums.failed, sums.open, sums.call_count()), (1, 1, 1, 3));
    assert_eq!((sums.cost_nusd, sums.latency_ms, sums.unpriced, sums.compared), (35_000, 70, 0, 1));
    let export = CostExportLine::from(&cost.calls[0]);
    assert_eq!((export.tokens_in, export.cost_usd), (None, None));
    assert_eq!(
        (cost.calls[0].at, cost.calls[2].at),
        (Timestamp(3), Timestamp(6)),
        "ended; asked, while open"
    );
}

#[test]
fn role_falls_back_to_the_call_purpose() {
    let cost = fold_cost(vec![
        run_started(models()),
        model_requested("cheap", DECIDE, Some("coder")),
        model_answered(3500),
        model_requested("strong", CallPurpose::Compact, None),
        model_answered(35_000),
        model_requested("cheap", CallPurpose::Review, Some("coder")),
        model_answered(3500),
        model_requested("cheap", DECIDE, None),
        model_answered(3500),
    ]);
    let roles: Vec<(&str, u64)> =
        cost.rows.iter().map(|row| (row.role.as_str(), row.sums.answered)).collect();
    assert_eq!(roles, [("coder", 2), ("compact", 1), ("agent", 1)]);
    let lines = |by| CostReport::from_runs(std::slice::from_ref(&cost), by).lines.len();
    assert_eq!(
        (lines(CostGrouping::Role), lines(CostGrouping::Model), lines(CostGrouping::RoleModel)),
        (3, 2, 3)
    );
    assert_eq!((lines(CostGrouping::Run), lines(CostGrouping::Task), lines(CostGrouping::Call)), (1, 1, 4));
}

#[test]
fn fork_counts_only_its_own_calls_at_its_own_prices() {
    let forked = |models| -> RunEvent {
        Forked {
            run: RunId(Uuid::from_u128(9)),
            task: TASK,
            parent: RUN,
            seq: Seq(3),
            hash: EventHash([0; 32]),
            turn: Turn(1),
            why: ForkReason::Fork,
            engine: None,
            models,
            hint: None,
        }
        .into()
    };
    let mut fold = CostFold::default();
    fold.inherit_models(&run_started(models()));
    fold.apply_event(Timestamp(1), Turn(1), forked(None));
    fold.apply_event(Timestamp(2), Turn(2), model_requested("cheap", DECIDE, None));
    fold.apply_event(Timestamp(3), Turn(2), model_answered(3500));
    let (calls, strong) = fold.finish();
    assert_eq!(
        (calls.len(), calls[0].cost_nusd, calls[0].strong_nusd),
        (1, Some(3500), Some(35_000)),
        "inherited"
    );
    assert_eq!(strong, Some(model("strong")));
    let mut fold = CostFold::default();
    fold.inherit_models(&run_started(models()));
    fold.apply_event(Timestamp(1), Turn(1), forked(Some(RunModels::single_model(model("other"), terms(10)))));
    fold.apply_event(Timestamp(2), Turn(2), model_requested("cheap", DECIDE, None));
    fold.apply_event(Timestamp(3), Turn(2), model_answered(0));
    assert_eq!(fold.finish().0[0].cost_nusd, None, "the fork's models take the place of its parent's");
}

proptest! {
    /// For every grouping, and with repeated runs, the lines add up to the total and the total to the calls.
    #[test]
    fn lines_sum_to_the_total_for_every_grouping(calls in proptest::collection::vec((0..3_u8, 0..3_u8, 0..5_u8), 0..20), twice: bool) {
        let mut events = vec![run_started(models())];
        let mut money = 0;
        for (of, role, end) in calls {
            let of = ["cheap", "strong", "stranger"][usize::from(of)];
            events.push(model_requested(of, DECIDE, [None, Some("coder"), Some("tester")][usize::from(role)]));
            let paid = match of { "cheap" => 3500, "strong" => 35_000, _ => 0 };
            match end {
                0 => events.push(model_failed()),
                1 => {}
                _ => { events.push(model_answered(paid)); money += paid; }
            }
        }
        let cost = fold_cost(events);
        let runs = if twice { vec![cost.clone(), cost.clone()] } else { vec![cost.clone()] };
        for by in [CostGrouping::RoleModel, CostGrouping::Role, CostGrouping::Model, CostGrouping::Run, CostGrouping::Task, CostGrouping::Call] {
            let report = CostReport::from_runs(&runs, by);
            let sum = report.lines.iter().fold(CostSums::default(), |all, line| all.plus(line.sums));
            prop_assert_eq!(sum, report.total);
            prop_assert_eq!(report.total.cost_nusd, money);
            prop_assert_eq!(report.total.call_count(), cost.calls.len() as u64);
        }
    }
}
