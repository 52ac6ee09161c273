//! Effects: asking a model, running tools and gates, and what they leave behind as events.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, Content, WorkPath},
    ids::BlobHash,
    message::{CallId, Part, ToolUse},
    run::{
        GateFinished, GateRequested, ModelAnswered, ModelFailed, RunStarted, RunState, ToolFinished,
        ToolRequested, ToolStatus, Verdict,
    },
    tool::{RecoveryClass, ToolFacts},
};

use super::{journal::Outgoing, material::Material, turn::DriverError};
use crate::{
    clock,
    engine::ModelCall,
    model::{Attempt, ModelClient, Rendered, Secret, next_delay},
    tools::{self, TestRunnerConfig, ToolContext, ToolOutcome, ToolSettings},
    workspace::Workspace,
};

/// Text of an answer stays in its event up to this: engines read it to decide.
const ANSWER_INLINE_BYTES_MAX: usize = 64 * 1024;

/// Arguments of all calls of an answer, in bytes of JSON: they stand in its event, and an append that
/// is too large would throw the answer away, to be paid for again.
const ARGS_BYTES_MAX: usize = 128 * 1024;

/// What acts: model, workspace, sandbox.
pub(super) struct Hands {
    pub(super) model: ModelClient,
    pub(super) key: Option<Secret>,
    pub(super) workspace: Workspace,
    pub(super) root: cap_std::fs::Dir,
    pub(super) runner: super::start::SandboxRunner,
    pub(super) settings: ToolSettings,
    pub(super) tests: Option<TestRunnerConfig>,
}

impl Hands {
    /// Asks the model; answers its result as an event.
    pub(super) async fn ask(
        &self,
        call: &ModelCall,
        rendered: &Rendered,
        pins: &Option<Arc<RunStarted>>,
        material: &Material,
    ) -> Outgoing {
        let mut out = Outgoing::default();
        let attempt = Attempt(call.attempt);
        let answer = self.model.call(rendered, attempt, self.key.as_ref(), &mut |_| {}).await;
        match answer {
            Ok(answer) => {
                let prices = pins.as_ref().map(|pins| pins.models.terms.prices).unwrap_or_default();
                let (stop, usage) = (answer.stop_reason.clone(), answer.usage);
                let (first_byte_ms, total_ms) = (answer.first_byte_ms, answer.total_ms);
                let parts = answer.into_parts(call.turn);
                let mut room = ARGS_BYTES_MAX;
                let parts = parts.into_iter().map(|part| fitted(part, &mut room));
                let parts = parts.map(|part| placed(part, &mut out, material)).collect();
                let event = ModelAnswered {
                    call: call.call.clone(),
                    parts,
                    stop,
                    usage,
                    cost_nusd: prices.cost_nusd(usage),
                    first_byte_ms,
                    total_ms,
                };
                out.push(call.turn, event);
            }
            Err(error) => {
                let retry_in = next_delay(call.attempt, &error, clock::jitter());
                let event = ModelFailed {
                    call: call.call.clone(),
                    error: error.kind().to_owned(),
                    message: error.to_string(),
                    retry_in_ms: retry_in.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
                };
                out.push(call.turn, event);
            }
        }
        out
    }

    /// Runs the open tool calls: neighbouring readers together, changers in order; then a snapshot
    /// if anything may have changed.
    pub(super) async fn run_tools(
        &mut self,
        state: &RunState,
        material: &Material,
    ) -> Result<Outgoing, DriverError> {
        let mut batch = Batch::new(state);
        let mut calls = state.open_tools.as_slice();
        while let Some((first, rest)) = calls.split_first() {
            let readers = calls.iter().take_while(|(open, _)| open.class == RecoveryClass::Reads).count();
            if readers > 1 {
                let (together, rest) = calls.split_at(readers);
                let read_set = batch.read_set.clone();
                let outcomes = futures_util::future::join_all(
                    together.iter().map(|(open, tool)| self.run_one(open, tool, &read_set)),
                );
                for ((open, _), done) in together.iter().zip(outcomes.await) {
                    batch.finished(open, done, material);
                }
                calls = rest;
            } else {
                let done = self.run_one(&first.0, &first.1, &batch.read_set).await;
                batch.finished(&first.0, done, material);
                calls = rest;
            }
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }

    /// Runs calls again after a crash, as their recovery classes allow: the workspace stands at the
    /// last snapshot. Whatever may have reached beyond it is not run again; the model is told.
    pub(super) async fn run_tools_again(
        &mut self,
        state: &RunState,
        material: &Material,
    ) -> Result<Outgoing, DriverError> {
        if super::turn::unknown_after_crash(state).is_empty() {
            return self.run_tools(state, material).await;
        }
        let mut batch = Batch::new(state);
        for (open, _) in &state.open_tools {
            batch.unknown(open);
        }
        Ok(batch.out)
    }

    async fn run_one(
        &self,
        open: &ToolRequested,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkPath, BlobHash>,
    ) -> Done {
        let started = Instant::now();
        let outcome = match &open.policy {
            Verdict::Allow { .. } => self.execute(tool, read_set, self.tests.as_ref()).await,
            Verdict::Deny { rule, reason } => {
                let text = format!("Refused by policy ({rule}): {reason}");
                return Done::refused(refusal(&tool.name, text), started);
            }
            Verdict::Ask { rule, question } => {
                let text = format!("A person has to allow this first ({rule}): {question}");
                return Done::refused(refusal(&tool.name, text), started);
            }
        };
        let status = if outcome.is_error { ToolStatus::Error } else { ToolStatus::Ok };
        Done { status, outcome, duration: started.elapsed() }
    }

    async fn execute(
        &self,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkPath, BlobHash>,
        tests: Option<&TestRunnerConfig>,
    ) -> ToolOutcome {
        if let Some(text) = &tool.malformed {
            let shown: String = text.chars().take(400).collect();
            let text = format!(
                "The arguments of {} are not a JSON object. They were: {shown}\nCall it again with one JSON object.",
                tool.name
            );
            return refusal(&tool.name, text);
        }
        let context =
            ToolContext { root: &self.root, runner: &self.runner, read_set, settings: &self.settings, tests };
        tools::execute(context, &tool.name, &tool.args).await
    }

    async fn snapshot(&mut self, state: &RunState, batch: &mut Batch) -> Result<(), DriverError> {
        let delta = if batch.walk {
            self.workspace.snapshot_walk()?
        } else if batch.changed.is_empty() {
            return Ok(());
        } else {
            self.workspace.snapshot_paths(&batch.changed)?
        };
        if delta.is_empty() {
            return Ok(());
        }
        batch.out.snapshot(state.turn, delta);
        Ok(())
    }

    /// Runs the open gates in order, then a snapshot: a gate may leave files behind.
    pub(super) async fn run_gates(&mut self, state: &RunState) -> Result<Outgoing, DriverError> {
        let mut batch = Batch::new(state);
        batch.walk = true;
        for open in &state.open_gates {
            let started = Instant::now();
            let outcome = self.run_gate(open).await;
            batch.gate_finished(open, outcome, started.elapsed());
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }

    async fn run_gate(&self, open: &GateRequested) -> ToolOutcome {
        let (tool, tests) = tool_of_gate(open);
        self.execute(&tool, &BTreeMap::new(), tests.as_ref()).await
    }
}

/// The call that a gate stands for. It runs the line that was pinned at the start, whatever the
/// workspace looks like by now: a model must not choose its own judge.
fn tool_of_gate(open: &GateRequested) -> (ToolUse, Option<TestRunnerConfig>) {
    let command = open.gate.command.clone();
    let (name, args, tests) = if open.gate.name == "tests" {
        ("run_tests", serde_json::json!({}), Some(TestRunnerConfig { command }))
    } else {
        ("run_command", serde_json::json!({ "command": command }), None)
    };
    (ToolUse { call: open.call.clone(), name: name.to_owned(), args, malformed: None }, tests)
}

/// Arguments that an event cannot hold are not run: the model is told, as of any it wrote wrongly.
fn fitted(part: Part, room: &mut usize) -> Part {
    let Part::ToolUse(mut tool) = part else { return part };
    let (json, said) = (tool.args.to_string(), tool.malformed.as_ref().map_or(0, String::len));
    let bytes = json.len() + said;
    match room.checked_sub(bytes) {
        Some(left) => *room = left,
        None => {
            let begin: String = tool.malformed.as_ref().unwrap_or(&json).chars().take(200).collect();
            let why = format!("{bytes} bytes, more than a call may have; do it in smaller parts: {begin}");
            (tool.args, tool.malformed) = (serde_json::Value::Null, Some(why));
        }
    }
    Part::ToolUse(tool)
}

/// Long text of an answer goes out of line.
fn placed(part: Part, out: &mut Outgoing, material: &Material) -> Part {
    match part {
        Part::Text { text: Content::Text(text) } if text.len() > ANSWER_INLINE_BYTES_MAX => {
            let blob = BlobRef::of(text.as_bytes());
            material.keep(blob, Bytes::from(text.clone()));
            out.blob(blob, text.into_bytes());
            Part::Text { text: Content::Blob(blob) }
        }
        other => other,
    }
}

/// A tool error that the runtime says, not the tool.
fn refusal(tool: &str, text: String) -> ToolOutcome {
    let signature = tools::error_signature(&format!("{tool}: {}", text.lines().next().unwrap_or_default()));
    let facts = ToolFacts { error_signature: Some(signature), ..ToolFacts::default() };
    ToolOutcome { content: text.into_bytes(), is_error: true, full: None, facts }
}

struct Done {
    status: ToolStatus,
    outcome: ToolOutcome,
    duration: Duration,
}

impl Done {
    fn refused(outcome: ToolOutcome, started: Instant) -> Self {
        Self { status: ToolStatus::Refused, outcome, duration: started.elapsed() }
    }
}

/// Results of one batch as they come.
struct Batch {
    turn: docket_schema::ids::Turn,
    out: Outgoing,
    read_set: BTreeMap<WorkPath, BlobHash>,
    changed: Vec<WorkPath>,
    walk: bool,
}

impl Batch {
    fn new(state: &RunState) -> Self {
        Self {
            turn: state.turn,
            out: Outgoing::default(),
            read_set: state.read_set.clone(),
            changed: Vec::new(),
            walk: false,
        }
    }

    fn finished(&mut self, open: &ToolRequested, done: Done, material: &Material) {
        let Done { status, outcome, duration } = done;
        for seen in &outcome.facts.read {
            self.read_set.insert(seen.path.clone(), seen.hash);
        }
        self.changed.extend(outcome.facts.changed.iter().cloned());
        self.walk |= outcome.facts.may_have_changed_tree;
        let (content, full) = self.placed(outcome.content, outcome.full, Some(material));
        let event = ToolFinished {
            call: open.call.clone(),
            status,
            content,
            full,
            facts: outcome.facts,
            duration_ms: ms(duration),
        };
        self.out.push(self.turn, event);
    }

    /// A result whose id and bytes follow from the log alone, so that a resumed request is the same
    /// to the byte on any machine.
    fn unknown(&mut self, open: &ToolRequested) {
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

    fn gate_finished(&mut self, open: &GateRequested, outcome: ToolOutcome, duration: Duration) {
        let passed = !outcome.is_error && outcome.facts.exit == Some(0) && !outcome.facts.timed_out;
        let (content, full) = self.placed(outcome.content, outcome.full, None);
        let call: CallId = open.call.clone();
        let facts = outcome.facts;
        self.out
            .push(self.turn, GateFinished { call, passed, content, full, facts, duration_ms: ms(duration) });
    }

    fn placed(
        &mut self,
        content: Vec<u8>,
        full: Option<Vec<u8>>,
        material: Option<&Material>,
    ) -> (Content, Option<BlobRef>) {
        let (content, large) = Content::place(content);
        if let (Some(blob), Some(bytes)) = (content.blob(), large) {
            if let Some(material) = material {
                material.keep(blob, Bytes::from(bytes.clone()));
            }
            self.out.blob(blob, bytes);
        }
        let full = full.map(|bytes| {
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

#[cfg(test)]
mod tests {
    use docket_schema::{
        ids::{DecisionHash, Turn},
        run::GateSpec,
    };

    use super::*;

    #[test]
    fn arguments_that_no_event_can_hold_come_back_to_the_model() {
        let call = |nth, bytes: usize| {
            let args = serde_json::json!({ "path": "a", "content": "x".repeat(bytes) });
            let call = CallId::tool(Turn(1), nth);
            Part::ToolUse(ToolUse { call, name: "create_file".to_owned(), args, malformed: None })
        };
        let mut room = ARGS_BYTES_MAX;
        let parts = [call(0, 1000), call(1, 300_000), call(2, 100_000), call(3, 100_000)];
        let parts: Vec<Part> = parts.into_iter().map(|part| fitted(part, &mut room)).collect();
        assert!(serde_json::to_vec(&parts).unwrap().len() < docket_schema::event::PAYLOAD_BYTES_MAX);
        let told = parts.iter().map(|part| match part {
            Part::ToolUse(tool) => tool.malformed.as_deref().is_some_and(|why| why.contains("smaller parts")),
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolResult { .. } => false,
        });
        assert_eq!(told.collect::<Vec<_>>(), [false, true, false, true]);
    }

    #[test]
    fn a_gate_runs_the_line_that_was_pinned() {
        for (name, tool) in [("tests", "run_tests"), ("requires", "run_command")] {
            let gate = GateSpec { name: name.to_owned(), command: "make test".to_owned() };
            let open =
                GateRequested { call: CallId::gate(Turn(3), 0), gate, decision: DecisionHash([0; 32]) };
            let (used, tests) = tool_of_gate(&open);
            let line = tests.map(|tests| tests.command);
            let line = line.or_else(|| used.args["command"].as_str().map(str::to_owned));
            assert_eq!((used.name.as_str(), line.as_deref()), (tool, Some("make test")));
        }
    }
}
