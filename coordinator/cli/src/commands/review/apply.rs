//! `docket apply`: delivers a run's changes as a branch of a local repository, or to its work tree.

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

/// Command-line arguments of `docket apply`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Makes one commit on a separate branch; your work tree and your other branches do not change. If
the branch that the task started from has moved since, the change is merged onto its current
state. If that conflicts, nothing is lost: the conflicting paths are named, the result is kept on
the branch docket/RUN, on the commit it started from, and a task submitted with --branch is marked
undelivered. Applying twice does nothing the second time.

Examples:
  docket apply 3f9c01ab
  docket apply 3f9c01ab --branch fix/rounding --repo ~/src/shop
  docket apply 3f9c01ab --on-base --branch fix/rounding   merge it yourself
  docket apply 3f9c01ab --work-tree                       change the checked-out files, no commit"
)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    result: ResultArgs,
    /// Change the checked-out files without committing: all of the changes, or none if they do not
    /// apply
    #[arg(long, conflicts_with_all = ["branch", "on_base", "replace"])]
    work_tree: bool,
}

/// Selects a result and its destination, for `apply` and `push`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResultArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Branch to create [default: the task's, or docket/ID]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Repository [default: the one the task came from]
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Use the commit that the task started from, even if its branch has moved since
    #[arg(long)]
    on_base: bool,
    /// Deliver even if this undoes what another run of the task delivered
    #[arg(long)]
    replace: bool,
}

/// The result that was named.
pub(crate) struct FoundResult {
    pub(crate) task: TaskRecord,
    pub(crate) run: RunId,
    pub(crate) repository: PathBuf,
}

impl ResultArgs {
    /// Looks up the result.
    pub(crate) async fn find(&self, access: &Coordinator) -> CliResult<FoundResult> {
        let run = resolve::resolve_run(&access.client, &self.id).await?;
        let task = access.client.get_task(access.client.get_run(run).await?.task).await?.task;
        let source = task.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
        let repository = self.repo.clone().or(source).ok_or_else(|| {
            CliError::new(ExitKind::Refused, "the task has no repository; specify one with --repo")
        })?;
        Ok(FoundResult { task, run, repository })
    }

    /// Builds the delivery request.
    pub(crate) fn delivery_request<'a>(&self, found: &'a FoundResult) -> DeliveryRequest<'a> {
        let ask = DeliveryRequest::new(&found.task, found.run, &found.repository);
        let branch = self.branch.clone().unwrap_or_else(|| ask.branch.clone());
        DeliveryRequest { branch, on_base: self.on_base, replace: self.replace, ..ask }
    }
}

/// Creates the branch, or changes the work tree.
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
                "the checked-out files were not changed: {error}; commit or stash your changes, or \
                 create a branch with --branch NAME"
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
                "the files in {place}{already} have the changes of run {}",
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
