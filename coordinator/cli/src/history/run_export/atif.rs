//! Exports a run as a trajectory in the Agent Trajectory Interchange Format, v1.7.
//!
//! There is one step for the system prompt, one for the task, one for every model reply with its calls and
//! their results, and one for each message of a person or the runtime in between. Steps of a parent's shared
//! part are marked as copied context. Data that the format has no field for is in `extra`.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::Content,
    event::{Envelope, TypedEvent as _},
    history::ModelCost,
    ids::{RunId, StreamId},
    message::{MessagePart, ToolSpec, ToolUse},
    run::{
        ChangeAttribution, GateFinished, ModelAnswered, RunEvent, RunOutcome, RunStarted, SnapshotTaken,
        ToolFinished, describe_person_changes,
    },
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::texts::FetchedTexts;
use crate::output::error::{CliError, CliResult, ExitKind, FailWith as _};
use crate::output::fact_format;

/// The format version.
const SCHEMA_VERSION: &str = "ATIF-v1.7";

/// The document.
#[derive(Debug, Serialize)]
pub(super) struct AtifTrajectory {
    schema_version: &'static str,
    session_id: String,
    trajectory_id: String,
    agent: AtifAgent,
    steps: Vec<AtifStep>,
    final_metrics: AtifFinalMetrics,
    extra: Value,
}

#[derive(Debug, Serialize)]
struct AtifAgent {
    name: &'static str,
    version: &'static str,
    model_name: String,
    tool_definitions: Vec<Value>,
    extra: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum AtifSource {
    System,
    User,
    Agent,
}

#[derive(Debug, Serialize)]
struct AtifStep {
    step_id: usize,
    timestamp: String,
    source: AtifSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<AtifToolCall>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<AtifObservation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<AtifMetrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    llm_call_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_copied_context: Option<bool>,
    extra: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct AtifToolCall {
    tool_call_id: String,
    function_name: String,
    arguments: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Value>,
}

#[derive(Debug, Default, Serialize)]
struct AtifObservation {
    results: Vec<AtifObservationResult>,
}

#[derive(Debug, Serialize)]
struct AtifObservationResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<String>,
    content: String,
    extra: Value,
}

#[derive(Debug, Serialize)]
struct AtifMetrics {
    prompt_tokens: u64,
    completion_tokens: u64,
    cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    extra: Value,
}

#[derive(Debug, Default, Serialize)]
struct AtifFinalMetrics {
    total_prompt_tokens: u64,
    total_completion_tokens: u64,
    total_cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_cost_usd: Option<f64>,
    total_steps: usize,
}

/// Builds the trajectory of a run's complete history.
pub(super) fn build_trajectory(
    run: RunId,
    events: &[Envelope],
    texts: &FetchedTexts,
) -> CliResult<AtifTrajectory> {
    let mut making = TrajectoryBuilder::new(run, texts);
    for event in events {
        let unknown = || format!("event {} of {} cannot be read", event.seq, event.stream);
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .fail_with(ExitKind::EngineMissing, unknown)?;
        making.apply_event(event, typed);
    }
    making.finish()
}

struct TrajectoryBuilder<'a> {
    run: RunId,
    texts: &'a FetchedTexts,
    pins: Option<Box<RunStarted>>,
    steps: Vec<AtifStep>,
    /// The step in which each call was made.
    calls: BTreeMap<String, usize>,
    model: String,
    priced: bool,
    cost: ModelCost,
    parents: BTreeSet<String>,
    outcome: Value,
    hands: ChangeAttribution,
}

impl<'a> TrajectoryBuilder<'a> {
    fn new(run: RunId, texts: &'a FetchedTexts) -> Self {
        Self {
            run,
            texts,
            pins: None,
            steps: Vec::new(),
            calls: BTreeMap::new(),
            model: String::new(),
            priced: false,
            cost: ModelCost::default(),
            parents: BTreeSet::new(),
            outcome: Value::Null,
            hands: ChangeAttribution::default(),
        }
    }

    fn push_step(&mut self, event: &Envelope, source: AtifSource, message: String) -> &mut AtifStep {
        let copied = event.stream != StreamId::Run(self.run);
        let mut extra = Map::new();
        extra.insert("turn".to_owned(), event.turn.0.into());
        extra.insert("event".to_owned(), event.kind.clone().into());
        extra.insert("seq".to_owned(), event.seq.0.into());
        self.steps.push(AtifStep {
            step_id: self.steps.len() + 1,
            timestamp: event.recorded_at.to_string(),
            source,
            model_name: None,
            message,
            reasoning_content: None,
            tool_calls: None,
            observation: None,
            metrics: None,
            llm_call_count: None,
            is_copied_context: copied.then_some(true),
            extra,
        });
        self.steps.last_mut().expect("it was just put there")
    }

    fn push_message(&mut self, event: &Envelope, source: AtifSource, content: &Content) {
        let message = self.texts.content_text(content);
        self.push_step(event, source, message);
    }

    fn apply_event(&mut self, event: &Envelope, typed: RunEvent) {
        let person = self.hands.attribute_event(&typed).map(str::to_owned);
        match typed {
            RunEvent::RunStarted(e) => self.on_run_started(event, e),
            RunEvent::Forked(e) => {
                self.parents.insert(e.parent.to_string());
                if let Some(models) = &e.models {
                    (self.model, self.priced) = (models.main.name.clone(), models.has_all_prices());
                }
                e.hint.iter().for_each(|hint| self.push_message(event, AtifSource::User, hint));
            }
            RunEvent::ModelRequested(e) => {
                self.model.clone_from(&e.model.name);
                if let Some(nudge) = e.nudge {
                    self.push_step(event, AtifSource::User, nudge);
                }
            }
            RunEvent::ModelAnswered(e) => self.on_model_answered(event, e),
            RunEvent::ModelFailed(e) => {
                let message = format!("the model call failed ({}): {}", e.error, e.message);
                self.push_step(event, AtifSource::System, message);
            }
            RunEvent::ToolFinished(e) => self.on_tool_finished(event, &e),
            RunEvent::GateFinished(e) => self.on_check_finished(event, &e),
            RunEvent::ChildAnswered(e) => {
                let result = AtifObservationResult {
                    source_call_id: Some(e.call.0.clone()),
                    content: self.texts.content_text(&e.content),
                    extra: json!({ "child": e.child, "is_error": e.is_error }),
                };
                self.attach_result(event, result);
            }
            RunEvent::Told(e) => self.push_message(event, AtifSource::User, &e.text),
            RunEvent::BlockerAnswered(e) => self.push_message(event, AtifSource::User, &e.text),
            RunEvent::RunBlocked(e) => self.push_message(event, AtifSource::System, &e.question),
            RunEvent::Compacted(e) => {
                let message = self.texts.content_text(&e.summary);
                let step = self.push_step(event, AtifSource::System, message);
                step.extra.insert("messages_replaced".to_owned(), e.messages.into());
            }
            RunEvent::SetupFinished(e) => {
                let extra = json!({ "exit": e.exit, "duration_ms": e.duration_ms });
                self.push_command_result(event, format!("setup: {}", e.command), &e.content, extra);
            }
            RunEvent::BaseChecked(e) => {
                let message = format!("before the run: check {} {}", e.gate.name, e.outcome_label());
                self.push_step(event, AtifSource::System, message);
            }
            RunEvent::SnapshotTaken(e) => self.on_snapshot_taken(event, person, &e),
            RunEvent::RoleBegan(e) => {
                let opening: Vec<String> =
                    e.opening.iter().map(|text| self.texts.content_text(text)).collect();
                let step = self.push_step(event, AtifSource::User, opening.join("\n\n"));
                step.extra.insert("role".to_owned(), e.role.into());
            }
            RunEvent::Concluded(e) => {
                let step = self.push_step(event, AtifSource::System, fact_format::format_conclusion(&e));
                step.extra.insert("facts".to_owned(), json!(e.facts));
            }
            RunEvent::RunEnded(e) => {
                self.outcome = json!({ "outcome": e.result.as_str(), "tree": e.tree });
                if let RunOutcome::Failed { message, .. } = e.result {
                    self.push_step(event, AtifSource::System, format!("the run failed: {message}"));
                }
            }
            _ => {}
        }
    }

    fn on_run_started(&mut self, event: &Envelope, pins: RunStarted) {
        (self.model, self.priced) = (pins.models.main.name.clone(), pins.models.has_all_prices());
        let (system, task) =
            (self.texts.blob_text(&pins.prompts.system), self.texts.blob_text(&pins.prompts.task));
        self.push_step(event, AtifSource::System, system);
        self.push_step(event, AtifSource::User, task);
        self.pins = Some(Box::new(pins));
    }

    fn on_model_answered(&mut self, event: &Envelope, answer: ModelAnswered) {
        let (mut message, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for part in &answer.parts {
            match part {
                MessagePart::Text { text } => message.push_str(&self.texts.content_text(text)),
                MessagePart::Thinking { data, .. } => reasoning.push_str(reasoning_text(data)),
                MessagePart::ToolUse(tool) => calls.push(to_tool_call(tool)),
                MessagePart::ToolResult { .. } => {}
            }
        }
        self.cost.add(answer.usage, answer.cost_nusd);
        let (model, cost) = (self.model.clone(), self.priced.then(|| nusd_to_dollars(answer.cost_nusd)));
        let place = self.steps.len();
        self.calls.extend(calls.iter().map(|call| (call.tool_call_id.clone(), place)));
        let step = self.push_step(event, AtifSource::Agent, message);
        step.model_name = Some(model);
        step.reasoning_content = Some(reasoning).filter(|text| !text.is_empty());
        step.tool_calls = Some(calls).filter(|calls| !calls.is_empty());
        step.llm_call_count = Some(1);
        step.metrics = Some(AtifMetrics {
            prompt_tokens: answer.usage.request_tokens(),
            completion_tokens: answer.usage.output_tokens,
            cached_tokens: answer.usage.cache_read_tokens,
            cost_usd: cost,
            extra: json!({
                "cache_write_tokens": answer.usage.cache_write_tokens,
                "first_byte_ms": answer.first_byte_ms,
                "total_ms": answer.total_ms,
                "stop": answer.stop,
            }),
        });
    }

    fn on_tool_finished(&mut self, event: &Envelope, result: &ToolFinished) {
        let result = AtifObservationResult {
            source_call_id: Some(result.call.0.clone()),
            content: self.texts.content_text(&result.content),
            extra: json!({ "status": result.status, "duration_ms": result.duration_ms, "exit": result.facts.exit }),
        };
        self.attach_result(event, result);
    }

    fn on_check_finished(&mut self, event: &Envelope, gate: &GateFinished) {
        let became = match (gate.step.is_check(), gate.passed) {
            (true, _) if gate.is_not_installed() => "could not run: its linter is not installed",
            (true, true) => "passed",
            (true, false) => "failed",
            (false, true) => "that failed was fixed without the model",
            (false, false) => "that failed could not be fixed without the model",
        };
        let extra = json!({ "gate": gate.call, "passed": gate.passed, "duration_ms": gate.duration_ms });
        self.push_command_result(event, format!("a final check {became}"), &gate.content, extra);
    }

    /// Adds a step for a command that the runtime ran, with its output.
    fn push_command_result(&mut self, event: &Envelope, message: String, content: &Content, extra: Value) {
        let result =
            AtifObservationResult { source_call_id: None, content: self.texts.content_text(content), extra };
        let step = self.push_step(event, AtifSource::System, message);
        step.observation = Some(AtifObservation { results: vec![result] });
    }

    fn on_snapshot_taken(&mut self, event: &Envelope, person: Option<String>, taken: &SnapshotTaken) {
        if let Some(person) = person {
            let step = self.push_step(event, AtifSource::User, describe_person_changes(taken));
            step.extra.insert("by".to_owned(), person.into());
        }
        if let Some(step) = self.steps.last_mut() {
            step.extra.insert("tree".to_owned(), taken.tree.to_string().into());
        }
    }

    /// Attaches a result to the step that made the call; otherwise it becomes a system step.
    fn attach_result(&mut self, event: &Envelope, mut result: AtifObservationResult) {
        let made = result.source_call_id.as_ref().and_then(|call| self.calls.get(call)).copied();
        let step = if let Some(step) = made.and_then(|place| self.steps.get_mut(place)) {
            step
        } else {
            result.source_call_id = None;
            self.push_step(event, AtifSource::System, String::new())
        };
        step.observation.get_or_insert_default().results.push(result);
    }

    fn finish(self) -> CliResult<AtifTrajectory> {
        let Some(pins) = self.pins else {
            let run = self.run.short();
            let message = format!("run {run} has not started yet; `docket follow {run}` waits for it");
            return Err(CliError::new(ExitKind::Refused, message));
        };
        let tools = self.texts.blob_text(&pins.prompts.tools);
        let tools: Vec<ToolSpec> = serde_json::from_str(&tools).fail_with(ExitKind::Failed, || {
            "the run's tool schemas are too large; raise --text-bytes".to_owned()
        })?;
        Ok(AtifTrajectory {
            schema_version: SCHEMA_VERSION,
            session_id: self.run.to_string(),
            trajectory_id: self.run.to_string(),
            agent: AtifAgent {
                name: "docket",
                version: env!("CARGO_PKG_VERSION"),
                model_name: pins.models.main.name.clone(),
                tool_definitions: tools.into_iter().map(to_tool_definition).collect(),
                extra: json!({
                    "engine": pins.engine.to_string(),
                    "provider": pins.models.main.provider,
                    "sandbox": pins.sandbox.active,
                }),
            },
            final_metrics: AtifFinalMetrics {
                total_prompt_tokens: self.cost.usage.request_tokens(),
                total_completion_tokens: self.cost.usage.output_tokens,
                total_cached_tokens: self.cost.usage.cache_read_tokens,
                total_cost_usd: self.priced.then(|| nusd_to_dollars(self.cost.nusd)),
                total_steps: self.steps.len(),
            },
            steps: self.steps,
            extra: json!({
                "task": pins.task,
                "base_tree": pins.base.tree,
                "parents": self.parents,
                "ended": self.outcome,
            }),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "dollars for people; the exact sum is in the log")]
fn nusd_to_dollars(nusd: u64) -> f64 {
    nusd as f64 / 1e9
}

/// Returns the text of a provider's reasoning, if it is visible.
pub(crate) fn reasoning_text(data: &Value) -> &str {
    ["thinking", "text", "reasoning_content", "reasoning"]
        .iter()
        .find_map(|name| data.get(name).and_then(Value::as_str))
        .or_else(|| data.pointer("/summary/0/text").and_then(Value::as_str))
        .or_else(|| data.as_str())
        .unwrap_or_default()
}

/// Converts a call. Arguments that were not a JSON object are kept in `extra` next to an empty object.
fn to_tool_call(tool: &ToolUse) -> AtifToolCall {
    let (arguments, extra) = match (&tool.args, &tool.malformed) {
        (Value::Object(arguments), None) => (arguments.clone(), None),
        (_, Some(malformed)) => (Map::new(), Some(json!({ "malformed": malformed }))),
        (other, None) => (Map::new(), Some(json!({ "malformed": other }))),
    };
    AtifToolCall { tool_call_id: tool.call.0.clone(), function_name: tool.name.clone(), arguments, extra }
}

fn to_tool_definition(tool: ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name, "description": tool.description, "parameters": tool.input_schema,
        },
    })
}
