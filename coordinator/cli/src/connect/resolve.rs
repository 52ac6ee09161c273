//! From what a person types to an id: any part that begins, or ends, just one.

use docket_schema::{
    ids::{RunId, StreamId, TaskId},
    wire::TaskView,
};
use docket_worker::client::Client;

use crate::output::fail::{Exit, Failure, Outcome};

/// What an id named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// A task.
    Task(TaskId),
    /// A run.
    Run(RunId),
}

/// The task or run that `text` names.
pub(crate) async fn named(client: &Client, text: &str) -> Outcome<Named> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        let message =
            format!("`{text}` is no id: ids are made of the digits 0-9 and a-f; `docket ps` lists them");
        return Err(Failure::new(Exit::NotFound, message));
    }
    let found = client.resolve(&digits.to_ascii_lowercase()).await?;
    match (found.tasks.as_slice(), found.runs.as_slice()) {
        ([task], []) => Ok(Named::Task(*task)),
        ([], [run]) => Ok(Named::Run(*run)),
        ([], []) if !found.archived.is_empty() => {
            let all: Vec<String> = found.archived.iter().map(short).collect();
            let message =
                format!("{} is archived; `docket archive restore {text}` brings it back", all.join(", "));
            Err(Failure::new(Exit::Refused, message))
        }
        ([], []) => Err(Failure::new(
            Exit::NotFound,
            format!("no task or run has an id with `{text}`; `docket ps` lists them"),
        )),
        (tasks, runs) => {
            let tasks = tasks.iter().map(|id| format!("task {id}"));
            let all: Vec<String> = tasks.chain(runs.iter().map(|id| format!("run {id}"))).collect();
            let message = format!("`{text}` fits several ids, give more digits: {}", all.join(", "));
            Err(Failure::new(Exit::NotFound, message))
        }
    }
}

/// The short form of an archived stream's id.
pub(crate) fn short(stream: &StreamId) -> String {
    match stream {
        StreamId::Task(id) => format!("task {}", id.short()),
        StreamId::Run(id) => format!("run {}", id.short()),
        StreamId::Queue(_) | StreamId::System(_) => stream.to_string(),
    }
}

/// The archived task or run that `text` names, where none that is here has such an id.
pub(crate) async fn archived(client: &Client, text: &str) -> Outcome<Option<StreamId>> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let found = client.resolve(&digits.to_ascii_lowercase()).await?.archived;
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => {
            let all: Vec<String> = several.iter().map(ToString::to_string).collect();
            let message = format!("`{text}` fits several archived ids, give more digits: {}", all.join(", "));
            Err(Failure::new(Exit::NotFound, message))
        }
    }
}

/// The task that `text` names, itself or by one of its runs.
pub(crate) async fn task(client: &Client, text: &str) -> Outcome<TaskId> {
    match named(client, text).await? {
        Named::Task(task) => Ok(task),
        Named::Run(run) => Ok(client.run(run).await?.task),
    }
}

/// A task's last run of those that are here.
pub(crate) fn last_here(view: &TaskView) -> Option<RunId> {
    let is_here = |run: &RunId| view.runs.iter().any(|here| here.id == *run);
    view.task.last_run.filter(is_here).or(view.runs.last().map(|run| run.id))
}

/// The run that `text` names, itself or as the last one of its task. Of a task that was imported that is the
/// last run that came along: its stream names the newer ones as well, but they stand elsewhere.
pub(crate) async fn run(client: &Client, text: &str) -> Outcome<RunId> {
    match named(client, text).await? {
        Named::Run(run) => Ok(run),
        Named::Task(task) => {
            let view = client.task(task).await?;
            last_here(&view).or(view.task.last_run).ok_or_else(|| {
                let (task, state) = (task.short(), view.task.state);
                let message = if state.is_ended() {
                    format!("task {task} is {state} and was never run; `docket retry {task}` puts it back")
                } else {
                    format!(
                        "task {task} has not been run yet ({state}); `docket why {task}` says what keeps it"
                    )
                };
                Failure::new(Exit::NotFound, message)
            })
        }
    }
}
