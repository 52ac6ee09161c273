//! `docket apply`: what a run changed, as a branch of a repository on this machine, or in its files.

use std::path::PathBuf;

use docket_schema::{ids::RunId, task::TaskRecord};

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    delivery::{self, DeliveryRequest},
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "One commit, on a branch of its own; your work tree and your other branches stay as they are. Where the branch
that the task started from has gone on since, the change is merged onto what it is now. If that conflicts
nothing is lost: the paths are named, the result is kept on the branch docket/RUN, on the commit it started
from, and a task that was to give a branch waits as undelivered. Applying twice does nothing the second time.

Examples:
  docket apply 3f9c01ab
  docket apply 3f9c01ab --branch fix/rounding --repo ~/src/shop
  docket apply 3f9c01ab --on-base --branch fix/rounding   merge it yourself
  docket apply 3f9c01ab --work-tree                       into the files that are checked out, no commit"
)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    result: ResultArgs,
    /// Change the files that are checked out, and commit nothing: all of it, or nothing where it does not fit
    #[arg(long, conflicts_with_all = ["branch", "on_base", "replace"])]
    work_tree: bool,
}

/// Which result, and where to: for `apply` and `push`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResultArgs {
    /// A run, or a task whose last run is meant
    id: String,
    /// The branch [default: the task's, or docket/ID]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// The repository [default: the one the task came from]
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// On the commit that the task started from, also where its branch has gone on
    #[arg(long)]
    on_base: bool,
    /// Also on top of what another run of the task delivered, though that undoes it
    #[arg(long)]
    replace: bool,
}

/// A result that was named.
pub(crate) struct FoundResult {
    pub(crate) task: TaskRecord,
    pub(crate) run: RunId,
    pub(crate) repository: PathBuf,
}

impl ResultArgs {
    /// Finds it.
    pub(crate) async fn find(&self, access: &Coordinator) -> CliResult<FoundResult> {
        let run = resolve::resolve_run(&access.client, &self.id).await?;
        let task = access.client.get_task(access.client.get_run(run).await?.task).await?.task;
        let source = task.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
        let repository = self.repo.clone().or(source).ok_or_else(|| {
            CliError::new(ExitKind::Refused, "the task has no repository; name one with --repo")
        })?;
        Ok(FoundResult { task, run, repository })
    }

    /// What is asked of it.
    pub(crate) fn delivery_request<'a>(&self, found: &'a FoundResult) -> DeliveryRequest<'a> {
        let ask = DeliveryRequest::new(&found.task, found.run, &found.repository);
        let branch = self.branch.clone().unwrap_or_else(|| ask.branch.clone());
        DeliveryRequest { branch, on_base: self.on_base, replace: self.replace, ..ask }
    }
}

/// Makes the branch, or changes the files.
pub(crate) async fn run_apply(cx: CliContext, args: ApplyArgs) -> CliResult {
    let access = match args.work_tree {
        true => Coordinator::connect_for_reading(&cx, &args.result.id).await?,
        false => Coordinator::connect(&cx, AccessMode::Write).await?,
    };
    let found = args.result.find(&access).await?;
    if args.work_tree {
        let (result, _) = delivery::build_run_result(&cx, &access.client, found.run).await?;
        let applied = result.apply_to_files(&found.repository).await.map_err(|error| {
            let message = format!(
                "the files that are checked out are as they were: {error}; commit or stash what you changed there, or \
                 give it a branch with --branch NAME"
            );
            CliError { exit: ExitKind::Refused, error: anyhow::Error::new(error).context(message) }
        })?;
        access.close().await?;
        let place = display::sanitize_line(&found.repository.to_string_lossy()).into_owned();
        if cx.is_json() {
            display::print_json(
                &serde_json::json!({ "task": found.task.id, "run": found.run, "work_tree": place }),
            );
        } else {
            let already = if applied { "" } else { " already" };
            display::print_line(&format!(
                "the files of {place} have{already} what run {} changed",
                found.run.short()
            ));
        }
        return Ok(ExitKind::Ok);
    }
    let ask = args.result.delivery_request(&found);
    let done = delivery::deliver_or_wait(&cx, &access.client, &ask).await?;
    access.close().await?;
    delivery::print_delivery(&cx, &ask, &done);
    Ok(ExitKind::Ok)
}
