//! A synthetic run with the engine's own decisions and requests between its replies and results, for
//! measuring verification and resume. Entirely in memory.

use anyhow::Context as _;
use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::{NewEvent, TypedEvent as _},
    ids::{Epoch, EventHash, Turn},
    run::{EventMeta, RunEvent, RunPrompts, RunState, TaskComplexity},
};
use docket_worker::{
    engine::{self, Action, prompt},
    run::{BlobCache, RequestProof, intent_events, render_call},
    tools,
    workspace::MemoryBlobs,
};

use crate::harness::{backlog::LeasedRun, synthetic_events};

/// A run as recorded in its log, and the blobs that it references.
pub(crate) struct SyntheticRun {
    pub(crate) events: Vec<NewEvent>,
    pub(crate) blobs: Vec<Vec<u8>>,
    state: RunState,
}

impl SyntheticRun {
    /// Creates a run of at least `count` events, unfinished: the engine decides next.
    pub(crate) async fn new(held: LeasedRun, count: usize) -> anyhow::Result<Self> {
        let specs = tools::core_tool_specs();
        let project = prompt::ProjectLayer::default();
        let texts = [
            prompt::system_prompt(&specs, &project).into_bytes(),
            serde_json::to_vec(&specs).context("tool specifications")?,
            prompt::task_prompt("A task of docket bench", "Nothing is asked.", &[], TaskComplexity::Low)
                .into_bytes(),
        ];
        let material = BlobCache::new(MemoryBlobs::default());
        let [system, tools, task] = texts.each_ref().map(|text| BlobRef::for_bytes(text));
        for text in &texts {
            material.insert(BlobRef::for_bytes(text), Bytes::from(text.clone()));
        }
        let mut run = Self { events: Vec::new(), blobs: texts.into(), state: RunState::default() };
        run.push_event(
            Turn(0),
            synthetic_events::long_run_started(held, RunPrompts { system, tools, task }),
        )?;
        let engine = engine::newest_engine("react").context("the engine")?;
        loop {
            let decision = engine.decide(&run.state);
            if run.events.len() >= count && matches!(decision.act, Action::CallModel(_)) {
                break;
            }
            let proof = match &decision.act {
                Action::CallModel(call) => {
                    Some(RequestProof::from_rendered(&render_call(&material, call).await?))
                }
                Action::RunTools(_)
                | Action::RunGates(_)
                | Action::Compact(_)
                | Action::Conclude(_)
                | Action::Pause
                | Action::Block { .. }
                | Action::End { .. } => None,
            };
            for (turn, event) in intent_events(&run.state, &decision, proof) {
                run.push_event(turn, event)?;
            }
            let turn = run.state.turn;
            if matches!(decision.act, Action::CallModel(_)) {
                run.push_event(turn, synthetic_events::model_answered(turn))?;
            } else {
                run.push_event(turn, synthetic_events::tool_finished(turn))?;
                if let Some(taken) = synthetic_events::turn_snapshot(turn) {
                    run.push_event(turn, taken)?;
                }
            }
        }
        Ok(run)
    }

    fn push_event(&mut self, turn: Turn, event: impl Into<RunEvent>) -> anyhow::Result<()> {
        let event = event.into();
        self.events.push(event.encode(turn));
        let meta = EventMeta { seq: self.state.seq.next(), hash: EventHash::ZERO, turn, epoch: Epoch(1) };
        self.state.apply(meta, event).context("the made-up run does not fold")
    }
}
