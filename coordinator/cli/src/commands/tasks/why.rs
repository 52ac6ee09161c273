//! `docket why`: explains why a task is not running.

use docket_schema::api::{WhyKind, WhyView};

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    output::{
        display,
        error::{CliResult, ExitKind},
    },
};

/// Command-line arguments of `docket why`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Prints the reason and a remedy: a paused or full queue, a concurrency key held by another task,
tasks it waits for, no worker, or a worker without room. With --json the reason also has a keyword
(`kind`).

Examples:
  docket why 3f9c01ab
  docket ps --state available --json | jq -r .id | xargs -n 1 docket why"
)]
pub(crate) struct WhyArgs {
    /// Task ID, or the ID of one of its runs
    id: String,
}

/// Replaces the reason if no coordinator serves the home: workers seen recently cannot get work
/// then.
fn adjust_without_coordinator(why: WhyView) -> WhyView {
    let is_of_workers = match why.kind {
        WhyKind::Runs
        | WhyKind::ProviderLimit
        | WhyKind::NoWorker
        | WhyKind::NoneServes
        | WhyKind::NoRoom
        | WhyKind::WorkerFault
        | WhyKind::Next => true,
        WhyKind::Ended
        | WhyKind::Dependencies
        | WhyKind::Schedule
        | WhyKind::Backoff
        | WhyKind::Blocked
        | WhyKind::Budget
        | WhyKind::QueuePaused
        | WhyKind::QueueFull
        | WhyKind::KeyFull => false,
    };
    if !is_of_workers {
        return why;
    }
    let text = "no coordinator is running for this home, so workers get no tasks; start one with `docket up`";
    WhyView { kind: WhyKind::NoWorker, text: text.to_owned(), ..why }
}

/// Formats the reason as a sentence about the task, without repeating the state if the reason
/// starts with it.
fn reason_sentence(why: &WhyView) -> String {
    let says_state = matches!(why.kind, WhyKind::Runs | WhyKind::ProviderLimit | WhyKind::Ended);
    match why.text.strip_prefix("it ").filter(|_| says_state) {
        Some(rest) => format!("task {} {rest}", why.task.short()),
        None => format!("task {} is {}: {}", why.task.short(), why.state, why.text),
    }
}

pub(crate) async fn run_why(cx: CliContext, args: WhyArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Read).await?;
    let task = resolve::resolve_task(&access.client, &args.id).await?;
    let why = access.client.explain_task(task).await?;
    // The settings may name another database that other coordinators serve.
    let is_own = cx.config.store.as_deref().is_none_or(|store| store.starts_with("sqlite:"));
    let why = if access.is_local() && is_own { adjust_without_coordinator(why) } else { why };
    access.close().await?;
    if cx.is_json() {
        display::print_json(&why);
    } else {
        display::print_line(&display::sanitize_line(&reason_sentence(&why)));
    }
    Ok(ExitKind::Ok)
}

#[cfg(test)]
mod tests {
    use docket_schema::{ids::TaskId, task::TaskState};

    use super::*;

    #[test]
    fn state_is_not_repeated() {
        let task = TaskId(docket_coordinator::clock::new_id());
        for (kind, state, text, said) in [
            (WhyKind::Ended, TaskState::Discarded, "it is discarded: it broke", "is discarded: it broke"),
            (WhyKind::Runs, TaskState::Running, "it is running on worker w1", "is running on worker w1"),
            (
                WhyKind::NoWorker,
                TaskState::Available,
                "no worker is there",
                "is available: no worker is there",
            ),
            (WhyKind::Blocked, TaskState::Blocked, "it is paused", "is blocked: it is paused"),
        ] {
            let why = WhyView { task, state, kind, text: text.to_owned(), tasks: Vec::new() };
            assert_eq!(reason_sentence(&why), format!("task {} {said}", task.short()));
        }
    }
}
