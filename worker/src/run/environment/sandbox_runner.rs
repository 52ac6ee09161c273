//! The sandbox around a run's workspace, and its commands as tools run them.

use docket_sandbox::{
    BackendChoice, Captured, Checked, CommandOutput, CommandSpec, Ended, Limits, Sandbox, SandboxConfig,
    SandboxError,
};
use std::{sync::Arc, time::Duration};

use docket_schema::{
    policy::AllowList,
    run::SandboxLayers,
    tool::NetworkSeen,
    wire::{FaultKind, FaultScope},
};
use futures_util::future::BoxFuture;

use crate::run::errors::{causes, start_error::StartError};
use crate::{
    bootstrap::SandboxChoice,
    tools::{self, RunnerError, RunnerFault},
    workspace::Workspace,
};

/// The sandbox around a workspace: on a host whose walls were checked, or on one that is probed now.
pub(in crate::run) async fn sandbox(
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

pub(in crate::run) const fn backend(choice: SandboxChoice) -> BackendChoice {
    match choice {
        SandboxChoice::Auto => BackendChoice::Auto,
        SandboxChoice::Bubblewrap => BackendChoice::Bubblewrap,
        SandboxChoice::Namespaces => BackendChoice::Namespaces,
        SandboxChoice::None => BackendChoice::None,
    }
}

/// What stands around the commands of a run, as its log tells.
pub(in crate::run) fn layers(sandbox: &Sandbox) -> SandboxLayers {
    let report = sandbox.report();
    SandboxLayers {
        backend: report.backend.to_string(),
        active: report.active.iter().map(|layer| layer.name().to_owned()).collect(),
        missing: report.missing.iter().map(|gap| format!("{}: {}", gap.layer.name(), gap.reason)).collect(),
        limits: report.limits,
    }
}

/// The sandbox as the tools see it.
pub(in crate::run) struct SandboxRunner(pub(in crate::run) Sandbox);

impl tools::Runner for SandboxRunner {
    fn run(&self, spec: tools::CommandSpec) -> BoxFuture<'_, Result<tools::CommandOutput, RunnerError>> {
        Box::pin(async move { Ok(self.run_with(spec, None).await?.0) })
    }
}

impl SandboxRunner {
    /// Runs one command, with what of the network it was granted; says what it did there.
    pub(in crate::run) async fn run_with(
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

const fn ended(ended: Ended) -> tools::Ended {
    match ended {
        Ended::Exit(status) => tools::Ended::Exit(status),
        Ended::Signal(signal) => tools::Ended::Signal(signal),
        Ended::TimedOut => tools::Ended::TimedOut,
        Ended::Exceeded(what) => tools::Ended::Exceeded(what),
    }
}

fn captured(captured: Captured) -> tools::Captured {
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
            let kept = Captured { bytes: bytes.to_vec(), head_bytes, total_bytes, truncated };
            String::from_utf8(captured(kept).joined()).unwrap()
        };
        assert_eq!(of(b"headtail", 4, 108), "head\n[100 bytes were not kept]\ntail");
        assert_eq!(of(b"headtail", 4, 8), "headtail");
    }
}
