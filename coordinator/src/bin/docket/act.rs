//! What `cancel` and `retry` share: a task, a reason for the log, and what became of the task.

use docket_schema::ids::TaskId;
use docket_worker::client::Client;

use crate::{
    access::{Access, Need},
    context::Context,
    display,
    fail::{Exit, Outcome},
    ps, resolve,
};

/// Flags of a command that acts on a task.
#[derive(Debug, clap::Args)]
pub(crate) struct ActArgs {
    /// A task, or one of its runs
    id: String,
    /// Why, for the log
    #[arg(long, default_value = "")]
    reason: String,
}

/// What is done to the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// It ends.
    Cancel,
    /// It begins anew.
    Retry,
}

impl Act {
    async fn on(self, client: &Client, task: TaskId, reason: &str) -> Outcome<()> {
        match self {
            Self::Cancel => client.cancel(task, reason).await?,
            Self::Retry => client.retry(task, reason).await?,
        };
        Ok(())
    }
}

/// Does it, and says what the task is now.
pub(crate) async fn run(cx: Context, args: ActArgs, act: Act) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let task = resolve::task(&access.client, &args.id).await?;
    act.on(&access.client, task, &args.reason).await?;
    let view = access.client.task(task).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&ps::Row::of(&view.task));
    } else {
        display::say(&format!("task {} is {}", task.short(), view.task.state));
    }
    Ok(Exit::Ok)
}
