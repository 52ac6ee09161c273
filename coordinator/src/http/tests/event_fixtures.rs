//! Events and tasks for the tests.

use docket_schema::{
    content::BlobRef,
    event::{NewEvent, TypedEvent as _},
    ids::{DecisionHash, IncarnationId, RunId, TaskId, TreeHash, Turn},
    message::{CallId, MessagePart, ModelRef, StopReason, TokenUsage},
    run::{
        CallPurpose, EngineRef, ModelAnswered, ModelRequested, ModelTerms, PhaseChanged, RunEnded, RunEvent,
        RunModels, RunOutcome, RunPhase, RunPrompts, RunSettings, RunStarted, SandboxLayers,
    },
    snapshot::WorkspaceBase,
    task::{Backoff, SettingsPatch, TaskSpec},
};

/// The manifest that every test task starts from: an empty tree.
pub(in crate::http) const MANIFEST: &[u8] = b"docket-manifest-1\n";

pub(in crate::http) fn test_engine() -> EngineRef {
    EngineRef { name: "react".to_owned(), version: 1 }
}

fn test_base() -> WorkspaceBase {
    WorkspaceBase { manifest: BlobRef::for_bytes(MANIFEST), tree: TreeHash([1; 32]), git: None }
}

fn test_model() -> ModelRef {
    "scripted:demo".parse().expect("model")
}

pub(in crate::http) fn task_spec(title: &str) -> TaskSpec {
    TaskSpec {
        title: title.to_owned(),
        text: "do it".to_owned(),
        queue: docket_schema::ids::QueueName::default(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        attempts_max: 3,
        crashes_max: 5,
        backoff: Backoff { base_ms: 1, max_ms: 1 },
        base: test_base(),
        engine: "react".to_owned(),
        model: test_model(),
        explore_model: None,
        fallback_model: None,
        roles: Vec::new(),
        script: None,
        settings: SettingsPatch::default(),
        tests: None,
        requires: Vec::new(),
        setup: Vec::new(),
        policy: None,
        branch: None,
        delivery: None,
        batch: None,
        batch_name: None,
        conditions: docket_schema::task::LeaseConditions::default(),
    }
}

fn encode_event(event: impl Into<RunEvent>, turn: u32) -> NewEvent {
    event.into().encode(Turn(turn))
}

pub(in crate::http) fn run_started(task: TaskId, run: RunId) -> NewEvent {
    let blob = BlobRef::for_bytes(MANIFEST);
    let event = RunStarted {
        task,
        run,
        attempt: 1,
        engine: test_engine(),
        models: RunModels::single_model(test_model(), ModelTerms::default()),
        settings: RunSettings::default(),
        prompts: RunPrompts { system: blob, tools: blob, task: blob },
        base: test_base(),
        gates: Vec::new(),
        tests: None,
        external: vec![],
        servers_left_out: vec![],
        linters: vec![],
        roles: vec![],
        requires: Vec::new(),
        policy: None,
        policies: Vec::new(),
        sandbox: SandboxLayers::default(),
        worker: IncarnationId(run.0),
    };
    encode_event(event, 0)
}

pub(in crate::http) fn model_called(turn: u32) -> NewEvent {
    let event = ModelRequested {
        call: CallId(format!("m{turn}")),
        purpose: CallPurpose::Decide,
        role: None,
        model: test_model(),
        attempt: 1,
        decision: DecisionHash([2; 32]),
        request: DecisionHash([3; 32]),
        request_bytes: 10,
        nudge: None,
        worst_case_nusd: 0,
        output_tokens_max: None,
    };
    encode_event(event, turn)
}

pub(in crate::http) fn model_answered(turn: u32) -> NewEvent {
    model_answered_with(turn, "thinking aloud")
}

pub(in crate::http) fn model_answered_with(turn: u32, text: &str) -> NewEvent {
    let event = ModelAnswered {
        call: CallId(format!("m{turn}")),
        parts: vec![MessagePart::Text { text: text.into() }],
        stop: StopReason::EndTurn,
        usage: TokenUsage::default(),
        cost_nusd: 0,
        first_byte_ms: 0,
        total_ms: 0,
    };
    encode_event(event, turn)
}

pub(in crate::http) fn phase_changed(turn: u32) -> NewEvent {
    encode_event(PhaseChanged { phase: RunPhase::Editing }, turn)
}

pub(in crate::http) fn run_ended(result: RunOutcome, turn: u32) -> NewEvent {
    encode_event(RunEnded { result, summary: None, tree: None, unverified: None, decision: None }, turn)
}
