//! The start of a run process: fold what there is, make or restore the workspace, stand up the
//! sandbox; and for a run that begins, pin everything its decisions will depend on.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use docket_sandbox::{
    BackendChoice, Checked, CommandOutput, CommandSpec, Limits, Sandbox, SandboxConfig, SandboxError,
};
use docket_schema::{
    content::{BlobRef, WorkPath},
    ids::{TaskId, TreeHash, Turn},
    policy::AllowList,
    redact::{self, Redactor},
    run::{
        FailureKind, RolesPinned, RunEnded, RunOutcome, RunRecovered, RunSettings, RunStarted, RunState,
        SandboxLayers, SetupFinished, SnapshotTaken,
    },
    snapshot::{LeftOut, LeftOutWhy},
    task::Flow,
    tool::NetworkSeen,
    wire::{FaultKind, FaultScope, WorkerFault},
};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::{
    act::Hands,
    base,
    begin::{Begun, begin, roles_after_fork},
    causes,
    delegate::started_from,
    failpoint::Failpoints,
    faults,
    granted::Grants,
    journal::{Journal, JournalError, Outgoing},
    material::{Material, READ_PATIENCE},
    pace::Pace,
    remember::RunMemory,
    servers::{offered, servers},
    setup::setup,
    turn::Driver,
    voices::Voices,
    workbench::Workbench,
};
use crate::{
    bootstrap::{Bootstrap, SandboxChoice},
    client::{Client, ClientError, Lineage, patiently},
    engine::{self, Engine},
    model::{Secret, goes_to_local_servers_alone},
    tools::{self, RunnerError, RunnerFault, TestRunnerConfig, ToolSettings},
    workspace::{self, Blobs, Owner, RestoreTarget, Restored, Workspace, WorkspaceOptions},
};

/// Why a run process cannot begin its work.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The token is none.
    #[error("the lease's token is empty")]
    Token,
    /// The coordinator does not answer, or refuses.
    #[error("the coordinator does not give the run's events")]
    Client(#[from] ClientError),
    /// The log does not fold, or cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The coordinator was away when a blob was asked for. The run is given back.
    #[error("{0}")]
    Away(String),
    /// The world around the run cannot be made. The run ends as failed with this message.
    #[error("{0}")]
    Environment(String),
    /// This worker cannot carry out the run, and the task is not to blame. Nothing is recorded; the lease is given back.
    #[error("{0}")]
    Worker(Box<WorkerFault>),
    /// A setup command's program was not found. `start` makes a fault of the worker of it.
    #[error("{0}")]
    CommandMissing(String),
    /// What was asked for cannot be had as it is configured. The run ends as failed, and no other is tried.
    #[error("{0}")]
    Configuration(String),
}

impl StartError {
    pub(super) fn environment(error: &(dyn std::error::Error + 'static)) -> Self {
        let told = causes::told(error);
        if causes::is_away(error) {
            return Self::Away(told);
        }
        match faults::fault_of_host(error) {
            Some(fault) => Self::Worker(Box::new(fault)),
            None => Self::Environment(told),
        }
    }

    /// The engine is missing that a run was begun with, or that its task asks for.
    pub(super) fn no_engine(task: TaskId, engine: &str) -> Self {
        let message = format!("it has no engine {engine}: the run needs a worker of another build");
        Self::worker(FaultKind::Engine, FaultScope::Task(task), &message)
    }

    pub(super) fn worker(kind: FaultKind, scope: FaultScope, message: &str) -> Self {
        Self::Worker(Box::new(WorkerFault::new(kind, scope, message)))
    }
}

/// Folds, makes, restores: gives a driver that is ready to run.
///
/// # Errors
/// [`StartError`]. An environment that cannot be made is recorded as the run's end before.
pub(super) async fn start(bootstrap: Bootstrap, drain: watch::Receiver<bool>) -> Result<Driver, StartError> {
    let token = Secret::new(&bootstrap.lease.token).ok_or(StartError::Token)?;
    let client = Client::trusting(&bootstrap.coordinator, token, bootstrap.ca.as_deref())?;
    let state = folded(&client, &bootstrap).await?;
    let lease = &bootstrap.lease;
    let mut journal = Journal::new(
        client.clone(),
        lease.run,
        lease.epoch,
        Duration::from_millis(lease.lease_ms),
        Failpoints::new(bootstrap.failpoints.clone()),
        state,
    );
    let material = Material::new(client);
    match ready(&bootstrap, &mut journal, &material).await {
        Ok((engine, hands)) => Ok(Driver { journal, engine, material, hands, drain, pace: Pace::default() }),
        Err(error) => {
            let error = faults::as_worker_fault(error, &bootstrap);
            let ends = match &error {
                StartError::Environment(message) => Some((FailureKind::Environment, message)),
                StartError::Configuration(message) => Some((FailureKind::Configuration, message)),
                StartError::Token
                | StartError::Client(_)
                | StartError::Journal(_)
                | StartError::Away(_)
                | StartError::Worker(_)
                | StartError::CommandMissing(_) => None,
            };
            if let Some((why, message)) = ends {
                let result = RunOutcome::Failed { why, message: message.clone() };
                let mut out = Outgoing::default();
                out.push(
                    journal.state().turn,
                    RunEnded { result, summary: None, tree: None, unverified: None, decision: None },
                );
                journal.append_results(&out).await?;
            }
            Err(error)
        }
    }
}

async fn folded(client: &Client, bootstrap: &Bootstrap) -> Result<RunState, StartError> {
    let mut state = RunState::default();
    if bootstrap.lease.head.seq.0 == 0 {
        return Ok(state);
    }
    let lineage = if bootstrap.lease.forked { Lineage::Whole } else { Lineage::Own };
    let run = bootstrap.lease.run;
    for event in patiently(Instant::now() + READ_PATIENCE, || client.all_events(run, lineage)).await? {
        state.apply_envelope(&event).map_err(JournalError::from)?;
    }
    Ok(state)
}

/// Makes the workspace of the run's base, once it is known that this worker has what the run wants of it.
async fn materialized(
    bootstrap: &Bootstrap,
    state: &RunState,
    material: &Material,
) -> Result<Workspace, StartError> {
    if state.pins.is_none() {
        faults::check_keys(bootstrap)?;
    }
    let folder = bootstrap.scratch.join("workspace");
    let options = workspace_options(&bootstrap.cache);
    let base = state.pins.as_ref().map_or(&bootstrap.lease.spec.base, |pins| &pins.base).clone();
    workspace::materialize(&folder, &base, material, &options).await.map_err(|error| {
        match faults::fault_of_folders(&error) {
            Some(fault) if !causes::is_away(&error) => StartError::Worker(Box::new(fault)),
            Some(_) | None => StartError::environment(&error),
        }
    })
}

async fn ready(
    bootstrap: &Bootstrap,
    journal: &mut Journal,
    material: &Material,
) -> Result<(Box<dyn Engine>, Hands), StartError> {
    let spec = &bootstrap.lease.spec;
    let mut workspace = materialized(bootstrap, journal.state(), material).await?;
    let (settings, walls) = (&bootstrap.settings, bootstrap.walls.as_ref());
    let sandbox = sandbox((settings.sandbox, settings.limits), walls, &workspace).await?;
    let root = cap_std::fs::Dir::open_ambient_dir(workspace.path(), cap_std::ambient_authority())
        .map_err(|error| StartError::environment(&error))?;
    let layers = layers(&sandbox);
    let redactor = redactor(bootstrap);
    let runner = SandboxRunner(sandbox);
    let pins = match journal.state().pins.clone() {
        Some(pins) => {
            // Setup goes first: whatever it left in captured paths, the snapshots know better; unless
            // the crash came before they could.
            let again = journal.state().set_up;
            let before = if again {
                setup(&spec.setup, &pins.settings, &runner, &redactor).await?
            } else {
                Vec::new()
            };
            recover(bootstrap, journal, &mut workspace, material, layers, before).await?;
            let place = (&workspace, &root);
            let due = roles_after_fork(bootstrap, material, place, &redactor, journal.state())?;
            if let Some((event, blobs)) = due {
                append_roles(journal, event, &blobs).await?;
            }
            if !again {
                let setup = setup(&spec.setup, &pins.settings, &runner, &redactor).await?;
                append_setup(journal, &mut workspace, setup).await?;
            }
            journal.state().pins.clone().unwrap_or(pins)
        }
        None => {
            let start = started_from(bootstrap, &mut workspace, material).await?;
            let external = offered(bootstrap, (&runner, &redactor)).await?;
            let begun = begin(bootstrap, material, &workspace, &root, (layers, &redactor), external)?;
            append_start(journal, &begun, start).await?;
            let setup = setup(&spec.setup, &begun.started.settings, &runner, &redactor).await?;
            append_setup(journal, &mut workspace, setup).await?;
            Arc::new(begun.started)
        }
    };
    let engine = engine::engine(&pins.engine)
        .ok_or_else(|| StartError::no_engine(bootstrap.lease.task, &pins.engine.to_string()))?;
    let voices = Voices::of(bootstrap, &pins.models, material).await?;
    let tests = tests_line(&pins, spec.tests.clone());
    let settings = ToolSettings { redactor: redactor.clone(), ..tool_settings(&pins.settings) };
    let outputs = tools::WholeOutputs::new();
    let grants = Grants::on(bootstrap.settings.policy.clone());
    let memory = Some(RunMemory::of(material.source().clone(), bootstrap.lease.run));
    let (base, known) = (tools::BaseView::default(), None);
    let (servers, external) = (servers(bootstrap), Vec::new());
    let mut bench = Workbench {
        workspace,
        root,
        runner,
        settings,
        tests,
        redactor,
        outputs,
        base,
        grants,
        memory,
        known,
        servers,
        external,
    };
    base::check(bootstrap, journal, material, &mut bench).await?;
    Ok((engine, Hands { voices, bench }))
}

/// Knows what was configured, what servers are given, and the keys of this process: none of them has a place in a log. A
/// key that is no secret is left out: a word such as `ollama` stands in files and commands as well.
fn redactor(bootstrap: &Bootstrap) -> Redactor {
    let given = bootstrap.settings.mcp_env.0.values();
    let (models, listed) = (Flow::of(&bootstrap.lease.spec).models, &bootstrap.settings.base_urls);
    let is_secret = |(provider, key): &(&String, &String)| {
        redact::is_secret_key(key, goes_to_local_servers_alone(provider, &models, listed))
    };
    let keys = bootstrap.keys.iter().filter(is_secret).map(|(_, key)| key);
    let own = keys.chain(given).chain([&bootstrap.lease.token]);
    Redactor::new(bootstrap.settings.redact.0.iter().chain(own).cloned())
}

pub(super) fn workspace_options(cache: &Path) -> WorkspaceOptions {
    let mut options = WorkspaceOptions::new(cache.to_owned());
    options.owner = docket_sandbox::workspace_owner().map(|(uid, gid)| Owner { uid, gid });
    options
}

/// The sandbox around a workspace: on a host whose walls were checked, or on one that is probed now.
pub(super) async fn sandbox(
    (choice, limits): (SandboxChoice, Option<Limits>),
    walls: Option<&Checked>,
    workspace: &Workspace,
) -> Result<Sandbox, StartError> {
    let mut config = SandboxConfig::new(backend(choice), workspace.path());
    config.readonly.extend(workspace.borrowed_objects());
    config.limits = limits.unwrap_or(config.limits);
    let sandbox = match walls {
        Some(checked) => Sandbox::on(&config, checked),
        None => Sandbox::prepare(config).await,
    };
    sandbox
        .map_err(|error| StartError::worker(FaultKind::Sandbox, FaultScope::AnyTask, &causes::told(&error)))
}

pub(super) const fn backend(choice: SandboxChoice) -> BackendChoice {
    match choice {
        SandboxChoice::Auto => BackendChoice::Auto,
        SandboxChoice::Bubblewrap => BackendChoice::Bubblewrap,
        SandboxChoice::Namespaces => BackendChoice::Namespaces,
        SandboxChoice::None => BackendChoice::None,
    }
}

fn layers(sandbox: &Sandbox) -> SandboxLayers {
    let report = sandbox.report();
    SandboxLayers {
        backend: report.backend.to_string(),
        active: report.active.iter().map(|layer| layer.name().to_owned()).collect(),
        missing: report.missing.iter().map(|gap| format!("{}: {}", gap.layer.name(), gap.reason)).collect(),
        limits: report.limits,
    }
}

async fn recover(
    bootstrap: &Bootstrap,
    journal: &mut Journal,
    workspace: &mut Workspace,
    material: &Material,
    sandbox: SandboxLayers,
    setup: Vec<SetupFinished>,
) -> Result<(), StartError> {
    let state = journal.state();
    let (restored, tree) = restored(workspace, state, material).await?;
    let missing: Vec<WorkPath> = restored
        .missing
        .into_iter()
        .filter(|left| left.why == LeftOutWhy::Ignored)
        .map(|left| left.path)
        .collect();
    let turn = state.turn;
    let unknown = super::turn::unknown_after_crash(state);
    let mut out = Outgoing::default();
    out.push(turn, RunRecovered { worker: bootstrap.incarnation, sandbox, tree, unknown, missing });
    setup.into_iter().for_each(|done| out.push(turn, done));
    journal.append_results(&out).await?;
    Ok(())
}

/// Makes the workspace what it was at the end of what `state` was folded from; the tree's hash is checked.
pub(super) async fn restored(
    workspace: &mut Workspace,
    state: &RunState,
    blobs: &impl Blobs,
) -> Result<(Restored, TreeHash), StartError> {
    let left_out: Vec<LeftOut> =
        state.left_out.iter().map(|(path, why)| LeftOut { path: path.clone(), why: *why }).collect();
    let Some(tree) = state.tree else {
        return Err(StartError::Environment("the run's log names no tree to restore".to_owned()));
    };
    let target =
        RestoreTarget { overlay: &state.overlay, git_overlay: &state.git_overlay, left_out: &left_out, tree };
    let done = workspace::restore(workspace, &target, blobs).await;
    Ok((done.map_err(|error| StartError::environment(&error))?, tree))
}

async fn append_setup(
    journal: &mut Journal,
    workspace: &mut Workspace,
    setup: Vec<SetupFinished>,
) -> Result<(), StartError> {
    if setup.is_empty() {
        return Ok(());
    }
    let delta = workspace.snapshot_walk().map_err(|error| StartError::environment(&error))?;
    let mut out = Outgoing::default();
    let turn = journal.state().turn;
    setup.into_iter().for_each(|done| out.push(turn, done));
    if !delta.is_empty() {
        out.snapshot(turn, delta);
    }
    journal.append_results(&out).await?;
    Ok(())
}

/// Another engine goes on than the one that began: its roles are pinned before it decides anything.
async fn append_roles(
    journal: &mut Journal,
    event: RolesPinned,
    blobs: &[(BlobRef, Vec<u8>)],
) -> Result<(), StartError> {
    let mut out = Outgoing::default();
    out.push(journal.state().turn, event);
    for (blob, bytes) in blobs {
        out.blob(*blob, bytes.clone());
    }
    journal.append_results(&out).await?;
    Ok(())
}

async fn append_start(
    journal: &mut Journal,
    begun: &Begun,
    start: Vec<SnapshotTaken>,
) -> Result<(), StartError> {
    let mut out = Outgoing::default();
    out.push(Turn(0), begun.started.clone());
    // In the same append: no run of a child is ever found without the tree that it starts from.
    start.into_iter().for_each(|part| out.push(Turn(0), part));
    for (blob, bytes) in &begun.blobs {
        out.blob(*blob, bytes.clone());
    }
    journal.append_results(&out).await?;
    Ok(())
}

/// The configured test line: as pinned; in logs that pin none, the task's own.
pub(super) fn tests_line(pins: &RunStarted, of_task: Option<String>) -> Option<TestRunnerConfig> {
    pins.tests.clone().or(of_task).map(|command| TestRunnerConfig { command })
}

pub(super) fn tool_settings(settings: &RunSettings) -> ToolSettings {
    ToolSettings {
        output_chars_max: settings.output_chars_max as usize,
        command_timeout_ms: settings.command_timeout_ms,
        command_timeout_ms_max: settings.command_timeout_ms_max,
        refuse_syntax_errors: settings.refuse_syntax_errors,
        ..ToolSettings::default()
    }
}

/// The sandbox as the tools see it.
pub(super) struct SandboxRunner(pub(super) Sandbox);

impl tools::Runner for SandboxRunner {
    fn run(&self, spec: tools::CommandSpec) -> BoxFuture<'_, Result<tools::CommandOutput, RunnerError>> {
        Box::pin(async move { Ok(self.run_with(spec, None).await?.0) })
    }
}

impl SandboxRunner {
    /// Runs one command, with what of the network it was granted; says what it did there.
    pub(super) async fn run_with(
        &self,
        spec: tools::CommandSpec,
        network: Option<Arc<AllowList>>,
    ) -> Result<(tools::CommandOutput, Option<NetworkSeen>), RunnerError> {
        let mut command = CommandSpec::shell(spec.shell);
        if let Some(cwd) = spec.cwd {
            command.cwd = cwd.to_string().into();
        }
        command.timeout = Duration::from_millis(spec.timeout_ms);
        command.network = network;
        let mut output = self.0.run(command).await.map_err(runner_error)?;
        let seen = output.network.take();
        Ok((as_output(output), seen))
    }
}

fn as_output(output: CommandOutput) -> tools::CommandOutput {
    tools::CommandOutput {
        ended: ended(output.ended),
        stdout: captured(output.stdout),
        stderr: captured(output.stderr),
        put_back: output.put_back,
    }
}

fn runner_error(error: SandboxError) -> RunnerError {
    let reason = error.to_string();
    let fault = if error.is_of_workspace() { RunnerFault::Workspace } else { RunnerFault::Host };
    let output = if let SandboxError::NotRestored { output, .. } = error { Some(*output) } else { None };
    RunnerError { reason, fault, output: output.map(as_output).map(Box::new) }
}

const fn ended(ended: docket_sandbox::Ended) -> tools::Ended {
    match ended {
        docket_sandbox::Ended::Exit(status) => tools::Ended::Exit(status),
        docket_sandbox::Ended::Signal(signal) => tools::Ended::Signal(signal),
        docket_sandbox::Ended::TimedOut => tools::Ended::TimedOut,
        docket_sandbox::Ended::Exceeded(what) => tools::Ended::Exceeded(what),
    }
}

fn captured(captured: docket_sandbox::Captured) -> tools::Captured {
    let mut head = captured.bytes;
    // Where nothing is missing there is no gap, and so no tail.
    let tail = if captured.truncated { head.split_off(captured.head_bytes) } else { Vec::new() };
    tools::Captured { head, tail, total_bytes: captured.total_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_of_an_output_is_told_where_it_is_missing() {
        let of = |bytes: &[u8], head_bytes, total_bytes| {
            let truncated = total_bytes > bytes.len() as u64;
            let kept = docket_sandbox::Captured { bytes: bytes.to_vec(), head_bytes, total_bytes, truncated };
            String::from_utf8(captured(kept).joined()).unwrap()
        };
        assert_eq!(of(b"headtail", 4, 108), "head\n[100 bytes were not kept]\ntail");
        assert_eq!(of(b"headtail", 4, 8), "headtail");
    }
    #[test]
    fn a_runs_settings_reach_its_tools() {
        let run = RunSettings { refuse_syntax_errors: true, ..RunSettings::default() };
        assert!(tool_settings(&run).refuse_syntax_errors);
    }
}
