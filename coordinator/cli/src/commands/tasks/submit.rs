//! `docket submit`: adds a task to the backlog.

use docket_schema::ids::TaskId;

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display,
        error::{CliResult, ExitKind},
    },
    tasks::{task_args::TaskArgs, task_checks::note_unserved},
};

/// Command-line arguments of `docket submit`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The repository's commit is pinned when the task is submitted: later changes to the repository do
not affect the task, and the task never changes your work tree.

Examples:
  docket submit \"Fix the rounding in prices.py\" --repo . --tests \"pytest -q\"
  docket submit --file task.md --repo ~/src/shop --commit v2.1 --branch fix/rounding
  docket submit \"Try it\" --repo . --model openai:qwen2.5-coder:7b --base-url http://localhost:11434/v1
  docket submit \"Nightly tidy\" --repo . --at 2026-01-31T02:00:00Z --dedup tidy
  docket submit \"Then document it\" --repo . --after 3f9c01ab --key shop/main"
)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    pub(crate) task: TaskArgs,
}

pub(crate) async fn run_submit(cx: CliContext, args: SubmitArgs) -> CliResult {
    let asked = args.task.check_flags(&cx)?;
    args.task.check_source(&cx).await?;
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let fresh = TaskId(docket_coordinator::clock::new_id());
    let id = args.task.submit(&cx, &access.client, asked, None, fresh).await?;
    if cx.is_json() {
        display::print_json(&crate::output::task_rows::TaskRow::from_task(
            &access.client.get_task(id).await?.task,
        ));
    } else {
        display::print_line(&id.to_string());
    }
    note_unserved(&access.client, id).await;
    access.close().await.map(|()| ExitKind::Ok)
}
