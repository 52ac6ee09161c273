//! `docket compare`: compares models or engines on the same tasks, or compares existing tasks
//! without running anything.

mod figures;
mod plan;
mod render;

use crate::connect::batch_lookup;
use crate::history::lineage;
use std::{path::PathBuf, time::Duration};

use docket_schema::{
    api::{SubmitRequest, TaskQuery},
    content::WorkspacePath,
    ids::{BatchId, QueueName, RunId, TaskId},
    message::ModelRef,
    run::{ReasoningEffort, TaskComplexity},
    task::{TURNS_MAX, TaskRecord, TaskState},
};
use docket_worker::client::{CoordinatorClient, HistoryScope};

use self::{
    figures::{ComparedTask, ComparedVariant, TaskFigures, is_settled},
    plan::{OptionalModel, parse_optional_model},
};
use crate::{
    config::values::{
        parse_complexity, parse_dollars, parse_duration_ms, parse_effort, parse_model, parse_temperature,
        parse_workspace_path,
    },
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    history::children,
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
        signals::StopSignals,
    },
    progress::ProgressDisplay,
    tasks::{
        role_overrides::{self, RoleModel},
        task_checks::note_unserved,
    },
};

/// Maximum number of tasks per comparison; the wait polls one page of them.
const COMPARED_MAX: usize = 1000;
/// Maximum number of incomplete tasks whose reason is printed.
const REASONS_MAX: usize = 8;
/// Poll interval while waiting for the tasks.
const WAIT_POLL: Duration = Duration::from_millis(250);

/// Command-line arguments of `docket compare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Submits each task once per variant, and --repeat times. A variant is a --model (with its explore
and fallback models) combined with an --engine; all combinations are tried. The tasks form one
batch, start from the same commit, and get one attempt each. The coordinator's workers run them;
without workers the batch waits, and `docket compare --of BATCH` shows it later. --of compares
existing runs and calls no model.

DONE counts tasks that completed. INPUT, CACHED (the part of INPUT served from the provider's
cache), OUTPUT and COST are sums over all runs of the tasks. TURNS and TIME are medians; TIME
covers model calls, waits for them, tools and checks, but not waiting for a worker or a person. A
cost is `unknown` if any price in it is unknown. --json has everything.

Exit codes: 0 all tasks have ended, completed or not; 1 some have not: blocked, or still in
progress.

Examples:
  docket compare task1.md task2.md --repo . --model anthropic:claude-opus-5-5 --model openai:gpt-5.5
  docket compare task.md --repo . --tests \"pytest -q\" --model openai:qwen2.5-coder:7b \\
      --base-url http://localhost:11434/v1 --model openai:gpt-5.5 --base-url \"\" --repeat 3
  docket compare backlog.jsonl --repo . --model anthropic:claude-opus-5-5 --explore-model \"\" \\
      --model anthropic:claude-opus-5-5 --explore-model anthropic:claude-haiku-5-5 --max-cost 2
  docket compare --of 3f9c01ab,77aa0e12
  docket compare --of 0198f3c2-77aa-7e12-9c01-ab3f9c01ab12 --json | jq '.variants[] | {model, cost_usd}'"
)]
pub(crate) struct CompareArgs {
    /// Task files, one task each; `-` reads standard input. A .jsonl file is a backlog with an object
    /// per line: `text`, and optionally `title`, `tests`, `requires`, `setup` and `policy`
    #[arg(value_name = "FILE", required_unless_present = "of", conflicts_with = "of")]
    files: Vec<PathBuf>,
    /// Compare existing tasks, or a batch by name or ID
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    of: Vec<String>,
    /// Model to compare; repeatable
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model, conflicts_with = "of")]
    model: Vec<ModelRef>,
    /// Base URL of the models' API: once for all, or once for each --model in order; empty for the
    /// provider's default
    #[arg(long, value_name = "URL", conflicts_with = "of")]
    base_url: Vec<String>,
    /// Cheaper model that explores first: once for all, or once for each --model in order; empty for
    /// none
    #[arg(long, value_name = "MODEL", value_parser = parse_optional_model, conflicts_with = "of")]
    explore_model: Vec<OptionalModel>,
    /// Fallback model to use while the main model stays overloaded; given like --explore-model
    #[arg(long, value_name = "MODEL", value_parser = parse_optional_model, conflicts_with = "of")]
    fallback_model: Vec<OptionalModel>,
    /// Model for one engine role, e.g. coder=openai:gpt-4.1-mini, in place of each --model; repeatable.
    /// Every --engine must have the role
    #[arg(long, value_name = "NAME=MODEL", value_parser = role_overrides::parse_role_model, conflicts_with = "of")]
    role: Vec<RoleModel>,
    /// Engine to compare; repeatable [default: `task.engine` of docket.toml, react]
    #[arg(long, value_name = "ENGINE", conflicts_with = "of")]
    engine: Vec<String>,
    /// Number of tries of each task per variant
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// Repository, or any folder inside one
    #[arg(long, value_name = "DIR", conflicts_with_all = ["empty", "of"])]
    repo: Option<PathBuf>,
    /// Start from an empty folder, without a repository
    #[arg(long, conflicts_with = "of")]
    empty: bool,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REV", conflicts_with = "of")]
    commit: Option<String>,
    /// Shell command that tests the result; it must pass at the end [default: found by looking]
    #[arg(long, value_name = "CMD", conflicts_with = "of")]
    tests: Option<String>,
    /// Path that must exist when the run finishes; repeatable
    #[arg(long, value_name = "PATH", value_parser = parse_workspace_path, conflicts_with = "of")]
    require: Vec<WorkspacePath>,
    /// Shell command that prepares a fresh workspace; repeatable
    #[arg(long, value_name = "CMD", conflicts_with = "of")]
    setup: Vec<String>,
    /// Maximum number of turns; a run that reaches it fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(TURNS_MAX)), conflicts_with = "of")]
    turns: Option<u32>,
    /// Task complexity: low, medium or high [default: estimated from the text]
    #[arg(long, value_name = "SIZE", value_parser = parse_complexity, conflicts_with = "of")]
    complexity: Option<TaskComplexity>,
    /// Reasoning effort: low, medium or high [default: the model's own]
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort, conflicts_with = "of")]
    effort: Option<ReasoningEffort>,
    /// Sampling temperature [default: the model's own]
    #[arg(long, value_name = "T", value_parser = parse_temperature, conflicts_with = "of")]
    temperature: Option<u32>,
    /// Token limit per run; the run fails before the call that would exceed it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "of")]
    max_tokens: Option<u64>,
    /// Cost limit per run in dollars, e.g. 2.50; enforced the same way
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars, conflicts_with = "of")]
    max_cost: Option<u64>,
    /// Working-time limit per run, e.g. 90s, 30m or 2h; enforced the same way
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms, conflicts_with = "of")]
    max_time: Option<u64>,
    /// Queue to submit to
    #[arg(long, default_value = "default", conflicts_with = "of")]
    queue: QueueName,
    /// Print the batch ID and exit instead of waiting
    #[arg(long, conflicts_with = "of")]
    no_wait: bool,
}

pub(crate) async fn run_compare(cx: CliContext, args: CompareArgs) -> CliResult {
    if !args.of.is_empty() {
        let access = Coordinator::connect(&cx, AccessMode::Read).await?;
        let (batch, tasks) = resolve_compared(&access.client, &args.of).await?;
        let exit = report_comparison(&cx, &access.client, batch, &tasks).await;
        access.close().await?;
        return exit;
    }
    let variants = args.variants(&cx)?;
    let stop = StopSignals::listen()?;
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let specs = args.build_specs(&cx, &access.client, &variants).await?;
    let batch = specs[0].batch.expect("every one of them has the batch's id");
    let ids = specs.iter().map(|_| TaskId(docket_coordinator::clock::new_id())).collect();
    let answer = access.client.submit(&SubmitRequest { tasks: specs, ids: Some(ids) }).await?;
    let tasks: Vec<TaskId> = answer.tasks.iter().map(|task| task.id).collect();
    if let Some(first) = tasks.first() {
        note_unserved(&access.client, *first).await;
    }
    let alone = access.is_local();
    let waited = if args.no_wait || alone {
        false
    } else {
        tokio::select! {
            waited = wait_until_settled(&cx, &access.client, batch) => waited.map(|()| true)?,
            () = stop.drain.cancelled() => false,
        }
    };
    let exit = if waited {
        report_comparison(&cx, &access.client, Some(batch), &tasks).await
    } else {
        if cx.is_json() {
            display::print_json(&serde_json::json!({ "batch": batch, "tasks": tasks }));
        } else {
            display::print_line(&batch.to_string());
        }
        let workers = if alone { "; no workers are running, start them with `docket up`" } else { "" };
        display::print_note(&format!(
            "submitted {} tasks to queue {}{workers}; compare them with `docket compare --of {batch}`",
            tasks.len(),
            args.queue
        ));
        Ok(if args.no_wait { ExitKind::Ok } else { ExitKind::Failed })
    };
    access.close().await?;
    exit
}

/// Returns the named tasks, given by task, run or batch.
async fn resolve_compared(
    client: &CoordinatorClient,
    of: &[String],
) -> CliResult<(Option<BatchId>, Vec<TaskId>)> {
    if let [one] = of
        && let batch_lookup::BatchLookup::Known(batch) = batch_lookup::look_up_batch(client, one).await?
    {
        let tasks = batch_tasks(client, batch).await?;
        if !tasks.is_empty() {
            // Delegated tasks are included in the figures of the task that delegated them.
            let own = tasks.iter().filter(|task| task.delegated_by.is_none());
            let own: Vec<TaskId> = own.map(|task| task.id).collect();
            if own.len() > COMPARED_MAX {
                let message = format!(
                    "batch `{one}` has {} tasks, more than the limit of {COMPARED_MAX}; name some of them instead",
                    own.len()
                );
                return Err(CliError::new(ExitKind::Usage, message));
            }
            return Ok((Some(batch), own));
        }
    }
    let mut tasks = Vec::new();
    for text in of {
        let task = resolve::resolve_task(client, text).await?;
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    Ok((None, tasks))
}

/// Returns a batch's tasks in submission order, including delegated ones.
async fn batch_tasks(client: &CoordinatorClient, batch: BatchId) -> CliResult<Vec<TaskRecord>> {
    let limit = u32::try_from(COMPARED_MAX).ok();
    let mut query = TaskQuery { batch: Some(batch), limit, ..TaskQuery::default() };
    let mut tasks = Vec::new();
    loop {
        let page = client.list_tasks(&query).await?;
        tasks.extend(page.tasks);
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    tasks.reverse();
    Ok(tasks)
}

/// Waits until every task of the batch has ended or waits for a person.
async fn wait_until_settled(cx: &CliContext, client: &CoordinatorClient, batch: BatchId) -> CliResult<()> {
    let progress = ProgressDisplay::bar(cx, 0, "tasks");
    loop {
        let tasks = batch_tasks(client, batch).await?;
        let settled = tasks.iter().filter(|task| is_settled(task)).count();
        progress.set_total(tasks.len() as u64);
        progress.set_position(settled as u64);
        let running = tasks.iter().filter(|task| task.state == TaskState::Running).count();
        progress.set_message(format!("{running} running"));
        if settled == tasks.len() {
            return Ok(());
        }
        tokio::time::sleep(WAIT_POLL).await;
    }
}

async fn report_comparison(
    cx: &CliContext,
    client: &CoordinatorClient,
    batch: Option<BatchId>,
    tasks: &[TaskId],
) -> CliResult {
    let mut tries = Vec::with_capacity(tasks.len());
    let progress = ProgressDisplay::bar(cx, tasks.len() as u64, "tasks");
    for task in tasks {
        tries.push(measure_task(client, *task).await?);
        progress.advance(1);
    }
    drop(progress);
    if cx.is_json() {
        display::print_json(&render::to_json(batch.map(|batch| batch.to_string()), &tries));
    } else {
        render::print_comparison(cx, &tries);
        if let Some(batch) = batch {
            display::print_note(&format!("batch {batch}"));
        }
    }
    let failed = || tries.iter().filter(|tried| tried.state != TaskState::Completed);
    for tried in failed().take(REASONS_MAX) {
        if let Some(message) = &tried.message {
            let text = format!("{} ({}): {message}", tried.task.short(), tried.variant.model);
            display::print_note(&display::sanitize_line(&text));
        }
    }
    if let Some(more) = failed().count().checked_sub(REASONS_MAX).filter(|more| *more > 0) {
        display::print_note(&format!("{more} more were not completed; see `docket show ID` for the reason"));
    }
    let open: Vec<String> = tries
        .iter()
        .filter(|tried| !tried.state.is_ended())
        .map(|tried| format!("{} is {}", tried.task.short(), tried.state))
        .collect();
    if open.is_empty() {
        return Ok(ExitKind::Ok);
    }
    display::print_note(&format!("not all tasks have ended: {}", open.join(", ")));
    Ok(ExitKind::Failed)
}

/// Measures a task from the logs of its runs.
async fn measure_task(client: &CoordinatorClient, task: TaskId) -> CliResult<ComparedTask> {
    let view = client.get_task(task).await?;
    let mut spent = TaskFigures::default();
    let spec = &view.task.spec;
    let mut variant = ComparedVariant::from_spec(spec);
    for run in &view.runs {
        let state = lineage::fold_run(client, run.id).await?;
        let Some(pins) = state.pins.as_deref() else { continue };
        variant = ComparedVariant::from_run(pins);
        let own = client.all_events(run.id, HistoryScope::Own).await?;
        spent.add_run(&own, &pins.models);
        if run.ended_at.is_some() {
            let worked = state.model_attempts.spending(&state.totals).worked_ms;
            spent.worked_ms = Some(spent.worked_ms.unwrap_or(0).saturating_add(worked));
        }
    }
    spent.set_wall_time(&view);
    // Delegated runs count no time of their own: the delegating run waited for them.
    let runs: Vec<RunId> = view.runs.iter().map(|run| run.id).collect();
    for child in children::list_descendants(client, &runs).await? {
        for run in &child.view.runs {
            let state = lineage::fold_run(client, run.id).await?;
            let Some(pins) = state.pins.as_deref() else { continue };
            spent.add_run(&client.all_events(run.id, HistoryScope::Own).await?, &pins.models);
        }
    }
    Ok(ComparedTask {
        is_settled: is_settled(&view.task),
        task,
        title_and_text: (spec.title.clone(), spec.text.clone()),
        variant,
        state: view.task.state,
        message: view.task.message.clone(),
        spent,
    })
}
