//! Worker faults as shown by commands: lines for `workers` and `doctor`, and the error of a `docket run` or
//! `docket eval` whose own worker cannot execute its tasks.

use std::time::Duration;

use docket_schema::{
    api::{FaultScope, WhyKind, WorkerView},
    ids::{BatchId, TaskId},
    task::TaskState,
};
use docket_worker::client::CoordinatorClient;

use crate::output::{
    display,
    error::{CliError, CliResult, ExitKind},
};

/// How often `docket run` checks whether its worker can execute its task. A request costs a few indexed reads.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Describes each fault of each known worker on one line.
pub(crate) fn describe_worker_faults(workers: &[WorkerView]) -> Vec<String> {
    let mut lines = Vec::new();
    for worker in workers.iter().filter(|worker| worker.is_present()) {
        for fault in worker.about.iter().flat_map(|about| &about.faults) {
            let text = format!(
                "worker {} {} has a fault ({}): {}; {}",
                worker.name,
                worker.incarnation.short(),
                fault.kind.as_str(),
                fault.message,
                describe_consequence(&fault.scope)
            );
            lines.push(display::sanitize_line(&text).into_owned());
        }
    }
    lines
}

fn describe_consequence(scope: &FaultScope) -> String {
    let tasks = match scope {
        FaultScope::AnyTask => "it takes no task".to_owned(),
        FaultScope::Provider { provider, base_url } => {
            let at = base_url.as_ref().map_or_else(String::new, |url| format!(" at {url}"));
            format!("it takes no task for models of {provider}{at}")
        }
        FaultScope::Model(model) => format!("it takes no task for the model {model}"),
        FaultScope::Setup(_) => "it takes no task with the same setup commands".to_owned(),
        FaultScope::Task(task) => format!("it does not take task {}", task.short()),
    };
    format!("{tasks} until that is fixed, and retries automatically")
}

/// Returns once the only worker cannot execute the task because of its own fault.
///
/// # Errors
/// Always returns an error: the fault, or the failure to query it.
pub(crate) async fn wait_for_fault(
    client: &CoordinatorClient,
    task: TaskId,
) -> CliResult<std::convert::Infallible> {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let why = match client.explain_task(task).await {
            Ok(why) => why,
            // It may not have been submitted yet, and the process that watches the task reports outages itself.
            Err(_) => continue,
        };
        if why.kind == WhyKind::WorkerFault {
            let id = task.short();
            let message = format!(
                "{}; the task was kept: `docket up` continues it, `docket cancel {id}` cancels it",
                why.text
            );
            return Err(CliError::new(ExitKind::Failed, display::sanitize_line(&message).into_owned()));
        }
    }
}

/// Waits until no task of a batch is running and a worker fault blocks each of the remaining `tasks`; returns
/// the fault.
pub(crate) async fn wait_for_standstill(
    client: &CoordinatorClient,
    batch: BatchId,
    tasks: &[TaskId],
) -> String {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Ok(view) = client.get_batch(batch).await else { continue };
        let is_moving = |state: TaskState| {
            !state.is_ended()
                && !matches!(state, TaskState::Available | TaskState::Blocked | TaskState::Pending)
        };
        if view.states.iter().any(|of| of.count > 0 && is_moving(of.state)) {
            continue;
        }
        if let Some(text) = common_fault(client, tasks).await {
            return display::sanitize_line(&text).into_owned();
        }
    }
}

/// Returns the fault that blocks all of these waiting tasks; `None` if one of them waits for something else.
async fn common_fault(client: &CoordinatorClient, tasks: &[TaskId]) -> Option<String> {
    let mut fault = None;
    for task in tasks {
        let why = client.explain_task(*task).await.ok()?;
        let waits_for_worker = why.state == TaskState::Available;
        if waits_for_worker && why.kind != WhyKind::WorkerFault {
            return None;
        }
        if waits_for_worker {
            fault = Some(why.text);
        }
    }
    fault
}
