//! Classifies failures of a run process as faults of its worker rather than the task. For such a fault the process
//! records no end of the run; it reports the fault to its supervisor, which releases the lease without counting a
//! failure.
//!
//! Everything else keeps its meaning: a task that asks for something impossible ends the run, and an outage of a
//! provider or the coordinator is waited out.

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

/// Writes the fault where the supervisor reads it, and returns the exit status of the process.
pub(in crate::run) fn report_fault(note: Option<&Path>, fault: &WorkerFault) -> i32 {
    tracing::error!(
        kind = fault.kind.as_str(),
        message = fault.message,
        "this worker cannot execute the run"
    );
    let written = || {
        let text = serde_json::to_vec(fault).map_err(std::io::Error::other)?;
        match note {
            // Overwrites bytes that the supervisor reserved, because the disk may be full.
            Some(note) if text.len() <= FAULT_NOTE_BYTES => {
                OpenOptions::new().write(true).open(note)?.write_all_at(&text, 0)
            }
            Some(_) | None => Err(std::io::ErrorKind::FileTooLarge.into()),
        }
    };
    if let Err(error) = written() {
        tracing::error!(%error, "the fault cannot be reported; the supervisor only sees the exit status");
    }
    EXIT_WORKER_FAULT
}

/// Replaces a start error by the worker fault behind it, if there is one.
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

/// Returns which tasks a broken server keeps from this worker: all of them only if no workspace can be the cause. A
/// server that runs in the workspace loads files from there, whatever its command names (`python3 -m notes` prefers a
/// `json.py` of the workspace to its own), so its failure concerns one task. The supervisor counts them to detect a
/// general fault.
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
        // A server with secrets is started outside the workspace.
        McpSessionError::Broken { .. } => {
            !server.env_from.is_empty() && !server.command.iter().any(|word| names_workspace_file(word))
        }
    };
    if is_of_worker { FaultScope::AnyTask } else { FaultScope::Task(task) }
}

/// Checks that this worker has the keys for the task's own models, before anything of the run is recorded.
///
/// # Errors
/// [`StartError::WorkerFault`]: a key is missing.
pub(in crate::run) fn check_model_keys(bootstrap: &RunBootstrap) -> Result<(), StartError> {
    let spec = &bootstrap.lease.spec;
    let roles = spec.roles.iter().filter_map(|role| role.model.as_ref());
    for model in std::iter::once(&spec.model).chain(roles) {
        // Unknown providers are refused when their client is created.
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

/// Returns the worker fault that made a model call fail, if any. A failed summary falls back to the rule instead.
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

/// Returns the fault behind a refusal. Only a rejected key affects the provider's other models: a task chooses its
/// model and must not thereby block the tasks of others.
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

/// Returns the worker fault that kept a final check from running, if any: its sandbox does not start, or it lacks
/// something that the worker of the baseline run had.
pub(in crate::run) fn final_checks_fault(state: &RunState, results: &PendingAppend) -> Option<WorkerFault> {
    let task = state.pins.as_ref()?.task;
    let found = finished_checks(results).find_map(|check| {
        sandbox_failure(check)
            .map(|why| (FaultKind::Sandbox, why.reason.clone()))
            .or_else(|| Some((FaultKind::Toolchain, missing_on_this_worker(state, check)?)))
    });
    let (kind, message) = found?;
    // If the fault affects other tasks, they report it themselves: the commands of one task must not take a worker
    // out of service.
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

/// Describes what this worker lacks for a check that ran elsewhere.
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
