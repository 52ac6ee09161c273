//! The fold from events of a run's own stream to spans, each emitted as soon as it has ended.
//!
//! ```text
//! invoke_agent react                 the run
//! └─ turn                            a decision and all it causes
//!    ├─ chat claude-sonnet-5-5       a model call; each failed attempt has its own span
//!    ├─ execute_tool edit_file       a tool call
//!    └─ gate tests                   a final check
//! ```

use super::span::{AttributeValue, Span, SpanEvent, SpanId, SpanKind, TraceId};
use crate::{
    event::{DecodeError, Envelope, TypedEvent as _},
    history::ModelCost,
    ids::{RunId, TaskId, Timestamp, Turn},
    message::{CallId, ModelRef, StopReason},
    run::{
        CallPurpose, EngineRef, EventAuthor, Forked, GateFinished, GateRequested, ModelAnswered, ModelFailed,
        ModelRequested, RunEvent, RunModels, RunOutcome, RunStarted, ToolFinished, ToolRequested, ToolStatus,
    },
    tool::RecoveryClass,
};

/// Maximum number of span events on a run's own span: recoveries, pauses, blocks.
const SPAN_EVENTS_MAX: usize = 128;

/// Folds a run into spans. See the module documentation.
#[derive(Debug, Clone)]
pub struct RunSpans {
    run: RunId,
    task: Option<TaskId>,
    engine: Option<String>,
    model: Option<(String, String)>,
    began_at: Option<Timestamp>,
    link: Option<TraceId>,
    turn: Option<(Turn, Timestamp)>,
    /// When the run itself last recorded something: events written by others do not extend a turn.
    worked_at: Timestamp,
    open_request: Option<(ModelRequested, Timestamp)>,
    role: Option<String>,
    open_tools: Vec<ToolRequested>,
    open_gates: Vec<GateRequested>,
    batch: Option<CallBatch>,
    events: Vec<SpanEvent>,
    cost: ModelCost,
}

/// End times of the calls of a batch so far.
#[derive(Debug, Clone, Copy)]
struct CallBatch {
    /// End of the last call that changes something.
    changed: Timestamp,
    /// End of the last call that only reads.
    read: Timestamp,
}

type SpanAttributes = Vec<(&'static str, AttributeValue)>;

impl RunSpans {
    /// Creates the fold of this run, before its first event.
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            task: None,
            engine: None,
            model: None,
            began_at: None,
            link: None,
            turn: None,
            worked_at: Timestamp(0),
            open_request: None,
            role: None,
            open_tools: Vec::new(),
            open_gates: Vec::new(),
            batch: None,
            events: Vec::new(),
            cost: ModelCost::default(),
        }
    }

    /// Applies the first event of an ancestor run, starting with the root, to learn engine and model.
    ///
    /// # Errors
    ///
    /// Fails if this build does not know the event.
    pub fn inherit_event(&mut self, envelope: &Envelope) -> Result<(), DecodeError> {
        let event = RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())?;
        if let RunEvent::RunStarted(e) = event {
            self.set_pins(&e.engine, &e.models.main);
        } else if let RunEvent::Forked(e) = event {
            self.update_pins(&e);
        }
        Ok(())
    }

    /// Applies the next event of the run's own stream. Returns the spans that end with it.
    ///
    /// # Errors
    ///
    /// Fails if this build does not know the event.
    pub fn apply_event(&mut self, envelope: &Envelope) -> Result<Vec<Span>, DecodeError> {
        let event = RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())?;
        let at = envelope.recorded_at;
        self.began_at.get_or_insert(at);
        // Delegation happens in the middle of a call, which ends before the turn does.
        let is_own =
            event.author() != EventAuthor::Coordinator && !matches!(event, RunEvent::RunRecovered(_));
        let mut ended = Vec::new();
        match event {
            RunEvent::RunStarted(e) => self.apply_started(&e),
            RunEvent::Forked(e) => self.apply_forked(&e, at),
            RunEvent::ModelRequested(e) => {
                ended.extend(self.begin_turn(envelope.turn, at));
                self.open_request = Some((e, at));
            }
            RunEvent::ModelAnswered(e) => ended.extend(self.answered_span(&e, at)),
            RunEvent::ModelFailed(e) => ended.extend(self.failed_span(&e, at)),
            RunEvent::ToolRequested(e) => {
                self.batch.get_or_insert(CallBatch { changed: at, read: at });
                self.open_tools.push(e);
            }
            RunEvent::ToolFinished(e) => ended.extend(self.tool_span(&e, at)),
            RunEvent::GateRequested(e) => {
                self.batch.get_or_insert(CallBatch { changed: at, read: at });
                self.open_gates.push(e);
            }
            RunEvent::GateFinished(e) => ended.extend(self.gate_span(&e, at)),
            RunEvent::RoleBegan(e) => self.role = Some(e.role),
            RunEvent::RunRecovered(_) => {
                self.add_event("recovered", at, vec![("docket.epoch", envelope.epoch.0.into())]);
            }
            RunEvent::RunBlocked(_) => self.add_event("blocked", at, Vec::new()),
            RunEvent::BlockerAnswered(_) => self.add_event("answered", at, Vec::new()),
            RunEvent::RunPaused(_) => self.add_event("paused", at, Vec::new()),
            RunEvent::Unpaused(_) => self.add_event("unpaused", at, Vec::new()),
            RunEvent::Told(_) => self.add_event("told", at, Vec::new()),
            RunEvent::CancelRequested(_) => self.add_event("cancel_requested", at, Vec::new()),
            RunEvent::PolicyChanged(_) => self.add_event("policy_changed", at, Vec::new()),
            RunEvent::LimitReached(_) => self.add_event("limit_reached", at, Vec::new()),
            RunEvent::Compacted(_) => self.add_event("compacted", at, Vec::new()),
            RunEvent::Delegated(e) => {
                self.add_event("delegated", at, vec![("docket.task.id", e.child.to_string().into())]);
            }
            RunEvent::ChildAnswered(e) => {
                self.add_event("child_answered", at, vec![("docket.task.id", e.child.to_string().into())]);
            }
            RunEvent::RunEnded(e) => ended.extend(self.end_run(&e.result, at)),
            _ => {}
        }
        if is_own {
            self.worked_at = at;
        }
        Ok(ended)
    }

    fn apply_started(&mut self, e: &RunStarted) {
        self.task = Some(e.task);
        self.set_pins(&e.engine, &e.models.main);
    }

    fn set_pins(&mut self, engine: &EngineRef, model: &ModelRef) {
        self.engine = Some(engine.name.clone());
        self.model = Some((provider_name(&model.provider), model.name.clone()));
    }

    fn update_pins(&mut self, e: &Forked) {
        if let Some(engine) = &e.engine {
            self.engine = Some(engine.name.clone());
        }
        if let Some(RunModels { main, .. }) = &e.models {
            self.model = Some((provider_name(&main.provider), main.name.clone()));
        }
    }

    fn apply_forked(&mut self, e: &Forked, at: Timestamp) {
        self.task = Some(e.task);
        self.update_pins(e);
        self.link = Some(TraceId::from_run(e.parent));
        self.add_event("forked", at, vec![("docket.run.parent", e.parent.to_string().into())]);
    }

    fn add_event(&mut self, name: &'static str, at: Timestamp, attributes: SpanAttributes) {
        if self.events.len() < SPAN_EVENTS_MAX {
            self.events.push(SpanEvent { name, at, attributes });
        }
    }

    fn root_span_id(&self) -> SpanId {
        SpanId::from_run_and_name(self.run, "run")
    }

    fn build_span(
        &self,
        (id, name): (&str, String),
        kind: SpanKind,
        (from, to): (Timestamp, Timestamp),
    ) -> Span {
        let parent = self.turn.map_or_else(|| self.root_span_id(), |(turn, _)| self.turn_span_id(turn));
        Span {
            trace: TraceId::from_run(self.run),
            id: SpanId::from_run_and_name(self.run, id),
            parent: Some(parent),
            name,
            kind,
            began_at: from.min(to),
            ended_at: to,
            attributes: vec![("gen_ai.conversation.id", self.run.to_string().into())],
            events: Vec::new(),
            error: None,
            link: None,
        }
    }

    fn turn_span_id(&self, turn: Turn) -> SpanId {
        SpanId::from_run_and_name(self.run, &format!("turn {turn}"))
    }

    /// Starts a turn. Returns the span of the previous one, if there was one.
    fn begin_turn(&mut self, turn: Turn, at: Timestamp) -> Option<Span> {
        if self.turn.is_some_and(|(now, _)| now >= turn) {
            return None;
        }
        // The turn ends with the run's last activity, so that a night's pause does not count.
        let over = self.end_turn(self.worked_at);
        self.turn = Some((turn, at));
        over
    }

    fn end_turn(&mut self, at: Timestamp) -> Option<Span> {
        self.batch = None;
        let (turn, began_at) = self.turn.take()?;
        let mut span = self.build_span(("", "turn".to_owned()), SpanKind::Internal, (began_at, at));
        span.id = self.turn_span_id(turn);
        span.attributes.push(("docket.turn", turn.0.into()));
        Some(span)
    }

    fn chat_span(&mut self, call: &CallId, (began, at): (Timestamp, Timestamp)) -> Option<Span> {
        let (asked, asked_at) = self.open_request.take_if(|(asked, _)| asked.call == *call)?;
        // The duration is measured by the worker's clock, the request time is recorded by the store's.
        let began = began.max(asked_at);
        let id = format!("{} {}", asked.call.0, asked.attempt);
        let name = format!("chat {}", asked.model.name);
        let mut span = self.build_span((&id, name), SpanKind::Client, (began, at));
        let of = &mut span.attributes;
        of.push(("gen_ai.operation.name", "chat".into()));
        of.push(("gen_ai.provider.name", provider_name(&asked.model.provider).into()));
        of.push(("gen_ai.request.model", asked.model.name.clone().into()));
        if let Some(most) = asked.output_tokens_max {
            of.push(("gen_ai.request.max_tokens", most.into()));
        }
        of.push(("docket.purpose", purpose_name(asked.purpose).into()));
        of.push(("docket.attempt", asked.attempt.into()));
        if let Some(role) = asked.role.as_ref().or(self.role.as_ref()) {
            of.push(("docket.role", role.clone().into()));
        }
        Some(span)
    }

    fn answered_span(&mut self, e: &ModelAnswered, at: Timestamp) -> Option<Span> {
        self.cost.add(e.usage, e.cost_nusd);
        let mut span = self.chat_span(&e.call, (subtract_ms(at, e.total_ms), at))?;
        let of = &mut span.attributes;
        of.push(("gen_ai.response.finish_reasons", AttributeValue::TextList(vec![finish_reason(&e.stop)])));
        of.push(("gen_ai.usage.input_tokens", e.usage.request_tokens().into()));
        of.push(("gen_ai.usage.output_tokens", e.usage.output_tokens.into()));
        of.push(("gen_ai.usage.cache_read.input_tokens", e.usage.cache_read_tokens.into()));
        of.push(("gen_ai.usage.cache_creation.input_tokens", e.usage.cache_write_tokens.into()));
        of.push(("docket.cost_usd", usd_value(e.cost_nusd)));
        of.push(("docket.first_byte_ms", e.first_byte_ms.into()));
        Some(span)
    }

    fn failed_span(&mut self, e: &ModelFailed, at: Timestamp) -> Option<Span> {
        let mut span = self.chat_span(&e.call, (subtract_ms(at, e.duration_ms), at))?;
        span.attributes.push(("error.type", e.error.clone().into()));
        // Only the error kind, because the provider's message may repeat parts of the prompt.
        span.error = Some(e.error.clone());
        Some(span)
    }

    /// Returns when a call ran: read-only calls run in parallel, those that change something one after
    /// another.
    fn call_interval(&mut self, reads: bool, duration_ms: u64, at: Timestamp) -> (Timestamp, Timestamp) {
        let began = subtract_ms(at, duration_ms);
        let CallBatch { changed, read } = self.batch.unwrap_or(CallBatch { changed: began, read: began });
        let from = if reads { changed } else { changed.max(read) };
        let to = from.plus_ms(duration_ms).min(at).max(from);
        let (changed, read) = if reads { (changed, read.max(to)) } else { (to, read) };
        self.batch = Some(CallBatch { changed, read });
        (from, to)
    }

    fn tool_span(&mut self, e: &ToolFinished, at: Timestamp) -> Option<Span> {
        let place = self.open_tools.iter().position(|open| open.call == e.call)?;
        let asked = self.open_tools.remove(place);
        let when = self.call_interval(asked.class == RecoveryClass::Reads, e.duration_ms, at);
        let name = format!("execute_tool {}", asked.tool);
        let mut span = self.build_span((&asked.call.0, name), SpanKind::Internal, when);
        let of = &mut span.attributes;
        of.push(("gen_ai.operation.name", "execute_tool".into()));
        of.push(("gen_ai.tool.name", asked.tool.into()));
        of.push(("gen_ai.tool.call.id", asked.call.0.into()));
        of.push(("gen_ai.tool.type", "function".into()));
        of.push(("docket.changed_files", (e.facts.changed.len() as u64).into()));
        if let Some(exit) = e.facts.exit {
            of.push(("docket.exit", AttributeValue::Int(i64::from(exit))));
        }
        let error = match e.status {
            ToolStatus::Ok if e.facts.timed_out => Some("timeout"),
            ToolStatus::Ok => None,
            ToolStatus::Error => Some("tool_error"),
            ToolStatus::Refused => Some("refused"),
            ToolStatus::Unknown => Some("outcome_unknown"),
        };
        if let Some(error) = error {
            of.push(("error.type", error.into()));
            span.error = Some(error.to_owned());
        }
        self.end_batch_if_idle();
        Some(span)
    }

    fn gate_span(&mut self, e: &GateFinished, at: Timestamp) -> Option<Span> {
        let place = self.open_gates.iter().position(|open| open.call == e.call)?;
        let asked = self.open_gates.remove(place);
        let when = self.call_interval(false, e.duration_ms, at);
        let mut span =
            self.build_span((&asked.call.0, format!("gate {}", asked.gate.name)), SpanKind::Internal, when);
        span.attributes.push(("docket.gate", asked.gate.name.into()));
        span.attributes.push(("docket.passed", e.passed.into()));
        if !e.passed && e.step.is_check() {
            span.attributes.push(("error.type", "gate_failed".into()));
            span.error = Some("gate_failed".to_owned());
        }
        self.end_batch_if_idle();
        Some(span)
    }

    fn end_batch_if_idle(&mut self) {
        if self.open_tools.is_empty() && self.open_gates.is_empty() {
            self.batch = None;
        }
    }

    fn end_run(&mut self, result: &RunOutcome, at: Timestamp) -> Vec<Span> {
        let mut ended = Vec::new();
        ended.extend(self.end_turn(at));
        let engine = self.engine.clone().unwrap_or_else(|| "docket".to_owned());
        let began_at = self.began_at.unwrap_or(at);
        let name = format!("invoke_agent {engine}");
        let mut span = self.build_span(("run", name), SpanKind::Internal, (began_at, at));
        span.parent = None;
        span.events = std::mem::take(&mut self.events);
        span.link = self.link;
        let of = &mut span.attributes;
        of.push(("gen_ai.operation.name", "invoke_agent".into()));
        of.push(("gen_ai.agent.name", engine.into()));
        if let Some((provider, model)) = &self.model {
            of.push(("gen_ai.provider.name", provider.clone().into()));
            of.push(("gen_ai.request.model", model.clone().into()));
        }
        of.push(("gen_ai.usage.input_tokens", self.cost.usage.request_tokens().into()));
        of.push(("gen_ai.usage.output_tokens", self.cost.usage.output_tokens.into()));
        of.push(("docket.cost_usd", usd_value(self.cost.nusd)));
        if let Some(task) = self.task {
            of.push(("docket.task.id", task.to_string().into()));
        }
        of.push(("docket.run.id", self.run.to_string().into()));
        of.push(("docket.outcome", result.as_str().into()));
        if let RunOutcome::Failed { why, .. } = result {
            let kind = serde_json::to_value(why).ok();
            let kind = kind.as_ref().and_then(|kind| kind.as_str()).unwrap_or("failed").to_owned();
            of.push(("error.type", kind.clone().into()));
            // Only the kind, because the message may contain the provider's, which may repeat parts of the
            // prompt.
            span.error = Some(kind);
        }
        ended.push(span);
        ended
    }
}

/// Returns a provider's name according to the conventions.
fn provider_name(name: &str) -> String {
    match name {
        "openai-responses" => "openai".to_owned(),
        other => other.to_owned(),
    }
}

const fn purpose_name(purpose: CallPurpose) -> &'static str {
    match purpose {
        CallPurpose::Decide => "decide",
        CallPurpose::Compact => "compact",
        CallPurpose::Plan => "plan",
        CallPurpose::Review => "review",
    }
}

/// Returns a model's stop reason in the terms of the conventions, if there is one.
fn finish_reason(stop: &StopReason) -> String {
    match stop {
        StopReason::EndTurn | StopReason::StopSequence => "stop".to_owned(),
        StopReason::ToolUse => "tool_call".to_owned(),
        StopReason::MaxTokens => "length".to_owned(),
        StopReason::Refusal => "content_filter".to_owned(),
        StopReason::Other(word) => word.clone(),
    }
}

fn subtract_ms(at: Timestamp, ms: u64) -> Timestamp {
    Timestamp(at.0.saturating_sub_unsigned(ms.saturating_mul(1000)))
}

#[expect(clippy::cast_precision_loss, reason = "a sum for a chart")]
fn usd_value(nusd: u64) -> AttributeValue {
    AttributeValue::Double(nusd as f64 / 1e9)
}
