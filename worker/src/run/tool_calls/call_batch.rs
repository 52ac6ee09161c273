//! Results of a batch of calls and checks, as events.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use docket_schema::{
    content::{BlobRef, Content, WorkspacePath},
    ids::{BlobHash, Turn},
    message::CallId,
    redact::Redactor,
    run::{GateFinished, GateRequested, RunState, ToolFinished, ToolRequested, ToolStatus},
    tool::ToolFacts,
};

use super::{final_checks, read_cache::ReadCache, redaction::redact_facts};
use crate::run::log::pending_append::PendingAppend;
use crate::{
    tools::{self, ToolOutcome},
    workspace::SnapshotDelta,
};

/// The result of a call.
pub(in crate::run) struct CompletedCall {
    pub(in crate::run) status: ToolStatus,
    pub(in crate::run) outcome: ToolOutcome,
    pub(in crate::run) duration: Duration,
}

impl CompletedCall {
    /// Replaces the result by a reference if the conversation already contains it.
    pub(in crate::run) fn with_read_cache(self, open: &ToolRequested, rereads: &mut ReadCache) -> Self {
        Self { outcome: rereads.replace_repeated_read(&open.call, self.outcome), ..self }
    }

    pub(in crate::run) fn from_refusal(outcome: ToolOutcome, started: Instant) -> Self {
        Self { status: ToolStatus::Refused, outcome, duration: started.elapsed() }
    }
}

/// Collects the results of one batch.
pub(in crate::run) struct CallBatch {
    redactor: Redactor,
    turn: Turn,
    pub(in crate::run) pending: PendingAppend,
    pub(in crate::run) read_set: BTreeMap<WorkspacePath, BlobHash>,
    pub(in crate::run) changed_paths: Vec<WorkspacePath>,
    pub(in crate::run) needs_full_snapshot: bool,
    /// The part that a snapshot has already recorded.
    earlier_snapshot: Option<SnapshotDelta>,
}

impl CallBatch {
    pub(in crate::run) fn new(state: &RunState, redactor: &Redactor) -> Self {
        Self {
            redactor: redactor.clone(),
            turn: state.turn,
            pending: PendingAppend::default(),
            read_set: state.known_hashes.clone(),
            changed_paths: Vec::new(),
            needs_full_snapshot: false,
            earlier_snapshot: None,
        }
    }

    /// Notes effects that later calls must know about.
    pub(in crate::run) fn note_effects(&mut self, done: &CompletedCall) {
        let facts = &done.outcome.facts;
        self.read_set.extend(facts.read.iter().map(|seen| (seen.path.clone(), seen.hash)));
        self.changed_paths.extend(facts.changed.iter().cloned());
        self.needs_full_snapshot |= facts.may_have_changed_tree;
    }

    pub(in crate::run) fn push_result(&mut self, open: &ToolRequested, done: CompletedCall) {
        let CompletedCall { status, outcome, duration } = done;
        let (content, full) =
            self.place_content(&open.call, &outcome.facts, outcome.content, outcome.full_output);
        let event = ToolFinished {
            call: open.call.clone(),
            status,
            content,
            full,
            facts: redact_facts(&self.redactor, outcome.facts),
            duration_ms: duration_ms(duration),
        };
        self.pending.push(self.turn, event);
    }

    /// Adds an "unknown" result whose id and bytes follow from the log alone, so that a resumed request is
    /// byte-identical on any machine.
    pub(in crate::run) fn push_unknown(&mut self, open: &ToolRequested) {
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
        self.pending.push(self.turn, event);
    }

    pub(in crate::run) fn push_gate_result(
        &mut self,
        open: &GateRequested,
        outcome: ToolOutcome,
        duration: Duration,
    ) {
        let passed = final_checks::has_passed(open, &outcome);
        let (content, full) =
            self.place_content(&open.call, &outcome.facts, outcome.content, outcome.full_output);
        let call: CallId = open.call.clone();
        let facts = redact_facts(&self.redactor, outcome.facts);
        self.pending.push(
            self.turn,
            GateFinished {
                call,
                step: open.step,
                passed,
                content,
                full,
                facts,
                duration_ms: duration_ms(duration),
            },
        );
    }

    /// Notes what a snapshot within the batch has recorded.
    pub(in crate::run) fn add_earlier_snapshot(&mut self, delta: Option<SnapshotDelta>) {
        self.earlier_snapshot =
            delta.map(|delta| self.merge_earlier_snapshot(delta)).or(self.earlier_snapshot.take());
    }

    /// Merges the earlier snapshot of the batch with this one.
    pub(in crate::run) fn merge_earlier_snapshot(&mut self, delta: SnapshotDelta) -> SnapshotDelta {
        match self.earlier_snapshot.take() {
            Some(held) => held.merge_with(delta),
            None => delta,
        }
    }

    fn place_content(
        &mut self,
        call: &CallId,
        facts: &ToolFacts,
        mut content: Vec<u8>,
        full: Option<Vec<u8>>,
    ) -> (Content, Option<BlobRef>) {
        // The output of passing tests is never needed.
        let passed = facts.tests.is_some() && facts.exit == Some(0);
        if let Some(full) = full.as_ref().filter(|_| !passed) {
            content.extend_from_slice(tools::full_output_note(call, full).as_bytes());
        }
        let (content, large) = Content::inline_or_blob(self.redactor.redact_bytes(content));
        if let (Some(blob), Some(bytes)) = (content.blob_ref(), large) {
            self.pending.push_blob(blob, bytes);
        }
        let full = full.map(|bytes| {
            let bytes = self.redactor.redact_bytes(bytes);
            let blob = BlobRef::for_bytes(&bytes);
            self.pending.push_blob(blob, bytes);
            blob
        });
        (content, full)
    }
}

fn duration_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
