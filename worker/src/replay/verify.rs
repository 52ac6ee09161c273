//! Verification: every decision of a run derived again, every request rendered again, from the log and its
//! blobs, and the events that announce them compared field by field with what was recorded. No model, no
//! tool, no file is touched.

use std::collections::VecDeque;

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq, StreamId, Turn},
    run::{CorruptLog, EngineRef, EventAuthor, RunEvent, RunState, Stage},
};

use super::{divergence::Divergence, proofs::Proofs};
use crate::{
    engine::{self, Act, Engine},
    run::{DriverError, Material, announce},
    workspace::Blobs,
};

/// What was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Events folded.
    pub events: u64,
    /// Decisions derived again.
    pub decisions: u64,
    /// Requests rendered again.
    pub requests: u64,
    /// The intent that the last decision lacks: the log ends within an append, and its tail was cut off.
    pub lacking: Option<&'static str>,
}

/// A run that does not verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The log does not fold.
    #[error("the run's log does not fold")]
    Corrupt(#[from] CorruptLog),
    /// This build lacks the engine's version.
    #[error("this build has no engine {0}; verify with a build that has it")]
    NoEngine(EngineRef),
    /// An intent differs from the one that this build derives.
    #[error("{0}")]
    Diverged(Box<Divergence>),
    /// A request cannot be rendered again.
    #[error("the request of event {seq} cannot be rendered again")]
    Request {
        /// The event.
        seq: Seq,
        /// Why.
        #[source]
        source: DriverError,
    },
}

/// Derives every decision of a run again. `events` is its whole history, its parents' part first.
///
/// # Errors
/// [`VerifyError`] at the first event that does not hold.
pub async fn verify<S: Blobs>(events: &[Envelope], material: &Material<S>) -> Result<Verified, VerifyError> {
    let mut walk = Walk::default();
    for envelope in events {
        walk.step(envelope, material).await?;
    }
    walk.done.lacking = walk.due.front().map(|(_, event)| event.kind());
    Ok(walk.done)
}

#[derive(Default)]
struct Walk {
    state: RunState,
    /// The engine in force: a fork may change it.
    engine: Option<(EngineRef, Box<dyn Engine>)>,
    proofs: Proofs,
    /// What the last decision announces and the log has not shown yet. The intents of one decision stand in
    /// one append, so nothing else can come between them.
    due: VecDeque<(Turn, RunEvent)>,
    done: Verified,
}

/// An event and where it stands.
#[derive(Clone, Copy)]
struct Recorded<'a> {
    run: RunId,
    seq: Seq,
    turn: Turn,
    event: &'a RunEvent,
}

impl Walk {
    async fn step<S: Blobs>(
        &mut self,
        envelope: &Envelope,
        material: &Material<S>,
    ) -> Result<(), VerifyError> {
        let event = RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())
            .map_err(|source| CorruptLog::Decode { seq: envelope.seq, source })?;
        if matches!(event, RunEvent::Forked(_)) {
            // The parent's history is shared up to a turn's end, which may stand within one of its appends.
            self.due.clear();
        }
        if let StreamId::Run(run) = envelope.stream {
            let recorded = Recorded { run, seq: envelope.seq, turn: envelope.turn, event: &event };
            self.compare(recorded, material).await?;
        }
        self.state.apply(envelope.into(), event)?;
        self.done.events += 1;
        Ok(())
    }

    async fn compare<S: Blobs>(
        &mut self,
        recorded: Recorded<'_>,
        material: &Material<S>,
    ) -> Result<(), VerifyError> {
        let decided = recorded.event.author() == EventAuthor::Engine;
        if self.due.is_empty() {
            // Nothing was pinned yet: whatever this is, the fold has the word.
            let Some(pins) = &self.state.pins else { return Ok(()) };
            if !decided {
                return Ok(());
            }
            if self.state.stage == Stage::Deciding {
                let wanted = pins.engine.clone();
                self.decide(wanted, recorded.seq, material).await?;
            }
        }
        let derived = self.due.pop_front();
        let Recorded { run, seq, turn, event } = recorded;
        match Divergence::of(run, seq, (turn, event), derived.as_ref()) {
            Some(divergence) => Err(VerifyError::Diverged(Box::new(divergence))),
            None => Ok(()),
        }
    }

    /// Decides as the run's engine would in this state, and says which events announce that.
    async fn decide<S: Blobs>(
        &mut self,
        wanted: EngineRef,
        seq: Seq,
        material: &Material<S>,
    ) -> Result<(), VerifyError> {
        if self.engine.as_ref().is_none_or(|(id, _)| *id != wanted) {
            let engine = engine::engine(&wanted).ok_or_else(|| VerifyError::NoEngine(wanted.clone()))?;
            self.engine = Some((wanted.clone(), engine));
        }
        let Some((_, engine)) = &self.engine else { return Err(VerifyError::NoEngine(wanted)) };
        let decision = engine.decide(&self.state);
        self.done.decisions += 1;
        let request = match &decision.act {
            Act::CallModel(call) => {
                let proof = self.proofs.of(call, material).await;
                self.done.requests += 1;
                Some(proof.map_err(|source| VerifyError::Request { seq, source })?)
            }
            Act::RunTools(_)
            | Act::RunGates(_)
            | Act::Compact(_)
            | Act::Conclude(_)
            | Act::Pause
            | Act::Block { .. }
            | Act::End { .. } => None,
        };
        self.due.extend(announce(&self.state, &decision, request));
        Ok(())
    }
}
