//! What runs cost and how well they went, from a store: which tasks are meant is asked of its indexes, what came of them
//! of their own streams. Nothing is kept; a page costs what the streams of its tasks have. Pages begin with the newest
//! tasks: whoever adds up only some of them leaves out the oldest, and is told since when they have all.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq, StreamId, TaskId, Timestamp},
    report::{COST_KINDS, CallCost, CostFold, CostSums, RunCost, TaskFold, TaskMetrics, WeekMetrics},
    run::{Models, RunEvent},
    task::TaskEvent,
    wire::{
        CostDay, CostDaysPage, CostDaysQuery, CostPage, CostQuery, MetricsPage, MetricsQuery, REPORT_TASKS,
        REPORT_TASKS_MAX, ReportPlace, RunView,
    },
};

use crate::store::{Reported, Store, StoreError};

/// Events that are read for a page, beyond which it ends with the task at hand: nobody waits for ever.
const PAGE_EVENTS: u64 = 100_000;
/// Longest chain of runs that stand on each other's history.
const LINEAGE_RUNS_MAX: usize = 100;
/// A day, in microseconds.
const DAY_US: i64 = 86_400_000_000;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A field of the query is wrong.
    #[error("{detail}")]
    Query {
        /// Which.
        field: &'static str,
        /// What it must be.
        detail: String,
    },
    /// There is no such task or run.
    #[error("there is no {0}")]
    Absent(String),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn wrong(field: &'static str, detail: impl Into<String>) -> ReportError {
    ReportError::Query { field, detail: detail.into() }
}

/// A page of tasks: which, and where the next page begins.
struct Tasks {
    tasks: Vec<(Option<ReportPlace>, TaskId)>,
    more: bool,
}

async fn tasks(
    store: &dyn Store,
    of: Reported,
    after: Option<&str>,
    limit: Option<u32>,
) -> Result<Tasks, ReportError> {
    let limit = limit.unwrap_or(REPORT_TASKS);
    if !(1..=REPORT_TASKS_MAX).contains(&limit) {
        return Err(wrong("limit", format!("`limit` must be within 1 and {REPORT_TASKS_MAX}")));
    }
    let after = after.map(str::parse::<ReportPlace>).transpose();
    let after = after.map_err(|_| wrong("after", "send `next` of the page before as it came"))?;
    let found = store.reported(of, after, limit).await?;
    let more = found.len() >= limit as usize;
    Ok(Tasks { tasks: found.into_iter().map(|(place, task)| (Some(place), task)).collect(), more })
}

/// Since when all is told, where what comes next is behind `place`: as of [`CostPage::from`].
fn told_since(place: Option<ReportPlace>) -> Option<Timestamp> {
    match place {
        Some(ReportPlace::Ended(at, _)) => Some(at),
        Some(ReportPlace::Standing(..) | ReportPlace::Batch(_)) | None => None,
    }
}

fn window(from: Option<Timestamp>, until: Option<Timestamp>) -> Option<(Timestamp, Timestamp)> {
    from.map(|from| (from, until.unwrap_or(Timestamp(i64::MAX))))
}

/// What the runs cost that `query` means.
pub async fn cost(store: &dyn Store, query: &CostQuery) -> Result<CostPage, ReportError> {
    let window = window(query.from, query.until);
    let CostQuery { run, task, batch, from, until, calls, .. } = query;
    let said = [run.is_some(), task.is_some(), batch.is_some(), from.is_some()];
    if said.iter().filter(|said| **said).count() != 1 || (until.is_some() && from.is_none()) {
        return Err(wrong("run", "say one of `run`, `task`, `batch`, and `from` with or without `until`"));
    }
    let mut page = CostPage { runs: Vec::new(), next: None, from: None };
    if let Some(run) = *run {
        let view = store.run(run).await?.ok_or_else(|| ReportError::Absent(format!("run {run}")))?;
        let read = cost_of(store, &view, None).await?;
        page.runs.push(shown(read.0, *calls));
        return Ok(page);
    }
    let found = if let Some(task) = *task {
        store.task(task).await?.ok_or_else(|| ReportError::Absent(format!("task {task}")))?;
        Tasks { tasks: vec![(None, task)], more: false }
    } else {
        let of = match (batch, window) {
            (Some(batch), _) => Reported::Batch(*batch),
            (None, Some((from, until))) => Reported::Active(from, until),
            (None, None) => return Err(wrong("from", "say from when on")),
        };
        tasks(store, of, query.after.as_deref(), query.limit).await?
    };
    let (mut read, last) = (0, found.tasks.len());
    for (nth, (place, task)) in (1..).zip(found.tasks) {
        for view in store.runs_of(task).await? {
            if window.is_some_and(|(from, until)| is_outside(&view, from, until)) {
                continue;
            }
            let (cost, events) = cost_of(store, &view, window).await?;
            read += events;
            if !cost.rows.is_empty() {
                page.runs.push(shown(cost, *calls));
            }
        }
        if (nth == last && found.more) || (nth < last && read > PAGE_EVENTS) {
            page.from = told_since(place);
            page.next = place.map(|place| place.to_string());
            break;
        }
    }
    Ok(page)
}

/// What model calls cost by day and model: a page of [`cost`], added up.
pub async fn cost_days(store: &dyn Store, query: &CostDaysQuery) -> Result<CostDaysPage, ReportError> {
    let CostDaysQuery { from, until, after, limit } = query.clone();
    let from = Some(from.ok_or_else(|| wrong("from", "say from when on"))?);
    let of = CostQuery { from, until, after, limit, calls: true, ..CostQuery::default() };
    let page = cost(store, &of).await?;
    let mut days: BTreeMap<(Timestamp, String), CostDay> = BTreeMap::new();
    let runs = page.runs.iter().map(|run| run.run).collect::<BTreeSet<_>>().len() as u64;
    for call in page.runs.iter().flat_map(|run| &run.calls) {
        let at = Timestamp(call.at.0.div_euclid(DAY_US).saturating_mul(DAY_US));
        let day = days.entry((at, call.model.to_string())).or_insert_with(|| CostDay {
            at,
            model: call.model.clone(),
            sums: CostSums::default(),
        });
        day.sums.add(call);
    }
    Ok(CostDaysPage { days: days.into_values().collect(), runs, next: page.next, from: page.from })
}

fn shown(mut cost: RunCost, calls: bool) -> RunCost {
    if !calls {
        cost.calls.clear();
    }
    cost
}

fn is_outside(view: &RunView, from: Timestamp, until: Timestamp) -> bool {
    view.started_at.is_none_or(|at| at >= until) || view.ended_at.is_some_and(|at| at < from)
}

/// A run's own calls, and how many events that took.
async fn cost_of(
    store: &dyn Store,
    view: &RunView,
    window: Option<(Timestamp, Timestamp)>,
) -> Result<(RunCost, u64), ReportError> {
    let mut fold = inherited(store, view).await?;
    if let Some(models) = models_at_the_top(store, view).await? {
        fold.compare_with(models);
    }
    let walk = Walk::over(store, StreamId::Run(view.id), Seq(u64::MAX), fold, |fold, event| {
        if COST_KINDS.contains(&event.kind.as_str()) {
            fold.take(event.recorded_at, event.turn, typed(&event)?);
        }
        Ok(())
    });
    let (fold, events) = walk.await?;
    let (mut calls, strong) = fold.finish();
    if let Some((from, until)) = window {
        calls.retain(|call: &CallCost| call.at >= from && call.at < until);
    }
    Ok((RunCost::of((view.id, view.task), strong, calls), events))
}

/// A fold that knows of the models that a run has from those whose history it shares.
async fn inherited(store: &dyn Store, view: &RunView) -> Result<CostFold, ReportError> {
    let mut fold = CostFold::default();
    for (run, _) in ancestors(store, view).await?.into_iter().rev() {
        if let Some(first) = store.read(StreamId::Run(run), Seq(0), 1).await?.first() {
            fold.inherit(&typed(first)?);
        }
    }
    Ok(fold)
}

/// The models of the run from which a piece of work came at last; none where nobody gave it away, or that run is archived.
async fn models_at_the_top(store: &dyn Store, view: &RunView) -> Result<Option<Models>, ReportError> {
    let (mut task, mut top) = (view.task, None);
    for _ in 0..LINEAGE_RUNS_MAX {
        let Some(by) = store.task(task).await?.and_then(|(task, _)| task.delegated_by) else { break };
        (task, top) = (by.task, Some(by.run));
    }
    let Some(top) = top else { return Ok(None) };
    let Some(view) = store.run(top).await? else { return Ok(None) };
    let mut fold = inherited(store, &view).await?;
    if let Some(first) = store.read(StreamId::Run(top), Seq(0), 1).await?.first() {
        fold.inherit(&typed(first)?);
    }
    Ok(fold.into_models())
}

/// How well the tasks went that `query` means.
pub async fn metrics(store: &dyn Store, query: &MetricsQuery) -> Result<MetricsPage, ReportError> {
    let MetricsQuery { task, batch, from, until, scripted, after, limit } = query;
    let said = [task.is_some(), batch.is_some(), from.is_some()];
    if said.iter().filter(|said| **said).count() != 1 || (until.is_some() && from.is_none()) {
        return Err(wrong("task", "say one of `task`, `batch`, and `from` with or without `until`"));
    }
    let found = match (*task, *batch, window(*from, *until)) {
        (Some(task), _, _) => {
            store.task(task).await?.ok_or_else(|| ReportError::Absent(format!("task {task}")))?;
            Tasks { tasks: vec![(None, task)], more: false }
        }
        (None, Some(batch), _) => tasks(store, Reported::Batch(batch), after.as_deref(), *limit).await?,
        (None, None, Some((from, until))) => {
            tasks(store, Reported::Ended(from, until), after.as_deref(), *limit).await?
        }
        (None, None, None) => return Err(wrong("from", "say from when on")),
    };
    let mut page =
        MetricsPage { tasks: Vec::new(), weeks: Vec::new(), scripted_left_out: 0, next: None, from: None };
    let (mut read, last) = (0, found.tasks.len());
    for (nth, (place, task)) in (1..).zip(found.tasks) {
        let (measured, events) = measured(store, task).await?;
        read += events;
        if measured.scripted && !scripted {
            page.scripted_left_out += 1;
        } else {
            page.tasks.push(TaskMetrics::of(task, &measured));
        }
        if (nth == last && found.more) || (nth < last && read > PAGE_EVENTS) {
            page.from = told_since(place);
            page.next = place.map(|place| place.to_string());
            break;
        }
    }
    page.weeks = WeekMetrics::of(&page.tasks);
    Ok(page)
}

/// A task's metrics, and how many events that took.
async fn measured(
    store: &dyn Store,
    task: TaskId,
) -> Result<(docket_schema::report::Measured, u64), ReportError> {
    let walk = Walk::over(store, StreamId::Task(task), Seq(u64::MAX), TaskFold::default(), |fold, event| {
        let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str());
        fold.task_event(event.recorded_at, &typed.map_err(|error| unreadable(&event, &error))?);
        Ok(())
    });
    let (mut fold, mut read) = walk.await?;
    for view in store.runs_of(task).await? {
        fold.begin_run();
        for (run, until) in ancestors(store, &view).await?.into_iter().rev() {
            let walk = Walk::over(store, StreamId::Run(run), until, fold, |fold, event| {
                fold.share(event.turn, &typed(&event)?);
                Ok(())
            });
            let (shared, events) = walk.await?;
            (fold, read) = (shared, read + events);
        }
        let walk = Walk::over(store, StreamId::Run(view.id), Seq(u64::MAX), fold, |fold, event| {
            fold.take(event.recorded_at, event.turn, &typed(&event)?);
            Ok(())
        });
        let (own, events) = walk.await?;
        (fold, read) = (own, read + events);
    }
    Ok((fold.finish(), read))
}

/// The runs whose history a run shares, nearest first, each up to where.
async fn ancestors(store: &dyn Store, of: &RunView) -> Result<Vec<(RunId, Seq)>, ReportError> {
    let (mut found, mut next) = (Vec::new(), of.parent);
    while let Some(parent) = next.filter(|_| found.len() < LINEAGE_RUNS_MAX) {
        found.push((parent.run, parent.seq));
        next = store.run(parent.run).await?.and_then(|view| view.parent);
    }
    Ok(found)
}

fn typed(event: &Envelope) -> Result<RunEvent, StoreError> {
    let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str());
    typed.map_err(|error| unreadable(event, &error))
}

fn unreadable(event: &Envelope, error: &dyn std::error::Error) -> StoreError {
    StoreError::Corrupt { what: format!("{}, event {}: {error}", event.stream, event.seq) }
}

/// A fold on its way over a stream.
struct Walk<T> {
    fold: T,
    events: u64,
    failed: Option<StoreError>,
}

impl<T: Send + Default + 'static> Walk<T> {
    /// Shows `fold` a stream's events up to and with `until`; answers it, and how many there were.
    async fn over(
        store: &dyn Store,
        stream: StreamId,
        until: Seq,
        fold: T,
        mut each: impl FnMut(&mut T, Envelope) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(T, u64), StoreError> {
        let walk = Arc::new(Mutex::new(Self { fold, events: 0, failed: None }));
        let (under_way, of) = (Arc::clone(&walk), stream.clone());
        let scan = store.scan(
            stream,
            Seq(0),
            Box::new(move |event| {
                if event.seq > until {
                    return ControlFlow::Break(());
                }
                let mut walk = under_way.lock().expect("nobody panics while holding it");
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
        let mut walk = walk.lock().expect("nobody panics while holding it");
        match walk.failed.take() {
            Some(error) => Err(error),
            None => Ok((std::mem::take(&mut walk.fold), walk.events)),
        }
    }
}
