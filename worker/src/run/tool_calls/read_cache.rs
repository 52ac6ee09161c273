//! The read cache (A22): what was shown of a file and has not changed is not shown again.
//!
//! It rests on recorded state and on the file as it is: the hash of the bytes just read, and what the fold says
//! still stands whole in the conversation ([`docket_schema::run::Reads`]); so a replay comes to the same. The file
//! is read whatever comes of it: what is saved are tokens. What a later compaction takes away, it takes away with
//! what points to it, and another read shows it again.

use docket_schema::{
    ids::Turn,
    message::CallId,
    run::{ReadIndex, RunState, ToolFinished, ToolStatus},
    tool::{LineRange, ToolFacts},
};

use crate::tools::ToolOutcome;

/// What stands in the conversation, results of the batch in hand with it.
#[derive(Debug)]
pub struct ReadCache {
    turn: Turn,
    reads: ReadIndex,
    is_enabled: bool,
}

impl ReadCache {
    /// For the calls that are open in `state`.
    #[must_use]
    pub fn new(state: &RunState) -> Self {
        let on = state.pins.as_ref().is_some_and(|pins| pins.settings.read_cache);
        Self {
            turn: state.turn,
            reads: if on { state.read_index.clone() } else { ReadIndex::default() },
            is_enabled: on,
        }
    }

    /// The result of `call`, the next one in order: a line in its place where that says the same.
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
        // What is short is shown sooner than pointed to.
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
