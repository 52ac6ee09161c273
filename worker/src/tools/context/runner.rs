//! Interface of the tools to the sandbox: runs one shell line and returns how it ended and its output.

use docket_schema::{
    content::WorkspacePath,
    tool::{ExceededResource, NotRun, NotRunCause},
};
use futures_util::future::BoxFuture;

/// A shell line to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// The line for `/bin/sh -c`.
    pub shell: String,
    /// Working directory in the workspace; `None` is the root.
    pub cwd: Option<WorkspacePath>,
    /// Time limit in milliseconds, after which it is killed with everything it started.
    pub timeout_ms: u64,
}

/// Start and end of a stream; bytes in between were counted and dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedStream {
    /// The first bytes; all of them if `tail` is empty.
    pub head: Vec<u8>,
    /// The last bytes, if the stream was longer than the head.
    pub tail: Vec<u8>,
    /// Number of bytes written.
    pub total_bytes: u64,
}

impl CapturedStream {
    /// Returns the retained bytes, with a line that says how much is missing.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let kept = (self.head.len() + self.tail.len()) as u64;
        let mut out = self.head.clone();
        if kept < self.total_bytes {
            out.extend_from_slice(
                format!("\n[{} bytes were not kept]\n", self.total_bytes - kept).as_bytes(),
            );
        }
        out.extend_from_slice(&self.tail);
        out
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// It exited with this status.
    Exit(i32),
    /// It was killed by this signal.
    Signal(i32),
    /// It exceeded its time limit.
    TimedOut,
    /// It exceeded a resource limit.
    Exceeded(ExceededResource),
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    pub ended: CommandEnd,
    pub stdout: CapturedStream,
    pub stderr: CapturedStream,
    /// Protected paths that it changed and that were restored.
    pub restored_paths: Vec<String>,
}

/// Where the fault lies if a command cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerFault {
    /// The machine, or the runner itself.
    Host,
    /// The workspace or the command: the run may have caused it.
    Workspace,
}

/// The command could not be started, or the workspace could not be restored after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the command could not be run: {reason}")]
pub struct RunnerError {
    /// The reason, for the model and the log; contains no environment and no prompt.
    pub reason: String,
    pub fault: RunnerFault,
    /// The result of the command, if it had ended.
    pub output: Option<Box<CommandOutput>>,
}

impl RunnerError {
    /// Creates an error of the machine: the command did not run.
    #[must_use]
    pub fn from_host_fault(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), fault: RunnerFault::Host, output: None }
    }

    /// The record of a check that could not be run. A check that ran and failed is marked as partially run.
    #[must_use]
    pub fn to_not_run(&self) -> NotRun {
        let cause = match self.fault {
            RunnerFault::Host => NotRunCause::Sandbox,
            RunnerFault::Workspace => NotRunCause::Workspace,
        };
        let partly = self.output.as_ref().is_some_and(|output| output.ended != CommandEnd::Exit(0));
        NotRun { partly, ..NotRun::new(cause, self.to_string()) }
    }
}

/// Runs commands in the sandbox. No process outlives the returned future.
pub trait CommandRunner: Send + Sync {
    /// Runs one command to its end.
    fn run(&self, spec: CommandSpec) -> BoxFuture<'_, Result<CommandOutput, RunnerError>>;
}
