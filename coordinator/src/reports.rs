//! Cost and quality reports, computed from a store. Its indexes select the tasks; the figures come from the
//! tasks' own streams. Nothing is cached; a page costs as much as reading the streams of its tasks. Pages
//! start with the newest tasks, so a caller that sums only some pages leaves out the oldest tasks and learns
//! from when on the sum is complete.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use docket_schema::{
    api::{
        CostDay, CostDaysPage, CostDaysQuery, CostPage, CostQuery, MetricsPage, MetricsQuery,
        REPORT_TASKS_DEFAULT, REPORT_TASKS_MAX, ReportCursor, RunView,
    },
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq, StreamId, TaskId, Timestamp},
    report::{
        COST_EVENT_KINDS, CostFold, CostSums, ModelCallCost, RunCost, TaskMetrics, TaskMetricsFold,
        WeekMetrics,
    },
    run::{RunEvent, RunModels},
    task::TaskEvent,
};

use crate::store::{ReportScope, Store, StoreError};

/// Events read for a page. Beyond this the page ends with the current task, which bounds the response time.
const PAGE_EVENTS_BUDGET: u64 = 100_000;
/// Longest chain of runs that continue each other's history.
const LINEAGE_RUNS_MAX: usize = 100;
/// A day, in microseconds.
const DAY_US: i64 = 86_400_000_000;

/// Why a report failed.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A field of the query is invalid.
    #[error("{detail}")]
    Query {
        /// The field.
        field: &'static str,
        /// What it must be.
        detail: String,
    },
    /// The task or run does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn query_error(field: &'static str, detail: impl Into<String>) -> ReportError {
    ReportError::Query { field, detail: detail.into() }
}

/// A page of tasks and where the next one begins.
struct ReportTaskPage {
    tasks: Vec<(Option<ReportCursor>, TaskId)>,
    has_more: bool,
}

async fn read_task_page(
    store: &dyn Store,
    of: ReportScope,
    after: Option<&str>,
    limit: Option<u32>,
) -> Result<ReportTaskPage, ReportError> {
    let limit = limit.unwrap_or(REPORT_TASKS_DEFAULT);
    if !(1..=REPORT_TASKS_MAX).contains(&limit) {
        return Err(query_error("limit", format!("`limit` must be between 1 and {REPORT_TASKS_MAX}")));
    }
    let after = after.map(str::parse::<ReportCursor>).transpose();
    let after = after.map_err(|_| query_error("after", "send `next` of the previous page unchanged"))?;
    let found = store.list_report_tasks(of, after, limit).await?;
    let more = found.len() >= limit as usize;
    Ok(ReportTaskPage {
        tasks: found.into_iter().map(|(place, task)| (Some(place), task)).collect(),
        has_more: more,
    })
}

/// Returns the time since which the report is complete if it continues at `place`; see [`CostPage`].
fn complete_since(place: Option<ReportCursor>) -> Option<Timestamp> {
    match place {
        Some(ReportCursor::Ended(at, _)) => Some(at),
        Some(ReportCursor::Unfinished(..) | ReportCursor::Batch(_)) | None => None,
    }
}

fn report_window(from: Option<Timestamp>, until: Option<Timestamp>) -> Option<(Timestamp, Timestamp)> {
    from.map(|from| (from, until.unwrap_or(Timestamp(i64::MAX))))
}

/// Returns a page of the costs of the runs that `query` selects.
pub async fn cost_report(store: &dyn Store, query: &CostQuery) -> Result<CostPage, ReportError> {
    let window = report_window(query.from, query.until);
    let CostQuery { run, task, batch, from, until, calls, .. } = query;
    let said = [run.is_some(), task.is_some(), batch.is_some(), from.is_some()];
    if said.iter().filter(|said| **said).count() != 1 || (until.is_some() && from.is_none()) {
        return Err(query_error(
            "run",
            "give one of `run`, `task`, `batch`, or `from` with an optional `until`",
        ));
    }
    let mut page = CostPage { runs: Vec::new(), next: None, from: None };
    if let Some(run) = *run {
        let view = store.get_run(run).await?.ok_or_else(|| ReportError::NotFound(format!("run {run}")))?;
        let read = run_cost(store, &view, None).await?;
        page.runs.push(strip_calls(read.0, *calls));
        return Ok(page);
    }
    let found = if let Some(task) = *task {
        store.get_task(task).await?.ok_or_else(|| ReportError::NotFound(format!("task {task}")))?;
        ReportTaskPage { tasks: vec![(None, task)], has_more: false }
    } else {
        let of = match (batch, window) {
            (Some(batch), _) => ReportScope::Batch(*batch),
            (None, Some((from, until))) => ReportScope::Active(from, until),
            (None, None) => return Err(query_error("from", "give the start time")),
        };
        read_task_page(store, of, query.after.as_deref(), query.limit).await?
    };
    let (mut read, last) = (0, found.tasks.len());
    for (nth, (place, task)) in (1..).zip(found.tasks) {
        for view in store.list_task_runs(task).await? {
            if window.is_some_and(|(from, until)| is_outside(&view, from, until)) {
                continue;
            }
            let (cost, events) = run_cost(store, &view, window).await?;
            read += events;
            if !cost.rows.is_empty() {
                page.runs.push(strip_calls(cost, *calls));
            }
        }
        if (nth == last && found.has_more) || (nth < last && read > PAGE_EVENTS_BUDGET) {
            page.from = complete_since(place);
            page.next = place.map(|place| place.to_string());
            break;
        }
    }
    Ok(page)
}

/// Returns a page of [`cost_report`], summed by day and model.
pub async fn cost_by_day(store: &dyn Store, query: &CostDaysQuery) -> Result<CostDaysPage, ReportError> {
    let CostDaysQuery { from, until, after, limit } = query.clone();
    let from = Some(from.ok_or_else(|| query_error("from", "give the start time"))?);
    let of = CostQuery { from, until, after, limit, calls: true, ..CostQuery::default() };
    let page = cost_report(store, &of).await?;
    let mut days: BTreeMap<(Timestamp, String), CostDay> = BTreeMap::new();
    let runs = page.runs.iter().map(|run| run.run).collect::<BTreeSet<_>>().len() as u64;
    for call in page.runs.iter().flat_map(|run| &run.calls) {
        let at = Timestamp(call.at.0.div_euclid(DAY_US).saturating_mul(DAY_US));
        let day = days.entry((at, call.model.to_string())).or_insert_with(|| CostDay {
            at,
            model: call.model.clone(),
            sums: CostSums::default(),
        });
        day.sums.add_call(call);
    }
    Ok(CostDaysPage { days: days.into_values().collect(), runs, next: page.next, from: page.from })
}

fn strip_calls(mut cost: RunCost, calls: bool) -> RunCost {
    if !calls {
        cost.calls.clear();
    }
    cost
}

fn is_outside(view: &RunView, from: Timestamp, until: Timestamp) -> bool {
    view.started_at.is_none_or(|at| at >= until) || view.ended_at.is_some_and(|at| at < from)
}

/// Returns the cost of a run's own calls and the number of events read.
async fn run_cost(
    store: &dyn Store,
    view: &RunView,
    window: Option<(Timestamp, Timestamp)>,
) -> Result<(RunCost, u64), ReportError> {
    let mut fold = inherited_cost_fold(store, view).await?;
    if let Some(models) = root_run_models(store, view).await? {
        fold.compare_with(models);
    }
    let walk = FoldWalk::fold_stream(store, StreamId::Run(view.id), Seq(u64::MAX), fold, |fold, event| {
        if COST_EVENT_KINDS.contains(&event.kind.as_str()) {
            fold.apply_event(event.recorded_at, event.turn, decode_run_event(&event)?);
        }
        Ok(())
    });
    let (fold, events) = walk.await?;
    let (mut calls, strong) = fold.finish();
    if let Some((from, until)) = window {
        calls.retain(|call: &ModelCallCost| call.at >= from && call.at < until);
    }
    Ok((RunCost::from_calls((view.id, view.task), strong, calls), events))
}

/// Creates a fold that knows the models a run inherits from the runs whose history it shares.
async fn inherited_cost_fold(store: &dyn Store, view: &RunView) -> Result<CostFold, ReportError> {
    let mut fold = CostFold::default();
    for (run, _) in list_ancestors(store, view).await?.into_iter().rev() {
        if let Some(first) = store.read_events(StreamId::Run(run), Seq(0), 1).await?.first() {
            fold.inherit_models(&decode_run_event(first)?);
        }
    }
    Ok(fold)
}

/// Returns the models of the run that delegated the work in the first place; `None` if it was not delegated
/// or that run is archived.
async fn root_run_models(store: &dyn Store, view: &RunView) -> Result<Option<RunModels>, ReportError> {
    let (mut task, mut top) = (view.task, None);
    for _ in 0..LINEAGE_RUNS_MAX {
        let Some(by) = store.get_task(task).await?.and_then(|(task, _)| task.delegated_by) else { break };
        (task, top) = (by.task, Some(by.run));
    }
    let Some(top) = top else { return Ok(None) };
    let Some(view) = store.get_run(top).await? else { return Ok(None) };
    let mut fold = inherited_cost_fold(store, &view).await?;
    if let Some(first) = store.read_events(StreamId::Run(top), Seq(0), 1).await?.first() {
        fold.inherit_models(&decode_run_event(first)?);
    }
    Ok(fold.into_models())
}

/// Returns a page of the metrics of the tasks that `query` selects.
pub async fn metrics_report(store: &dyn Store, query: &MetricsQuery) -> Result<MetricsPage, ReportError> {
    let MetricsQuery { task, batch, from, until, scripted, after, limit } = query;
    let said = [task.is_some(), batch.is_some(), from.is_some()];
    if said.iter().filter(|said| **said).count() != 1 || (until.is_some() && from.is_none()) {
        return Err(query_error("task", "give one of `task`, `batch`, or `from` with an optional `until`"));
    }
    let found = match (*task, *batch, report_window(*from, *until)) {
        (Some(task), _, _) => {
            store.get_task(task).await?.ok_or_else(|| ReportError::NotFound(format!("task {task}")))?;
            ReportTaskPage { tasks: vec![(None, task)], has_more: false }
        }
        (None, Some(batch), _) => {
            read_task_page(store, ReportScope::Batch(batch), after.as_deref(), *limit).await?
        }
        (None, None, Some((from, until))) => {
            read_task_page(store, ReportScope::Ended(from, until), after.as_deref(), *limit).await?
        }
        (None, None, None) => return Err(query_error("from", "give the start time")),
    };
    let mut page =
        MetricsPage { tasks: Vec::new(), weeks: Vec::new(), scripted_left_out: 0, next: None, from: None };
    let (mut read, last) = (0, found.tasks.len());
    for (nth, (place, task)) in (1..).zip(found.tasks) {
        let (measured, events) = task_metrics(store, task).await?;
        read += events;
        if measured.scripted && !scripted {
            page.scripted_left_out += 1;
        } else {
            page.tasks.push(TaskMetrics::from_measurement(task, &measured));
        }
        if (nth == last && found.has_more) || (nth < last && read > PAGE_EVENTS_BUDGET) {
            page.from = complete_since(place);
            page.next = place.map(|place| place.to_string());
            break;
        }
    }
    page.weeks = WeekMetrics::group_by_week(&page.tasks);
    Ok(page)
}

/// Returns a task's metrics and the number of events read.
async fn task_metrics(
    store: &dyn Store,
    task: TaskId,
) -> Result<(docket_schema::report::TaskMeasurement, u64), ReportError> {
    let walk = FoldWalk::fold_stream(
        store,
        StreamId::Task(task),
        Seq(u64::MAX),
        TaskMetricsFold::default(),
        |fold, event| {
            let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str());
            fold.apply_task_event(
                event.recorded_at,
                &typed.map_err(|error| corrupt_event_error(&event, &error))?,
            );
            Ok(())
        },
    );
    let (mut fold, mut read) = walk.await?;
    for view in store.list_task_runs(task).await? {
        fold.begin_run();
        for (run, until) in list_ancestors(store, &view).await?.into_iter().rev() {
            let walk = FoldWalk::fold_stream(store, StreamId::Run(run), until, fold, |fold, event| {
                fold.apply_shared_event(event.turn, &decode_run_event(&event)?);
                Ok(())
            });
            let (shared, events) = walk.await?;
            (fold, read) = (shared, read + events);
        }
        let walk =
            FoldWalk::fold_stream(store, StreamId::Run(view.id), Seq(u64::MAX), fold, |fold, event| {
                fold.apply_run_event(event.recorded_at, event.turn, &decode_run_event(&event)?);
                Ok(())
            });
        let (own, events) = walk.await?;
        (fold, read) = (own, read + events);
    }
    Ok((fold.finish(), read))
}

/// Lists the runs whose history a run shares, nearest first, each with its last shared seq.
async fn list_ancestors(store: &dyn Store, of: &RunView) -> Result<Vec<(RunId, Seq)>, ReportError> {
    let (mut found, mut next) = (Vec::new(), of.parent);
    while let Some(parent) = next.filter(|_| found.len() < LINEAGE_RUNS_MAX) {
        found.push((parent.run, parent.seq));
        next = store.get_run(parent.run).await?.and_then(|view| view.parent);
    }
    Ok(found)
}

fn decode_run_event(event: &Envelope) -> Result<RunEvent, StoreError> {
    let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str());
    typed.map_err(|error| corrupt_event_error(event, &error))
}

fn corrupt_event_error(event: &Envelope, error: &dyn std::error::Error) -> StoreError {
    StoreError::Corrupt { what: format!("{}, event {}: {error}", event.stream, event.seq) }
}

/// A fold while it walks a stream.
struct FoldWalk<T> {
    fold: T,
    events: u64,
    failed: Option<StoreError>,
}

impl<T: Send + Default + 'static> FoldWalk<T> {
    /// Passes a stream's events up to and including `until` to `fold`; returns the fold and the number of
    /// events.
    async fn fold_stream(
        store: &dyn Store,
        stream: StreamId,
        until: Seq,
        fold: T,
        mut each: impl FnMut(&mut T, Envelope) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(T, u64), StoreError> {
        let walk = Arc::new(Mutex::new(Self { fold, events: 0, failed: None }));
        let (under_way, of) = (Arc::clone(&walk), stream.clone());
        let scan = store.scan_events(
            stream,
            Seq(0),
            Box::new(move |event| {
                if event.seq > until {
                    return ControlFlow::Break(());
                }
                let mut walk = under_way.lock().expect("no holder panics");
                walk.events += 1;
                match each(&mut walk.fold, event.to_envelope(of.clone())) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        walk.failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            }),
        );
        scan.await?;
        let mut walk = walk.lock().expect("no holder panics");
        match walk.failed.take() {
            Some(error) => Err(error),
            None => Ok((std::mem::take(&mut walk.fold), walk.events)),
        }
    }
}
