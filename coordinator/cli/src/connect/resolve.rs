//! From what a person types to an id: any part that begins, or ends, just one.

use docket_schema::{
    api::TaskView,
    ids::{RunId, StreamId, TaskId},
};
use docket_worker::client::CoordinatorClient;

use crate::output::error::{CliError, CliResult, ExitKind};

/// What an id named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResolvedId {
    /// A task.
    Task(TaskId),
    /// A run.
    Run(RunId),
}

/// The task or run that `text` names.
pub(crate) async fn resolve_id(client: &CoordinatorClient, text: &str) -> CliResult<ResolvedId> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        let message =
            format!("`{text}` is no id: ids are made of the digits 0-9 and a-f; `docket ps` lists them");
        return Err(CliError::new(ExitKind::NotFound, message));
    }
    let found = client.resolve_id(&digits.to_ascii_lowercase()).await?;
    match (found.tasks.as_slice(), found.runs.as_slice()) {
        ([task], []) => Ok(ResolvedId::Task(*task)),
        ([], [run]) => Ok(ResolvedId::Run(*run)),
        ([], []) if !found.archived.is_empty() => {
            let all: Vec<String> = found.archived.iter().map(short_stream_name).collect();
            let message =
                format!("{} is archived; `docket archive restore {text}` brings it back", all.join(", "));
            Err(CliError::new(ExitKind::Refused, message))
        }
        ([], []) => Err(CliError::new(
            ExitKind::NotFound,
            format!("no task or run has an id with `{text}`; `docket ps` lists them"),
        )),
        (tasks, runs) => {
            let tasks = tasks.iter().map(|id| format!("task {id}"));
            let all: Vec<String> = tasks.chain(runs.iter().map(|id| format!("run {id}"))).collect();
            let message = format!("`{text}` fits several ids, give more digits: {}", all.join(", "));
            Err(CliError::new(ExitKind::NotFound, message))
        }
    }
}

/// The short form of an archived stream's id.
pub(crate) fn short_stream_name(stream: &StreamId) -> String {
    match stream {
        StreamId::Task(id) => format!("task {}", id.short()),
        StreamId::Run(id) => format!("run {}", id.short()),
        StreamId::Queue(_) | StreamId::System(_) => stream.to_string(),
    }
}

/// The archived task or run that `text` names, where none that is here has such an id.
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
            let message = format!("`{text}` fits several archived ids, give more digits: {}", all.join(", "));
            Err(CliError::new(ExitKind::NotFound, message))
        }
    }
}

/// The task that `text` names, itself or by one of its runs.
pub(crate) async fn resolve_task(client: &CoordinatorClient, text: &str) -> CliResult<TaskId> {
    match resolve_id(client, text).await? {
        ResolvedId::Task(task) => Ok(task),
        ResolvedId::Run(run) => Ok(client.get_run(run).await?.task),
    }
}

/// A task's last run of those that are here.
pub(crate) fn last_local_run(view: &TaskView) -> Option<RunId> {
    let is_here = |run: &RunId| view.runs.iter().any(|here| here.id == *run);
    view.task.last_run.filter(is_here).or(view.runs.last().map(|run| run.id))
}

/// The run that `text` names, itself or as the last one of its task. Of a task that was imported that is the
/// last run that came along: its stream names the newer ones as well, but they stand elsewhere.
pub(crate) async fn resolve_run(client: &CoordinatorClient, text: &str) -> CliResult<RunId> {
    match resolve_id(client, text).await? {
        ResolvedId::Run(run) => Ok(run),
        ResolvedId::Task(task) => {
            let view = client.get_task(task).await?;
            last_local_run(&view).or(view.task.last_run).ok_or_else(|| {
                let (task, state) = (task.short(), view.task.state);
                let message = if state.is_ended() {
                    format!("task {task} is {state} and was never run; `docket retry {task}` puts it back")
                } else {
                    format!(
                        "task {task} has not been run yet ({state}); `docket why {task}` says what keeps it"
                    )
                };
                CliError::new(ExitKind::NotFound, message)
            })
        }
    }
}
