//! Verification: every decision of a run derived again, and every request rendered again, from the
//! log and its blobs, and compared with what was recorded. No model, no tool, no file is touched.

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{DecisionHash, Seq},
    run::{CorruptLog, EngineRef, RunEvent, RunState, Stage},
};

use crate::{
    driver::{DriverError, Material, rendered},
    engine::{self, Act, Decision},
    model::request_hash,
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
}

/// Which side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Hash of the decision or request.
    pub hash: DecisionHash,
    /// What it is, in a word.
    pub what: String,
}

/// The first place where the log and this build disagree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The event.
    pub seq: Seq,
    /// What differs: `decision`, `request`.
    pub field: &'static str,
    /// What the log says.
    pub recorded: Side,
    /// What this build derives.
    pub derived: Side,
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
    /// A decision or request differs.
    #[error(
        "event {} differs in its {}: the log has {} ({}), this build derives {} ({})",
        .0.seq, .0.field, .0.recorded.what, .0.recorded.hash, .0.derived.what, .0.derived.hash
    )]
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
    let mut walk = Walk { state: RunState::default(), batch: None, done: Verified::default() };
    for envelope in events {
        walk.step(envelope, material).await?;
    }
    Ok(walk.done)
}

struct Walk {
    state: RunState,
    /// The decision in force while the intents of one batch follow each other.
    batch: Option<(DecisionHash, Decision)>,
    done: Verified,
}

impl Walk {
    async fn step<S: Blobs>(
        &mut self,
        envelope: &Envelope,
        material: &Material<S>,
    ) -> Result<(), VerifyError> {
        let event = RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())
            .map_err(|source| CorruptLog::Decode { seq: envelope.seq, source })?;
        match recorded_decision(&event) {
            Some(recorded) => self.compare(envelope.seq, recorded, &event, material).await?,
            // A change of phase stands between a decision and its intents, and says nothing itself.
            None if matches!(event, RunEvent::PhaseChanged(_)) => {}
            None => self.batch = None,
        }
        self.state.apply(envelope.into(), event)?;
        self.done.events += 1;
        Ok(())
    }

    async fn compare<S: Blobs>(
        &mut self,
        seq: Seq,
        recorded: DecisionHash,
        event: &RunEvent,
        material: &Material<S>,
    ) -> Result<(), VerifyError> {
        if self.batch.is_none() || self.state.stage == Stage::Deciding {
            let Some(pins) = &self.state.pins else { return Ok(()) };
            let engine =
                engine::engine(&pins.engine).ok_or_else(|| VerifyError::NoEngine(pins.engine.clone()))?;
            let decision = engine.decide(&self.state);
            self.batch = Some((decision.hash(), decision));
            self.done.decisions += 1;
        }
        let Some((hash, decision)) = &self.batch else { return Ok(()) };
        if *hash != recorded {
            let recorded = Side { hash: recorded, what: event.kind().to_owned() };
            let derived = Side { hash: *hash, what: act_name(&decision.act).to_owned() };
            return Err(VerifyError::Diverged(Box::new(Divergence {
                seq,
                field: "decision",
                recorded,
                derived,
            })));
        }
        if let (Act::CallModel(call), RunEvent::ModelRequested(asked)) = (&decision.act, event) {
            let again =
                rendered(material, call).await.map_err(|source| VerifyError::Request { seq, source })?;
            let derived = request_hash(&again.body);
            self.done.requests += 1;
            if derived != asked.request {
                let recorded = Side { hash: asked.request, what: format!("{} bytes", asked.request_bytes) };
                let derived = Side { hash: derived, what: format!("{} bytes", again.body.len()) };
                let divergence = Divergence { seq, field: "request", recorded, derived };
                return Err(VerifyError::Diverged(Box::new(divergence)));
            }
        }
        Ok(())
    }
}

/// The decision that an event announces; none for results, the inbox, and what the coordinator wrote.
const fn recorded_decision(event: &RunEvent) -> Option<DecisionHash> {
    match event {
        RunEvent::ModelRequested(e) => Some(e.decision),
        RunEvent::ToolRequested(e) => Some(e.decision),
        RunEvent::GateRequested(e) => Some(e.decision),
        RunEvent::RunPaused(e) => Some(e.decision),
        RunEvent::RunBlocked(e) => Some(e.decision),
        RunEvent::RunEnded(e) => e.decision,
        RunEvent::RunStarted(_)
        | RunEvent::Forked(_)
        | RunEvent::RunRecovered(_)
        | RunEvent::SetupFinished(_)
        | RunEvent::PhaseChanged(_)
        | RunEvent::ModelAnswered(_)
        | RunEvent::ModelFailed(_)
        | RunEvent::ToolFinished(_)
        | RunEvent::SnapshotTaken(_)
        | RunEvent::GateFinished(_)
        | RunEvent::Told(_)
        | RunEvent::CancelRequested(_)
        | RunEvent::PauseRequested(_)
        | RunEvent::Unpaused(_)
        | RunEvent::PolicyChanged(_)
        | RunEvent::LimitReached(_)
        | RunEvent::BlockerAnswered(_)
        | RunEvent::Delegated(_)
        | RunEvent::ChildAnswered(_)
        | RunEvent::Compacted(_)
        | RunEvent::WorkspaceEdited(_) => None,
    }
}

const fn act_name(act: &Act) -> &'static str {
    match act {
        Act::CallModel(_) => "ModelRequested",
        Act::RunTools(_) => "ToolRequested",
        Act::RunGates(_) => "GateRequested",
        Act::Pause => "RunPaused",
        Act::Block { .. } => "RunBlocked",
        Act::End { .. } => "RunEnded",
    }
}
