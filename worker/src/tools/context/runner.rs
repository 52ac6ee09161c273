//! What the tools ask of the sandbox: one shell line in, its end and its output back.

use docket_schema::{
    content::WorkspacePath,
    tool::{ExceededResource, NotRun, NotRunCause},
};
use futures_util::future::BoxFuture;

/// A shell line to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSpec {
    /// The line, for `/bin/sh -c`.
    pub shell: String,
    /// Where, in the workspace; `None` is its root.
    pub cwd: Option<WorkspacePath>,
    /// When it is ended, and all it started.
    pub timeout_ms: u64,
}

/// Start and end of a stream; what lies between was counted and dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CapturedStream {
    /// The first bytes; all of them where `tail` is empty.
    pub head: Vec<u8>,
    /// The last bytes, where the stream was longer than the head may be.
    pub tail: Vec<u8>,
    /// All bytes that were written.
    pub total_bytes: u64,
}

impl CapturedStream {
    /// The stream as far as it was kept, with a line that says what is missing.
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
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// By its time limit.
    TimedOut,
    /// For it used more than allowed.
    Exceeded(ExceededResource),
}

/// What a command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandOutput {
    /// How it ended.
    pub ended: CommandEnd,
    /// Standard output.
    pub stdout: CapturedStream,
    /// Standard error.
    pub stderr: CapturedStream,
    /// Protected paths that it changed, and that are as before again.
    pub restored_paths: Vec<String>,
}

/// Where the fault lies when a command cannot be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunnerFault {
    /// The machine, or the runner itself.
    Host,
    /// The workspace, or the command: the run may have caused it.
    Workspace,
}

/// The command could not be started, or the workspace not be put in order after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the command could not be run: {reason}")]
pub struct RunnerError {
    /// Why, for the model and the log: no environment, no prompt.
    pub reason: String,
    /// Where the fault lies.
    pub fault: RunnerFault,
    /// The result of the command, where it had ended by then.
    pub output: Option<Box<CommandOutput>>,
}

impl RunnerError {
    /// An error of the machine: the command did not run.
    #[must_use]
    pub fn from_host_fault(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), fault: RunnerFault::Host, output: None }
    }

    /// The record of a check that could not be run. One that ran and failed is marked as run in part.
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

/// Runs commands, sandboxed. No process outlives the future it returns.
pub trait CommandRunner: Send + Sync {
    /// Runs one command to its end.
    fn run(&self, spec: CommandSpec) -> BoxFuture<'_, Result<CommandOutput, RunnerError>>;
}
