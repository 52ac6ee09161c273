//! Starts a supervisor in this process, for `up`, `worker` and `run`.

use crate::config::values;
use std::{future::Future, num::NonZeroU32, path::PathBuf, time::Duration};

use docket_sandbox::{Limits, Sandbox, SandboxConfig, workspace_owner};
use docket_schema::{
    api::{TaskQuery, TaskStates},
    ids::{IncarnationId, QueueName},
    message::ModelRef,
    task::{Flow, LabelSet, TaskState},
};
use docket_worker::{
    bootstrap::{Failpoint, SandboxChoice},
    client::CoordinatorClient,
    secret::Secret,
    supervisor::{self, PreflightReport, RunProgram, SupervisorConfig, SupervisorEnd},
};
use futures_util::{StreamExt as _, stream};

use crate::{
    config::Config,
    connect::local_coordinator::PROVIDER_KEY_VARS,
    context::CliContext,
    home::worker_registry::WorkerRegistration,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
        signals::StopSignals,
    },
    tasks::task_checks::check_worker_keys,
};

/// How long a drain waits for runs to end their turn: a model's reply may take minutes.
const DRAIN_GRACE: Duration = Duration::from_secs(120);

/// Flags of a worker.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct WorkerArgs {
    /// Number of concurrent runs [default: `worker.slots` of docket.toml, 2]
    #[arg(long, value_name = "N")]
    slots: Option<NonZeroU32>,
    /// Queues to serve, comma-separated [default: all]
    #[arg(long, value_name = "QUEUES", value_delimiter = ',')]
    queues: Option<Vec<QueueName>>,
    /// Labels of this worker, e.g. gpu=a100,arch=arm64, which tasks can require [default: `worker.labels` of
    /// docket.toml]
    #[arg(long, value_name = "LABELS")]
    labels: Option<LabelSet>,
    /// Sandbox for commands: auto, bubblewrap, namespaces, none [default: auto]
    #[arg(long, value_name = "KIND", value_parser = parse_sandbox_arg)]
    sandbox: Option<SandboxChoice>,
    /// Name of the worker [default: the host name]
    #[arg(long)]
    name: Option<String>,
    /// Tests only: where run processes and supervisors crash, as JSON
    #[arg(long, hide = true, env = "DOCKET_FAILPOINTS", hide_env_values = true, value_parser = parse_failpoints)]
    failpoints: Option<FailpointList>,
}

pub(crate) fn parse_sandbox_arg(text: &str) -> Result<SandboxChoice, String> {
    crate::config::parse_sandbox_choice(text)
        .ok_or_else(|| "it must be one of auto, bubblewrap, namespaces, none".to_owned())
}

impl WorkerArgs {
    /// Applies the flags to the settings, and warns about what runs will lack.
    pub(crate) fn apply_to(&self, config: &mut Config) {
        config.slots = self.slots.map_or(config.slots, NonZeroU32::get);
        if let Some(queues) = &self.queues {
            config.queues.clone_from(queues);
        }
        if let Some(labels) = &self.labels {
            config.labels.clone_from(labels);
        }
        config.sandbox = self.sandbox.unwrap_or(config.sandbox);
    }

    /// Crash points for tests.
    pub(crate) fn failpoints(&self) -> Vec<Failpoint> {
        self.failpoints.as_ref().map_or_else(Vec::new, |given| given.0.clone())
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone().unwrap_or_else(host_name)
    }
}

/// The provider keys in this process's environment.
fn provider_keys() -> impl Iterator<Item = (String, Secret)> {
    PROVIDER_KEY_VARS.iter().filter_map(|(provider, env)| {
        let key = std::env::var(env).ok().as_deref().and_then(Secret::new)?;
        Some(((*provider).to_owned(), key))
    })
}

/// Only a note, because tasks may use a server without a key, which a worker learns only from the task.
fn missing_key_note() -> String {
    format!(
        "note: no provider API key is set: tasks that use a provider's models will wait until this is started with {}; a model \
           server of your own may not need a key",
        PROVIDER_KEY_VARS.map(|(_, env)| env).join(" or ")
    )
}

/// Whether no task needs a provider key: all open tasks have scripted models, or there is no open task and the
/// default model is scripted.
pub(crate) async fn all_tasks_need_no_key(cx: &CliContext, client: &CoordinatorClient) -> bool {
    let is_scripted = |model: &ModelRef| model.provider == "scripted";
    let open = TaskStates::from_states(TaskState::ALL.into_iter().filter(|state| !state.is_ended()));
    let mut query = TaskQuery { state: open, ..TaskQuery::default() };
    let mut is_empty = true;
    // If this cannot be read, the note is shown.
    while let Ok(page) = client.list_tasks(&query).await {
        is_empty &= page.tasks.is_empty();
        // A flow lists the models that are not scripted.
        if !page.tasks.iter().all(|task| Flow::from_spec(&task.spec).models.is_empty()) {
            return false;
        }
        match page.next {
            Some(next) => query.before = Some(next),
            None => return !is_empty || cx.config.model.as_ref().is_some_and(is_scripted),
        }
    }
    false
}

/// Positions of the log at which a process crashes.
#[derive(Debug, Clone)]
struct FailpointList(Vec<Failpoint>);

fn parse_failpoints(text: &str) -> Result<FailpointList, String> {
    serde_json::from_str(text).map(FailpointList).map_err(|error| error.to_string())
}

fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "worker".to_owned())
}

/// The coordinator of a worker, and the worker's name.
#[derive(Debug)]
pub(crate) struct WorkerSpec {
    address: String,
    token: Secret,
    name: String,
    failpoints: Vec<Failpoint>,
    incarnation: IncarnationId,
    /// Whether the coordinator is the home's, whichever process that is: the worker is then registered there.
    is_of_home: bool,
    /// Whether none of its tasks is known to need a key.
    needs_no_key: bool,
}

impl WorkerSpec {
    /// A worker for the coordinator at `address`.
    pub(crate) fn new(address: &str, token: Secret, name: String) -> Self {
        let incarnation = docket_worker::clock::new_incarnation();
        Self {
            address: address.to_owned(),
            token,
            name,
            failpoints: Vec::new(),
            incarnation,
            is_of_home: false,
            needs_no_key: false,
        }
    }

    /// A worker for the home's coordinator, whichever process that currently is. `address` is the home's own
    /// ([`docket_worker::client::home_address`]).
    pub(crate) fn for_home(address: &str, token: Secret, name: String) -> Self {
        Self { is_of_home: true, ..Self::new(address, token, name) }
    }

    /// The incarnation of the worker.
    pub(crate) const fn incarnation(&self) -> IncarnationId {
        self.incarnation
    }

    /// Suppresses the note about missing keys if no task needs one.
    pub(crate) fn suppress_key_note(self, needs_no_key: bool) -> Self {
        Self { needs_no_key, ..self }
    }

    /// Adds crash points for tests.
    pub(crate) fn with_failpoints(self, failpoints: Vec<Failpoint>) -> Self {
        Self { failpoints, ..self }
    }
}

/// Starts a supervisor; the future completes when it has ended.
pub(crate) fn start_supervisor(
    cx: &CliContext,
    job: WorkerSpec,
    stop: &StopSignals,
) -> CliResult<impl Future<Output = CliResult<()>> + use<>> {
    check_worker_keys(PROVIDER_KEY_VARS.iter().map(|(_, env)| *env), |name| std::env::var(name).ok())?;
    let config = SupervisorConfig {
        coordinator: job.address,
        ca: cx.ca_certificates()?,
        token: job.token,
        name: job.name,
        slots: cx.config.slots,
        queues: cx.config.queues.clone(),
        labels: cx.config.labels.clone(),
        engines: SupervisorConfig::engines_of_this_build(),
        keys: provider_keys().collect(),
        incarnation: job.incarnation,
        scratch: cx.home.ensure_folder("scratch")?,
        cache: cx.home.ensure_folder("cache")?,
        settings: cx.config.worker_settings(),
        grace: DRAIN_GRACE,
        hang_after: cx.config.hang_ms.map(Duration::from_millis),
        program: RunProgram::default(),
        failpoints: job.failpoints,
    };
    let registration = job.is_of_home.then(|| WorkerRegistration::register(&cx.home, job.incarnation));
    let registration = registration.transpose()?;
    let preflight =
        run_preflight((cx.config.sandbox, cx.config.sandbox_limits), cx.home.ensure_folder("scratch")?);
    let wishes = [stop.drain.clone(), stop.abort.clone()];
    let signals = stream::iter(wishes).then(|wish| async move { wish.cancelled().await });
    // Printed by the process that works: if nothing else delays it, there is no other line to read first.
    if config.keys.is_empty() && cx.config.trusted_base_urls.is_empty() && !job.needs_no_key {
        display::print_note(&missing_key_note());
    }
    Ok(async move {
        let report = supervisor::run_supervisor(config, preflight, Box::pin(signals)).await;
        // From here on the worker counts as dead: its leases are released.
        drop(registration);
        let report = report.fail_as(ExitKind::Failed)?;
        tracing::info!("{report}");
        match report.end {
            SupervisorEnd::Drained | SupervisorEnd::Killed => Ok(()),
            SupervisorEnd::Refused(why) => Err(CliError::new(ExitKind::Refused, why)),
        }
    })
}

/// Creates a sandbox as runs will use it, around an empty workspace that is deleted with the folder.
pub(crate) async fn prepare_sandbox(
    (choice, limits): (SandboxChoice, Limits),
    scratch: PathBuf,
) -> Result<(Sandbox, tempfile::TempDir), String> {
    let flat = |error: &dyn std::fmt::Display| error.to_string();
    let folder = tempfile::Builder::new().prefix("preflight-").tempdir_in(scratch).map_err(|e| flat(&e))?;
    if let Some((uid, gid)) = workspace_owner() {
        std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid)).map_err(|e| flat(&e))?;
    }
    let mut config = SandboxConfig::new(values::to_backend_choice(choice), folder.path());
    config.limits = limits;
    Ok((Sandbox::prepare(config).await.map_err(|e| flat(&e))?, folder))
}

/// Reports the layers of the sandbox: a worker without a working sandbox must not start.
async fn run_preflight(
    settings: (SandboxChoice, Limits),
    scratch: PathBuf,
) -> Result<PreflightReport, String> {
    let (sandbox, _folder) = prepare_sandbox(settings, scratch).await?;
    let report = sandbox.report();
    let active: Vec<&str> = report.active.iter().map(|layer| layer.name()).collect();
    let missing =
        report.missing.iter().map(|missing| format!("without {}: {}", missing.layer.name(), missing.reason));
    let first = format!("sandbox {}: {}", report.backend, active.join(", "));
    let layers = active.into_iter().map(str::to_owned).collect();
    let lines = std::iter::once(first).chain(missing).collect();
    Ok(PreflightReport {
        log_lines: lines,
        checked_sandbox: Some(sandbox.checked_host()),
        sandbox_layers: layers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_key_note_names_the_provider_variables() {
        assert_eq!(
            missing_key_note(),
            "note: no provider API key is set: tasks that use a provider's models will wait until this is started with \
             ANTHROPIC_API_KEY or OPENAI_API_KEY; a model server of your own may not need a key"
        );
    }
}
