//! Which failures of a run process are faults of its worker, and not of the task: the process then records no end of
//! the run. It reports the fault to its supervisor, which gives the lease back: no failure is counted.
//!
//! Everything else keeps its meaning: what the task asks for and nobody can give ends the run, an outage of a
//! provider or of the coordinator is waited out.

use std::{fs::OpenOptions, os::unix::fs::FileExt as _, path::Path};

use docket_sandbox::SandboxError;
use docket_schema::{
    api::{FaultKind, FaultScope, WorkerFault},
    ids::TaskId,
    message::ModelRef,
    run::{CallPurpose, CheckResult, GateFinished, ModelFailed, RunEvent, RunState},
    task::Flow,
    tool::{NotRun, NotRunCause},
};

use super::start_error::StartError;
use crate::run::log::pending_append::PendingAppend;
use crate::{
    bootstrap::{EXIT_WORKER_FAULT, RunBootstrap},
    engine::ModelCall,
    mcp::{McpServer, McpSessionError, names_workspace_file},
    model::{ModelError, ModelProvider, Secret},
    supervisor::FAULT_NOTE_BYTES,
};

/// Writes the fault where the supervisor reads it; gives the exit status of the process.
pub(in crate::run) fn report_fault(note: Option<&Path>, fault: &WorkerFault) -> i32 {
    tracing::error!(
        kind = fault.kind.as_str(),
        message = fault.message,
        "this worker cannot carry out the run"
    );
    let written = || {
        let text = serde_json::to_vec(fault).map_err(std::io::Error::other)?;
        match note {
            // Over the bytes that the supervisor reserved: a disk may be full.
            Some(note) if text.len() <= FAULT_NOTE_BYTES => {
                OpenOptions::new().write(true).open(note)?.write_all_at(&text, 0)
            }
            Some(_) | None => Err(std::io::ErrorKind::FileTooLarge.into()),
        }
    };
    if let Err(error) = written() {
        tracing::error!(%error, "the fault cannot be reported; the supervisor learns of it by the exit status alone");
    }
    EXIT_WORKER_FAULT
}

/// What the start of a run failed at, with the fault of the worker in place of what only shows it.
pub(in crate::run) fn into_worker_fault(error: StartError, bootstrap: &RunBootstrap) -> StartError {
    let setup = &bootstrap.lease.spec.setup;
    match error {
        StartError::CommandMissing(message) => {
            let scope = FaultScope::Setup(Flow::setup_hash(setup));
            let message =
                format!("{message}; install what it needs where this worker runs, or correct the command");
            StartError::from_worker_fault(FaultKind::Toolchain, scope, &message)
        }
        error @ (StartError::EmptyToken
        | StartError::Client(_)
        | StartError::Journal(_)
        | StartError::CoordinatorUnavailable(_)
        | StartError::WorkerFault(_)
        | StartError::Environment(_)
        | StartError::Configuration(_)) => error,
    }
}

/// Which tasks a server that does not work keeps from this worker: every task only where no workspace can be the cause.
/// A server that runs in the workspace reads what lies there, whatever its command names (`python3 -m notes` takes a
/// `json.py` of the workspace before its own), so its failure says something of one task. Many of them say more:
/// the supervisor counts them.
pub(in crate::run) fn mcp_fault_scope(
    server: &McpServer,
    error: &McpSessionError,
    task: TaskId,
) -> FaultScope {
    let is_of_worker = match error {
        McpSessionError::MissingVariable { .. } => true,
        McpSessionError::Start(SandboxError::ExecuteFailed { source, .. }) => {
            let is_missing = source.kind() == std::io::ErrorKind::NotFound;
            is_missing && server.command.first().is_some_and(|program| !names_workspace_file(program))
        }
        McpSessionError::Start(_) => false,
        // One that is given secrets is started outside of the workspace.
        McpSessionError::Broken { .. } => {
            !server.env_from.is_empty() && !server.command.iter().any(|word| names_workspace_file(word))
        }
    };
    if is_of_worker { FaultScope::AnyTask } else { FaultScope::Task(task) }
}

/// Whether this worker has the keys that the task's own models want. Asked before anything of the run is recorded.
///
/// # Errors
/// [`StartError::Worker`]: one is missing.
pub(in crate::run) fn check_model_keys(bootstrap: &RunBootstrap) -> Result<(), StartError> {
    let spec = &bootstrap.lease.spec;
    let roles = spec.roles.iter().filter_map(|role| role.model.as_ref());
    for model in std::iter::once(&spec.model).chain(roles) {
        // What is no provider at all is refused where its client is made.
        let Ok(provider) = ModelProvider::for_model(model) else { continue };
        let Some(variable) = provider.key_variable().filter(|_| model.base_url.is_none()) else { continue };
        let has_key = bootstrap.keys.get(provider.key_name()).is_some_and(|key| Secret::new(key).is_some());
        if !has_key {
            let error = ModelError::NoKey { variable };
            return Err(StartError::from_worker_fault(
                FaultKind::Key,
                FaultScope::for_provider(model),
                &error.to_string(),
            ));
        }
    }
    Ok(())
}

/// The fault of this worker that a model call failed at, if it did. A summary that fails is made by rule.
pub(in crate::run) fn model_call_fault(call: &ModelCall, results: &PendingAppend) -> Option<WorkerFault> {
    match call.purpose {
        CallPurpose::Compact => return None,
        CallPurpose::Decide | CallPurpose::Plan | CallPurpose::Review => {}
    }
    let failed = results
        .events()
        .iter()
        .find_map(|(_, event)| if let RunEvent::ModelFailed(failed) = event { Some(failed) } else { None })?;
    model_refusal_fault(&call.model, failed)
}

/// The fault behind a refusal. Only a key that is not taken concerns the provider's other models: a task chooses its
/// model, and must not keep the tasks of others away by it.
fn model_refusal_fault(model: &ModelRef, failed: &ModelFailed) -> Option<WorkerFault> {
    let (kind, scope) = match failed.error.as_str() {
        "no_key" | "unauthorized" => (FaultKind::Key, FaultScope::for_provider(model)),
        "key_withheld" => (FaultKind::Key, FaultScope::Model(ModelRef::clone(model))),
        "forbidden" => (FaultKind::Model, FaultScope::Model(ModelRef::clone(model))),
        _ => return None,
    };
    let server = model.base_url.as_ref().map_or_else(String::new, |url| format!(" at {url}"));
    let variable = ModelProvider::for_model(model).ok().and_then(ModelProvider::key_variable);
    let key = match variable.filter(|_| failed.error == "unauthorized") {
        Some(variable) => format!(" (the key is that of {variable})"),
        None => String::new(),
    };
    let message = format!("model {model}{server}: {}{key}", failed.message);
    Some(WorkerFault::new(kind, scope, &message))
}

/// The fault of this worker that kept a final check from running, if one did: its sandbox does not start, or it lacks
/// what the worker had that ran the check before the run began to work.
pub(in crate::run) fn final_checks_fault(state: &RunState, results: &PendingAppend) -> Option<WorkerFault> {
    let task = state.pins.as_ref()?.task;
    let found = finished_checks(results).find_map(|check| {
        sandbox_failure(check)
            .map(|why| (FaultKind::Sandbox, why.reason.clone()))
            .or_else(|| Some((FaultKind::Toolchain, missing_on_this_worker(state, check)?)))
    });
    let (kind, message) = found?;
    // Other tasks meet it by themselves, should it concern them: what a task runs must not take a worker out of service.
    Some(WorkerFault::new(kind, FaultScope::Task(task), &message))
}

fn finished_checks(results: &PendingAppend) -> impl Iterator<Item = &GateFinished> {
    results.events().iter().filter_map(|(_, event)| match event {
        RunEvent::GateFinished(finished) => Some(finished),
        _ => None,
    })
}

fn sandbox_failure(check: &GateFinished) -> Option<&NotRun> {
    check.facts.not_run.as_ref().filter(|why| why.cause == NotRunCause::Sandbox)
}

/// What this worker lacks for a check that ran elsewhere, in words.
fn missing_on_this_worker(state: &RunState, check: &GateFinished) -> Option<String> {
    let name = &state.open_gates.iter().find(|open| open.call == check.call)?.gate.name;
    let end = CheckResult::from_facts(check.passed, &check.facts);
    let why = state.known_failures.missing_here(name, &end)?;
    Some(format!(
        "the check `{name}` ran on another worker before this run's work and cannot run here: {}; install it where this \
         worker runs, or add its folder to the worker's PATH",
        why.reason
    ))
}

#[cfg(test)]
mod tests {
    use docket_schema::{ids::Turn, message::CallId, run::GateStep, tool::ToolFacts};
    use nix::errno::Errno;

    use super::*;

    fn server(command: &[&str], env_from: &[&str]) -> McpServer {
        let command = serde_json::json!({ "command": command, "env_from": env_from });
        serde_json::from_value(command).unwrap()
    }

    #[test]
    fn only_checks_the_sandbox_failed_to_start_are_worker_faults() {
        let finished = |cause: NotRunCause| GateFinished {
            call: CallId::for_gate(Turn(1), 0),
            step: GateStep::Check,
            passed: false,
            content: String::new().into(),
            full: None,
            facts: ToolFacts { not_run: Some(NotRun::new(cause, "why")), ..ToolFacts::default() },
            duration_ms: 1,
        };
        for cause in NotRunCause::ALL {
            let is_fault = sandbox_failure(&finished(cause)).is_some();
            assert_eq!(is_fault, cause == NotRunCause::Sandbox, "{cause:?}");
        }
    }

    #[test]
    fn only_a_server_independent_of_the_workspace_faults_every_task() {
        let task = TaskId(uuid::Uuid::from_u128(7));
        let of_worker = |command: &[&str], env_from: &[&str], error: &McpSessionError| {
            let scope = mcp_fault_scope(&server(command, env_from), error, task);
            assert!(scope == FaultScope::AnyTask || scope == FaultScope::Task(task), "{scope:?}");
            scope == FaultScope::AnyTask
        };
        let cannot_execute = |errno: Errno| {
            let source = std::io::Error::from(errno);
            McpSessionError::Start(SandboxError::ExecuteFailed { program: "notes".to_owned(), source })
        };
        let broken =
            McpSessionError::Broken { what: "it ended with status 1".to_owned(), said: String::new() };
        for command in [["notes", "--stdio"], ["/opt/notes", "--stdio"]] {
            assert!(of_worker(&command, &[], &cannot_execute(Errno::ENOENT)), "{command:?}");
            assert!(!of_worker(&command, &[], &cannot_execute(Errno::EACCES)), "{command:?}");
            assert!(!of_worker(&command, &[], &broken), "{command:?}");
        }
        for command in ["./notes", "tools/notes", "/workspace/notes"] {
            assert!(!of_worker(&[command], &[], &cannot_execute(Errno::ENOENT)), "{command}");
        }
        for command in
            [["python3", "-m"], ["python3", "notes.py"], ["npx", "x"], ["python3", "/opt/notes.py"]]
        {
            assert!(!of_worker(&command, &[], &broken), "{command:?}");
        }
        assert!(of_worker(&["python3", "/opt/notes.py"], &["NOTES_TOKEN"], &broken));
        assert!(!of_worker(&["python3", "/workspace/tools/x.py"], &["NOTES_TOKEN"], &broken));
        let unset = McpSessionError::MissingVariable { name: "NOTES_TOKEN".to_owned() };
        assert!(of_worker(&["python3", "notes.py"], &["NOTES_TOKEN"], &unset));
    }

    #[test]
    fn only_an_unauthorized_key_faults_all_models_of_the_provider() {
        let remote = ModelRef { provider: "openai".to_owned(), name: "m".to_owned(), base_url: None };
        let local = ModelRef { base_url: Some("http://127.0.0.1:1/v1".to_owned()), ..remote.clone() };
        let scope = |model: &ModelRef, error: &str| {
            let failed = ModelFailed {
                call: docket_schema::message::CallId("t1".to_owned()),
                error: error.to_owned(),
                message: "the model m does not exist".to_owned(),
                retry_in_ms: None,
                retry_after_ms: None,
                needs_person: false,
                duration_ms: 0,
            };
            model_refusal_fault(model, &failed).map(|fault| fault.scope)
        };
        for error in ["unauthorized", "no_key"] {
            assert_eq!(scope(&remote, error), Some(FaultScope::for_provider(&remote)), "{error}");
        }
        assert_eq!(
            scope(&remote, "key_withheld"),
            Some(FaultScope::Model(remote.clone())),
            "of what tasks name"
        );
        assert_eq!(scope(&remote, "forbidden"), Some(FaultScope::Model(remote.clone())));
        assert_eq!(scope(&local, "invalid_request"), None, "a model that is misspelt is misspelt everywhere");
        assert_eq!(scope(&remote, "invalid_request"), None, "no worker can ask for it");
        assert_eq!(scope(&remote, "overloaded"), None);
    }
}
