//! Which results of reading stand whole in the conversation, and which later results only point to them.
//!
//! A file that was shown and has not changed is not shown again: the result says where it stands. Invariant:
//! a result that points is in no conversation without the one it points to, whole; a compaction that would part
//! them is refused by the fold, and an engine that takes the one away puts a line in place of the other.

use std::collections::BTreeSet;

use super::transcript::Transcript;
use crate::run::events::{
    run_event::RunEvent,
    turn_events::{ToolFinished, ToolStatus},
};
use crate::{
    content::WorkspacePath,
    ids::Turn,
    message::CallId,
    tool::{FileVersion, LineRange},
};

/// A result that shows lines of a file, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownLines {
    /// Its call.
    pub call: CallId,
    /// The turn of that.
    pub turn: Turn,
    seen: FileVersion,
    lines: Vec<LineRange>,
}

/// A result that shows nothing, but says which one does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadReference {
    /// Its call.
    pub call: CallId,
    /// The call whose result shows it.
    pub target_call: CallId,
    /// The file.
    pub path: WorkspacePath,
}

/// See the module. In the order of the results.
#[derive(Debug, Clone, Default)]
pub struct ReadIndex {
    shown: Vec<ShownLines>,
    references: Vec<ReadReference>,
}

impl ReadIndex {
    /// Takes an event of `turn`, before the conversation does.
    pub(in crate::run) fn apply_event(&mut self, turn: Turn, event: &RunEvent) {
        match event {
            RunEvent::ToolFinished(finished) => self.record_result(turn, finished),
            RunEvent::Compacted(event) => {
                let cleared = event.cleared.iter().map(|cleared| &cleared.call);
                let gone: BTreeSet<&CallId> = cleared.chain(&event.dropped).collect();
                self.retain_calls(|call| !gone.contains(call));
            }
            _ => {}
        }
    }

    /// Notes the result of a call that reads.
    pub fn record_result(&mut self, turn: Turn, event: &ToolFinished) {
        let [seen] = event.facts.read.as_slice() else { return };
        if event.status != ToolStatus::Ok {
            return;
        }
        let call = event.call.clone();
        if let Some(to) = event.facts.same_as.clone() {
            self.references.push(ReadReference { call, target_call: to, path: seen.path.clone() });
        } else if !event.facts.shown.is_empty() {
            let (seen, lines) = (seen.clone(), event.facts.shown.clone());
            self.shown.push(ShownLines { call, turn, seen, lines });
        }
    }

    /// Forgets what no longer stands in the conversation.
    ///
    /// # Errors
    /// A result that stays points to one that does not.
    pub(in crate::run) fn retain_in_transcript(&mut self, transcript: &Transcript) -> Result<(), String> {
        let standing = transcript.result_calls();
        self.retain_calls(|call| standing.contains(call));
        let whole: BTreeSet<&CallId> = self.shown.iter().map(|shown| &shown.call).collect();
        match self.references.iter().find(|pointer| !whole.contains(&pointer.target_call)) {
            Some(lost) => {
                Err(format!(": {} points to {}, which no longer stands whole", lost.call, lost.target_call))
            }
            None => Ok(()),
        }
    }

    /// The last result that shows all of `lines` of this very file, whole.
    pub fn find_covering(&self, seen: &FileVersion, lines: &[LineRange]) -> Option<&ShownLines> {
        let covers = |shown: &&ShownLines| {
            let within = |wanted: &LineRange| {
                shown.lines.iter().any(|lines| lines.first <= wanted.first && wanted.last <= lines.last)
            };
            shown.seen == *seen && !lines.is_empty() && lines.iter().all(within)
        };
        self.shown.iter().rev().find(covers)
    }

    /// Results in the conversation that point to another.
    pub fn references(&self) -> &[ReadReference] {
        &self.references
    }

    fn retain_calls(&mut self, stays: impl Fn(&CallId) -> bool) {
        self.shown.retain(|shown| stays(&shown.call));
        self.references.retain(|pointer| stays(&pointer.call));
    }
}
