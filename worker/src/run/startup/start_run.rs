//! Startup of a run process: fold the log, create or restore the workspace, prepare the sandbox; and for a new run,
//! pin everything its decisions depend on.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use docket_schema::{
    content::BlobRef,
    ids::Turn,
    redact::{self, Redactor},
    run::{FailureKind, RolesPinned, RunState, SetupFinished, SnapshotTaken},
    task::Flow,
};
use tokio::sync::watch;

use super::{
    baseline_checks,
    mcp_servers::{configured_servers, list_mcp_tools},
    pin_run::{PinnedRun, build_run_started, pin_roles_after_fork},
    recovery::recover_workspace,
};
use crate::run::{
    delegation::child_start::restore_start_tree,
    environment::{
        network_grants::NetworkGrants,
        run_workspace::{open_root, workspace_options},
        sandbox_runner::{SandboxRunner, prepare_sandbox, sandbox_layers},
        setup::run_setup,
    },
    errors::{error_chain, host_faults::folder_fault, start_error::StartError, worker_faults},
    log::{
        blob_cache::{BlobCache, READ_PATIENCE},
        failpoint::Failpoints,
        journal::{Journal, JournalError},
        pending_append::PendingAppend,
    },
    model_calls::{effects::EffectRunner, model_clients::ModelClients},
    permits::rate_limit::ProviderPermit,
    run_loop::run_executor::RunExecutor,
    tool_calls::{memory_client::RunMemoryClient, tool_executor::ToolExecutor},
};
use crate::{
    bootstrap::RunBootstrap,
    client::{CoordinatorClient, HistoryScope, retry_until},
    engine::{self, Engine},
    model::{Secret, is_key_used_only_locally},
    workspace::{self, Workspace},
};

/// Folds the log, prepares the workspace, and returns a run executor that is ready to run.
///
/// # Errors
/// [`StartError`]. If the environment cannot be created, the end of the run is recorded first.
pub(in crate::run) async fn start_run(
    bootstrap: RunBootstrap,
    drain: watch::Receiver<bool>,
) -> Result<RunExecutor, StartError> {
    let token = Secret::new(&bootstrap.lease.token).ok_or(StartError::EmptyToken)?;
    let client = CoordinatorClient::with_ca(&bootstrap.coordinator, token, bootstrap.ca.as_deref())?;
    let state = fold_log(&client, &bootstrap).await?;
    let lease = &bootstrap.lease;
    let mut journal = Journal::new(
        client.clone(),
        lease.run,
        lease.epoch,
        Duration::from_millis(lease.lease_ms),
        Failpoints::new(bootstrap.failpoints.clone()),
        state,
    );
    let material = BlobCache::new(client);
    match prepare_run(&bootstrap, &mut journal, &material).await {
        Ok((engine, hands)) => Ok(RunExecutor {
            journal,
            engine,
            blob_cache: material,
            effects: hands,
            drain,
            permit: ProviderPermit::default(),
        }),
        Err(error) => {
            let error = worker_faults::into_worker_fault(error, &bootstrap);
            let ends = match &error {
                StartError::Environment(message) => Some((FailureKind::Environment, message)),
                StartError::Configuration(message) => Some((FailureKind::Configuration, message)),
                StartError::EmptyToken
                | StartError::Client(_)
                | StartError::Journal(_)
                | StartError::CoordinatorUnavailable(_)
                | StartError::WorkerFault(_)
                | StartError::CommandMissing(_) => None,
            };
            if let Some((why, message)) = ends {
                journal.append_failure(why, message.clone(), None).await?;
            }
            Err(error)
        }
    }
}

async fn fold_log(client: &CoordinatorClient, bootstrap: &RunBootstrap) -> Result<RunState, StartError> {
    let mut state = RunState::default();
    if bootstrap.lease.head.seq.0 == 0 {
        return Ok(state);
    }
    let lineage = if bootstrap.lease.forked { HistoryScope::WithAncestors } else { HistoryScope::Own };
    let run = bootstrap.lease.run;
    for event in retry_until(Instant::now() + READ_PATIENCE, || client.all_events(run, lineage)).await? {
        state.apply_envelope(&event).map_err(JournalError::from)?;
    }
    Ok(state)
}

/// Creates the workspace of the run's base, after checking that this worker has what the run needs.
async fn materialize_base(
    bootstrap: &RunBootstrap,
    state: &RunState,
    material: &BlobCache,
) -> Result<Workspace, StartError> {
    if state.pins.is_none() {
        worker_faults::check_model_keys(bootstrap)?;
    }
    let folder = bootstrap.scratch.join("workspace");
    let options = workspace_options(&bootstrap.cache);
    let base = state.pins.as_ref().map_or(&bootstrap.lease.spec.base, |pins| &pins.base).clone();
    workspace::materialize(&folder, &base, material, &options).await.map_err(|error| {
        match folder_fault(&error) {
            Some(fault) if !error_chain::is_coordinator_unavailable(&error) => {
                StartError::WorkerFault(Box::new(fault))
            }
            Some(_) | None => StartError::from_environment_error(&error),
        }
    })
}

async fn prepare_run(
    bootstrap: &RunBootstrap,
    journal: &mut Journal,
    material: &BlobCache,
) -> Result<(Box<dyn Engine>, EffectRunner), StartError> {
    let spec = &bootstrap.lease.spec;
    let mut workspace = materialize_base(bootstrap, journal.state(), material).await?;
    let (settings, walls) = (&bootstrap.settings, bootstrap.walls.as_ref());
    let sandbox = prepare_sandbox((settings.sandbox, settings.limits), walls, &workspace).await?;
    let root = open_root(&workspace)?;
    let layers = sandbox_layers(&sandbox);
    let redactor = build_redactor(bootstrap);
    let runner = SandboxRunner(sandbox);
    let pins = match journal.state().pins.clone() {
        Some(pins) => {
            // Setup goes first, so that snapshots override whatever it left in captured paths; unless the crash came
            // before the first snapshot.
            let again = journal.state().is_set_up;
            let before = if again {
                run_setup(&spec.setup, &pins.settings, &runner, &redactor).await?
            } else {
                Vec::new()
            };
            recover_workspace(bootstrap, journal, &mut workspace, material, layers, before).await?;
            let place = (&workspace, &root);
            let due = pin_roles_after_fork(bootstrap, material, place, &redactor, journal.state())?;
            if let Some((event, blobs)) = due {
                append_roles(journal, event, &blobs).await?;
            }
            if !again {
                let setup = run_setup(&spec.setup, &pins.settings, &runner, &redactor).await?;
                append_setup(journal, &mut workspace, setup).await?;
            }
            journal.state().pins.clone().unwrap_or(pins)
        }
        None => {
            let start = restore_start_tree(bootstrap, &mut workspace, material).await?;
            let external = list_mcp_tools(bootstrap, (&runner, &redactor)).await?;
            let begun =
                build_run_started(bootstrap, material, &workspace, &root, (layers, &redactor), external)?;
            append_run_start(journal, &begun, start).await?;
            let setup = run_setup(&spec.setup, &begun.started.settings, &runner, &redactor).await?;
            append_setup(journal, &mut workspace, setup).await?;
            Arc::new(begun.started)
        }
    };
    let engine = engine::find_engine(&pins.engine)
        .ok_or_else(|| StartError::missing_engine(bootstrap.lease.task, &pins.engine.to_string()))?;
    let voices = ModelClients::for_models(bootstrap, &pins.models, material).await?;
    let mut bench = ToolExecutor {
        network_grants: NetworkGrants::for_policy(bootstrap.settings.policy.clone()),
        memory: Some(RunMemoryClient::new(material.source().clone(), bootstrap.lease.run)),
        mcp_servers: configured_servers(bootstrap),
        ..ToolExecutor::new(workspace, root, runner, redactor, &pins, spec.tests.clone())
    };
    baseline_checks::run_baseline_checks(bootstrap, journal, material, &mut bench).await?;
    Ok((engine, EffectRunner { model_clients: voices, executor: bench }))
}

/// Builds a redactor for configured values, server secrets and this process's keys: none of them belongs in a log. A
/// key that is not secret is left out, because a word such as `ollama` occurs in files and commands as well.
fn build_redactor(bootstrap: &RunBootstrap) -> Redactor {
    let given = bootstrap.settings.mcp_env.0.values();
    let (models, listed) = (Flow::from_spec(&bootstrap.lease.spec).models, &bootstrap.settings.base_urls);
    let is_secret = |(provider, key): &(&String, &String)| {
        redact::is_secret_key(key, is_key_used_only_locally(provider, &models, listed))
    };
    let keys = bootstrap.keys.iter().filter(is_secret).map(|(_, key)| key);
    let own = keys.chain(given).chain([&bootstrap.lease.token]);
    Redactor::new(bootstrap.settings.redact.0.iter().chain(own).cloned())
}

async fn append_setup(
    journal: &mut Journal,
    workspace: &mut Workspace,
    setup: Vec<SetupFinished>,
) -> Result<(), StartError> {
    if setup.is_empty() {
        return Ok(());
    }
    let delta = workspace.snapshot_walk().map_err(|error| StartError::from_environment_error(&error))?;
    let mut out = PendingAppend::default();
    let turn = journal.state().turn;
    setup.into_iter().for_each(|done| out.push(turn, done));
    if !delta.is_empty() {
        out.push_snapshot(turn, delta);
    }
    journal.append_results(&out).await?;
    Ok(())
}

/// Pins the roles of the engine before it decides anything, if it is not the engine that began the run.
async fn append_roles(
    journal: &mut Journal,
    event: RolesPinned,
    blobs: &[(BlobRef, Vec<u8>)],
) -> Result<(), StartError> {
    let mut out = PendingAppend::default();
    out.push(journal.state().turn, event);
    for (blob, bytes) in blobs {
        out.push_blob(*blob, bytes.clone());
    }
    journal.append_results(&out).await?;
    Ok(())
}

async fn append_run_start(
    journal: &mut Journal,
    begun: &PinnedRun,
    start: Vec<SnapshotTaken>,
) -> Result<(), StartError> {
    let mut out = PendingAppend::default();
    out.push(Turn(0), begun.started.clone());
    // In the same append: a child's run never exists without the tree it starts from.
    start.into_iter().for_each(|part| out.push(Turn(0), part));
    for (blob, bytes) in &begun.blobs {
        out.push_blob(*blob, bytes.clone());
    }
    journal.append_results(&out).await?;
    Ok(())
}
