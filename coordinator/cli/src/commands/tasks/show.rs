//! `docket show`: everything the queue knows of a task, and of each of its runs.

mod artifacts;
mod deliveries;
mod family;
mod lineage;

use crate::history::lineage::fold;
use crate::output::task_rows;
use docket_schema::{
    ids::{RunId, TaskId, Timestamp},
    message::ModelRef,
    run::{ModelTerms, Models, OtherModel, RunState},
    task::{Deliveries, Delivery, TaskDelivered, TaskRecord, TaskSpec, TaskState},
    wire::{RunView, TaskView},
};
use docket_worker::client::Client;
use serde::Serialize;

use crate::{
    commands::local::policy,
    connect::{
        access::Access,
        resolve::{self, Named},
    },
    context::Context,
    delivery,
    output::{
        display::{self, Cell, Style, Table, duration, line, money},
        fail::{Exit, FailWith as _, Outcome},
    },
};

/// Lines of a question that are shown; `--json` has the whole.
const QUESTION_LINES_MAX: usize = 40;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket show 3f9c01ab
  docket show 3f9c01ab --json | jq .cost_usd
  docket show 3f9c01ab --json | jq '.work.artifacts.TestReport'
  docket show 3f9c01ab --json | jq '.lineage[] | {run, fork_turn, status, model}'")]
pub(crate) struct Args {
    /// A task or a run
    id: String,
}

/// A run as `--json` shows it: flat, and stable.
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
    /// Of a hundred tokens asked, how many the provider's cache held.
    cache_hit_percent: Option<u64>,
    cost_usd: f64,
    priced: bool,
    model_calls: u32,
    tool_calls: u32,
    tool_errors: u32,
    denials: u32,
    /// Of all calls of tools, how many policy refused.
    policy_denial_rate: f64,
    files_changed: usize,
    tree: Option<String>,
    parent: Option<RunId>,
    sandbox: Option<String>,
    /// What it asks, while it is blocked.
    question: Option<String>,
    /// Why a run that succeeded is unverified.
    unverified: Option<String>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    lineage: Vec<lineage::Row>,
    /// What it came to, as engines emit it.
    work: artifacts::Rows,
}

impl RunRow {
    fn of(view: &RunView, state: &RunState) -> Self {
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
            priced: pins.is_some_and(|pins| pins.models.are_priced()),
            model_calls: totals.model_calls,
            tool_calls: totals.tool_calls,
            tool_errors: totals.tool_errors,
            denials: totals.denials,
            policy_denial_rate: policy::rate(totals.denials, totals.tool_calls),
            files_changed: state.overlay.len(),
            tree: state.tree.map(|tree| tree.to_string()),
            parent: view.parent.map(|parent| parent.run),
            sandbox: pins.map(|pins| pins.sandbox.backend.clone()),
            question: state.asked.as_ref().map(|asked| asked.question.text_or_size()),
            unverified: state.unverified.as_ref().map(|why| why.reason.clone()),
            started_at: view.started_at,
            ended_at: view.ended_at,
            lineage: Vec::new(),
            work: artifacts::rows(state),
        }
    }
}

/// The models of a task, in the words of a run's.
fn models(spec: &TaskSpec) -> String {
    let other =
        |model: &ModelRef| Box::new(OtherModel { model: model.clone(), terms: ModelTerms::default() });
    let models = Models {
        explore: spec.explore_model.as_ref().map(other),
        fallback: spec.fallback_model.as_ref().map(other),
        ..Models::only(spec.model.clone(), ModelTerms::default())
    };
    models.to_string()
}

/// Shows it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::to_read(&cx, &args.id).await?;
    match resolve::named(&access.client, &args.id).await? {
        Named::Run(run) => {
            let view = access.client.run(run).await?;
            let mut row = RunRow::of(&view, &fold(&access.client, run).await?);
            let trees = lineage::of(&access.client, &[run]).await?;
            row.lineage = lineage::rows(&trees);
            if cx.json() {
                display::say_json(&row);
            } else {
                say_run(&cx, &row);
                artifacts::say(&cx, &row.work);
                lineage::say(&cx, &trees, &[run]);
            }
        }
        Named::Task(task) => {
            let view = access.client.task(task).await?;
            let runs: Vec<RunId> = view.runs.iter().map(|run| run.id).collect();
            let trees = lineage::of(&access.client, &runs).await?;
            let children = crate::history::children::of(&access.client, &runs).await?;
            if cx.json() {
                let mut row = serde_json::to_value(task_rows::Row::of(&view.task)).fail_as(Exit::Failed)?;
                row["waits"] = serde_json::json!(view.waits);
                row["run"] = serde_json::json!(resolve::last_here(&view).or(view.task.last_run));
                row["forked_from"] = serde_json::json!(view.task.forked_from.map(|from| from.run));
                row["delegated_by"] = serde_json::json!(view.task.delegated_by.as_ref().map(|by| by.run));
                row["children"] = serde_json::to_value(family::rows(&children)).fail_as(Exit::Failed)?;
                row["delivery"] = deliveries::row(&access.client, &view.task).await?;
                row["lineage"] = serde_json::to_value(lineage::rows(&trees)).fail_as(Exit::Failed)?;
                display::say_json(&row);
            } else {
                let found = delivery::deliveries(&access.client, view.task.id).await?;
                say_task(&cx, &view, &found);
                family::say(&cx, &children);
                deliveries::say(&cx, &view.task, &found);
                say_question(&cx, &access.client, &view.task).await?;
                lineage::say(&cx, &trees, &runs);
            }
        }
    }
    access.close().await?;
    Ok(Exit::Ok)
}

fn pair(cx: &Context, name: &str, value: &str) {
    if !value.is_empty() {
        // Where a terminal ends it goes on below itself.
        let text = cx.screen.prose(&format!("{:12}{}", "", line(value)));
        let text = text.trim_start_matches(' ');
        display::say(&format!("{}  {text}", cx.screen.paint(Style::Dim, &format!("{name:>10}"))));
    }
}

/// What becomes, or became, of its branch.
fn gives(task: &TaskRecord, found: &Deliveries) -> String {
    let wanted = task.spec.delivery();
    if wanted == Delivery::Patch {
        return String::new();
    }
    let of_last = |one: &&TaskDelivered| Some(one.run) == task.last_run;
    let last = found.delivered.iter().rfind(of_last);
    let branch = last.map_or_else(|| task.spec.branch_of(task.id), |one| one.branch.clone());
    let is_pushed = last.is_some_and(|one| one.remote.is_some());
    let ended = task.state.is_ended() && task.state != TaskState::Completed;
    let how = match wanted {
        _ if task.last_run.is_some() && found.needless == task.last_run => "changed nothing: no branch",
        _ if is_pushed => "pushed",
        Delivery::Push if last.is_some() => "made, to be pushed",
        Delivery::Branch | Delivery::Patch if last.is_some() => "made",
        _ if ended => "not made",
        _ if task.last_run.is_some_and(|run| found.is_accepted(run)) => "settled by hand",
        Delivery::Push => "to be made and pushed",
        Delivery::Branch | Delivery::Patch => "to be made",
    };
    format!("{branch}, {how}")
}

/// How often what happened to the task's leases.
fn counted(task: &TaskRecord) -> String {
    let faults = match task.worker_faults {
        0 => String::new(),
        1 => ", 1 fault of a worker".to_owned(),
        faults => format!(", {faults} faults of workers in a row"),
    };
    let leases = display::counted(task.epoch.0, "lease", "leases");
    let failures = display::counted(task.failures.into(), "failure", "failures");
    let crashes = display::counted(task.crashes.into(), "crash", "crashes");
    format!("{leases}, {failures}, {crashes}{faults}")
}

fn say_task(cx: &Context, view: &TaskView, delivered: &Deliveries) {
    let task = &view.task;
    display::say(&format!("{} {}", cx.screen.paint(Style::Bold, "task"), task.id));
    pair(cx, "title", &task.spec.title);
    display::say(&format!(
        "{}  {}",
        cx.screen.paint(Style::Dim, "     state"),
        cx.screen.paint(task_rows::style_of(task.state), task_rows::word(task))
    ));
    if let Some(wait) = &view.waits {
        let since = duration(docket_coordinator::clock::Clock::new().now().ms_since(wait.since));
        pair(cx, "waits", &format!("{wait}; since {since}"));
    }
    pair(cx, "message", &display::in_one_line(task.message.as_deref().unwrap_or("")));
    pair(cx, "unverified", task.unverified.as_deref().filter(|_| task.state.is_ended()).unwrap_or(""));
    pair(cx, "queue", &format!("{}, priority {}", task.spec.queue, task.spec.priority));
    pair(cx, "model", &format!("{}, engine {}", models(&task.spec), task.spec.engine));
    pair(cx, "tests", task.spec.tests.as_deref().unwrap_or(""));
    pair(cx, "source", task.spec.base.git.as_ref().map_or("", |git| &git.source));
    pair(cx, "commit", task.spec.base.git.as_ref().map_or("", |git| &git.commit));
    let from = task.forked_from.map(|from| format!("turn {} of run {}", from.turn, from.run));
    pair(cx, "forked", from.as_deref().unwrap_or(""));
    let by =
        task.delegated_by.as_ref().map(|by| format!("task {}, call {} of run {}", by.task, by.call, by.run));
    pair(cx, "given by", by.as_deref().unwrap_or(""));
    pair(cx, "branch", &gives(task, delivered));
    pair(cx, "submitted", &task.submitted_at.to_string());
    pair(cx, "ended", &task.ended_at.map_or_else(String::new, |at| at.to_string()));
    pair(cx, "counted", &counted(task));
    if view.runs.is_empty() {
        return;
    }
    let mut table = Table::new(&["RUN", "STATUS", "TURN", "EVENTS", "TOOK"]);
    for run in &view.runs {
        let took = match (run.started_at, run.ended_at) {
            (Some(from), Some(to)) => duration(to.ms_since(from)),
            (Some(_) | None, None) | (None, Some(_)) => "-".to_owned(),
        };
        table.row(vec![
            Cell::new(run.id.short()),
            Cell::new(&run.status),
            Cell::new(run.turn.to_string()),
            Cell::new(run.head.seq.to_string()),
            Cell::new(took),
        ]);
    }
    display::say("");
    display::say(&table.render(cx.screen));
    let excerpt = display::excerpt(&task.spec.text, 20, "  ", cx.screen.columns());
    display::say(&format!("\n{}", excerpt.trim_end()));
}

/// What a task that waits for a person asks: all of it, where its row has the beginning.
async fn say_question(cx: &Context, client: &Client, task: &TaskRecord) -> Outcome<()> {
    let (Some(how), Some(run)) = (task_rows::how(task), task.run) else { return Ok(()) };
    let asked = fold(client, run).await?.asked;
    say_asked(cx, &asked.map(|asked| asked.question.text_or_size()).unwrap_or_default());
    display::say(&how);
    Ok(())
}

/// Its lines are not cut: a question that cannot be read cannot be answered.
fn say_asked(cx: &Context, question: &str) {
    display::say(&format!("\n{}", cx.screen.paint(Style::Bold, "it asks")));
    let excerpt = display::excerpt(question, QUESTION_LINES_MAX, "  ", usize::MAX);
    display::say(excerpt.trim_end());
}

fn tokens(row: &RunRow) -> String {
    let asked = row.input_tokens + row.cache_read_tokens + row.cache_write_tokens;
    let hit = row.cache_hit_percent.filter(|_| row.cache_read_tokens + row.cache_write_tokens > 0);
    let hit = hit.map_or_else(String::new, |percent| format!(" ({percent} % from the provider's cache)"));
    format!("{asked} in{hit}, {} out", row.output_tokens)
}

fn say_run(cx: &Context, row: &RunRow) {
    display::say(&format!("{} {}", cx.screen.paint(Style::Bold, "run"), row.id));
    pair(cx, "task", &row.task.to_string());
    pair(cx, "status", &row.status);
    pair(cx, "unverified", row.unverified.as_deref().unwrap_or(""));
    pair(cx, "parent", &row.parent.map_or_else(String::new, |run| run.to_string()));
    pair(cx, "turn", &format!("{} ({}), {} events", row.turn, row.phase, row.events));
    pair(cx, "model", row.model.as_deref().unwrap_or(""));
    pair(cx, "engine", row.engine.as_deref().unwrap_or(""));
    pair(cx, "sandbox", row.sandbox.as_deref().unwrap_or(""));
    pair(cx, "tokens", &tokens(row));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it was made from such a number, and is shown with four decimals"
    )]
    let cost = money((row.cost_usd * 1e9) as u64);
    pair(cx, "cost", if row.priced { &cost } else { "unknown: no price for this model" });
    let denied = match row.denials {
        0 => String::new(),
        denials => format!(", {denials} of them refused by policy"),
    };
    let calls = format!(
        "{} of models, {} of tools ({} failed{denied})",
        row.model_calls, row.tool_calls, row.tool_errors
    );
    pair(cx, "calls", &calls);
    pair(cx, "changed", &format!("{} paths", row.files_changed));
    pair(cx, "tree", row.tree.as_deref().unwrap_or(""));
    pair(cx, "head", &row.head_hash);
    if let Some(question) = &row.question {
        say_asked(cx, question);
        display::say(&format!("`docket answer {} TEXT` answers it", row.task.short()));
    }
}
