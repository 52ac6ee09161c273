//! The start of a run process: fold what there is, make or restore the workspace, stand up the
//! sandbox; and for a run that begins, pin everything its decisions will depend on.

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
    base,
    begin::{Begun, begin, roles_after_fork},
    recovery::recover,
    servers::{offered, servers},
};
use crate::run::{
    delegation::child_start::started_from,
    environment::{
        granted::Grants,
        run_workspace::{open_root, workspace_options},
        sandbox_runner::{SandboxRunner, layers, sandbox},
        setup::setup,
    },
    errors::{causes, faults, host_faults::fault_of_folders, start_error::StartError},
    log::{
        failpoint::Failpoints,
        journal::{Journal, JournalError},
        material::{Material, READ_PATIENCE},
        outgoing::Outgoing,
    },
    model_calls::{act::Hands, voices::Voices},
    permits::pace::Pace,
    run_loop::turn::Driver,
    tool_calls::{remember::RunMemory, workbench::Workbench},
};
use crate::{
    bootstrap::Bootstrap,
    client::{Client, Lineage, patiently},
    engine::{self, Engine},
    model::{Secret, goes_to_local_servers_alone},
    workspace::{self, Workspace},
};

/// Folds, makes, restores: gives a driver that is ready to run.
///
/// # Errors
/// [`StartError`]. An environment that cannot be made is recorded as the run's end before.
pub(in crate::run) async fn start(
    bootstrap: Bootstrap,
    drain: watch::Receiver<bool>,
) -> Result<Driver, StartError> {
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
                journal.append_failure(why, message.clone(), None).await?;
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
        match fault_of_folders(&error) {
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
    let root = open_root(&workspace)?;
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
    let mut bench = Workbench {
        grants: Grants::on(bootstrap.settings.policy.clone()),
        memory: Some(RunMemory::of(material.source().clone(), bootstrap.lease.run)),
        servers: servers(bootstrap),
        ..Workbench::new(workspace, root, runner, redactor, &pins, spec.tests.clone())
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
