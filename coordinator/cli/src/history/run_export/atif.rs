//! A run as a trajectory in the Agent Trajectory Interchange Format, v1.7.
//!
//! One step for the system prompt, one for the task, then one for every answer of a model with the calls it
//! made and what came back, and one for whatever a person or the runtime said between. Steps of a parent's
//! shared part are marked as copied context. What the format has no place for stands in `extra`.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::Content,
    event::{Envelope, TypedEvent as _},
    history::Cost,
    ids::{RunId, StreamId},
    message::{Part, ToolSpec, ToolUse},
    run::{
        GateFinished, Hands, ModelAnswered, RunEvent, RunOutcome, RunStarted, SnapshotTaken, ToolFinished,
        edited_words,
    },
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::texts::Texts;
use crate::output::facts;
use crate::output::fail::{Exit, FailWith as _, Failure, Outcome};

/// The version of the format.
const SCHEMA_VERSION: &str = "ATIF-v1.7";

/// The whole document.
#[derive(Debug, Serialize)]
pub(super) struct Trajectory {
    schema_version: &'static str,
    session_id: String,
    trajectory_id: String,
    agent: Agent,
    steps: Vec<Step>,
    final_metrics: FinalMetrics,
    extra: Value,
}

#[derive(Debug, Serialize)]
struct Agent {
    name: &'static str,
    version: &'static str,
    model_name: String,
    tool_definitions: Vec<Value>,
    extra: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    System,
    User,
    Agent,
}

#[derive(Debug, Serialize)]
struct Step {
    step_id: usize,
    timestamp: String,
    source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<String>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<ToolCall>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<Metrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    llm_call_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_copied_context: Option<bool>,
    extra: Map<String, Value>,
}

#[derive(Debug, Serialize)]
struct ToolCall {
    tool_call_id: String,
    function_name: String,
    arguments: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Value>,
}

#[derive(Debug, Default, Serialize)]
struct Observation {
    results: Vec<ObservationResult>,
}

#[derive(Debug, Serialize)]
struct ObservationResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<String>,
    content: String,
    extra: Value,
}

#[derive(Debug, Serialize)]
struct Metrics {
    prompt_tokens: u64,
    completion_tokens: u64,
    cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    extra: Value,
}

#[derive(Debug, Default, Serialize)]
struct FinalMetrics {
    total_prompt_tokens: u64,
    total_completion_tokens: u64,
    total_cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_cost_usd: Option<f64>,
    total_steps: usize,
}

/// The trajectory of a run's whole history.
pub(super) fn trajectory(run: RunId, events: &[Envelope], texts: &Texts) -> Outcome<Trajectory> {
    let mut making = Making::new(run, texts);
    for event in events {
        let unknown = || format!("event {} of {} cannot be read", event.seq, event.stream);
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .fail_with(Exit::EngineMissing, unknown)?;
        making.take(event, typed);
    }
    making.done()
}

struct Making<'a> {
    run: RunId,
    texts: &'a Texts,
    pins: Option<Box<RunStarted>>,
    steps: Vec<Step>,
    /// In which step each call was made.
    calls: BTreeMap<String, usize>,
    model: String,
    priced: bool,
    cost: Cost,
    parents: BTreeSet<String>,
    outcome: Value,
    hands: Hands,
}

impl<'a> Making<'a> {
    fn new(run: RunId, texts: &'a Texts) -> Self {
        Self {
            run,
            texts,
            pins: None,
            steps: Vec::new(),
            calls: BTreeMap::new(),
            model: String::new(),
            priced: false,
            cost: Cost::default(),
            parents: BTreeSet::new(),
            outcome: Value::Null,
            hands: Hands::default(),
        }
    }

    fn step(&mut self, event: &Envelope, source: Source, message: String) -> &mut Step {
        let copied = event.stream != StreamId::Run(self.run);
        let mut extra = Map::new();
        extra.insert("turn".to_owned(), event.turn.0.into());
        extra.insert("event".to_owned(), event.kind.clone().into());
        extra.insert("seq".to_owned(), event.seq.0.into());
        self.steps.push(Step {
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

    fn said(&mut self, event: &Envelope, source: Source, content: &Content) {
        let message = self.texts.of(content);
        self.step(event, source, message);
    }

    fn take(&mut self, event: &Envelope, typed: RunEvent) {
        let person = self.hands.take(&typed).map(str::to_owned);
        match typed {
            RunEvent::RunStarted(e) => self.started(event, e),
            RunEvent::Forked(e) => {
                self.parents.insert(e.parent.to_string());
                if let Some(models) = &e.models {
                    (self.model, self.priced) = (models.main.name.clone(), models.are_priced());
                }
                e.hint.iter().for_each(|hint| self.said(event, Source::User, hint));
            }
            RunEvent::ModelRequested(e) => {
                self.model.clone_from(&e.model.name);
                if let Some(nudge) = e.nudge {
                    self.step(event, Source::User, nudge);
                }
            }
            RunEvent::ModelAnswered(e) => self.answered(event, e),
            RunEvent::ModelFailed(e) => {
                let message = format!("the model call failed ({}): {}", e.error, e.message);
                self.step(event, Source::System, message);
            }
            RunEvent::ToolFinished(e) => self.finished(event, &e),
            RunEvent::GateFinished(e) => self.gate(event, &e),
            RunEvent::ChildAnswered(e) => {
                let result = ObservationResult {
                    source_call_id: Some(e.call.0.clone()),
                    content: self.texts.of(&e.content),
                    extra: json!({ "child": e.child, "is_error": e.is_error }),
                };
                self.observed(event, result);
            }
            RunEvent::Told(e) => self.said(event, Source::User, &e.text),
            RunEvent::BlockerAnswered(e) => self.said(event, Source::User, &e.text),
            RunEvent::RunBlocked(e) => self.said(event, Source::System, &e.question),
            RunEvent::Compacted(e) => {
                let message = self.texts.of(&e.summary);
                let step = self.step(event, Source::System, message);
                step.extra.insert("messages_replaced".to_owned(), e.messages.into());
            }
            RunEvent::SetupFinished(e) => {
                let extra = json!({ "exit": e.exit, "duration_ms": e.duration_ms });
                self.ran(event, format!("setup: {}", e.command), &e.content, extra);
            }
            RunEvent::BaseChecked(e) => {
                let message = format!("before the work: check {} {}", e.gate.name, e.came_to());
                self.step(event, Source::System, message);
            }
            RunEvent::SnapshotTaken(e) => self.changed(event, person, &e),
            RunEvent::RoleBegan(e) => {
                let opening: Vec<String> = e.opening.iter().map(|text| self.texts.of(text)).collect();
                let step = self.step(event, Source::User, opening.join("\n\n"));
                step.extra.insert("role".to_owned(), e.role.into());
            }
            RunEvent::Concluded(e) => {
                let step = self.step(event, Source::System, facts::words(&e));
                step.extra.insert("facts".to_owned(), json!(e.facts));
            }
            RunEvent::RunEnded(e) => {
                self.outcome = json!({ "outcome": e.result.as_str(), "tree": e.tree });
                if let RunOutcome::Failed { message, .. } = e.result {
                    self.step(event, Source::System, format!("the run failed: {message}"));
                }
            }
            _ => {}
        }
    }

    fn started(&mut self, event: &Envelope, pins: RunStarted) {
        (self.model, self.priced) = (pins.models.main.name.clone(), pins.models.are_priced());
        let (system, task) =
            (self.texts.of_blob(&pins.prompts.system), self.texts.of_blob(&pins.prompts.task));
        self.step(event, Source::System, system);
        self.step(event, Source::User, task);
        self.pins = Some(Box::new(pins));
    }

    fn answered(&mut self, event: &Envelope, answer: ModelAnswered) {
        let (mut message, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
        for part in &answer.parts {
            match part {
                Part::Text { text } => message.push_str(&self.texts.of(text)),
                Part::Thinking { data, .. } => reasoning.push_str(thought(data)),
                Part::ToolUse(tool) => calls.push(call(tool)),
                Part::ToolResult { .. } => {}
            }
        }
        self.cost.add(answer.usage, answer.cost_nusd);
        let (model, cost) = (self.model.clone(), self.priced.then(|| usd(answer.cost_nusd)));
        let place = self.steps.len();
        self.calls.extend(calls.iter().map(|call| (call.tool_call_id.clone(), place)));
        let step = self.step(event, Source::Agent, message);
        step.model_name = Some(model);
        step.reasoning_content = Some(reasoning).filter(|text| !text.is_empty());
        step.tool_calls = Some(calls).filter(|calls| !calls.is_empty());
        step.llm_call_count = Some(1);
        step.metrics = Some(Metrics {
            prompt_tokens: answer.usage.asked_tokens(),
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

    fn finished(&mut self, event: &Envelope, result: &ToolFinished) {
        let result = ObservationResult {
            source_call_id: Some(result.call.0.clone()),
            content: self.texts.of(&result.content),
            extra: json!({ "status": result.status, "duration_ms": result.duration_ms, "exit": result.facts.exit }),
        };
        self.observed(event, result);
    }

    fn gate(&mut self, event: &Envelope, gate: &GateFinished) {
        let became = match (gate.step.is_check(), gate.passed) {
            (true, _) if gate.is_absent() => "could not run: its linter is not installed",
            (true, true) => "passed",
            (true, false) => "failed",
            (false, true) => "that failed was mended without the model",
            (false, false) => "that failed could not be mended without the model",
        };
        let extra = json!({ "gate": gate.call, "passed": gate.passed, "duration_ms": gate.duration_ms });
        self.ran(event, format!("a final check {became}"), &gate.content, extra);
    }

    /// Something that the runtime ran, with its output.
    fn ran(&mut self, event: &Envelope, message: String, content: &Content, extra: Value) {
        let result = ObservationResult { source_call_id: None, content: self.texts.of(content), extra };
        let step = self.step(event, Source::System, message);
        step.observation = Some(Observation { results: vec![result] });
    }

    fn changed(&mut self, event: &Envelope, person: Option<String>, taken: &SnapshotTaken) {
        if let Some(person) = person {
            let step = self.step(event, Source::User, edited_words(taken));
            step.extra.insert("by".to_owned(), person.into());
        }
        if let Some(step) = self.steps.last_mut() {
            step.extra.insert("tree".to_owned(), taken.tree.to_string().into());
        }
    }

    /// Puts a result to the step that made its call; one without is a step of the system.
    fn observed(&mut self, event: &Envelope, mut result: ObservationResult) {
        let made = result.source_call_id.as_ref().and_then(|call| self.calls.get(call)).copied();
        let step = if let Some(step) = made.and_then(|place| self.steps.get_mut(place)) {
            step
        } else {
            result.source_call_id = None;
            self.step(event, Source::System, String::new())
        };
        step.observation.get_or_insert_default().results.push(result);
    }

    fn done(self) -> Outcome<Trajectory> {
        let Some(pins) = self.pins else {
            let run = self.run.short();
            let message = format!("run {run} has not started yet; `docket follow {run}` waits for it");
            return Err(Failure::new(Exit::Refused, message));
        };
        let tools = self.texts.of_blob(&pins.prompts.tools);
        let tools: Vec<ToolSpec> = serde_json::from_str(&tools).fail_with(Exit::Failed, || {
            "the run's tool schemas cannot be read; raise --text-bytes".to_owned()
        })?;
        Ok(Trajectory {
            schema_version: SCHEMA_VERSION,
            session_id: self.run.to_string(),
            trajectory_id: self.run.to_string(),
            agent: Agent {
                name: "docket",
                version: env!("CARGO_PKG_VERSION"),
                model_name: pins.models.main.name.clone(),
                tool_definitions: tools.into_iter().map(definition).collect(),
                extra: json!({
                    "engine": pins.engine.to_string(),
                    "provider": pins.models.main.provider,
                    "sandbox": pins.sandbox.active,
                }),
            },
            final_metrics: FinalMetrics {
                total_prompt_tokens: self.cost.usage.asked_tokens(),
                total_completion_tokens: self.cost.usage.output_tokens,
                total_cached_tokens: self.cost.usage.cache_read_tokens,
                total_cost_usd: self.priced.then(|| usd(self.cost.nusd)),
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
fn usd(nusd: u64) -> f64 {
    nusd as f64 / 1e9
}

/// The words of a provider's reasoning, where it shows them.
pub(crate) fn thought(data: &Value) -> &str {
    ["thinking", "text", "reasoning_content", "reasoning"]
        .iter()
        .find_map(|name| data.get(name).and_then(Value::as_str))
        .or_else(|| data.pointer("/summary/0/text").and_then(Value::as_str))
        .or_else(|| data.as_str())
        .unwrap_or_default()
}

/// A call. Arguments that were no JSON object stand beside an empty one.
fn call(tool: &ToolUse) -> ToolCall {
    let (arguments, extra) = match (&tool.args, &tool.malformed) {
        (Value::Object(arguments), None) => (arguments.clone(), None),
        (_, Some(malformed)) => (Map::new(), Some(json!({ "malformed": malformed }))),
        (other, None) => (Map::new(), Some(json!({ "malformed": other }))),
    };
    ToolCall { tool_call_id: tool.call.0.clone(), function_name: tool.name.clone(), arguments, extra }
}

fn definition(tool: ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name, "description": tool.description, "parameters": tool.input_schema,
        },
    })
}
