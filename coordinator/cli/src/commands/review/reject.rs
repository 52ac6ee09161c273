//! `docket reject`: rejects a result; a new run continues from it with the reason.

use docket_schema::task::{DeliveryBlockedReason, ResultReview, TaskDeliveryBlocked, TaskRecord};
use docket_worker::client::CoordinatorClient;

use crate::{
    commands::runs::resume,
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    delivery,
    output::{
        display,
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Size limit of the upstream patch shown to the model: a longer one would leave no room for the
/// comment.
const PATCH_BYTES_MAX: usize = 16 * 1024;

/// Command-line arguments of `docket reject`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A new run of the same task continues from the last turn, with everything done so far, and reads
the comment before its next decision. Its result is delivered on top of what was delivered before.
If the result conflicts with upstream changes on its branch, and the repository is on this
machine, the run also sees those changes. It still works on the files as they were when the task
started.

Examples:
  docket reject 3f9c01ab --comment \"The flag is named --iso, and the README says nothing of it.\""
)]
pub(crate) struct RejectArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// The problem, addressed to the model
    #[arg(long, value_name = "TEXT")]
    comment: String,
}

pub(crate) async fn run_reject(cx: CliContext, args: RejectArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let task = access.client.get_task(access.client.get_run(run).await?.task).await?.task;
    let said = delivery::fetch_deliveries(&access.client, task.id).await?;
    let beside = match said.blocked.as_ref().filter(|blocked| blocked.run == run) {
        Some(blocked) => describe_conflict(&cx, &access.client, &task, blocked).await?,
        None => None,
    };
    if let Some(ResultReview::Accepted(accepted)) = said.review.filter(|_| said.blocked.is_none())
        && accepted.run == run
    {
        let by = display::sanitize_line(&accepted.by).into_owned();
        display::print_note(&format!("{by} had accepted it; rejected anyway"));
    }
    let made = access.client.reject(run, &args.comment, beside).await?;
    if cx.is_json() {
        display::print_json(&crate::output::task_rows::TaskRow::from_task(
            &access.client.get_task(made.task).await?.task,
        ));
    } else {
        resume::print_resumed(&cx, &made);
    }
    if access.is_local() {
        display::print_note("no workers are running; start them with `docket up`");
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

/// Describes the upstream changes that the result conflicts with. The model cannot see them
/// otherwise: its workspace has the files as they were when the task started.
async fn describe_conflict(
    cx: &CliContext,
    client: &CoordinatorClient,
    task: &TaskRecord,
    blocked: &TaskDeliveryBlocked,
) -> CliResult<Option<String>> {
    let git = task.spec.base.git.as_ref();
    let (DeliveryBlockedReason::Conflict, Some(onto), Some(repository)) =
        (blocked.why, git.and_then(|git| git.branch.as_deref()), delivery::local_source_folder(task))
    else {
        return Ok(None);
    };
    let (result, _) = delivery::build_run_result(cx, client, blocked.run).await?;
    let patch = result.diff_upstream(&repository, onto, &blocked.paths, PATCH_BYTES_MAX).await;
    let Some(patch) = patch.fail_as(ExitKind::Failed)? else { return Ok(None) };
    Ok(Some(format!(
        "The result could not be merged: since the task began `{onto}` has gone on, and conflicts with it in {}. Your \
         workspace has your change on the files as they were when the task began. This is what came onto `{onto}` in them:\n\n\
         ```diff\n{patch}```\n\nTake that in: what is the same on both sides does not conflict. Make those lines \
         exactly as they are on `{onto}` now, and your change in other lines beside them.",
        blocked.paths.join(", ")
    )))
}
