//! `docket reject`: a person does not take a result; a new run goes on from it and is told why.

use docket_schema::task::{DeliveryBlockedWhy, Judged, TaskDeliveryBlocked, TaskRecord};
use docket_worker::client::Client;

use crate::{
    commands::runs::resume,
    connect::{
        access::{Access, Need},
        resolve,
    },
    context::Context,
    delivery,
    output::{
        display,
        fail::{Exit, FailWith as _, Outcome},
    },
};

/// Longest patch of what came meanwhile that a model is told: more would leave no room for the comment.
const PATCH_BYTES_MAX: usize = 16 * 1024;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A new run of the same task goes on from the last turn, with all that was done so far, and reads the comment
before it decides anything. What it comes to is delivered on top of what was delivered before. Where the result conflicts
with what came onto its branch meanwhile, and the repository is on this machine, it also reads what that is. It
still works on the files as they were when the task began.

Examples:
  docket reject 3f9c01ab --comment \"The flag is named --iso, and the README says nothing of it.\""
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// What is wrong, for the model
    #[arg(long, value_name = "TEXT")]
    comment: String,
}

/// Rejects it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let task = access.client.task(access.client.run(run).await?.task).await?.task;
    let said = delivery::deliveries(&access.client, task.id).await?;
    let beside = match said.blocked.as_ref().filter(|blocked| blocked.run == run) {
        Some(blocked) => conflict(&cx, &access.client, &task, blocked).await?,
        None => None,
    };
    if let Some(Judged::Accepted(accepted)) = said.judged.filter(|_| said.blocked.is_none())
        && accepted.run == run
    {
        let by = display::line(&accepted.by).into_owned();
        display::note(&format!("{by} had accepted it; it is rejected all the same"));
    }
    let made = access.client.reject(run, &args.comment, beside).await?;
    if cx.json() {
        display::say_json(&crate::output::task_rows::Row::of(&access.client.task(made.task).await?.task));
    } else {
        resume::say(&cx, &made);
    }
    if access.is_alone() {
        display::note("nobody works here now; `docket up` starts workers");
    }
    access.close().await?;
    Ok(Exit::Ok)
}

/// What the result conflicts with, for the model: its workspace shows the files as they were when the task began, and
/// what came onto the branch meanwhile it sees nowhere else.
async fn conflict(
    cx: &Context,
    client: &Client,
    task: &TaskRecord,
    blocked: &TaskDeliveryBlocked,
) -> Outcome<Option<String>> {
    let git = task.spec.base.git.as_ref();
    let (DeliveryBlockedWhy::Conflict, Some(onto), Some(repository)) =
        (blocked.why, git.and_then(|git| git.branch.as_deref()), delivery::source_of(task))
    else {
        return Ok(None);
    };
    let (result, _) = delivery::result_of(cx, client, blocked.run).await?;
    let patch = result.came_meanwhile(&repository, onto, &blocked.paths, PATCH_BYTES_MAX).await;
    let Some(patch) = patch.fail_as(Exit::Failed)? else { return Ok(None) };
    Ok(Some(format!(
        "The result could not be merged: since the task began `{onto}` has gone on, and conflicts with it in {}. Your \
         workspace has your change on the files as they were when the task began. This is what came onto `{onto}` in them:\n\n\
         ```diff\n{patch}```\n\nTake that in: what is the same on both sides does not conflict. Make those lines \
         exactly as they are on `{onto}` now, and your change in other lines beside them.",
        blocked.paths.join(", ")
    )))
}
