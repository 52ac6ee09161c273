//! What calls and checks of a batch came to, as events.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use docket_schema::{
    content::{BlobRef, Content, WorkPath},
    ids::{BlobHash, Turn},
    message::CallId,
    redact::Redactor,
    run::{GateFinished, GateRequested, RunState, ToolFinished, ToolRequested, ToolStatus},
    tool::ToolFacts,
};

use super::{checks, redaction::redact_facts, reread::Rereads};
use crate::run::log::outgoing::Outgoing;
use crate::{
    tools::{self, ToolOutcome},
    workspace::SnapshotDelta,
};

/// What a call came to.
pub(in crate::run) struct Done {
    pub(in crate::run) status: ToolStatus,
    pub(in crate::run) outcome: ToolOutcome,
    pub(in crate::run) duration: Duration,
}

impl Done {
    /// As it is told the model, where that stands in the conversation already.
    pub(in crate::run) fn unrepeated(self, open: &ToolRequested, rereads: &mut Rereads) -> Self {
        Self { outcome: rereads.unrepeated(&open.call, self.outcome), ..self }
    }

    pub(in crate::run) fn refused(outcome: ToolOutcome, started: Instant) -> Self {
        Self { status: ToolStatus::Refused, outcome, duration: started.elapsed() }
    }
}

/// Results of one batch as they come.
pub(in crate::run) struct Batch {
    redactor: Redactor,
    turn: Turn,
    pub(in crate::run) out: Outgoing,
    pub(in crate::run) read_set: BTreeMap<WorkPath, BlobHash>,
    pub(in crate::run) changed: Vec<WorkPath>,
    pub(in crate::run) walk: bool,
    /// What of it a snapshot has seen already.
    held: Option<SnapshotDelta>,
}

impl Batch {
    pub(in crate::run) fn new(state: &RunState, redactor: &Redactor) -> Self {
        Self {
            redactor: redactor.clone(),
            turn: state.turn,
            out: Outgoing::default(),
            read_set: state.read_set.clone(),
            changed: Vec::new(),
            walk: false,
            held: None,
        }
    }

    /// Notes what the calls that follow must know.
    pub(in crate::run) fn took(&mut self, done: &Done) {
        let facts = &done.outcome.facts;
        self.read_set.extend(facts.read.iter().map(|seen| (seen.path.clone(), seen.hash)));
        self.changed.extend(facts.changed.iter().cloned());
        self.walk |= facts.may_have_changed_tree;
    }

    pub(in crate::run) fn finished(&mut self, open: &ToolRequested, done: Done) {
        let Done { status, outcome, duration } = done;
        let (content, full) = self.placed(&open.call, &outcome.facts, outcome.content, outcome.full);
        let event = ToolFinished {
            call: open.call.clone(),
            status,
            content,
            full,
            facts: redact_facts(&self.redactor, outcome.facts),
            duration_ms: ms(duration),
        };
        self.out.push(self.turn, event);
    }

    /// A result whose id and bytes follow from the log alone, so that a resumed request is the same
    /// to the byte on any machine.
    pub(in crate::run) fn unknown(&mut self, open: &ToolRequested) {
        let text = format!(
            "The worker crashed while `{}` ran; whether it took effect is unknown, and it is not run again by \
             itself. Look at the state of things before you decide whether to repeat it.",
            open.tool
        );
        let event = ToolFinished {
            call: open.call.clone(),
            status: ToolStatus::Unknown,
            content: text.into(),
            full: None,
            facts: ToolFacts::default(),
            duration_ms: 0,
        };
        self.out.push(self.turn, event);
    }

    pub(in crate::run) fn gate_finished(
        &mut self,
        open: &GateRequested,
        outcome: ToolOutcome,
        duration: Duration,
    ) {
        let passed = checks::passed(open, &outcome);
        let (content, full) = self.placed(&open.call, &outcome.facts, outcome.content, outcome.full);
        let call: CallId = open.call.clone();
        let facts = redact_facts(&self.redactor, outcome.facts);
        self.out.push(
            self.turn,
            GateFinished { call, step: open.step, passed, content, full, facts, duration_ms: ms(duration) },
        );
    }

    /// Notes what a snapshot within the batch has seen.
    pub(in crate::run) fn hold(&mut self, delta: Option<SnapshotDelta>) {
        self.held = delta.map(|delta| self.with_held(delta)).or(self.held.take());
    }

    /// What came before in the batch, and this.
    pub(in crate::run) fn with_held(&mut self, delta: SnapshotDelta) -> SnapshotDelta {
        match self.held.take() {
            Some(held) => held.followed_by(delta),
            None => delta,
        }
    }

    fn placed(
        &mut self,
        call: &CallId,
        facts: &ToolFacts,
        mut content: Vec<u8>,
        full: Option<Vec<u8>>,
    ) -> (Content, Option<BlobRef>) {
        // Nobody asks what tests said that passed.
        let passed = facts.tests.is_some() && facts.exit == Some(0);
        if let Some(full) = full.as_ref().filter(|_| !passed) {
            content.extend_from_slice(tools::whole_output_note(call, full).as_bytes());
        }
        let (content, large) = Content::place(self.redactor.bytes(content));
        if let (Some(blob), Some(bytes)) = (content.blob(), large) {
            self.out.blob(blob, bytes);
        }
        let full = full.map(|bytes| {
            let bytes = self.redactor.bytes(bytes);
            let blob = BlobRef::of(&bytes);
            self.out.blob(blob, bytes);
            blob
        });
        (content, full)
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
