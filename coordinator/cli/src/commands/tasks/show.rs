//! `docket show`: prints everything known about a task and each of its runs.

mod artifacts;
mod child_tasks;
mod deliveries;
mod lineage;

use crate::history::lineage::fold_run;
use crate::output::task_rows;
use docket_schema::{
    api::{RunView, TaskView},
    ids::{RunId, TaskId, Timestamp},
    message::ModelRef,
    run::{ModelTerms, OtherModel, RunModels, RunState},
    task::{DeliveryHistory, DeliveryMode, TaskDelivered, TaskRecord, TaskSpec, TaskState},
};
use docket_worker::client::CoordinatorClient;
use serde::Serialize;

use crate::{
    commands::local::policy,
    connect::{
        coordinator::Coordinator,
        resolve::{self, ResolvedId},
    },
    context::CliContext,
    delivery,
    output::{
        display::{self, TableCell, TextStyle, TextTable, format_duration, format_money, sanitize_line},
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Maximum number of lines shown of a question; `--json` has all of it.
const QUESTION_LINES_MAX: usize = 40;

/// Command-line arguments of `docket show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket show 3f9c01ab
  docket show 3f9c01ab --json | jq .cost_usd
  docket show 3f9c01ab --json | jq '.work.artifacts.TestReport'
  docket show 3f9c01ab --json | jq '.lineage[] | {run, fork_turn, status, model}'")]
pub(crate) struct ShowArgs {
    /// Task or run ID
    id: String,
}

/// A run in the output of `--json`; flat and stable.
#[derive(Debug, Serialize)]
pub(crate) struct RunRow {
    id: RunId,
    task: TaskId,
    status: String,
    turn: u32,
    events: u64,
    head_hash: String,
    engine: Option<String>,
    model: Option<String>,
    phase: &'static str,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    /// Percentage of input tokens served from the provider's cache.
    cache_hit_percent: Option<u64>,
    cost_usd: f64,
    priced: bool,
    model_calls: u32,
    tool_calls: u32,
    tool_errors: u32,
    denials: u32,
    /// Fraction of tool calls that policy refused.
    policy_denial_rate: f64,
    files_changed: usize,
    tree: Option<String>,
    parent: Option<RunId>,
    sandbox: Option<String>,
    /// The question of a blocked run.
    question: Option<String>,
    /// Why a run that succeeded is unverified.
    unverified: Option<String>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    lineage: Vec<lineage::LineageRow>,
    /// Artifacts, as engines emit them.
    work: artifacts::ArtifactRows,
}

impl RunRow {
    fn from_run(view: &RunView, state: &RunState) -> Self {
        let pins = state.pins.as_deref();
        let totals = state.totals;
        #[expect(clippy::cast_precision_loss, reason = "dollars for people; the exact sum is in the log")]
        let cost_usd = totals.cost_nusd as f64 / 1e9;
        Self {
            id: view.id,
            task: view.task,
            status: view.status.clone(),
            turn: view.turn,
            events: view.head.seq.0,
            head_hash: view.head.hash.to_string(),
            engine: pins.map(|pins| pins.engine.to_string()),
            model: pins.map(|pins| pins.models.to_string()),
            phase: state.phase.as_str(),
            input_tokens: totals.usage.input_tokens,
            output_tokens: totals.usage.output_tokens,
            cache_read_tokens: totals.usage.cache_read_tokens,
            cache_write_tokens: totals.usage.cache_write_tokens,
            cache_hit_percent: totals.usage.cache_hit_percent(),
            cost_usd,
            priced: pins.is_some_and(|pins| pins.models.has_all_prices()),
            model_calls: totals.model_calls,
            tool_calls: totals.tool_calls,
            tool_errors: totals.tool_errors,
            denials: totals.denials,
            policy_denial_rate: policy::denial_rate(totals.denials, totals.tool_calls),
            files_changed: state.overlay.len(),
            tree: state.tree.map(|tree| tree.to_string()),
            parent: view.parent.map(|parent| parent.run),
            sandbox: pins.map(|pins| pins.sandbox.backend.clone()),
            question: state.blocker.as_ref().map(|asked| asked.question.text_or_size()),
            unverified: state.unverified.as_ref().map(|why| why.reason.clone()),
            started_at: view.started_at,
            ended_at: view.ended_at,
            lineage: Vec::new(),
            work: artifacts::artifact_rows(state),
        }
    }
}

/// Describes a task's models in the same format as a run's.
fn describe_models(spec: &TaskSpec) -> String {
    let other =
        |model: &ModelRef| Box::new(OtherModel { model: model.clone(), terms: ModelTerms::default() });
    let models = RunModels {
        explore: spec.explore_model.as_ref().map(other),
        fallback: spec.fallback_model.as_ref().map(other),
        ..RunModels::single_model(spec.model.clone(), ModelTerms::default())
    };
    models.to_string()
}

pub(crate) async fn run_show(cx: CliContext, args: ShowArgs) -> CliResult {
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    match resolve::resolve_id(&access.client, &args.id).await? {
        ResolvedId::Run(run) => {
            let view = access.client.get_run(run).await?;
            let mut row = RunRow::from_run(&view, &fold_run(&access.client, run).await?);
            let trees = lineage::fetch_trees(&access.client, &[run]).await?;
            row.lineage = lineage::lineage_rows(&trees);
            if cx.is_json() {
                display::print_json(&row);
            } else {
                print_run(&cx, &row);
                artifacts::print_artifacts(&cx, &row.work);
                lineage::print_trees(&cx, &trees, &[run]);
            }
        }
        ResolvedId::Task(task) => {
            let view = access.client.get_task(task).await?;
            let runs: Vec<RunId> = view.runs.iter().map(|run| run.id).collect();
            let trees = lineage::fetch_trees(&access.client, &runs).await?;
            let children = crate::history::children::list_children(&access.client, &runs).await?;
            if cx.is_json() {
                let mut row = serde_json::to_value(task_rows::TaskRow::from_task(&view.task))
                    .fail_as(ExitKind::Failed)?;
                row["waits"] = serde_json::json!(view.waits);
                row["run"] = serde_json::json!(resolve::last_local_run(&view).or(view.task.last_run));
                row["forked_from"] = serde_json::json!(view.task.forked_from.map(|from| from.run));
                row["delegated_by"] = serde_json::json!(view.task.delegated_by.as_ref().map(|by| by.run));
                row["children"] =
                    serde_json::to_value(child_tasks::child_rows(&children)).fail_as(ExitKind::Failed)?;
                row["delivery"] = deliveries::delivery_json(&access.client, &view.task).await?;
                row["lineage"] =
                    serde_json::to_value(lineage::lineage_rows(&trees)).fail_as(ExitKind::Failed)?;
                display::print_json(&row);
            } else {
                let found = delivery::fetch_deliveries(&access.client, view.task.id).await?;
                print_task(&cx, &view, &found);
                child_tasks::print_children(&cx, &children);
                deliveries::print_deliveries(&cx, &view.task, &found);
                print_question(&cx, &access.client, &view.task).await?;
                lineage::print_trees(&cx, &trees, &runs);
            }
        }
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

fn print_field(cx: &CliContext, name: &str, value: &str) {
    if !value.is_empty() {
        // The value wraps at the width of the terminal, aligned below itself.
        let text = cx.screen.wrap_prose(&format!("{:12}{}", "", sanitize_line(value)));
        let text = text.trim_start_matches(' ');
        display::print_line(&format!("{}  {text}", cx.screen.paint(TextStyle::Dim, &format!("{name:>10}"))));
    }
}

/// Describes the state of the task's branch.
fn describe_delivery(task: &TaskRecord, found: &DeliveryHistory) -> String {
    let wanted = task.spec.delivery_mode();
    if wanted == DeliveryMode::Patch {
        return String::new();
    }
    let of_last = |one: &&TaskDelivered| Some(one.run) == task.last_run;
    let last = found.delivered.iter().rfind(of_last);
    let branch = last.map_or_else(|| task.spec.result_branch(task.id), |one| one.branch.clone());
    let is_pushed = last.is_some_and(|one| one.remote.is_some());
    let ended = task.state.is_ended() && task.state != TaskState::Completed;
    let how = match wanted {
        _ if task.last_run.is_some() && found.unchanged_run == task.last_run => "changed nothing: no branch",
        _ if is_pushed => "pushed",
        DeliveryMode::Push if last.is_some() => "created, not pushed yet",
        DeliveryMode::Branch | DeliveryMode::Patch if last.is_some() => "made",
        _ if ended => "not created",
        _ if task.last_run.is_some_and(|run| found.is_accepted(run)) => "settled manually",
        DeliveryMode::Push => "to be created and pushed",
        DeliveryMode::Branch | DeliveryMode::Patch => "to be created",
    };
    format!("{branch}, {how}")
}

/// Formats the counts of the task's leases, failures and crashes.
fn format_counts(task: &TaskRecord) -> String {
    let faults = match task.worker_faults {
        0 => String::new(),
        1 => ", 1 worker fault".to_owned(),
        faults => format!(", {faults} worker faults in a row"),
    };
    let leases = display::format_count_with_plural(task.epoch.0, "lease", "leases");
    let failures = display::format_count_with_plural(task.failures.into(), "failure", "failures");
    let crashes = display::format_count_with_plural(task.crashes.into(), "crash", "crashes");
    format!("{leases}, {failures}, {crashes}{faults}")
}

fn print_task(cx: &CliContext, view: &TaskView, delivered: &DeliveryHistory) {
    let task = &view.task;
    display::print_line(&format!("{} {}", cx.screen.paint(TextStyle::Bold, "task"), task.id));
    print_field(cx, "title", &task.spec.title);
    display::print_line(&format!(
        "{}  {}",
        cx.screen.paint(TextStyle::Dim, "     state"),
        cx.screen.paint(task_rows::state_style(task.state), task_rows::state_label(task))
    ));
    if let Some(wait) = &view.waits {
        let since = format_duration(docket_coordinator::clock::Clock::new().now().ms_since(wait.since));
        print_field(cx, "waits", &format!("{wait}; since {since}"));
    }
    print_field(cx, "message", &display::collapse_whitespace(task.message.as_deref().unwrap_or("")));
    print_field(cx, "unverified", task.unverified.as_deref().filter(|_| task.state.is_ended()).unwrap_or(""));
    print_field(cx, "queue", &format!("{}, priority {}", task.spec.queue, task.spec.priority));
    print_field(cx, "model", &format!("{}, engine {}", describe_models(&task.spec), task.spec.engine));
    print_field(cx, "tests", task.spec.tests.as_deref().unwrap_or(""));
    print_field(cx, "source", task.spec.base.git.as_ref().map_or("", |git| &git.source));
    print_field(cx, "commit", task.spec.base.git.as_ref().map_or("", |git| &git.commit));
    let from = task.forked_from.map(|from| format!("turn {} of run {}", from.turn, from.run));
    print_field(cx, "forked", from.as_deref().unwrap_or(""));
    let by =
        task.delegated_by.as_ref().map(|by| format!("task {}, call {} of run {}", by.task, by.call, by.run));
    print_field(cx, "parent", by.as_deref().unwrap_or(""));
    print_field(cx, "branch", &describe_delivery(task, delivered));
    print_field(cx, "submitted", &task.submitted_at.to_string());
    print_field(cx, "ended", &task.ended_at.map_or_else(String::new, |at| at.to_string()));
    print_field(cx, "counted", &format_counts(task));
    if view.runs.is_empty() {
        return;
    }
    let mut table = TextTable::new(&["RUN", "STATUS", "TURN", "EVENTS", "TOOK"]);
    for run in &view.runs {
        let took = match (run.started_at, run.ended_at) {
            (Some(from), Some(to)) => format_duration(to.ms_since(from)),
            (Some(_) | None, None) | (None, Some(_)) => "-".to_owned(),
        };
        table.add_row(vec![
            TableCell::new(run.id.short()),
            TableCell::new(&run.status),
            TableCell::new(run.turn.to_string()),
            TableCell::new(run.head.seq.to_string()),
            TableCell::new(took),
        ]);
    }
    display::print_line("");
    display::print_line(&table.render(cx.screen));
    let excerpt = display::render_excerpt(&task.spec.text, 20, "  ", cx.screen.columns());
    display::print_line(&format!("\n{}", excerpt.trim_end()));
}

/// Prints the full question of a task that waits for a person; the task's row only has its
/// beginning.
async fn print_question(cx: &CliContext, client: &CoordinatorClient, task: &TaskRecord) -> CliResult<()> {
    let (Some(how), Some(run)) = (task_rows::unblock_hint(task), task.run) else { return Ok(()) };
    let asked = fold_run(client, run).await?.blocker;
    print_question_text(cx, &asked.map(|asked| asked.question.text_or_size()).unwrap_or_default());
    display::print_line(&how);
    Ok(())
}

/// Lines are not truncated: a question that cannot be read cannot be answered.
fn print_question_text(cx: &CliContext, question: &str) {
    display::print_line(&format!("\n{}", cx.screen.paint(TextStyle::Bold, "question")));
    let excerpt = display::render_excerpt(question, QUESTION_LINES_MAX, "  ", usize::MAX);
    display::print_line(excerpt.trim_end());
}

fn format_tokens(row: &RunRow) -> String {
    let asked = row.input_tokens + row.cache_read_tokens + row.cache_write_tokens;
    let hit = row.cache_hit_percent.filter(|_| row.cache_read_tokens + row.cache_write_tokens > 0);
    let hit = hit.map_or_else(String::new, |percent| format!(" ({percent} % cached by the provider)"));
    format!("{asked} in{hit}, {} out", row.output_tokens)
}

fn print_run(cx: &CliContext, row: &RunRow) {
    display::print_line(&format!("{} {}", cx.screen.paint(TextStyle::Bold, "run"), row.id));
    print_field(cx, "task", &row.task.to_string());
    print_field(cx, "status", &row.status);
    print_field(cx, "unverified", row.unverified.as_deref().unwrap_or(""));
    print_field(cx, "parent", &row.parent.map_or_else(String::new, |run| run.to_string()));
    print_field(cx, "turn", &format!("{} ({}), {} events", row.turn, row.phase, row.events));
    print_field(cx, "model", row.model.as_deref().unwrap_or(""));
    print_field(cx, "engine", row.engine.as_deref().unwrap_or(""));
    print_field(cx, "sandbox", row.sandbox.as_deref().unwrap_or(""));
    print_field(cx, "tokens", &format_tokens(row));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was converted from an integer, and is shown with four decimals"
    )]
    let cost = format_money((row.cost_usd * 1e9) as u64);
    print_field(cx, "cost", if row.priced { &cost } else { "unknown: no price for this model" });
    let denied = match row.denials {
        0 => String::new(),
        denials => format!(", {denials} refused by policy"),
    };
    let calls = format!(
        "{} of models, {} of tools ({} failed{denied})",
        row.model_calls, row.tool_calls, row.tool_errors
    );
    print_field(cx, "calls", &calls);
    print_field(cx, "changed", &format!("{} paths", row.files_changed));
    print_field(cx, "tree", row.tree.as_deref().unwrap_or(""));
    print_field(cx, "head", &row.head_hash);
    if let Some(question) = &row.question {
        print_question_text(cx, question);
        display::print_line(&format!("answer with `docket answer {} TEXT`", row.task.short()));
    }
}
