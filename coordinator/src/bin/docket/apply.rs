//! `docket apply`: what a run changed, as a branch of a repository on this machine.

use std::path::PathBuf;

use crate::{
    access::Access,
    context::Context,
    delivery, display,
    fail::{Exit, Failure, Outcome},
    resolve,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "One commit on top of the commit the task started from. Your work tree and your branches stay as they
are; applying twice does nothing the second time.

Examples:
  docket apply 3f9c01ab
  docket apply 3f9c01ab --branch fix/rounding --repo ~/src/shop"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// The branch [default: the task's, or docket/ID]
    #[arg(long)]
    branch: Option<String>,
    /// The repository [default: the one the task came from]
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
}

/// Makes the branch.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::to_read(&cx, &args.id).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let task = access.client.task(access.client.run(run).await?.task).await?.task;
    let source = task.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
    let repository = args
        .repo
        .or(source)
        .ok_or_else(|| Failure::new(Exit::Refused, "the task has no repository; name one with --repo"))?;
    let branch = args.branch.or_else(|| task.spec.branch.clone());
    let branch = branch.unwrap_or_else(|| format!("docket/{}", task.id.short()));
    let (result, _) = delivery::result_of(&cx, &access.client, run).await?;
    let commit = delivery::deliver(&result, &task, run, &repository, &branch).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&serde_json::json!({
            "task": task.id, "run": run, "branch": branch, "commit": commit, "repo": repository,
        }));
    } else {
        let place = display::line(&repository.to_string_lossy()).into_owned();
        display::say(&format!("branch {branch} of {place} is at {}", &commit[..commit.len().min(12)]));
    }
    Ok(Exit::Ok)
}
