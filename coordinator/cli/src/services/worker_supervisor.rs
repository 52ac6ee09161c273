//! A supervisor in this process: what `up`, `worker` and `run` share.

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

/// How long a drain lets runs end their turn: a model's answer may take minutes.
const DRAIN_GRACE: Duration = Duration::from_secs(120);

/// Flags of a worker.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct WorkerArgs {
    /// Runs at once [default: `worker.slots` of docket.toml, 2]
    #[arg(long, value_name = "N")]
    slots: Option<NonZeroU32>,
    /// Queues to serve, separated by commas [default: all]
    #[arg(long, value_name = "QUEUES", value_delimiter = ',')]
    queues: Option<Vec<QueueName>>,
    /// What to say of itself, as gpu=a100,arch=arm64: a task may want a worker that has a label [default:
    /// `worker.labels` of docket.toml]
    #[arg(long, value_name = "LABELS")]
    labels: Option<LabelSet>,
    /// Walls around commands: auto, bubblewrap, namespaces, none [default: auto]
    #[arg(long, value_name = "KIND", value_parser = parse_sandbox_arg)]
    sandbox: Option<SandboxChoice>,
    /// The worker's name, for people [default: the host's]
    #[arg(long)]
    name: Option<String>,
    /// Tests only: where run processes and supervisors die, as JSON
    #[arg(long, hide = true, env = "DOCKET_FAILPOINTS", hide_env_values = true, value_parser = parse_failpoints)]
    failpoints: Option<FailpointList>,
}

pub(crate) fn parse_sandbox_arg(text: &str) -> Result<SandboxChoice, String> {
    crate::config::parse_sandbox_choice(text)
        .ok_or_else(|| "it is one of auto, bubblewrap, namespaces, none".to_owned())
}

impl WorkerArgs {
    /// Lays the flags over the settings, and tells the person who starts a worker what its runs will lack.
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

    /// Where a test wants somebody to die.
    pub(crate) fn failpoints(&self) -> Vec<Failpoint> {
        self.failpoints.as_ref().map_or_else(Vec::new, |given| given.0.clone())
    }

    /// The name.
    pub(crate) fn name(&self) -> String {
        self.name.clone().unwrap_or_else(host_name)
    }
}

/// The providers' keys that this process was started with.
fn provider_keys() -> impl Iterator<Item = (String, Secret)> {
    PROVIDER_KEY_VARS.iter().filter_map(|(provider, env)| {
        let key = std::env::var(env).ok().as_deref().and_then(Secret::new)?;
        Some(((*provider).to_owned(), key))
    })
}

/// A note and no error: tasks may be for a server that wants no key, which a worker hears of only with the task.
fn missing_key_note() -> String {
    format!(
        "note: no provider's key is set: tasks for a provider's models wait until this is started with {}; a model \
         server of your own that wants no key needs none",
        PROVIDER_KEY_VARS.map(|(_, env)| env).join(" or ")
    )
}

/// Whether no task asks a provider for anything: all that have not ended have scripted models; where there is none, such
/// a model is the usual one.
pub(crate) async fn all_tasks_need_no_key(cx: &CliContext, client: &CoordinatorClient) -> bool {
    let is_scripted = |model: &ModelRef| model.provider == "scripted";
    let open = TaskStates::from_states(TaskState::ALL.into_iter().filter(|state| !state.is_ended()));
    let mut query = TaskQuery { state: open, ..TaskQuery::default() };
    let mut is_empty = true;
    // What cannot be read is no reason to say nothing.
    while let Ok(page) = client.list_tasks(&query).await {
        is_empty &= page.tasks.is_empty();
        // A flow names the models that are no scripts.
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

/// Places of the log at which somebody dies.
#[derive(Debug, Clone)]
struct FailpointList(Vec<Failpoint>);

fn parse_failpoints(text: &str) -> Result<FailpointList, String> {
    serde_json::from_str(text).map(FailpointList).map_err(|error| error.to_string())
}

fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "worker".to_owned())
}

/// For whom to work, and under which name.
#[derive(Debug)]
pub(crate) struct WorkerSpec {
    address: String,
    token: Secret,
    name: String,
    failpoints: Vec<Failpoint>,
    incarnation: IncarnationId,
    /// Whether the home's coordinator is the one, whichever process that is: the worker is registered there then.
    is_of_home: bool,
    /// Whether none of its tasks is known to need a key.
    needs_no_key: bool,
}

impl WorkerSpec {
    /// Work for the coordinator at `address`.
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

    /// Work for the home's coordinator, whichever process that is at the moment. `address` is the home's own
    /// ([`docket_worker::client::home_address`]).
    pub(crate) fn for_home(address: &str, token: Secret, name: String) -> Self {
        Self { is_of_home: true, ..Self::new(address, token, name) }
    }

    /// The worker that will do it.
    pub(crate) const fn incarnation(&self) -> IncarnationId {
        self.incarnation
    }

    /// The same, without a note of missing keys where no task needs one.
    pub(crate) fn suppress_key_note(self, needs_no_key: bool) -> Self {
        Self { needs_no_key, ..self }
    }

    /// The same, dying where a test says.
    pub(crate) fn with_failpoints(self, failpoints: Vec<Failpoint>) -> Self {
        Self { failpoints, ..self }
    }
}

/// Starts a supervisor; the future ends once it has.
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
    // Told by who works: whom nothing keeps from it has no other line to read first.
    if config.keys.is_empty() && cx.config.trusted_base_urls.is_empty() && !job.needs_no_key {
        display::print_note(&missing_key_note());
    }
    Ok(async move {
        let report = supervisor::run_supervisor(config, preflight, Box::pin(signals)).await;
        // From here on the worker counts as dead: what it still holds is released.
        drop(registration);
        let report = report.fail_as(ExitKind::Failed)?;
        tracing::info!("{report}");
        match report.end {
            SupervisorEnd::Drained | SupervisorEnd::Killed => Ok(()),
            SupervisorEnd::Refused(why) => Err(CliError::new(ExitKind::Refused, why)),
        }
    })
}

/// A sandbox as runs will have it, around an empty workspace that is removed with the folder.
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

/// Reports the layers of a sandbox as runs will have it: a worker without walls must not start.
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
            "note: no provider's key is set: tasks for a provider's models wait until this is started with \
             ANTHROPIC_API_KEY or OPENAI_API_KEY; a model server of your own that wants no key needs none"
        );
    }
}
