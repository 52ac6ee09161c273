//! What a tool is given and what it gives back.

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

/// The hash of each file as this run last read or wrote it.
pub type ReadSet = BTreeMap<WorkspacePath, BlobHash>;

/// Limits that a run's settings may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSettings {
    /// Characters of a command's output that the model is shown: half from its start, half from its end.
    pub output_chars_max: usize,
    /// Time limit of a command that names none, in milliseconds.
    pub command_timeout_ms: u64,
    /// The longest time limit a command may name, in milliseconds.
    pub command_timeout_ms_max: u64,
    /// Lines of a file that are shown whole.
    pub read_lines_max: u64,
    /// Refuse an edit or a new file that adds syntax errors, in place of saying so.
    pub refuse_syntax_errors: bool,
    /// What a tool shows only in part is struck out before it is cut: half a secret has no shape.
    pub redactor: Redactor,
    /// When the run's budget of time ends: no command goes on beyond it.
    pub deadline: Option<Instant>,
    /// What policy says of files that no call names: those that a search finds, and those in a folder that is moved.
    pub visibility: PathVisibility,
}

/// How long a command may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    /// In milliseconds, at least one.
    pub ms: u64,
    /// It is what the run's budget of time leaves, less than the command's own limit.
    pub is_run_budget: bool,
}

impl ToolSettings {
    /// The limit of a command that begins now and may take `ms` by itself.
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

/// The project's own way to run its tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRunnerConfig {
    /// A shell line; `{path}` in it stands for the quoted test path, or nothing where none is given.
    pub command: String,
}

/// What every tool works with.
#[derive(Clone, Copy)]
pub struct ToolContext<'a> {
    /// The workspace: all file access goes through it.
    pub root: &'a cap_std::fs::Dir,
    /// Runs commands.
    pub runner: &'a dyn CommandRunner,
    /// What the run has read.
    pub read_set: &'a ReadSet,
    /// Limits.
    pub settings: &'a ToolSettings,
    /// The configured test runner, if there is one.
    pub test_runner: Option<&'a TestRunnerConfig>,
    /// Whole outputs that this batch of calls may read.
    pub outputs: &'a FullOutputs,
    /// What stood before the run.
    pub base: &'a BaseView,
    /// What outlives the run.
    pub memory: &'a dyn MemoryBackend,
    /// The call that is carried out: what is done beyond the run is done once for it. None outside of a run.
    pub call: Option<&'a CallId>,
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolOutcome {
    /// As the model reads it.
    pub content: Vec<u8>,
    /// The tool refused or failed. A command that ran and ended with a status other than 0, and tests
    /// that ran and failed, are no errors of the tool: see `facts.exit`.
    pub is_error: bool,
    /// The whole output where `content` holds a part.
    pub full_output: Option<Vec<u8>>,
    /// What decisions need to know.
    pub facts: ToolFacts,
}

impl ToolOutcome {
    pub(crate) fn ok(text: impl Into<String>) -> Self {
        Self { content: text.into().into_bytes(), ..Self::default() }
    }

    /// A refusal or failure of tool `name`. What it quotes of a call or a file may hold characters that hide or
    /// overwrite others, on a person's terminal as well: they are written as `\\u{…}`.
    pub(crate) fn error(name: &str, text: impl Into<String>) -> Self {
        let text: String = text.into();
        let text = text.split('\n').map(escape_hidden).collect::<Vec<_>>().join("\n");
        let facts = ToolFacts {
            error_signature: Some(error_signature(&format!("{name}: {}", text.lines().next().unwrap_or("")))),
            ..ToolFacts::default()
        };
        Self { content: text.into_bytes(), is_error: true, full_output: None, facts }
    }

    /// A failure of tool `name` on the way of a command: how far it came nobody knows.
    pub(crate) fn error_midway(name: &str, text: impl Into<String>) -> Self {
        let mut outcome = Self::error(name, text);
        outcome.facts.may_have_changed_tree = true;
        outcome
    }

    /// The outcome of a command that the runner could not run, or not put the workspace in order after; `own` is what the
    /// command itself came to by then.
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

    /// The answer as text, for tests and logs of tests.
    #[must_use]
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.content)
    }
}
