//! Verification of runs decided by the engine and answered by the test: cases that no scripted model can produce.

use std::collections::BTreeMap;

use docket_schema::{
    content::BlobRef,
    event::{Envelope, Payload, TypedEvent as _},
    ids::{Epoch, EventHash, IncarnationId, Position, RunId, StreamId, TaskId, Timestamp, TreeHash, Turn},
    message::{CallId, MessagePart, ModelRef, StopReason, TokenUsage, ToolUse},
    run::{
        EngineRef, ModelAnswered, ModelTerms, PauseRequested, RunEvent, RunModels, RunPrompts, RunSettings,
        RunStarted, RunState, SandboxLayers, ToolFinished, ToolStatus, Unpaused,
    },
    snapshot::WorkspaceBase,
    tool::ToolFacts,
};
use serde_json::{Value, json};

use super::{VerifyError, rebuild_request, verify};
use crate::{
    engine::{Action, Engine as _, ReactEngine},
    run::{BlobCache, RequestProof, intent_events, render_call},
    workspace::{BlobSink as _, MemoryBlobs},
};

/// A run that is decided by `react` and recorded like the run executor does.
struct LogRecorder {
    state: RunState,
    log: Vec<Envelope>,
    material: BlobCache<MemoryBlobs>,
}

impl LogRecorder {
    async fn new() -> Self {
        let mut blobs = MemoryBlobs::default();
        let mut pinned = BTreeMap::new();
        for (name, text) in [("system", "Be brief."), ("tools", "[]"), ("task", "Do it.")] {
            let blob = BlobRef::for_bytes(text.as_bytes());
            blobs.put(blob, text.into()).await.expect("memory takes all");
            pinned.insert(name, blob);
        }
        let model = ModelRef { provider: "anthropic".into(), name: "x".into(), base_url: None };
        let prompts = RunPrompts { system: pinned["system"], tools: pinned["tools"], task: pinned["task"] };
        let started = RunStarted {
            task: TaskId(uuid::Uuid::from_u128(1)),
            run: RunId(uuid::Uuid::from_u128(2)),
            attempt: 1,
            engine: EngineRef { name: "react".into(), version: 1 },
            models: RunModels::single_model(model, ModelTerms::default()),
            settings: RunSettings { turns_max: 10_000, ..RunSettings::default() },
            prompts,
            base: WorkspaceBase { manifest: BlobRef::for_bytes(b""), tree: TreeHash::ZERO, git: None },
            gates: vec![],
            tests: None,
            external: vec![],
            servers_left_out: vec![],
            linters: vec![],
            roles: vec![],
            requires: vec![],
            policy: None,
            policies: Vec::new(),
            sandbox: SandboxLayers { backend: "namespaces".into(), ..SandboxLayers::default() },
            worker: IncarnationId(uuid::Uuid::from_u128(3)),
        };
        let mut recorder =
            Self { state: RunState::default(), log: Vec::new(), material: BlobCache::new(blobs) };
        recorder.push(Turn(0), started);
        recorder
    }

    fn push(&mut self, turn: Turn, event: impl Into<RunEvent>) {
        let event = event.into().encode(turn);
        let seq = self.state.seq.next();
        let envelope = Envelope {
            stream: StreamId::Run(RunId(uuid::Uuid::from_u128(2))),
            seq,
            position: Position(seq.0),
            recorded_at: Timestamp(0),
            turn,
            epoch: Epoch(1),
            kind: event.kind,
            version: event.version,
            payload: event.payload,
            prev_hash: EventHash::ZERO,
            hash: EventHash::ZERO,
        };
        self.state.apply_envelope(&envelope).expect("legal");
        self.log.push(envelope);
    }

    /// Decides, and records the events that announce the decision.
    async fn record_decision(&mut self) -> Action {
        let decision = ReactEngine.decide(&self.state);
        let request = match &decision.act {
            Action::CallModel(call) => {
                Some(RequestProof::from_rendered(&render_call(&self.material, call).await.expect("renders")))
            }
            _ => None,
        };
        for (turn, event) in intent_events(&self.state, &decision, request) {
            self.push(turn, event);
        }
        decision.act
    }

    /// A turn in which the model says `text` and calls `calls` tools, which succeed.
    async fn record_turn(&mut self, text: &str, calls: usize) {
        let Action::CallModel(call) = self.record_decision().await else { panic!("a model is asked") };
        let turn = call.turn;
        let uses = (0..calls).map(|nth| {
            let args = json!({ "path": format!("f{turn}-{nth}") });
            let call = CallId::for_tool(turn, nth);
            MessagePart::ToolUse(ToolUse { call, name: "read_file".into(), args, malformed: None })
        });
        let parts = std::iter::once(MessagePart::Text { text: text.into() }).chain(uses).collect();
        self.push(
            turn,
            ModelAnswered {
                call: call.call,
                parts,
                stop: StopReason::EndTurn,
                usage: TokenUsage::default(),
                cost_nusd: 0,
                first_byte_ms: 0,
                total_ms: 0,
            },
        );
        if calls == 0 {
            return;
        }
        let Action::RunTools(batch) = self.record_decision().await else { panic!("tools are run") };
        for tool in batch {
            self.push(
                turn,
                ToolFinished {
                    call: tool.call,
                    status: ToolStatus::Ok,
                    content: format!("the file of turn {turn}").into(),
                    full: None,
                    facts: ToolFacts::default(),
                    duration_ms: 0,
                },
            );
        }
    }

    /// Sets `field` of the last event of `kind` to `value`, and returns the first field that verification reports.
    async fn divergence_text(&self, kind: &str, field: &str, value: Value) -> String {
        let place = self.log.iter().rposition(|event| event.kind == kind).expect("is there");
        let mut log = self.log.clone();
        let mut payload: Value = serde_json::from_str(log[place].payload.as_str()).expect("JSON");
        payload[field] = value;
        log[place].payload = Payload::from_value(&payload).expect("JSON");
        match verify(&log, &self.material).await {
            Err(VerifyError::Diverged(found)) => {
                assert_eq!((found.seq, found.recorded), (log[place].seq, kind));
                found.fields[0].field.clone()
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn pauses_blocks_and_ends_are_rederived() {
    let mut run = LogRecorder::new().await;
    run.record_turn("I look.", 2).await;
    run.push(Turn(0), PauseRequested { by: "p".into() });
    assert!(matches!(run.record_decision().await, Action::Pause));
    run.push(Turn(0), Unpaused { by: "p".into() });
    run.record_turn("BLOCKED: which one?", 0).await;
    assert!(matches!(run.record_decision().await, Action::Block { .. }));
    let verified = verify(&run.log, &run.material).await.expect("holds");
    assert_eq!((verified.decisions, verified.requests, verified.missing_intent), (5, 2, None));
    let other = json!("0".repeat(64));
    assert_eq!(run.divergence_text("RunPaused", "decision", other.clone()).await, "/decision");
    assert_eq!(run.divergence_text("RunBlocked", "why", json!("policy")).await, "/why");
    assert_eq!(
        run.divergence_text("RunBlocked", "question", json!({ "text": "what?" })).await,
        "/question/text"
    );
    assert_eq!(run.divergence_text("ModelRequested", "request", other).await, "/request");

    let mut run = LogRecorder::new().await;
    run.record_turn("I look.", 1).await;
    run.record_turn("Done.", 0).await;
    assert!(matches!(run.record_decision().await, Action::End { .. }));
    verify(&run.log, &run.material).await.expect("holds");
    assert_eq!(run.divergence_text("RunEnded", "summary", json!({ "text": "other" })).await, "/summary/text");
}

/// The requests of a long run are proven from the new part of each; a request rebuilt in full is the same.
#[tokio::test]
async fn long_run_verifies_and_each_request_can_be_rebuilt() {
    let mut run = LogRecorder::new().await;
    for turn in 0..60 {
        run.record_turn(if turn % 3 == 0 { "" } else { "One more." }, 1 + turn % 3).await;
    }
    let verified = verify(&run.log, &run.material).await.expect("holds");
    assert_eq!((verified.events, verified.requests), (run.log.len() as u64, 60));
    for (place, event) in run.log.iter().enumerate() {
        let rebuilt = rebuild_request(&run.log[..=place], &run.material).await.expect("folds");
        assert_eq!(
            rebuilt.is_some_and(|rebuilt| rebuilt.matches_recorded_hash()),
            event.kind == "ModelRequested"
        );
    }
    let asked = run.log.iter().rposition(|event| event.kind == "ModelRequested").expect("is there");
    let mut log = run.log[..=asked].to_vec();
    let text = log[asked].payload.as_str().replace("\"request_bytes\":", "\"request_bytes\":1");
    log[asked].payload = Payload::parse(text).expect("JSON");
    let rebuilt = rebuild_request(&log, &run.material).await.expect("folds").expect("a request");
    assert!(!rebuilt.matches_recorded_hash());
}

#[tokio::test]
async fn missing_engine_is_reported() {
    let mut run = LogRecorder::new().await;
    run.record_turn("I look.", 1).await;
    let mut started: Value = serde_json::from_str(run.log[0].payload.as_str()).expect("JSON");
    started["engine"]["version"] = json!(9);
    run.log[0].payload = Payload::from_value(&started).expect("JSON");
    let found = verify(&run.log, &run.material).await;
    assert!(
        matches!(&found, Err(VerifyError::NoEngine(engine)) if engine.to_string() == "react/9"),
        "{found:?}"
    );
    // A request needs no engine.
    let asked = run.log.iter().position(|event| event.kind == "ModelRequested").expect("is there");
    let rebuilt =
        rebuild_request(&run.log[..=asked], &run.material).await.expect("folds").expect("a request");
    assert!(rebuilt.matches_recorded_hash());
}
