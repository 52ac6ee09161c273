//! The sandbox around a run's workspace, and how tools run commands in it.

use docket_sandbox::{
    BackendChoice, CapturedStream, CheckedHost, CommandExit, CommandOutput, CommandSpec, Limits, Sandbox,
    SandboxConfig, SandboxError,
};
use std::{sync::Arc, time::Duration};

use docket_schema::{
    api::{FaultKind, FaultScope},
    policy::AllowList,
    run::SandboxLayers,
    tool::NetworkActivity,
};
use futures_util::future::BoxFuture;

use crate::run::errors::{error_chain, start_error::StartError};
use crate::{
    bootstrap::SandboxChoice,
    tools::{self, RunnerError, RunnerFault},
    workspace::Workspace,
};

/// Prepares the sandbox for a workspace, on a host that was already checked or by probing it now.
pub(in crate::run) async fn prepare_sandbox(
    (choice, limits): (SandboxChoice, Option<Limits>),
    walls: Option<&CheckedHost>,
    workspace: &Workspace,
) -> Result<Sandbox, StartError> {
    let mut config = SandboxConfig::new(backend_choice(choice), workspace.path());
    config.readonly.extend(workspace.borrowed_objects());
    config.limits = limits.unwrap_or(config.limits);
    let sandbox = match walls {
        Some(checked) => Sandbox::for_checked_host(&config, checked),
        None => Sandbox::prepare(config).await,
    };
    sandbox.map_err(|error| {
        StartError::from_worker_fault(
            FaultKind::Sandbox,
            FaultScope::AnyTask,
            &error_chain::format_chain(&error),
        )
    })
}

pub(in crate::run) const fn backend_choice(choice: SandboxChoice) -> BackendChoice {
    match choice {
        SandboxChoice::Auto => BackendChoice::Auto,
        SandboxChoice::Bubblewrap => BackendChoice::Bubblewrap,
        SandboxChoice::Namespaces => BackendChoice::Namespaces,
        SandboxChoice::None => BackendChoice::None,
    }
}

/// Returns the sandbox layers to record in the run's log.
pub(in crate::run) fn sandbox_layers(sandbox: &Sandbox) -> SandboxLayers {
    let report = sandbox.report();
    SandboxLayers {
        backend: report.backend.to_string(),
        active: report.active.iter().map(|layer| layer.name().to_owned()).collect(),
        missing: report.missing.iter().map(|gap| format!("{}: {}", gap.layer.name(), gap.reason)).collect(),
        limits: report.limits,
    }
}

/// The sandbox as tools use it.
pub(in crate::run) struct SandboxRunner(pub(in crate::run) Sandbox);

impl tools::CommandRunner for SandboxRunner {
    fn run(&self, spec: tools::CommandSpec) -> BoxFuture<'_, Result<tools::CommandOutput, RunnerError>> {
        Box::pin(async move { Ok(self.run_with_network(spec, None).await?.0) })
    }
}

impl SandboxRunner {
    /// Runs one command with its network grant, and returns its network activity.
    pub(in crate::run) async fn run_with_network(
        &self,
        spec: tools::CommandSpec,
        network: Option<Arc<AllowList>>,
    ) -> Result<(tools::CommandOutput, Option<NetworkActivity>), RunnerError> {
        let mut command = CommandSpec::shell(spec.shell);
        if let Some(cwd) = spec.cwd {
            command.cwd = cwd.to_string().into();
        }
        command.timeout = Duration::from_millis(spec.timeout_ms);
        command.network = network;
        let mut output = self.0.run(command).await.map_err(runner_error)?;
        let seen = output.network.take();
        Ok((to_tool_output(output), seen))
    }
}

fn to_tool_output(output: CommandOutput) -> tools::CommandOutput {
    tools::CommandOutput {
        ended: to_tool_ended(output.exit),
        stdout: to_tool_captured(output.stdout),
        stderr: to_tool_captured(output.stderr),
        restored_paths: output.restored_paths,
    }
}

fn runner_error(error: SandboxError) -> RunnerError {
    let reason = error.to_string();
    let fault = if error.is_workspace_fault() { RunnerFault::Workspace } else { RunnerFault::Host };
    let output = if let SandboxError::RestoreFailed { output, .. } = error { Some(*output) } else { None };
    RunnerError { reason, fault, output: output.map(to_tool_output).map(Box::new) }
}

const fn to_tool_ended(ended: CommandExit) -> tools::CommandEnd {
    match ended {
        CommandExit::Exit(status) => tools::CommandEnd::Exit(status),
        CommandExit::Signal(signal) => tools::CommandEnd::Signal(signal),
        CommandExit::TimedOut => tools::CommandEnd::TimedOut,
        CommandExit::Exceeded(what) => tools::CommandEnd::Exceeded(what),
    }
}

fn to_tool_captured(captured: CapturedStream) -> tools::CapturedStream {
    let mut head = captured.bytes;
    // If nothing was dropped, there is no gap and therefore no tail.
    let tail = if captured.truncated { head.split_off(captured.head_bytes) } else { Vec::new() };
    tools::CapturedStream { head, tail, total_bytes: captured.total_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_output_marks_the_gap() {
        let of = |bytes: &[u8], head_bytes, total_bytes| {
            let truncated = total_bytes > bytes.len() as u64;
            let kept = CapturedStream { bytes: bytes.to_vec(), head_bytes, total_bytes, truncated };
            String::from_utf8(to_tool_captured(kept).to_bytes()).unwrap()
        };
        assert_eq!(of(b"headtail", 4, 108), "head\n[100 bytes were not kept]\ntail");
        assert_eq!(of(b"headtail", 4, 8), "headtail");
    }
}
