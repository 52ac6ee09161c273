//! Resolves what a person types to an id: any unique prefix or suffix.

use docket_schema::{
    api::TaskView,
    ids::{RunId, StreamId, TaskId},
};
use docket_worker::client::CoordinatorClient;

use crate::output::error::{CliError, CliResult, ExitKind};

/// What an id refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResolvedId {
    Task(TaskId),
    Run(RunId),
}

/// Finds the task or run that `text` names.
pub(crate) async fn resolve_id(client: &CoordinatorClient, text: &str) -> CliResult<ResolvedId> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        let message = format!(
            "`{text}` is not a valid id: ids consist of the digits 0-9 and a-f; `docket ps` lists them"
        );
        return Err(CliError::new(ExitKind::NotFound, message));
    }
    let found = client.resolve_id(&digits.to_ascii_lowercase()).await?;
    match (found.tasks.as_slice(), found.runs.as_slice()) {
        ([task], []) => Ok(ResolvedId::Task(*task)),
        ([], [run]) => Ok(ResolvedId::Run(*run)),
        ([], []) if !found.archived.is_empty() => {
            let all: Vec<String> = found.archived.iter().map(short_stream_name).collect();
            let message =
                format!("{} is archived; `docket archive restore {text}` restores it", all.join(", "));
            Err(CliError::new(ExitKind::Refused, message))
        }
        ([], []) => Err(CliError::new(
            ExitKind::NotFound,
            format!("no task or run matches `{text}`; `docket ps` lists them"),
        )),
        (tasks, runs) => {
            let tasks = tasks.iter().map(|id| format!("task {id}"));
            let all: Vec<String> = tasks.chain(runs.iter().map(|id| format!("run {id}"))).collect();
            let message = format!("`{text}` is ambiguous, give more digits: {}", all.join(", "));
            Err(CliError::new(ExitKind::NotFound, message))
        }
    }
}

/// Returns the short form of an archived stream's id.
pub(crate) fn short_stream_name(stream: &StreamId) -> String {
    match stream {
        StreamId::Task(id) => format!("task {}", id.short()),
        StreamId::Run(id) => format!("run {}", id.short()),
        StreamId::Queue(_) | StreamId::System(_) => stream.to_string(),
    }
}

/// Finds the archived task or run that `text` names, if no live one has such an id.
pub(crate) async fn resolve_archived(client: &CoordinatorClient, text: &str) -> CliResult<Option<StreamId>> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let found = client.resolve_id(&digits.to_ascii_lowercase()).await?.archived;
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => {
            let all: Vec<String> = several.iter().map(ToString::to_string).collect();
            let message =
                format!("`{text}` matches several archived ids, give more digits: {}", all.join(", "));
            Err(CliError::new(ExitKind::NotFound, message))
        }
    }
}

/// Finds the task that `text` names, directly or through one of its runs.
pub(crate) async fn resolve_task(client: &CoordinatorClient, text: &str) -> CliResult<TaskId> {
    match resolve_id(client, text).await? {
        ResolvedId::Task(task) => Ok(task),
        ResolvedId::Run(run) => Ok(client.get_run(run).await?.task),
    }
}

/// Returns the task's last run that exists here.
pub(crate) fn last_local_run(view: &TaskView) -> Option<RunId> {
    let is_here = |run: &RunId| view.runs.iter().any(|here| here.id == *run);
    view.task.last_run.filter(is_here).or(view.runs.last().map(|run| run.id))
}

/// Finds the run that `text` names, directly or as the last run of its task. For an imported task this is the
/// last run that was imported with it: its stream names newer runs too, but those are in another installation.
pub(crate) async fn resolve_run(client: &CoordinatorClient, text: &str) -> CliResult<RunId> {
    match resolve_id(client, text).await? {
        ResolvedId::Run(run) => Ok(run),
        ResolvedId::Task(task) => {
            let view = client.get_task(task).await?;
            last_local_run(&view).or(view.task.last_run).ok_or_else(|| {
                let (task, state) = (task.short(), view.task.state);
                let message = if state.is_ended() {
                    format!("task {task} is {state} and never ran; `docket retry {task}` puts it back into the backlog")
                } else {
                    format!(
                        "task {task} has not run yet ({state}); `docket why {task}` shows the reason"
                    )
                };
                CliError::new(ExitKind::NotFound, message)
            })
        }
    }
}
