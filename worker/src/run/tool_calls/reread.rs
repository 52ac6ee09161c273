//! The read cache (A22): what was shown of a file and has not changed is not shown again.
//!
//! It rests on recorded state and on the file as it is: the hash of the bytes just read, and what the fold says
//! still stands whole in the conversation ([`docket_schema::run::Reads`]); so a replay comes to the same. The file
//! is read whatever comes of it: what is saved are tokens. What a later compaction takes away, it takes away with
//! what points to it, and another read shows it again.

use docket_schema::{
    ids::Turn,
    message::CallId,
    run::{Reads, RunState, ToolFinished, ToolStatus},
    tool::{LinesShown, ToolFacts},
};

use crate::tools::ToolOutcome;

/// What stands in the conversation, results of the batch in hand with it.
#[derive(Debug)]
pub struct Rereads {
    turn: Turn,
    reads: Reads,
    on: bool,
}

impl Rereads {
    /// For the calls that are open in `state`.
    #[must_use]
    pub fn new(state: &RunState) -> Self {
        let on = state.pins.as_ref().is_some_and(|pins| pins.settings.read_cache);
        Self { turn: state.turn, reads: if on { state.reads.clone() } else { Reads::default() }, on }
    }

    /// The result of `call`, the next one in order: a line in its place where that says the same.
    #[must_use]
    pub fn unrepeated(&mut self, call: &CallId, outcome: ToolOutcome) -> ToolOutcome {
        let outcome = match self.pointing(&outcome) {
            Some(pointing) => pointing,
            None => outcome,
        };
        if self.on && !outcome.is_error {
            self.note(call, &outcome.facts);
        }
        outcome
    }

    fn pointing(&self, outcome: &ToolOutcome) -> Option<ToolOutcome> {
        let [seen] = outcome.facts.read.as_slice() else { return None };
        let shown = self.reads.showing(seen, &outcome.facts.shown).filter(|_| !outcome.is_error)?;
        let text = format!(
            "{}: {} unchanged since turn {}, where read_file showed them: that result stands above, whole.\n",
            seen.path,
            lines_of(&outcome.facts.shown),
            shown.turn
        );
        let facts =
            ToolFacts { shown: Vec::new(), same_as: Some(shown.call.clone()), ..outcome.facts.clone() };
        // What is short is shown sooner than pointed to.
        (text.len() < outcome.content.len()).then(|| ToolOutcome {
            content: text.into_bytes(),
            is_error: false,
            full: None,
            facts,
        })
    }

    fn note(&mut self, call: &CallId, facts: &ToolFacts) {
        self.reads.finished(
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

fn lines_of(lines: &[LinesShown]) -> String {
    let each: Vec<String> = lines.iter().map(|lines| format!("{} to {}", lines.first, lines.last)).collect();
    format!("lines {}", each.join(" and "))
}
