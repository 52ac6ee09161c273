//! What went wrong in a run and was not made good since: what escalation decides on.
//!
//! A trouble is an error of one call, told apart by tool, by what the call was about (a file, a command line)
//! and by the error's signature. A later success about the same thing takes it away, and so does a write to the
//! same file; a person's answer and a fork take all. It counts turns, not calls: calls of one answer were all
//! made before the model saw the first of them fail. Calls whose outcome is unknown tell nothing about the model,
//! and final checks have a bound of their own (`corrections_max`): neither is here.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use crate::run::events::work::{ToolFinished, ToolRequested, ToolStatus};
use crate::{
    content::{Content, WorkPath},
    ids::Turn,
    message::ToolUse,
    tool::RecoveryClass,
};

/// Most troubles that are kept; the oldest goes first. Beyond it thresholds are 0, or passed long ago.
const KEPT_MAX: usize = 100;

/// An exit status and nothing said: only the same command line makes it the same error.
const SILENT: &str = "exit status N";

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TroubleKind {
    /// Something to be read or found is not there.
    Look,
    /// A command or tests ran, and ended badly.
    Ended,
    /// A file was to be written, and was not.
    Write,
    /// Any other call that failed or was refused.
    Refused,
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Trouble {
    /// The tool.
    pub tool: String,
    /// What it was about: a path, a command line; empty where the call names neither.
    pub subject: String,
    /// The error's signature.
    pub signature: String,
    /// What kind.
    pub kind: TroubleKind,
    /// The turns in which it came.
    pub turns: BTreeSet<Turn>,
    /// What the tool said, the last time.
    pub text: Content,
    /// Tests that failed, where tests did.
    pub failing: Option<u32>,
}

impl Trouble {
    /// What makes two troubles the same error, whatever the calls were about.
    pub fn error(&self) -> (&str, &str) {
        if self.signature.trim_end() == SILENT {
            (&self.signature, &self.subject)
        } else {
            (&self.signature, "")
        }
    }

    /// How much it counts among all failures. To look for what is not there, and to run what does not pass yet,
    /// is how work goes: the first time of each is free.
    pub fn failures(&self) -> usize {
        match self.kind {
            TroubleKind::Look | TroubleKind::Ended => self.turns.len().saturating_sub(1),
            TroubleKind::Write | TroubleKind::Refused => self.turns.len(),
        }
    }
}

/// The troubles of a run, oldest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Troubles {
    all: VecDeque<Trouble>,
}

impl Troubles {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Trouble> + Clone {
        self.all.iter()
    }

    /// They count no more.
    pub(in crate::run) fn clear(&mut self) {
        self.all.clear();
    }

    /// Takes the result of a call.
    pub(in crate::run) fn take(
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
        let subject = subject(&tool.args);
        if !failed {
            self.made_good(&tool.name, &subject, &facts.changed);
            return;
        }
        let kind = match (is_error, asked.class) {
            (false, _) => TroubleKind::Ended,
            (true, RecoveryClass::Reads) => TroubleKind::Look,
            (true, RecoveryClass::Workspace | RecoveryClass::External) => {
                if path(&tool.args).is_some() {
                    TroubleKind::Write
                } else {
                    TroubleKind::Refused
                }
            }
        };
        let signature = facts.error_signature.clone().unwrap_or_else(|| tool.name.clone());
        let (tool, text) = (tool.name.clone(), result.content.clone());
        let now = Trouble { tool, subject, signature, kind, turns: BTreeSet::from([turn]), text, failing };
        self.add(now);
    }

    fn add(&mut self, mut now: Trouble) {
        let is_same = |before: &Trouble| {
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
        if self.all.len() > KEPT_MAX {
            self.all.pop_front();
        }
    }

    fn made_good(&mut self, tool: &str, subject: &str, changed: &[WorkPath]) {
        if self.all.is_empty() {
            return;
        }
        let written: Vec<String> = changed.iter().map(ToString::to_string).collect();
        self.all.retain(|trouble| {
            // A call that names nothing is about all that the tool is for: the whole of the tests.
            let about = trouble.tool == tool && (trouble.subject == subject || subject.is_empty());
            let misshapen = trouble.tool == tool && trouble.subject.is_empty();
            let wrote = trouble.kind == TroubleKind::Write && written.contains(&trouble.subject);
            !(about || misshapen || wrote)
        });
    }
}

fn path(args: &Value) -> Option<&str> {
    args.get("path")?.as_str().map(|path| path.strip_prefix("./").unwrap_or(path))
}

fn subject(args: &Value) -> String {
    let word = |name: &str| args.get(name).and_then(Value::as_str);
    path(args).or(word("command")).or(word("test_path")).or(word("query")).unwrap_or_default().to_owned()
}
