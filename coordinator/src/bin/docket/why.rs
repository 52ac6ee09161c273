//! `docket why`: what keeps a task from running.

use docket_schema::wire::{WhyKind, WhyView};

use crate::{
    access::{Access, Need},
    context::Context,
    display,
    fail::{Exit, Outcome},
    resolve,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "One line, and what helps: a paused or full queue, a concurrency key that another task holds, tasks it waits
for, a worker that is not there or has no room. With --json the reason is a word of its own (`kind`).

Examples:
  docket why 3f9c01ab
  docket ps --state available --json | jq -r .id | xargs -n 1 docket why"
)]
pub(crate) struct Args {
    /// A task, or one of its runs
    id: String,
}

/// The true reason where no coordinator serves the home: workers that were heard of lately have nobody to ask for work.
fn without_coordinator(why: WhyView) -> WhyView {
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
    let text = "no coordinator serves this home, so no worker has work; `docket up` starts one with workers";
    WhyView { kind: WhyKind::NoWorker, text: text.to_owned(), ..why }
}

/// Says it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Read).await?;
    let task = resolve::task(&access.client, &args.id).await?;
    let why = access.client.why(task).await?;
    // The settings name another database where other coordinators may serve it.
    let is_own = cx.config.store.as_deref().is_none_or(|store| store.starts_with("sqlite:"));
    let why = if access.is_alone() && is_own { without_coordinator(why) } else { why };
    access.close().await?;
    if cx.json() {
        display::say_json(&why);
    } else {
        display::say(&display::line(&format!("task {} is {}: {}", task.short(), why.state, why.text)));
    }
    Ok(Exit::Ok)
}
