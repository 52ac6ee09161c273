//! Events and tasks as the tests write them.

use docket_schema::{
    content::BlobRef,
    event::{NewEvent, TypedEvent as _},
    ids::{DecisionHash, IncarnationId, RunId, TaskId, TreeHash, Turn},
    message::{CallId, ModelRef, Part, StopReason, Usage},
    run::{
        EngineRef, ModelAnswered, ModelRequested, ModelTerms, Models, Phase, PhaseChanged, Prompts, Purpose,
        RunEnded, RunEvent, RunOutcome, RunSettings, RunStarted, SandboxLayers,
    },
    snapshot::Base,
    task::{Backoff, SettingsPatch, TaskSpec},
};

/// The manifest that every test task starts from: of an empty tree.
pub(in crate::http) const MANIFEST: &[u8] = b"docket-manifest-1\n";

pub(in crate::http) fn engine() -> EngineRef {
    EngineRef { name: "react".to_owned(), version: 1 }
}

fn base() -> Base {
    Base { manifest: BlobRef::of(MANIFEST), tree: TreeHash([1; 32]), git: None }
}

fn model() -> ModelRef {
    "scripted:demo".parse().expect("model")
}

pub(in crate::http) fn spec(title: &str) -> TaskSpec {
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
        base: base(),
        engine: "react".to_owned(),
        model: model(),
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
        conditions: docket_schema::task::Conditions::default(),
    }
}

fn encode(event: impl Into<RunEvent>, turn: u32) -> NewEvent {
    event.into().encode(Turn(turn))
}

pub(in crate::http) fn started(task: TaskId, run: RunId) -> NewEvent {
    let blob = BlobRef::of(MANIFEST);
    let event = RunStarted {
        task,
        run,
        attempt: 1,
        engine: engine(),
        models: Models::only(model(), ModelTerms::default()),
        settings: RunSettings::default(),
        prompts: Prompts { system: blob, tools: blob, task: blob },
        base: base(),
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
    encode(event, 0)
}

pub(in crate::http) fn asked(turn: u32) -> NewEvent {
    let event = ModelRequested {
        call: CallId(format!("m{turn}")),
        purpose: Purpose::Decide,
        role: None,
        model: model(),
        attempt: 1,
        decision: DecisionHash([2; 32]),
        request: DecisionHash([3; 32]),
        request_bytes: 10,
        nudge: None,
        worst_case_nusd: 0,
        output_tokens_max: None,
    };
    encode(event, turn)
}

pub(in crate::http) fn answered(turn: u32) -> NewEvent {
    answered_with(turn, "thinking aloud")
}

pub(in crate::http) fn answered_with(turn: u32, text: &str) -> NewEvent {
    let event = ModelAnswered {
        call: CallId(format!("m{turn}")),
        parts: vec![Part::Text { text: text.into() }],
        stop: StopReason::EndTurn,
        usage: Usage::default(),
        cost_nusd: 0,
        first_byte_ms: 0,
        total_ms: 0,
    };
    encode(event, turn)
}

pub(in crate::http) fn phase(turn: u32) -> NewEvent {
    encode(PhaseChanged { phase: Phase::Editing }, turn)
}

pub(in crate::http) fn ended(result: RunOutcome, turn: u32) -> NewEvent {
    encode(RunEnded { result, summary: None, tree: None, unverified: None, decision: None }, turn)
}
