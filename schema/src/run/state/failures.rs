//! What went wrong in a run and was not made good since: what escalation decides on.
//!
//! A trouble is an error of one call, told apart by tool, by what the call was about (a file, a command line)
//! and by the error's signature. A later success about the same thing takes it away, and so does a write to the
//! same file; a person's answer and a fork take all. It counts turns, not calls: calls of one answer were all
//! made before the model saw the first of them fail. Calls whose outcome is unknown tell nothing about the model,
//! and final checks have a bound of their own (`corrections_max`): neither is here.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use crate::run::events::turn_events::{ToolFinished, ToolRequested, ToolStatus};
use crate::{
    content::{Content, WorkspacePath},
    ids::Turn,
    message::ToolUse,
    tool::RecoveryClass,
};

/// Most troubles that are kept; the oldest goes first. Beyond it thresholds are 0, or passed long ago.
const FAILURES_KEPT_MAX: usize = 100;

/// An exit status and nothing said: only the same command line makes it the same error.
const SILENT_SIGNATURE: &str = "exit status N";

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureCategory {
    /// Something to be read or found is not there.
    NotFound,
    /// A command or tests ran, and ended badly.
    CommandFailed,
    /// A file was to be written, and was not.
    WriteFailed,
    /// Any other call that failed or was refused.
    CallFailed,
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct UnresolvedFailure {
    /// The tool.
    pub tool: String,
    /// What it was about: a path, a command line; empty where the call names neither.
    pub subject: String,
    /// The error's signature.
    pub signature: String,
    /// What kind.
    pub kind: FailureCategory,
    /// The turns in which it came.
    pub turns: BTreeSet<Turn>,
    /// What the tool said, the last time.
    pub text: Content,
    /// Tests that failed, where tests did.
    pub failing: Option<u32>,
}

impl UnresolvedFailure {
    /// What makes two troubles the same error, whatever the calls were about.
    pub fn error_key(&self) -> (&str, &str) {
        if self.signature.trim_end() == SILENT_SIGNATURE {
            (&self.signature, &self.subject)
        } else {
            (&self.signature, "")
        }
    }

    /// How much it counts among all failures. To look for what is not there, and to run what does not pass yet,
    /// is how work goes: the first time of each is free.
    pub fn counted_failures(&self) -> usize {
        match self.kind {
            FailureCategory::NotFound | FailureCategory::CommandFailed => self.turns.len().saturating_sub(1),
            FailureCategory::WriteFailed | FailureCategory::CallFailed => self.turns.len(),
        }
    }
}

/// The troubles of a run, oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UnresolvedFailures {
    all: VecDeque<UnresolvedFailure>,
}

impl UnresolvedFailures {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &UnresolvedFailure> + Clone {
        self.all.iter()
    }

    /// They count no more.
    pub(in crate::run) fn clear(&mut self) {
        self.all.clear();
    }

    /// Takes the result of a call.
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
            // Fewer tests fail than before: that is no standstill.
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
            // A call that names nothing is about all that the tool is for: the whole of the tests.
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
