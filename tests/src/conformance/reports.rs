//! Reports: cost of runs and task results, the same on every store, one page at a time.

use docket_coordinator::{
    decide,
    reports::{self, ReportError},
    store::GrantedLease,
};
use docket_schema::{
    api::{CostQuery, MetricsQuery},
    event::{NewEvent, TypedEvent as _},
    ids::{BatchId, DecisionHash, Seq, StreamId, TaskId, Timestamp, Turn},
    message::{CallId, ModelRef, StopReason, TokenPrices, TokenUsage},
    report::{CostGrouping, CostReport, CostSums, Metric, MetricsReport, RunCost, TargetVerdict},
    run::{
        CallPurpose, EngineRef, ModelAnswered, ModelRequested, ModelTerms, RunEvent, RunModels, RunOutcome,
        RunPrompts, RunSettings, RunStarted, SandboxLayers,
    },
    task::TaskSpec,
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{FakeWorker, failed_outcome, task_spec},
    lineage::{fork_task, new_run_id},
};

const BATCH: BatchId = BatchId(uuid::Uuid::from_u128(78));

fn model_ref(provider: &str) -> ModelRef {
    ModelRef { provider: provider.to_owned(), name: "m".to_owned(), base_url: None }
}

fn run_started(lease: &GrantedLease, provider: &str) -> NewEvent {
    let prices = TokenPrices { input_nusd: 10, ..TokenPrices::default() };
    let terms = ModelTerms { prices, priced: true, ..ModelTerms::default() };
    let blob = lease.record.spec.base.manifest;
    RunEvent::from(RunStarted {
        task: lease.record.id,
        run: lease.run,
        attempt: 1,
        engine: EngineRef { name: "react".to_owned(), version: 1 },
        models: RunModels::single_model(model_ref(provider), terms),
        settings: RunSettings::default(),
        prompts: RunPrompts { system: blob, tools: blob, task: blob },
        base: lease.record.spec.base.clone(),
        gates: Vec::new(),
        tests: None,
        external: Vec::new(),
        servers_left_out: Vec::new(),
        linters: Vec::new(),
        roles: vec![],
        requires: Vec::new(),
        policy: None,
        policies: Vec::new(),
        sandbox: SandboxLayers::default(),
        worker: docket_schema::ids::IncarnationId(uuid::Uuid::nil()),
    })
    .encode(Turn(0))
}

/// The events of a model call with this many tokens.
fn model_call_events(provider: &str, turn: u32, tokens: u64) -> Vec<NewEvent> {
    let call = CallId::for_model(Turn(turn), 1);
    let asked = ModelRequested {
        call: call.clone(),
        purpose: CallPurpose::Decide,
        model: model_ref(provider),
        attempt: 1,
        decision: DecisionHash([1; 32]),
        request: DecisionHash([1; 32]),
        request_bytes: 1,
        nudge: None,
        worst_case_nusd: 0,
        output_tokens_max: None,
        role: None,
    };
    let answered = ModelAnswered {
        call,
        parts: Vec::new(),
        stop: StopReason::EndTurn,
        usage: TokenUsage { input_tokens: tokens, ..TokenUsage::default() },
        cost_nusd: tokens * 10,
        first_byte_ms: 1,
        total_ms: 2,
    };
    vec![RunEvent::from(asked).encode(Turn(turn)), RunEvent::from(answered).encode(Turn(turn))]
}

/// Runs a task with a single model call.
pub(super) async fn run_one_model_call(
    world: &StoreFixture,
    worker: &FakeWorker,
    spec: TaskSpec,
    tokens: u64,
) -> (TaskId, GrantedLease) {
    let provider = spec.model.provider.clone();
    let task = world.submit(spec).await;
    let lease = worker.lease_one().await;
    let events = [vec![run_started(&lease, &provider)], model_call_events(&provider, 1, tokens)].concat();
    world.append(lease.run, Seq(0), lease.record.epoch, events).await.expect("appends");
    (task, lease)
}

pub(super) fn spec_for_provider(provider: &str) -> TaskSpec {
    TaskSpec { model: model_ref(provider), attempts_max: 1, ..task_spec("reported") }
}

/// Returns all pages, with this many tasks each.
async fn list_costs(world: &StoreFixture, query: CostQuery, limit: u32) -> Vec<RunCost> {
    let mut query = CostQuery { limit: Some(limit), ..query };
    let mut all = Vec::new();
    loop {
        let page = reports::cost_report(&*world.store, &query).await.expect("a page");
        assert!(page.runs.len() <= 2 * limit as usize, "a page has the runs of its tasks");
        all.extend(page.runs);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return all,
        }
    }
}

fn sum_costs(runs: &[RunCost]) -> CostSums {
    CostReport::from_runs(runs, CostGrouping::Role).total
}

pub(super) async fn costs_are_reported_by_run_task_batch_and_time(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let first_at = world.now();
    let in_batch = || TaskSpec { batch: Some(BATCH), ..spec_for_provider("anthropic") };
    let (first, lease) = run_one_model_call(&world, &worker, in_batch(), 100).await;
    let head = world.store.stream_head(StreamId::Run(lease.run)).await.expect("reads").expect("begun");
    // A fork shares what its parent paid for, and pays for its own calls at its parent's prices.
    let fork = fork_task(&world, lease.run, head);
    world.store.submit(vec![fork.clone()], String::new(), world.now()).await.expect("accepted");
    let of_fork = worker.lease_one().await;
    assert_eq!(of_fork.run, new_run_id(&fork));
    let asks = model_call_events("anthropic", 2, 7);
    world.append(of_fork.run, of_fork.head.seq, of_fork.record.epoch, asks).await.expect("appends");
    worker.end_run(&lease, RunOutcome::Succeeded).await;

    let run = |run| CostQuery { run: Some(run), ..CostQuery::default() };
    let one = list_costs(&world, run(of_fork.run), 1).await;
    assert_eq!(
        (sum_costs(&one).cost_nusd, sum_costs(&one).usage.input_tokens, sum_costs(&one).unpriced),
        (70, 7, 0)
    );
    assert_eq!(one[0].strong, Some(model_ref("anthropic")), "as its parent pinned it");
    let whole = CostQuery { task: Some(first), calls: true, ..CostQuery::default() };
    let whole = list_costs(&world, whole, 1).await;
    assert_eq!((sum_costs(&whole).cost_nusd, whole[0].calls.len()), (1000, 1));
    assert!(one[0].calls.is_empty(), "only where they are asked for");

    for n in 0..4 {
        let (_, lease) = run_one_model_call(&world, &worker, in_batch(), 10 + n).await;
        if n % 2 == 0 {
            worker.end_run(&lease, failed_outcome()).await;
        }
    }
    let later_at = world.now();
    let (_, outside) = run_one_model_call(&world, &worker, spec_for_provider("openai"), 1).await;
    world.submit(in_batch()).await;
    for limit in [1, 2, 3, 100] {
        let batch = CostQuery { batch: Some(BATCH), ..CostQuery::default() };
        let found = list_costs(&world, batch, limit).await;
        assert_eq!(
            (found.len(), sum_costs(&found).cost_nusd),
            (5, 1000 + 460),
            "{limit} a page, in the batch"
        );
        let all = CostQuery { from: Some(first_at), ..CostQuery::default() };
        let found = list_costs(&world, all, limit).await;
        assert_eq!(
            (found.len(), sum_costs(&found).cost_nusd),
            (7, 1000 + 70 + 460 + 10),
            "{limit} a page, ever"
        );
        // By the end time of calls, including those of unfinished tasks.
        let later = CostQuery { from: Some(later_at), ..CostQuery::default() };
        let found = list_costs(&world, later, limit).await;
        assert_eq!(
            found.iter().map(|cost| cost.run).collect::<Vec<_>>(),
            [outside.run],
            "{limit} a page, later"
        );
        let before = CostQuery { from: Some(first_at), until: Some(later_at), ..CostQuery::default() };
        let found = list_costs(&world, before, limit).await;
        assert_eq!((found.len(), sum_costs(&found).answered), (6, 6), "{limit} a page, before");
    }
    for wrong in [
        CostQuery::default(),
        CostQuery { task: Some(first), batch: Some(BATCH), ..CostQuery::default() },
        CostQuery { until: Some(later_at), ..CostQuery::default() },
        CostQuery { task: Some(first), until: Some(later_at), ..CostQuery::default() },
        CostQuery { batch: Some(BATCH), limit: Some(0), ..CostQuery::default() },
        CostQuery { batch: Some(BATCH), after: Some("there".to_owned()), ..CostQuery::default() },
    ] {
        let refused = reports::cost_report(&*world.store, &wrong).await;
        assert!(matches!(refused, Err(ReportError::Query { .. })), "{wrong:?}: {refused:?}");
    }
    let absent = reports::cost_report(&*world.store, &run(docket_schema::ids::RunId(world.next_id()))).await;
    assert!(matches!(absent, Err(ReportError::NotFound(_))), "{absent:?}");
    world.check_consistency().await;
}

pub(super) async fn metrics_cover_tasks_ended_in_a_period_page_by_page(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let worker = world.new_worker();
    let begun_at = world.now();
    let mut ended = Vec::new();
    for n in 0..5 {
        let provider = if n == 1 { "scripted" } else { "anthropic" };
        let (task, lease) = run_one_model_call(
            &world,
            &worker,
            TaskSpec { batch: Some(BATCH), ..spec_for_provider(provider) },
            1,
        )
        .await;
        worker.end_run(&lease, failed_outcome()).await;
        ended.push(task);
        world.advance_clock(1000);
    }
    let until = world.now();
    let (still, _) = run_one_model_call(
        &world,
        &worker,
        TaskSpec { batch: Some(BATCH), ..spec_for_provider("anthropic") },
        1,
    )
    .await;
    let cancelled = world.submit(TaskSpec { batch: Some(BATCH), ..spec_for_provider("anthropic") }).await;
    world.run_command(cancelled, |record| decide::cancel(record, "me", "")).await.expect("cancels");

    let newest: Vec<TaskId> = ended.iter().rev().copied().collect();
    check_oldest_tasks_are_left_out(&world, (begun_at, until), &newest, still).await;
    for limit in [1, 2, 4, 5, 100] {
        let in_time = MetricsQuery { from: Some(begun_at), until: Some(until), ..MetricsQuery::default() };
        let batch = MetricsQuery { batch: Some(BATCH), scripted: true, ..MetricsQuery::default() };
        for (query, expected, left_out) in [
            (in_time.clone(), vec![ended[4], ended[3], ended[2], ended[0]], 1),
            (MetricsQuery { scripted: true, ..in_time }, newest.clone(), 0),
            (batch, [vec![still], newest.clone()].concat(), 0),
        ] {
            let mut query = MetricsQuery { limit: Some(limit), ..query };
            let (mut tasks, mut scripted) = (Vec::new(), 0);
            loop {
                let page = reports::metrics_report(&*world.store, &query).await.expect("a page");
                scripted += page.scripted_left_out;
                tasks.extend(page.tasks);
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => break,
                }
            }
            let found: Vec<TaskId> = tasks.iter().map(|task| task.task).collect();
            assert_eq!((found, scripted), (expected.clone(), left_out), "{limit} a page of {query:?}");
            let report = MetricsReport::from_tasks(tasks, scripted);
            let success = report.all[0];
            assert_eq!((success.metric, success.verdict), (Metric::TaskSuccessRate, TargetVerdict::Missed));
            assert_eq!(
                (success.ratio.of, success.ratio.all),
                (0, expected.len() as u64 - u64::from(expected.contains(&still)))
            );
            let tests = report.all.iter().find(|view| view.metric == Metric::TestPassRate).expect("listed");
            assert_eq!((tests.value, tests.verdict), (None, TargetVerdict::NotMeasured), "none were run");
        }
    }
    let one = MetricsQuery { task: Some(ended[1]), ..MetricsQuery::default() };
    let page = reports::metrics_report(&*world.store, &one).await.expect("a page");
    assert_eq!((page.tasks.len(), page.scripted_left_out), (0, 1), "also where it is named");
    let wrong = MetricsQuery { task: Some(still), batch: Some(BATCH), ..MetricsQuery::default() };
    let refused = reports::metrics_report(&*world.store, &wrong).await;
    assert!(matches!(refused, Err(ReportError::Query { .. })), "{refused:?}");
    world.check_consistency().await;
}

/// A reader that stops after some pages has the newest tasks, and knows from which time on they are
/// complete.
async fn check_oldest_tasks_are_left_out(
    world: &StoreFixture,
    (from, until): (Timestamp, Timestamp),
    newest: &[TaskId],
    still: TaskId,
) {
    let ended_at =
        async |task| world.store.get_task(task).await.expect("reads").expect("is there").0.ended_at;
    let (from, limit) = (Some(from), Some(2));
    let query = MetricsQuery { from, until: Some(until), limit, scripted: true, ..MetricsQuery::default() };
    let page = reports::metrics_report(&*world.store, &query).await.expect("a page");
    let found: Vec<TaskId> = page.tasks.iter().map(|task| task.task).collect();
    assert_eq!(found, newest[..2]);
    assert!(page.next.is_some() && page.from == ended_at(newest[1]).await, "{page:?}");
    let page = reports::metrics_report(&*world.store, &MetricsQuery { limit: Some(100), ..query }).await;
    let page = page.expect("a page");
    assert_eq!((page.tasks.len(), page.next, page.from), (newest.len(), None, None), "nothing is left out");

    // The final cost of running tasks is unknown, so they come first.
    let query = CostQuery { from, limit, calls: true, ..CostQuery::default() };
    let page = reports::cost_report(&*world.store, &query).await.expect("a page");
    let found: Vec<TaskId> = page.runs.iter().map(|run| run.task).collect();
    assert_eq!(found, [still, newest[0]]);
    let since = page.from.expect("said");
    assert_eq!(Some(since), ended_at(newest[0]).await);
    let whole = CostQuery { limit: Some(100), ..query.clone() };
    let whole = reports::cost_report(&*world.store, &whole).await.expect("a page");
    let later = |page: &docket_schema::api::CostPage| {
        page.runs.iter().flat_map(|run| &run.calls).filter(|call| call.at > since).count()
    };
    assert_eq!((later(&whole), whole.from), (later(&page), None), "all calls since then are in it");
    let one = CostQuery { limit: Some(1), ..query };
    let page = reports::cost_report(&*world.store, &one).await.expect("a page");
    assert_eq!((page.runs[0].task, page.from, page.next.is_some()), (still, None, true));
}
