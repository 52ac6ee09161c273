//! Checks of a task before it is submitted, so that no detectable fault is reported only after model calls were
//! paid for.
//!
//! There are two kinds: checks of flags and settings ([`check_delivery_flags`], [`check_budget`]), and checks
//! of the source repository and this machine ([`SourceChecks`]). A process that runs the task itself also
//! checks that its worker can ([`check_own_worker`]). Every fault is a usage error that names its field and the
//! remedy. Called by the commands that submit tasks; what can change before a run ends is checked again then.

mod budget;
mod keys;
mod source;

use docket_schema::message::ModelRef;
use docket_worker::client::CoordinatorClient;

use crate::{
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
    },
    tasks::task_args::{PreparedTask, TaskArgs},
};
use docket_schema::{api::WhyKind, ids::TaskId};

pub(crate) use budget::check_budget;
pub(crate) use keys::{check_keys, check_worker_keys};
pub(crate) use source::{SourceChecks, SourceFields};

/// A model of a task, with the field that names it.
pub(crate) type NamedModel<'a> = (&'static str, &'a ModelRef);

impl PreparedTask {
    /// Returns all models, each with the field that names it.
    pub(crate) fn models(&self) -> impl Iterator<Item = NamedModel<'_>> {
        let named = [
            ("--model", Some(&self.model)),
            ("--explore-model", self.explore_model.as_ref()),
            ("--fallback-model", self.fallback_model.as_ref()),
        ];
        let of_roles = self.roles.iter().map(|role| ("--role", role.model.as_ref()));
        named.into_iter().chain(of_roles).filter_map(|(field, model)| Some((field, model?)))
    }

    /// The first model called, unless a role overrides it.
    pub(crate) fn first_model(&self) -> &ModelRef {
        self.explore_model.as_ref().unwrap_or(&self.model)
    }
}

impl TaskArgs {
    /// Runs all checks that need neither a coordinator nor the repository.
    pub(crate) fn check_flags(&self, cx: &CliContext) -> CliResult<PreparedTask> {
        let asked = self.check_shared(cx)?;
        check_delivery_flags(self)?;
        check_budget(cx, self, &asked, &asked.text)?;
        Ok(asked)
    }

    /// Checks the repository and its remote before anything is stored.
    pub(crate) async fn check_source(&self, cx: &CliContext) -> CliResult<()> {
        let fields = SourceFields {
            tests: self.tests.as_deref(),
            setup: &self.setup,
            repository: self.repo.as_deref(),
            branch: self.branch.as_deref(),
            push: self.push,
        };
        Ok(SourceChecks::new(cx).check(fields).await??)
    }
}

/// Rejects delivery flags for a task without a repository, and branch names that git does not accept.
///
/// # Errors
/// Fails with a usage error that names the flag and the remedy.
pub(crate) fn check_delivery_flags(args: &TaskArgs) -> CliResult<()> {
    let usage = |message: String| Err(CliError::new(ExitKind::Usage, message));
    let wanted = [(args.push, "--push"), (args.branch.is_some(), "--branch")];
    if let Some((_, flag)) = wanted.into_iter().find(|(given, _)| *given && args.empty) {
        return usage(format!(
            "{flag}: a task with --empty has no repository to deliver to; give --repo DIR"
        ));
    }
    match &args.branch {
        Some(branch) if !docket_schema::task::is_branch_name(branch) => {
            usage(format!("--branch: `{branch}` is not a valid git branch name, such as fix/rounding"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Checks that a worker of this process can run the task: it has the keys of all its models and the labels that
/// the task requires.
///
/// # Errors
/// Fails with a usage error that names the field and the remedy.
pub(crate) fn check_own_worker(cx: &CliContext, args: &TaskArgs, asked: &PreparedTask) -> CliResult<()> {
    check_keys(asked.models(), |name| std::env::var(name).ok())?;
    let selector = args.conditions.selector();
    if cx.config.labels.matches_selector(selector) {
        return Ok(());
    }
    let message = format!(
        "--selector {selector}: this command's worker does not have these labels; set `worker.labels` in docket.toml, or \
         use `docket submit` for another worker"
    );
    Err(CliError::new(ExitKind::Usage, message))
}

/// Prints a note if workers are known and none of them accepts a task that was just submitted. The task is
/// kept, because a matching worker may start. Prints nothing if that cannot be determined.
pub(crate) async fn note_unserved(client: &CoordinatorClient, task: TaskId) {
    let Ok(why) = client.explain_task(task).await else { return };
    if why.kind == WhyKind::NoneServes {
        display::print_note(&display::sanitize_line(&format!("task {} waits: {}", task.short(), why.text)));
    }
}
