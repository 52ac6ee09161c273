//! The read cache (A22): file content that was shown and has not changed is not shown again.
//!
//! It relies on recorded state and on the current file: the hash of the bytes just read, and which results the fold
//! says are still complete in the conversation ([`docket_schema::run::ReadIndex`]); so a replay gives the same
//! result. The file is always read: the cache saves tokens, not reads. When a compaction removes a result, it removes the
//! references to it as well, and another read shows it again.

use docket_schema::{
    ids::Turn,
    message::CallId,
    run::{ReadIndex, RunState, ToolFinished, ToolStatus},
    tool::{LineRange, ToolFacts},
};

use crate::tools::ToolOutcome;

/// Results in the conversation, including those of the current batch.
#[derive(Debug)]
pub struct ReadCache {
    turn: Turn,
    reads: ReadIndex,
    is_enabled: bool,
}

impl ReadCache {
    /// Creates the cache for the open calls of `state`.
    #[must_use]
    pub fn new(state: &RunState) -> Self {
        let on = state.pins.as_ref().is_some_and(|pins| pins.settings.read_cache);
        Self {
            turn: state.turn,
            reads: if on { state.read_index.clone() } else { ReadIndex::default() },
            is_enabled: on,
        }
    }

    /// Returns the result of `call`, the next one in order, replaced by a one-line reference if that says the same.
    #[must_use]
    pub fn replace_repeated_read(&mut self, call: &CallId, outcome: ToolOutcome) -> ToolOutcome {
        let outcome = match self.reference_to_earlier_read(&outcome) {
            Some(pointing) => pointing,
            None => outcome,
        };
        if self.is_enabled && !outcome.is_error {
            self.note_read(call, &outcome.facts);
        }
        outcome
    }

    fn reference_to_earlier_read(&self, outcome: &ToolOutcome) -> Option<ToolOutcome> {
        let [seen] = outcome.facts.read.as_slice() else { return None };
        let shown = self.reads.find_covering(seen, &outcome.facts.shown).filter(|_| !outcome.is_error)?;
        let text = format!(
            "{}: {} unchanged since turn {}, where read_file showed them: that result stands above, whole.\n",
            seen.path,
            format_lines(&outcome.facts.shown),
            shown.turn
        );
        let facts =
            ToolFacts { shown: Vec::new(), same_as: Some(shown.call.clone()), ..outcome.facts.clone() };
        // Short content takes fewer tokens than a reference to it.
        (text.len() < outcome.content.len()).then(|| ToolOutcome {
            content: text.into_bytes(),
            is_error: false,
            full_output: None,
            facts,
        })
    }

    fn note_read(&mut self, call: &CallId, facts: &ToolFacts) {
        self.reads.record_result(
            self.turn,
            &ToolFinished {
                call: call.clone(),
                status: ToolStatus::Ok,
                content: "".into(),
                full: None,
                facts: facts.clone(),
                duration_ms: 0,
            },
        );
    }
}

fn format_lines(lines: &[LineRange]) -> String {
    let each: Vec<String> = lines.iter().map(|lines| format!("{} to {}", lines.first, lines.last)).collect();
    format!("lines {}", each.join(" and "))
}
