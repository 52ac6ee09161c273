//! The made-up run again, with the engine's own decisions and requests between its answers and results: what
//! verification and a resume are measured on. Nothing is read or written but memory.

use anyhow::Context as _;
use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::{NewEvent, TypedEvent as _},
    ids::{Epoch, EventHash, Turn},
    run::{Complexity, EventMeta, Prompts, RunEvent, RunState},
};
use docket_worker::{
    engine::{self, Act, prompt},
    run::{Material, RequestProof, announce, rendered},
    tools,
    workspace::MemoryBlobs,
};

use crate::harness::{backlog::Held, stream};

/// A run as its log holds it, and the blobs that it names.
pub(crate) struct SyntheticRun {
    pub(crate) events: Vec<NewEvent>,
    pub(crate) blobs: Vec<Vec<u8>>,
    state: RunState,
}

impl SyntheticRun {
    /// A run of at least `count` events, in the middle of it: the engine is to decide next.
    pub(crate) async fn new(held: Held, count: usize) -> anyhow::Result<Self> {
        let specs = tools::specs();
        let project = prompt::Project::default();
        let texts = [
            prompt::system(&specs, &project).into_bytes(),
            serde_json::to_vec(&specs).context("tool specifications")?,
            prompt::task("A task of docket bench", "Nothing is asked.", &[], Complexity::Low).into_bytes(),
        ];
        let material = Material::new(MemoryBlobs::default());
        let [system, tools, task] = texts.each_ref().map(|text| BlobRef::of(text));
        for text in &texts {
            material.keep(BlobRef::of(text), Bytes::from(text.clone()));
        }
        let mut run = Self { events: Vec::new(), blobs: texts.into(), state: RunState::default() };
        run.push(Turn(0), stream::begun(held, Prompts { system, tools, task }))?;
        let engine = engine::newest("react").context("the engine")?;
        loop {
            let decision = engine.decide(&run.state);
            if run.events.len() >= count && matches!(decision.act, Act::CallModel(_)) {
                break;
            }
            let proof = match &decision.act {
                Act::CallModel(call) => Some(RequestProof::of(&rendered(&material, call).await?)),
                Act::RunTools(_)
                | Act::RunGates(_)
                | Act::Compact(_)
                | Act::Conclude(_)
                | Act::Pause
                | Act::Block { .. }
                | Act::End { .. } => None,
            };
            for (turn, event) in announce(&run.state, &decision, proof) {
                run.push(turn, event)?;
            }
            let turn = run.state.turn;
            if matches!(decision.act, Act::CallModel(_)) {
                run.push(turn, stream::answered(turn))?;
            } else {
                run.push(turn, stream::finished(turn))?;
                if let Some(taken) = stream::snapshot_of(turn) {
                    run.push(turn, taken)?;
                }
            }
        }
        Ok(run)
    }

    fn push(&mut self, turn: Turn, event: impl Into<RunEvent>) -> anyhow::Result<()> {
        let event = event.into();
        self.events.push(event.encode(turn));
        let meta = EventMeta { seq: self.state.seq.next(), hash: EventHash::ZERO, turn, epoch: Epoch(1) };
        self.state.apply(meta, event).context("the made-up run does not fold")
    }
}
