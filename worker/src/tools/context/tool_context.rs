//! Context passed to a tool, and the outcome it returns.

use std::{collections::BTreeMap, time::Instant};

use docket_schema::{
    content::WorkspacePath,
    ids::BlobHash,
    message::CallId,
    redact::Redactor,
    tool::{FileVersion, ToolFacts},
};

use crate::{calls::FullOutputs, policy::PathVisibility};

use super::{
    base_view::BaseView,
    memory_backend::MemoryBackend,
    runner::{CommandRunner, RunnerError},
};
use crate::tools::text::{output::escape_hidden, signature::error_signature};

/// Hash of each file as this run last read or wrote it.
pub type ReadSet = BTreeMap<WorkspacePath, BlobHash>;

/// Limits that a run's settings may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    /// Most characters of a command's output shown to the model: half from the start, half from the end.
    pub output_chars_max: usize,
    /// Default time limit of a command, in milliseconds.
    pub command_timeout_ms: u64,
    /// Longest time limit that a command may request, in milliseconds.
    pub command_timeout_ms_max: u64,
    /// Files up to this many lines are shown in full.
    pub read_lines_max: u64,
    /// Whether to refuse an edit or new file that adds syntax errors, instead of adding a remark.
    pub refuse_syntax_errors: bool,
    /// Redacts output before it is truncated: half a secret would no longer be recognized.
    pub redactor: Redactor,
    /// End of the run's time budget: no command continues beyond it.
    pub deadline: Option<Instant>,
    /// Policy for files that a call reaches without naming them: search hits and files in a moved folder.
    pub visibility: PathVisibility,
}

/// How long a command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    /// In milliseconds, at least 1.
    pub ms: u64,
    /// Whether the limit is the rest of the run's time budget, which is less than the command's own limit.
    pub is_run_budget: bool,
}

impl ToolSettings {
    /// Time limit of a command that starts now and may take `ms` by itself.
    pub fn time_limit(&self, ms: u64) -> TimeLimit {
        let left = self.deadline.map(|at| at.saturating_duration_since(Instant::now()).as_millis());
        match left.and_then(|left| u64::try_from(left).ok()).filter(|left| *left < ms) {
            Some(left) => TimeLimit { ms: left.max(1), is_run_budget: true },
            None => TimeLimit { ms, is_run_budget: false },
        }
    }
}

impl Default for ToolSettings {
    fn default() -> Self {
        Self {
            output_chars_max: 4000,
            command_timeout_ms: 60_000,
            command_timeout_ms_max: 300_000,
            read_lines_max: 500,
            refuse_syntax_errors: false,
            redactor: Redactor::default(),
            deadline: None,
            visibility: PathVisibility::default(),
        }
    }
}

/// The project's own test command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRunnerConfig {
    /// A shell line; `{path}` is replaced by the quoted test path, or by nothing.
    pub command: String,
}

/// What every tool works with.
#[derive(Clone, Copy)]
pub struct ToolContext<'a> {
    /// The workspace: all file access goes through this handle.
    pub root: &'a cap_std::fs::Dir,
    pub runner: &'a dyn CommandRunner,
    pub read_set: &'a ReadSet,
    pub settings: &'a ToolSettings,
    /// The configured test command, if any.
    pub test_runner: Option<&'a TestRunnerConfig>,
    /// Full outputs that this batch of calls may read.
    pub outputs: &'a FullOutputs,
    /// Content from before the run.
    pub base: &'a BaseView,
    /// Memory that outlives the run.
    pub memory: &'a dyn MemoryBackend,
    /// The call being executed; its effects outside the run take place only once. `None` outside of a run.
    pub call: Option<&'a CallId>,
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolOutcome {
    /// The answer as the model reads it.
    pub content: Vec<u8>,
    /// Whether the tool refused or failed. A command that exits with a nonzero status and tests that fail are not
    /// tool errors: see `facts.exit`.
    pub is_error: bool,
    /// The full output, if `content` contains a part.
    pub full_output: Option<Vec<u8>>,
    /// Facts that decisions depend on.
    pub facts: ToolFacts,
}

impl ToolOutcome {
    pub(crate) fn ok(text: impl Into<String>) -> Self {
        Self { content: text.into().into_bytes(), ..Self::default() }
    }

    /// A refusal or failure of tool `name`. Quotes from a call or file may contain characters that hide or overwrite
    /// others, also on a person's terminal; they are written as `\\u{…}`.
    pub(crate) fn error(name: &str, text: impl Into<String>) -> Self {
        let text: String = text.into();
        let text = text.split('\n').map(escape_hidden).collect::<Vec<_>>().join("\n");
        let facts = ToolFacts {
            error_signature: Some(error_signature(&format!("{name}: {}", text.lines().next().unwrap_or("")))),
            ..ToolFacts::default()
        };
        Self { content: text.into_bytes(), is_error: true, full_output: None, facts }
    }

    /// A failure of tool `name` in the middle of a command: how far it got is unknown.
    pub(crate) fn error_midway(name: &str, text: impl Into<String>) -> Self {
        let mut outcome = Self::error(name, text);
        outcome.facts.may_have_changed_tree = true;
        outcome
    }

    /// The outcome of a command that the runner could not run, or after which it could not restore the workspace;
    /// `own` is the command's own outcome up to then.
    pub(crate) fn from_runner_error(name: &str, error: &RunnerError, own: Option<Self>) -> Self {
        let mut outcome = match own {
            Some(mut own) => {
                own.content.extend_from_slice(format!("{error}\n").as_bytes());
                own.is_error = true;
                own.facts.may_have_changed_tree = true;
                own
            }
            None => Self::error_midway(name, error.to_string()),
        };
        outcome.facts.not_run = Some(error.to_not_run());
        outcome
    }

    pub(crate) fn with_seen_file(mut self, path: WorkspacePath, hash: BlobHash) -> Self {
        self.facts.read.push(FileVersion { path, hash });
        self
    }

    /// The answer as text, for tests and their logs.
    #[must_use]
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.content)
    }
}
