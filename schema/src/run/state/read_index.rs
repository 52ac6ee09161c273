//! Index of read results that are fully present in the conversation, and of later results that only refer to
//! them.
//!
//! A file that was shown and has not changed is not shown again: the result refers to the earlier one.
//! Invariant: a referring result is never in a conversation without the full result it refers to. The fold
//! refuses a compaction that would separate them; an engine that removes one replaces the other with a line.

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

/// A result that shows lines of a file in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownLines {
    /// The call.
    pub call: CallId,
    /// The call's turn.
    pub turn: Turn,
    seen: FileVersion,
    lines: Vec<LineRange>,
}

/// A result that refers to another one instead of showing the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadReference {
    /// The call.
    pub call: CallId,
    /// The call whose result shows the lines.
    pub target_call: CallId,
    /// The file.
    pub path: WorkspacePath,
}

/// Read index. See the module documentation. In the order of the results.
#[derive(Debug, Clone, Default)]
pub struct ReadIndex {
    shown: Vec<ShownLines>,
    references: Vec<ReadReference>,
}

impl ReadIndex {
    /// Applies an event of `turn`, before the conversation does.
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

    /// Records the result of a call that reads.
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

    /// Removes results that are no longer in the conversation.
    ///
    /// # Errors
    ///
    /// Fails if a remaining result refers to a removed one.
    pub(in crate::run) fn retain_in_transcript(&mut self, transcript: &Transcript) -> Result<(), String> {
        let standing = transcript.result_calls();
        self.retain_calls(|call| standing.contains(call));
        let whole: BTreeSet<&CallId> = self.shown.iter().map(|shown| &shown.call).collect();
        match self.references.iter().find(|pointer| !whole.contains(&pointer.target_call)) {
            Some(lost) => Err(format!(
                ": {} points to {}, which is no longer complete in the conversation",
                lost.call, lost.target_call
            )),
            None => Ok(()),
        }
    }

    /// Returns the last result that shows all of `lines` of exactly this file version.
    pub fn find_covering(&self, seen: &FileVersion, lines: &[LineRange]) -> Option<&ShownLines> {
        let covers = |shown: &&ShownLines| {
            let within = |wanted: &LineRange| {
                shown.lines.iter().any(|lines| lines.first <= wanted.first && wanted.last <= lines.last)
            };
            shown.seen == *seen && !lines.is_empty() && lines.iter().all(within)
        };
        self.shown.iter().rev().find(covers)
    }

    /// Returns the results in the conversation that refer to others.
    pub fn references(&self) -> &[ReadReference] {
        &self.references
    }

    fn retain_calls(&mut self, stays: impl Fn(&CallId) -> bool) {
        self.shown.retain(|shown| stays(&shown.call));
        self.references.retain(|pointer| stays(&pointer.call));
    }
}
