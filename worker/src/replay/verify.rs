//! Verification: derives every decision of a run and renders every request again from the log and its blobs, and
//! compares the events that announce them with the record, field by field. No model, tool or file is touched.

use std::collections::VecDeque;

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq, StreamId, Turn},
    run::{CorruptLog, EngineRef, EventAuthor, RunEvent, RunStage, RunState},
};

use super::{divergence::Divergence, request_proofs::RequestProver};
use crate::{
    engine::{self, Action, Engine},
    run::{BlobCache, RunExecutorError, intent_events},
    workspace::BlobReader,
};

/// What was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifySummary {
    /// Events folded.
    pub events: u64,
    /// Decisions derived again.
    pub decisions: u64,
    /// Requests rendered again.
    pub requests: u64,
    /// The missing intent of the last decision: the log ends within an append whose tail was cut off.
    pub missing_intent: Option<&'static str>,
}

/// Why a run does not verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log does not fold.
    #[error("the run's log does not fold")]
    Corrupt(#[from] CorruptLog),
    /// This build lacks the engine's version.
    #[error("this build has no engine {0}; verify with a build that includes it")]
    NoEngine(EngineRef),
    /// An intent differs from the one that this build derives.
    #[error("{0}")]
    Diverged(Box<Divergence>),
    /// A request cannot be rendered again.
    #[error("the request of event {seq} cannot be rendered")]
    Request {
        /// The event.
        seq: Seq,
        /// The cause.
        #[source]
        source: RunExecutorError,
    },
}

/// Derives every decision of a run again. `events` is its full history, its ancestors' part first.
///
/// # Errors
/// [`VerifyError`] at the first event that does not verify.
pub async fn verify<S: BlobReader>(
    events: &[Envelope],
    material: &BlobCache<S>,
) -> Result<VerifySummary, VerifyError> {
    let mut walk = LogVerifier::default();
    for envelope in events {
        walk.verify_event(envelope, material).await?;
    }
    walk.summary.missing_intent = walk.expected_intents.front().map(|(_, event)| event.kind());
    Ok(walk.summary)
}

#[derive(Default)]
struct LogVerifier {
    state: RunState,
    /// The engine in use: a fork may change it.
    engine: Option<(EngineRef, Box<dyn Engine>)>,
    proofs: RequestProver,
    /// Intents of the last decision that the log has not shown yet. All intents of one decision share an append, so
    /// nothing can come between them.
    expected_intents: VecDeque<(Turn, RunEvent)>,
    summary: VerifySummary,
}

/// An event and its position.
#[derive(Clone, Copy)]
struct RecordedEvent<'a> {
    run: RunId,
    seq: Seq,
    turn: Turn,
    event: &'a RunEvent,
}

impl LogVerifier {
    async fn verify_event<S: BlobReader>(
        &mut self,
        envelope: &Envelope,
        material: &BlobCache<S>,
    ) -> Result<(), VerifyError> {
        let event = RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())
            .map_err(|source| CorruptLog::Decode { seq: envelope.seq, source })?;
        if matches!(event, RunEvent::Forked(_)) {
            // The parent's history is shared up to the end of a turn, which may lie within one of its appends.
            self.expected_intents.clear();
        }
        if let StreamId::Run(run) = envelope.stream {
            let recorded = RecordedEvent { run, seq: envelope.seq, turn: envelope.turn, event: &event };
            self.compare_event(recorded, material).await?;
        }
        self.state.apply(envelope.into(), event)?;
        self.summary.events += 1;
        Ok(())
    }

    async fn compare_event<S: BlobReader>(
        &mut self,
        recorded: RecordedEvent<'_>,
        material: &BlobCache<S>,
    ) -> Result<(), VerifyError> {
        let decided = recorded.event.author() == EventAuthor::Engine;
        if self.expected_intents.is_empty() {
            // Before anything is pinned, only the fold checks events.
            let Some(pins) = &self.state.pins else { return Ok(()) };
            if !decided {
                return Ok(());
            }
            if self.state.stage == RunStage::Deciding {
                let wanted = pins.engine.clone();
                self.derive_intents(wanted, recorded.seq, material).await?;
            }
        }
        let derived = self.expected_intents.pop_front();
        let RecordedEvent { run, seq, turn, event } = recorded;
        match Divergence::find(run, seq, (turn, event), derived.as_ref()) {
            Some(divergence) => Err(VerifyError::Diverged(Box::new(divergence))),
            None => Ok(()),
        }
    }

    /// Decides as the run's engine would in this state, and returns the events that announce the decision.
    async fn derive_intents<S: BlobReader>(
        &mut self,
        wanted: EngineRef,
        seq: Seq,
        material: &BlobCache<S>,
    ) -> Result<(), VerifyError> {
        if self.engine.as_ref().is_none_or(|(id, _)| *id != wanted) {
            let engine = engine::find_engine(&wanted).ok_or_else(|| VerifyError::NoEngine(wanted.clone()))?;
            self.engine = Some((wanted.clone(), engine));
        }
        let Some((_, engine)) = &self.engine else { return Err(VerifyError::NoEngine(wanted)) };
        let decision = engine.decide(&self.state);
        self.summary.decisions += 1;
        let request = match &decision.act {
            Action::CallModel(call) => {
                let proof = self.proofs.prove_request(call, material).await;
                self.summary.requests += 1;
                Some(proof.map_err(|source| VerifyError::Request { seq, source })?)
            }
            Action::RunTools(_)
            | Action::RunGates(_)
            | Action::Compact(_)
            | Action::Conclude(_)
            | Action::Pause
            | Action::Block { .. }
            | Action::End { .. } => None,
        };
        self.expected_intents.extend(intent_events(&self.state, &decision, request));
        Ok(())
    }
}
