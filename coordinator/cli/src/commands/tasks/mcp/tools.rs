//! The MCP tools: their arguments and implementations.

use crate::output::task_rows;
use std::{fmt::Write as _, path::PathBuf, pin::Pin, sync::Arc};

use docket_schema::{
    api::{DiffQuery, RunTimeline, TaskQuery, TaskStates, TurnView},
    ids::{RunId, TaskId},
    task::{TaskRecord, TaskState},
};
use docket_worker::client::CoordinatorClient;
use rmcp::model::{JsonObject, ToolAnnotations};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::RESULT_CHARS_MAX;
use crate::connect::coordinator::{AccessMode, Coordinator, token_from_env};
use crate::{
    connect::resolve,
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
    },
    tasks::task_args::TaskArgs,
};

/// Default number of turns in `docket_logs`.
const TURNS_DEFAULT: u32 = 5;
/// Maximum number of turns in one response.
const TURNS_MAX: u32 = 50;
/// Result lines shown per call.
const RESULT_LINES: usize = 12;
/// Characters shown per line.
const LINE_CHARS: usize = 300;
/// Maximum number of tasks in `docket_list`.
const TASKS_MAX: u32 = 50;

type ToolFuture = Pin<Box<dyn Future<Output = CliResult<String>> + Send>>;

pub(super) struct McpTool {
    pub(super) name: &'static str,
    description: &'static str,
    pub(super) is_read_only: bool,
    schema: fn() -> JsonObject,
    pub(super) call: fn(Arc<CliContext>, Value) -> ToolFuture,
}

macro_rules! tool {
    ($name:literal, $args:ty, $reads:literal, $function:path, $about:literal) => {
        McpTool {
            name: $name,
            description: $about,
            is_read_only: $reads,
            schema: tool_schema::<$args>,
            call: |cx, args| {
                Box::pin(async move {
                    let args: $args = parse_args(args)?;
                    $function(&cx, args).await
                })
            },
        }
    };
}

/// Every tool, in the order in which they are listed.
pub(super) static TOOLS: &[McpTool] = &[
    tool!(
        "docket_submit",
        SubmitToolArgs,
        false,
        submit_task,
        "Puts a coding task into the backlog; an agent works on it in a workspace of its own, from the repository's commit as it is now. Returns the task's id at once."
    ),
    tool!(
        "docket_status",
        TaskToolArgs,
        true,
        describe_status,
        "How a task stands: its state, what keeps it or what it asks, its runs, what they cost, its last words."
    ),
    tool!(
        "docket_list",
        ListToolArgs,
        true,
        list_tasks,
        "Tasks of the backlog, the newest first, with state, title and what they ask."
    ),
    tool!(
        "docket_logs",
        LogsToolArgs,
        true,
        describe_logs,
        "What the task's last run did, turn by turn: what the model said, which tools it called and what came back."
    ),
    tool!(
        "docket_diff",
        TaskToolArgs,
        true,
        run_diff,
        "What the task's last run has changed since it began, as a unified diff."
    ),
    tool!(
        "docket_answer",
        AnswerToolArgs,
        false,
        answer_task,
        "Answers what a blocked task asks; its run goes on where it stood, with question and answer in its prompt."
    ),
    tool!(
        "docket_tell",
        TellToolArgs,
        false,
        tell_run,
        "Says something to a task's running run; its model hears it before its next turn."
    ),
    tool!(
        "docket_cancel",
        CancelToolArgs,
        false,
        cancel_task,
        "Cancels a task that has not ended. What its run did stays in the log."
    ),
];

impl McpTool {
    /// Converts the tool to its protocol form.
    pub(super) fn to_protocol(&self) -> rmcp::model::Tool {
        let hints = ToolAnnotations::new()
            .read_only(self.is_read_only)
            .destructive(self.name == "docket_cancel")
            .idempotent(self.is_read_only)
            .open_world(false);
        rmcp::model::Tool::new(self.name, self.description, Arc::new((self.schema)())).with_annotations(hints)
    }
}

fn tool_schema<T: JsonSchema>() -> JsonObject {
    let mut schema =
        schemars::generate::SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.remove("$schema");
    schema.remove("title");
    match schema.to_value() {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            JsonObject::new()
        }
    }
}

fn parse_args<T: DeserializeOwned>(args: Value) -> CliResult<T> {
    serde_path_to_error::deserialize(args).map_err(|error| {
        let field = error.path().to_string();
        CliError::new(ExitKind::Usage, format!("the arguments are wrong at `{field}`: {}", error.inner()))
    })
}

/// Connects to the coordinator with the rights of the given token only.
async fn open_coordinator(cx: &CliContext, need: AccessMode) -> CliResult<Coordinator> {
    let access = Coordinator::connect(cx, need).await?;
    if access.is_local() && token_from_env().is_some() {
        access.close().await?;
        let message =
            "DOCKET_TOKEN is set and no coordinator serves here that could hold to it; start `docket up`";
        return Err(CliError::new(ExitKind::Unreachable, message));
    }
    Ok(access)
}

/// Arguments of `docket_submit`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubmitToolArgs {
    /// The task in words: the first line is its title, the rest says what is wanted and how it is recognised as done.
    task: String,
    /// The repository's folder on this machine. Default: the folder that the server runs in.
    repo: Option<PathBuf>,
    /// Branch, tag or commit to start from. Default: HEAD.
    commit: Option<String>,
    /// The model, as PROVIDER:NAME. Default: that of docket.toml.
    model: Option<String>,
    /// The engine: react, plan, review, architect, team, sop.
    engine: Option<String>,
    /// The command that runs the project's tests.
    tests: Option<String>,
    /// The branch that gets the result.
    branch: Option<String>,
    /// The queue. Default: `default`.
    queue: Option<String>,
    /// The higher goes first.
    priority: Option<i16>,
    /// A second task with this key is not added while the first has not ended.
    dedup: Option<String>,
    /// Most that its runs may cost, in dollars.
    max_cost: Option<f64>,
}

#[derive(Debug, clap::Parser)]
struct SubmitCommandLine {
    #[command(flatten)]
    task: TaskArgs,
}

async fn submit_task(cx: &CliContext, args: SubmitToolArgs) -> CliResult<String> {
    let repo = match args.repo {
        Some(repo) => repo,
        None => std::env::current_dir()?,
    };
    let mut words: Vec<std::ffi::OsString> = vec!["submit".into(), "--repo".into(), repo.into()];
    let mut flag = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            // Joined to one argument, so that a value starting with a dash is not parsed as a flag.
            words.push(format!("--{name}={value}").into());
        }
    };
    flag("commit", args.commit);
    flag("model", args.model);
    flag("engine", args.engine);
    flag("tests", args.tests);
    flag("branch", args.branch);
    flag("queue", args.queue);
    flag("priority", args.priority.map(|priority| priority.to_string()));
    flag("dedup", args.dedup);
    flag("max-cost", args.max_cost.map(|dollars| dollars.to_string()));
    words.extend(["--".into(), args.task.into()]);
    let line = <SubmitCommandLine as clap::Parser>::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        CliError::new(ExitKind::Usage, text.lines().next().unwrap_or_default().trim_start_matches("error: "))
    })?;
    let asked = line.task.check_flags(cx)?;
    line.task.check_source(cx).await?;
    let access = open_coordinator(cx, AccessMode::Write).await?;
    let fresh = TaskId(docket_coordinator::clock::new_id());
    let submitted = Box::pin(line.task.submit(cx, &access.client, asked, None, fresh)).await;
    let hint =
        if access.is_local() { "\nNobody works here now: a person has to start `docket up`." } else { "" };
    access.close().await?;
    let id = submitted?;
    let known = if id == fresh { "" } else { " (a task with this key was there already, and has not ended)" };
    Ok(format!("task {id}{known}{hint}"))
}

/// Arguments of tools about one task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskToolArgs {
    /// The task's id, or its last digits.
    task: String,
}

async fn describe_status(cx: &CliContext, args: TaskToolArgs) -> CliResult<String> {
    let access = open_coordinator(cx, AccessMode::Read).await?;
    let told = Box::pin(describe_task(&access.client, &args.task)).await;
    access.close().await?;
    told
}

async fn describe_task(client: &CoordinatorClient, id: &str) -> CliResult<String> {
    let task = resolve::resolve_task(client, id).await?;
    let view = client.get_task(task).await?;
    let record = &view.task;
    let mut out = task_line(record);
    if !record.state.is_ended() {
        let why = client.explain_task(task).await?;
        // Writing to a String cannot fail.
        let _ = write!(out, "\nwhy: {}", why.text);
    }
    if let Some(message) = &record.message {
        let _ = write!(out, "\nit says: {message}");
    }
    if let Some(how) = task_rows::unblock_hint(record) {
        let _ = write!(out, "\nhow it goes on: {how}");
    }
    for run in &view.runs {
        let _ = write!(out, "\nrun {}: {}, turn {}", run.id, run.status, run.turn);
    }
    if let Some(run) = resolve::last_local_run(&view) {
        let timeline = client.get_timeline(run).await?;
        if let Some(last) = timeline.turns.last() {
            let tokens: u64 = timeline.turns.iter().map(|turn| turn.input_tokens + turn.output_tokens).sum();
            let _ =
                write!(out, "\nso far: {tokens} tokens, {}", display::format_money(last.cost_so_far_nusd));
        }
        // A newly leased run has no turn yet.
        let turn = client.get_turn(run, None).await.map(|answer| answer.turn).unwrap_or_default();
        if !turn.text.trim().is_empty() {
            let _ = write!(out, "\nits last words: {}", turn.text.trim());
        }
    }
    Ok(out)
}

fn task_line(task: &TaskRecord) -> String {
    format!("task {} is {}: {}", task.id, task_rows::state_label(task), task.spec.title)
}

/// Arguments of `docket_list`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListToolArgs {
    /// Only tasks in this state: pending, scheduled, available, running, retryable, blocked, completed, cancelled, discarded.
    state: Option<TaskState>,
    /// Only tasks whose title holds this.
    title: Option<String>,
    /// How many, at most 50.
    limit: Option<u32>,
}

async fn list_tasks(cx: &CliContext, args: ListToolArgs) -> CliResult<String> {
    let access = open_coordinator(cx, AccessMode::Read).await?;
    let query = TaskQuery {
        state: TaskStates::from_states(args.state),
        title: args.title.map(|title| format!("*{title}*")),
        limit: Some(args.limit.unwrap_or(TASKS_MAX).clamp(1, TASKS_MAX)),
        ..TaskQuery::default()
    };
    let page = access.client.list_tasks(&query).await;
    access.close().await?;
    let page = page?;
    let mut out = String::new();
    for task in &page.tasks {
        let _ = writeln!(out, "{}", task_line(task));
        if let Some(message) = task.message.as_ref().filter(|_| task.state == TaskState::Blocked) {
            let _ = writeln!(out, "  it says: {}", truncate_line(message));
        }
    }
    Ok(if out.is_empty() { "no such task".to_owned() } else { out })
}

/// Arguments of `docket_logs`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogsToolArgs {
    /// The task's id, or its last digits; or a run's.
    task: String,
    /// How many turns, the newest. Default: 5, at most 50.
    turns: Option<u32>,
    /// The last turn that is told. Default: the newest.
    until: Option<u32>,
}

async fn describe_logs(cx: &CliContext, args: LogsToolArgs) -> CliResult<String> {
    let access = open_coordinator(cx, AccessMode::Read).await?;
    let told = Box::pin(format_logs(&access.client, &args)).await;
    access.close().await?;
    told
}

async fn format_logs(client: &CoordinatorClient, args: &LogsToolArgs) -> CliResult<String> {
    let run = resolve::resolve_run(client, &args.task).await?;
    let timeline = client.get_timeline(run).await?;
    let last = timeline.turns.last().map_or(0, |turn| turn.turn);
    let until = args.until.unwrap_or(last).min(last);
    let count = args.turns.unwrap_or(TURNS_DEFAULT).clamp(1, TURNS_MAX);
    let mut told: Vec<String> = Vec::new();
    let mut room = RESULT_CHARS_MAX / 2;
    for row in timeline.turns.iter().rev().filter(|row| row.turn <= until && row.turn + count > until) {
        let turn = client.get_turn(run, Some(row.turn)).await?.turn;
        let mut text = format!("\n\nturn {} ({})", turn.turn, row.fate);
        write_turn(&mut text, &turn);
        // The newest turns are kept.
        if text.len() > room && !told.is_empty() {
            told.push(format!("\n\n[… turn {} and those before it: ask with `until`]", row.turn));
            break;
        }
        room = room.saturating_sub(text.len());
        told.push(text);
    }
    told.push(run_heading(run, &timeline));
    told.reverse();
    Ok(told.concat())
}

fn run_heading(run: RunId, timeline: &RunTimeline) -> String {
    let turns = timeline.turns.last().map_or(0, |turn| turn.turn);
    let why = if timeline.why.is_empty() { String::new() } else { format!(": {}", timeline.why) };
    format!("run {run} is {} after {turns} turns{why}", timeline.standing)
}

fn write_turn(out: &mut String, turn: &TurnView) {
    for note in &turn.notes {
        let _ = write!(out, "\n  note: {}", truncate_line(note));
    }
    if !turn.text.trim().is_empty() {
        let _ = write!(out, "\n  it said: {}", turn.text.trim());
    }
    for call in &turn.tools {
        let came_to = call.came_to.as_deref().unwrap_or("no result yet");
        let _ =
            write!(out, "\n  it called {} {}: {came_to}", call.name, truncate_line(&call.args.to_string()));
        let lines: Vec<&str> = call.result.lines().collect();
        for line in lines.iter().take(RESULT_LINES) {
            let _ = write!(out, "\n    {}", truncate_line(line));
        }
        if lines.len() > RESULT_LINES {
            let _ = write!(out, "\n    [… {} more lines]", lines.len() - RESULT_LINES);
        }
    }
    for gate in &turn.gates {
        let _ =
            write!(out, "\n  final check {} ({}): {}", gate.name, truncate_line(&gate.command), gate.came_to);
    }
    for change in &turn.changes {
        let _ = write!(out, "\n  {} {}", change.what, change.path);
    }
    if let Some(ended) = &turn.ended {
        let _ = write!(out, "\n  the run {ended}");
    }
}

fn truncate_line(text: &str) -> String {
    let flat = text.replace('\n', " ");
    match flat.char_indices().nth(LINE_CHARS) {
        None => flat,
        Some((end, _)) => format!("{}…", &flat[..end]),
    }
}

async fn run_diff(cx: &CliContext, args: TaskToolArgs) -> CliResult<String> {
    let access = open_coordinator(cx, AccessMode::Read).await?;
    let made = async {
        let run = resolve::resolve_run(&access.client, &args.task).await?;
        Ok::<_, CliError>(access.client.get_diff(run, &DiffQuery::default()).await?)
    };
    let made = Box::pin(made).await;
    access.close().await?;
    let mut out = String::new();
    for change in made?.changes {
        match change.diff {
            Some(diff) => out.push_str(&diff),
            None => drop(writeln!(out, "{} {} (no text)", change.what, change.path)),
        }
    }
    Ok(if out.is_empty() { "it has changed nothing".to_owned() } else { out })
}

/// Arguments of `docket_answer`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerToolArgs {
    /// The task's id, or its last digits.
    task: String,
    /// The answer.
    answer: String,
}

async fn answer_task(cx: &CliContext, args: AnswerToolArgs) -> CliResult<String> {
    let access = open_coordinator(cx, AccessMode::Write).await?;
    let done = async {
        let task = resolve::resolve_task(&access.client, &args.task).await?;
        Ok::<_, CliError>(access.client.answer_task(task, &args.answer).await?)
    };
    let done = done.await;
    access.close().await?;
    done.map(|task| task_line(&task))
}

/// Arguments of `docket_tell`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TellToolArgs {
    /// The task's id, or its last digits; or a run's.
    task: String,
    /// What is said.
    words: String,
}

async fn tell_run(cx: &CliContext, args: TellToolArgs) -> CliResult<String> {
    let access = open_coordinator(cx, AccessMode::Write).await?;
    let done = async {
        let run = resolve::resolve_run(&access.client, &args.task).await?;
        access.client.send_message(run, &args.words).await?;
        Ok::<_, CliError>(run)
    };
    let done = done.await;
    access.close().await?;
    done.map(|run| format!("run {run} hears it before its next turn"))
}

/// Arguments of `docket_cancel`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CancelToolArgs {
    /// The task's id, or its last digits.
    task: String,
    /// Why; it stands in the log.
    reason: Option<String>,
}

async fn cancel_task(cx: &CliContext, args: CancelToolArgs) -> CliResult<String> {
    let access = open_coordinator(cx, AccessMode::Write).await?;
    let done = async {
        let task = resolve::resolve_task(&access.client, &args.task).await?;
        Ok::<_, CliError>(access.client.cancel(task, args.reason.as_deref().unwrap_or_default()).await?)
    };
    let done = done.await;
    access.close().await?;
    done.map(|task| task_line(&task))
}
