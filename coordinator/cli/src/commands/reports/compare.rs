//! `docket compare`: the same tasks through several models or engines, side by side; or tasks that are there
//! already, so that nothing is paid for twice.

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

/// Tasks of one comparison at most: a page of them is looked at while they are waited for.
const COMPARED_MAX: usize = 1000;
/// Tasks that were not done of which is told why.
const REASONS_MAX: usize = 8;
/// How often they are looked at.
const WAIT_POLL: Duration = Duration::from_millis(250);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each task is submitted once for each variant, and as often as --repeat says: a variant is a --model, with the
models beside it, and an --engine, each with each. They are one batch, start from the same commit, and are tried once. Workers
of the coordinator do them; where none works, the batch waits and `docket compare --of BATCH` shows it
later. Runs that are there already are compared with --of; that asks no model.

DONE counts tasks that ended well. INPUT, CACHED (the part of it that the provider had), OUTPUT and
COST are sums over all runs of the tasks; TURNS and TIME are medians, TIME of what models, waits for them,
tools and checks took: waiting for a worker or a person does not count. A price that is not known is `unknown`, and so is a sum with one in it. --json has all of it.

Exit codes: 0 all of them have ended, well or not; 1 some have not: blocked, or left under way.

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
    /// The tasks, a file each; `-` is standard input. A .jsonl file is a backlog, with an object in each line: `text`,
    /// and as it needs them `title`, `tests`, `requires`, `setup`, `policy`
    #[arg(value_name = "FILE", required_unless_present = "of", conflicts_with = "of")]
    files: Vec<PathBuf>,
    /// Compare what is there already: tasks, or a batch by its id or its name
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    of: Vec<String>,
    /// A model; twice or more
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model, conflicts_with = "of")]
    model: Vec<ModelRef>,
    /// Where the models' API is: once for all, or once for each --model in their order, empty for its provider's
    #[arg(long, value_name = "URL", conflicts_with = "of")]
    base_url: Vec<String>,
    /// A cheap model that looks around first: once for all, or once for each --model in their order, empty for none
    #[arg(long, value_name = "MODEL", value_parser = parse_optional_model, conflicts_with = "of")]
    explore_model: Vec<OptionalModel>,
    /// A model that stands in where one stays overloaded; likewise
    #[arg(long, value_name = "MODEL", value_parser = parse_optional_model, conflicts_with = "of")]
    fallback_model: Vec<OptionalModel>,
    /// The model of one role of the engines, as coder=openai:gpt-4.1-mini, in place of each --model; may be given more than
    /// once, for roles that each --engine has
    #[arg(long, value_name = "NAME=MODEL", value_parser = role_overrides::parse_role_model, conflicts_with = "of")]
    role: Vec<RoleModel>,
    /// An engine; twice or more to compare engines [default: `task.engine` of docket.toml, react]
    #[arg(long, value_name = "ENGINE", conflicts_with = "of")]
    engine: Vec<String>,
    /// So many tries of each task by each variant
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// The repository: this folder, or one that holds it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["empty", "of"])]
    repo: Option<PathBuf>,
    /// No repository: start from an empty folder
    #[arg(long, conflicts_with = "of")]
    empty: bool,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REV", conflicts_with = "of")]
    commit: Option<String>,
    /// The shell line that tests the work; it must pass at the end [default: found by looking]
    #[arg(long, value_name = "CMD", conflicts_with = "of")]
    tests: Option<String>,
    /// A path that must exist at the end; may be given more than once
    #[arg(long, value_name = "PATH", value_parser = parse_workspace_path, conflicts_with = "of")]
    require: Vec<WorkspacePath>,
    /// A shell line that makes a fresh workspace ready; may be given more than once
    #[arg(long, value_name = "CMD", conflicts_with = "of")]
    setup: Vec<String>,
    /// Turns before a run ends as failed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(TURNS_MAX)), conflicts_with = "of")]
    turns: Option<u32>,
    /// How large the tasks are (low, medium, high) [default: judged by their words]
    #[arg(long, value_name = "SIZE", value_parser = parse_complexity, conflicts_with = "of")]
    complexity: Option<TaskComplexity>,
    /// How hard the models think (low, medium, high) [default: their own]
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort, conflicts_with = "of")]
    effort: Option<ReasoningEffort>,
    /// Sampling temperature of the models [default: their own]
    #[arg(long, value_name = "T", value_parser = parse_temperature, conflicts_with = "of")]
    temperature: Option<u32>,
    /// Tokens that a run may use; it ends as failed before the call that would break this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "of")]
    max_tokens: Option<u64>,
    /// Dollars that a run may cost, as 2.50; likewise
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars, conflicts_with = "of")]
    max_cost: Option<u64>,
    /// Time that a run may work, as 90s, 30m or 2h; likewise
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms, conflicts_with = "of")]
    max_time: Option<u64>,
    /// Queue
    #[arg(long, default_value = "default", conflicts_with = "of")]
    queue: QueueName,
    /// Do not wait: say the batch's id and go
    #[arg(long, conflicts_with = "of")]
    no_wait: bool,
}

/// Compares.
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
        let workers = if alone { "; nobody works here now, `docket up` starts workers" } else { "" };
        display::print_note(&format!(
            "{} tasks are in queue {}{workers}; `docket compare --of {batch}` compares them",
            tasks.len(),
            args.queue
        ));
        Ok(if args.no_wait { ExitKind::Ok } else { ExitKind::Failed })
    };
    access.close().await?;
    exit
}

/// The tasks that were named, themselves, by a run, or as a batch.
async fn resolve_compared(
    client: &CoordinatorClient,
    of: &[String],
) -> CliResult<(Option<BatchId>, Vec<TaskId>)> {
    if let [one] = of
        && let batch_lookup::BatchLookup::Known(batch) = batch_lookup::look_up_batch(client, one).await?
    {
        let tasks = batch_tasks(client, batch).await?;
        if !tasks.is_empty() {
            // What was given away is a part of whoever gave it away, and in its figures.
            let own = tasks.iter().filter(|task| task.delegated_by.is_none());
            let own: Vec<TaskId> = own.map(|task| task.id).collect();
            if own.len() > COMPARED_MAX {
                let message = format!(
                    "batch `{one}` has {} tasks, more than the {COMPARED_MAX} that are compared at once; name some of them",
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

/// A batch's tasks, in the order in which they were submitted, those that were given away among them.
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

/// Until every task of the batch has ended or waits for a person.
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
        display::print_note(&format!("{more} more were not done; `docket show ID` says why"));
    }
    let open: Vec<String> = tries
        .iter()
        .filter(|tried| !tried.state.is_ended())
        .map(|tried| format!("{} is {}", tried.task.short(), tried.state))
        .collect();
    if open.is_empty() {
        return Ok(ExitKind::Ok);
    }
    display::print_note(&format!("not all of them have ended: {}", open.join(", ")));
    Ok(ExitKind::Failed)
}

/// What became of a task, by the logs of its runs.
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
    // Its time is in that of the run that waited for it.
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
