//! Unresolved failures of a run, on which escalation is based.
//!
//! A failure is identified by tool, subject (a file, a command line) and the error's signature. It is
//! resolved by a later success with the same subject, by a write to the same file, or, together with all
//! others, by a person's answer or a fork. It counts turns, not calls: all calls of one answer were made
//! before the model saw the first of them fail. Not included are calls with unknown outcome, which say
//! nothing about the model, and final checks, which have their own limit (`corrections_max`).

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use crate::run::events::turn_events::{ToolFinished, ToolRequested, ToolStatus};
use crate::{
    content::{Content, WorkspacePath},
    ids::Turn,
    message::ToolUse,
    tool::RecoveryClass,
};

/// Maximum number of failures stored; the oldest is dropped. At this number, every threshold is either 0 or
/// was passed long ago.
const FAILURES_KEPT_MAX: usize = 100;

/// Signature of an exit status without output: only the same command line makes it the same error.
const SILENT_SIGNATURE: &str = "exit status N";

/// Kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCategory {
    /// Something to be read or found does not exist.
    NotFound,
    /// A command or tests ran and failed.
    CommandFailed,
    /// A file could not be written.
    WriteFailed,
    /// Any other call that failed or was refused.
    CallFailed,
}

/// An unresolved failure. See the module documentation.
#[derive(Debug, Clone, PartialEq)]
pub struct UnresolvedFailure {
    /// The tool.
    pub tool: String,
    /// The subject: a path or a command line; empty if the call has neither.
    pub subject: String,
    /// The error's signature.
    pub signature: String,
    /// The kind of failure.
    pub kind: FailureCategory,
    /// The turns in which it occurred.
    pub turns: BTreeSet<Turn>,
    /// The tool's last message.
    pub text: Content,
    /// Number of failed tests, if tests failed.
    pub failing: Option<u32>,
}

impl UnresolvedFailure {
    /// Returns the key by which two failures are the same error, whatever their subjects.
    pub fn error_key(&self) -> (&str, &str) {
        if self.signature.trim_end() == SILENT_SIGNATURE {
            (&self.signature, &self.subject)
        } else {
            (&self.signature, "")
        }
    }

    /// Returns how much it counts among all failures. Searching for something that does not exist and running
    /// something that does not pass yet are normal, so the first occurrence of each is free.
    pub fn counted_failures(&self) -> usize {
        match self.kind {
            FailureCategory::NotFound | FailureCategory::CommandFailed => self.turns.len().saturating_sub(1),
            FailureCategory::WriteFailed | FailureCategory::CallFailed => self.turns.len(),
        }
    }
}

/// The unresolved failures of a run, oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UnresolvedFailures {
    all: VecDeque<UnresolvedFailure>,
}

impl UnresolvedFailures {
    /// Returns all of them.
    pub fn iter(&self) -> impl Iterator<Item = &UnresolvedFailure> + Clone {
        self.all.iter()
    }

    /// Resolves all failures.
    pub(in crate::run) fn clear(&mut self) {
        self.all.clear();
    }

    /// Records the result of a call.
    pub(in crate::run) fn record_result(
        &mut self,
        turn: Turn,
        (asked, tool): (&ToolRequested, &ToolUse),
        result: &ToolFinished,
    ) {
        let is_error = match result.status {
            ToolStatus::Ok => false,
            ToolStatus::Error | ToolStatus::Refused => true,
            ToolStatus::Unknown => return,
        };
        let facts = &result.facts;
        let failing = facts.tests.map(|tests| tests.failed + tests.errors);
        let failed = is_error || facts.error_signature.is_some() || failing.is_some_and(|tests| tests > 0);
        let subject = call_subject(&tool.args);
        if !failed {
            self.resolve_failures(&tool.name, &subject, &facts.changed);
            return;
        }
        let kind = match (is_error, asked.class) {
            (false, _) => FailureCategory::CommandFailed,
            (true, RecoveryClass::Reads) => FailureCategory::NotFound,
            (true, RecoveryClass::Workspace | RecoveryClass::External) => {
                if path_argument(&tool.args).is_some() {
                    FailureCategory::WriteFailed
                } else {
                    FailureCategory::CallFailed
                }
            }
        };
        let signature = facts.error_signature.clone().unwrap_or_else(|| tool.name.clone());
        let (tool, text) = (tool.name.clone(), result.content.clone());
        let now = UnresolvedFailure {
            tool,
            subject,
            signature,
            kind,
            turns: BTreeSet::from([turn]),
            text,
            failing,
        };
        self.add_failure(now);
    }

    fn add_failure(&mut self, mut now: UnresolvedFailure) {
        let is_same = |before: &UnresolvedFailure| {
            (&before.tool, &before.subject, &before.signature) == (&now.tool, &now.subject, &now.signature)
        };
        let same = self.all.iter().position(is_same);
        if let Some(before) = same.and_then(|at| self.all.remove(at)) {
            // Fewer tests fail than before, which is progress.
            let is_better = matches!((before.failing, now.failing), (Some(then), Some(now)) if now < then);
            if !is_better {
                now.turns.extend(before.turns);
            }
        }
        self.all.push_back(now);
        if self.all.len() > FAILURES_KEPT_MAX {
            self.all.pop_front();
        }
    }

    fn resolve_failures(&mut self, tool: &str, subject: &str, changed: &[WorkspacePath]) {
        if self.all.is_empty() {
            return;
        }
        let written: Vec<String> = changed.iter().map(ToString::to_string).collect();
        self.all.retain(|trouble| {
            // A call without a subject covers everything its tool is for: the whole test suite.
            let about = trouble.tool == tool && (trouble.subject == subject || subject.is_empty());
            let misshapen = trouble.tool == tool && trouble.subject.is_empty();
            let wrote = trouble.kind == FailureCategory::WriteFailed && written.contains(&trouble.subject);
            !(about || misshapen || wrote)
        });
    }
}

fn path_argument(args: &Value) -> Option<&str> {
    args.get("path")?.as_str().map(|path| path.strip_prefix("./").unwrap_or(path))
}

fn call_subject(args: &Value) -> String {
    let word = |name: &str| args.get(name).and_then(Value::as_str);
    path_argument(args)
        .or(word("command"))
        .or(word("test_path"))
        .or(word("query"))
        .unwrap_or_default()
        .to_owned()
}
