//! Reasons for a check that did not run, recorded with its result because engines decide by the log alone.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cause of a check that did not run, or not completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotRunCause {
    /// The sandbox could not start it: a fault of the worker, never of the run.
    Sandbox,
    /// The workspace, or processes in it, prevented the sandbox from running the check or from cleaning up:
    /// folders nested too deeply, a repository that cannot be protected. The run may have caused it.
    Workspace,
    /// A program it calls was not found (exit status 127) or cannot be executed (126).
    ProgramMissing,
    /// The test runner is not installed: `No module named pytest`.
    RunnerMissing,
    /// A package that the project depends on is not installed, and commands have no network to fetch it.
    DependencyMissing,
    /// The runner could not load tests: a module that fails to import, a wrong option.
    CollectionFailed,
    /// The tests do not compile.
    CompileFailed,
    /// The runner ran no tests, although files with tests exist.
    NoTests,
    /// It reached its time limit.
    TimedOut,
    /// It was killed by a signal.
    Killed,
    /// It used more memory, processes, disk space or output than allowed.
    LimitExceeded,
}

/// How far a check got, in ascending order. A check that gets less far at the end of a run than before was
/// broken by the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CheckProgress {
    /// The sandbox did not start it, so nothing is known.
    NotStarted,
    /// No command can run in the workspace.
    NoWorkspace,
    /// Its runner is not installed.
    NoRunner,
    /// Its runner started but could not load all tests.
    NotCollected,
    /// Tests ran and were interrupted.
    Interrupted,
    /// It ran to completion.
    Ran,
}

impl NotRunCause {
    /// Every cause.
    pub const ALL: [Self; 11] = [
        Self::Sandbox,
        Self::Workspace,
        Self::ProgramMissing,
        Self::RunnerMissing,
        Self::DependencyMissing,
        Self::CollectionFailed,
        Self::CompileFailed,
        Self::NoTests,
        Self::TimedOut,
        Self::Killed,
        Self::LimitExceeded,
    ];

    /// Returns how far a check gets with this cause.
    #[must_use]
    pub const fn progress(self) -> CheckProgress {
        match self {
            Self::Sandbox => CheckProgress::NotStarted,
            Self::Workspace => CheckProgress::NoWorkspace,
            Self::ProgramMissing | Self::RunnerMissing | Self::DependencyMissing => CheckProgress::NoRunner,
            Self::CollectionFailed | Self::CompileFailed | Self::NoTests => CheckProgress::NotCollected,
            Self::TimedOut | Self::Killed | Self::LimitExceeded => CheckProgress::Interrupted,
        }
    }
}

/// A check that did not run, or only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotRun {
    /// The cause.
    pub cause: NotRunCause,
    /// The reason for people, as the end of a sentence: `pytest is not there`.
    pub reason: String,
    /// Name of the missing program, runner or package; `None` for other causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Test files, modules or packages that could not be loaded, as the runner lists them; incomplete if it
    /// lists none or very many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncollected: Vec<String>,
    /// Whether other tests ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partly: bool,
    /// Whether the run may have caused it: it changed files that configure the project's tests, or it wrote
    /// the check itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_run: bool,
}

impl NotRun {
    /// Creates the reason without further details.
    #[must_use]
    pub fn new(cause: NotRunCause, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { cause, reason, missing: None, uncollected: Vec::new(), partly: false, by_run: false }
    }

    /// Creates the reason for a missing program, runner or package.
    #[must_use]
    pub fn for_missing(cause: NotRunCause, name: &str) -> Self {
        Self { missing: Some(name.to_owned()), ..Self::new(cause, format!("{name} is not there")) }
    }
}
