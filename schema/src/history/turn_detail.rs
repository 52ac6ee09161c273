//! Everything recorded in one turn: the model's input, its text and calls, the results, the changes and other
//! events.

use super::{
    calls::{FinalCheck, ModelCall, ModelReply, ToolCall},
    turn_summary::ModelCost,
};
use crate::{
    content::Content,
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{Seq, TaskId, TreeHash, Turn},
    message::{CallId, MessagePart},
    run::{
        ChangeAttribution, ModelAnswered, ModelFailed, ModelRequested, RunEvent, RunOutcome, RunPhase,
        SnapshotTaken, describe_person_changes, tool_uses,
    },
    snapshot::{OmittedPath, PathChange},
};

/// A message that reaches the model with its next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnMessage {
    /// Who it is from.
    pub from: MessageSource,
    /// The text.
    pub text: Content,
}

/// Who a message to the model is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageSource {
    /// The task.
    Task,
    /// A person, sent to the run.
    Person(String),
    /// A person, as the answer to a question.
    Answer(String),
    /// A child task, as the answer to the delegating call.
    Child {
        /// The child task.
        task: TaskId,
        /// The delegating call.
        call: CallId,
    },
    /// A person, given with a fork.
    Hint,
    /// The runtime: why the model is called again.
    Nudge,
    /// The runtime: what a person changed in the workspace.
    Edit,
}

/// Changed paths of the work tree, by one author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceChange {
    /// The person who changed them; none if the run did.
    pub by: Option<String>,
    /// The paths in order. A path can occur twice, and then the last entry counts.
    pub paths: Vec<PathChange>,
    /// Index after its last snapshot among the run's events.
    pub end_index: usize,
}

/// An event of a turn that is not a call, a change or an end: a recovery, a limit, a failed attempt.
#[derive(Debug)]
pub struct TurnNote {
    /// Index of the event among the run's events.
    pub event_index: usize,
    /// The event, if this build can decode it.
    pub event: Result<RunEvent, DecodeError>,
}

/// Everything recorded in one turn. See the module documentation.
#[derive(Debug, Default)]
pub struct TurnDetail {
    /// The turn's number; 0 is what happened before the first turn.
    pub turn: Turn,
    /// The run's phases during the turn, in order.
    pub phases: Vec<RunPhase>,
    /// New messages to the model, in order.
    pub messages: Vec<TurnMessage>,
    /// The attempts to get a decision from a model: a failed attempt is followed by another. Calls for a
    /// summary are only counted in `cost`.
    pub model_calls: Vec<ModelCall>,
    /// Tool calls, in the model's order.
    pub calls: Vec<ToolCall>,
    /// Final checks, in order.
    pub checks: Vec<FinalCheck>,
    /// Changes of the work tree, in order.
    pub changes: Vec<WorkspaceChange>,
    /// Number of changed paths under `.git`.
    pub git_changes: usize,
    /// Paths newly omitted from its snapshots.
    pub left_out: Vec<OmittedPath>,
    /// Hash of the tree at its last snapshot.
    pub tree: Option<TreeHash>,
    /// Other events, in order.
    pub notes: Vec<TurnNote>,
    /// Tokens and cost of the model calls.
    pub cost: ModelCost,
    /// How the run ended, if it did.
    pub end: Option<RunOutcome>,
    attribution: ChangeAttribution,
}

impl TurnDetail {
    /// Reads the events of a turn, the first of which has index `place` among the run's events.
    pub fn from_events(turn: Turn, place: usize, events: &[Envelope]) -> Self {
        let mut detail = Self { turn, ..Self::default() };
        for (nth, event) in events.iter().enumerate() {
            detail.apply(place + nth, event);
        }
        detail
    }

    /// Adds the next event.
    pub fn apply(&mut self, place: usize, envelope: &Envelope) {
        let event = match RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str()) {
            Ok(event) => event,
            Err(error) => return self.notes.push(TurnNote { event_index: place, event: Err(error) }),
        };
        let person = self.attribution.attribute_event(&event).map(str::to_owned);
        match event {
            RunEvent::RunStarted(e) => self.add_message(MessageSource::Task, Content::Blob(e.prompts.task)),
            RunEvent::PhaseChanged(e) => self.phases.push(e.phase),
            RunEvent::ModelRequested(e) => self.add_model_request(place, envelope.seq, e),
            RunEvent::ModelAnswered(e) => self.add_model_answer(e),
            RunEvent::ModelFailed(e) => self.add_model_failure(place, e),
            RunEvent::ToolRequested(e) => {
                if let Some(call) = self.tool_call_mut(&e.call) {
                    call.intent = Some(e);
                }
            }
            RunEvent::ToolFinished(e) => {
                if let Some(call) = self.tool_call_mut(&e.call) {
                    call.result = Some(e);
                }
            }
            RunEvent::SnapshotTaken(e) => self.add_changes(place, person, e),
            RunEvent::GateRequested(e) => self.checks.push(FinalCheck { intent: e, result: None }),
            RunEvent::GateFinished(e) => {
                if let Some(check) = self.checks.iter_mut().find(|check| check.intent.call == e.call) {
                    check.result = Some(e);
                }
            }
            RunEvent::Told(e) => self.add_message(MessageSource::Person(e.by), e.text),
            RunEvent::BlockerAnswered(e) => self.add_message(MessageSource::Answer(e.by), e.text),
            RunEvent::RunEnded(e) => self.end = Some(e.result),
            event @ (RunEvent::Forked(_)
            | RunEvent::RunRecovered(_)
            | RunEvent::SetupFinished(_)
            | RunEvent::BaseChecked(_)
            | RunEvent::CancelRequested(_)
            | RunEvent::PauseRequested(_)
            | RunEvent::Unpaused(_)
            | RunEvent::PolicyChanged(_)
            | RunEvent::LimitReached(_)
            | RunEvent::RunPaused(_)
            | RunEvent::RunBlocked(_)
            | RunEvent::Delegated(_)
            | RunEvent::ChildAnswered(_)
            | RunEvent::Compacted(_)
            | RunEvent::RolesPinned(_)
            | RunEvent::RoleBegan(_)
            | RunEvent::Concluded(_)
            | RunEvent::WorkspaceEdited(_)) => self.add_note(place, event),
        }
    }

    fn add_message(&mut self, from: MessageSource, text: Content) {
        self.messages.push(TurnMessage { from, text });
    }

    /// Records a note, and the message to the model that belongs to it.
    fn add_note(&mut self, place: usize, event: RunEvent) {
        if let RunEvent::ChildAnswered(e) = &event {
            let from = MessageSource::Child { task: e.child, call: e.call.clone() };
            self.add_message(from, e.content.clone());
        } else if let RunEvent::Forked(e) = &event
            && let Some(hint) = &e.hint
        {
            self.add_message(MessageSource::Hint, hint.clone());
        }
        self.notes.push(TurnNote { event_index: place, event: Ok(event) });
    }

    fn add_model_request(&mut self, place: usize, seq: Seq, intent: ModelRequested) {
        if intent.call.is_summary() {
            return;
        }
        if let Some(nudge) = &intent.nudge {
            self.add_message(MessageSource::Nudge, nudge.as_str().into());
        }
        self.model_calls.push(ModelCall { event_index: place, seq, intent, reply: None });
    }

    fn add_model_answer(&mut self, answer: ModelAnswered) {
        self.cost.add(answer.usage, answer.cost_nusd);
        if answer.call.is_summary() {
            return;
        }
        let calls = tool_uses(&answer.parts).cloned();
        self.calls.extend(calls.map(|tool| ToolCall { tool, intent: None, result: None }));
        if let Some(call) = self.model_call_mut(&answer.call) {
            call.reply = Some(ModelReply::Answered(answer));
        }
    }

    fn add_model_failure(&mut self, place: usize, failure: ModelFailed) {
        if let Some(call) = self.model_call_mut(&failure.call) {
            call.reply = Some(ModelReply::Failed(failure.clone()));
        }
        self.notes.push(TurnNote { event_index: place, event: Ok(failure.into()) });
    }

    fn add_changes(&mut self, place: usize, by: Option<String>, taken: SnapshotTaken) {
        if by.is_some() {
            self.add_message(MessageSource::Edit, describe_person_changes(&taken).into());
        }
        self.git_changes += taken.git_changes.len();
        self.left_out.extend(taken.left_out);
        self.tree = Some(taken.tree);
        let (paths, end) = (taken.changes, place + 1);
        match self.changes.last_mut() {
            Some(last) if last.by == by => {
                last.paths.extend(paths);
                last.end_index = end;
            }
            Some(_) | None => self.changes.push(WorkspaceChange { by, paths, end_index: end }),
        }
    }

    fn tool_call_mut(&mut self, call: &CallId) -> Option<&mut ToolCall> {
        self.calls.iter_mut().find(|made| made.tool.call == *call)
    }

    fn model_call_mut(&mut self, call: &CallId) -> Option<&mut ModelCall> {
        self.model_calls.iter_mut().rfind(|made| made.intent.call == *call)
    }

    /// Returns the model's answers, in order.
    pub fn model_answers(&self) -> impl DoubleEndedIterator<Item = &ModelAnswered> {
        self.model_calls.iter().filter_map(ModelCall::answer)
    }

    /// Returns the texts of the answers, in order.
    pub fn answer_texts(&self) -> impl Iterator<Item = &Content> {
        self.model_answers().flat_map(ModelAnswered::answer_texts)
    }

    /// Returns the paths of the work tree that the run changed.
    pub fn paths_by_run(&self) -> impl Iterator<Item = &PathChange> {
        self.changes.iter().filter(|change| change.by.is_none()).flat_map(|change| &change.paths)
    }

    /// Returns the paths of the work tree that a person changed by hand.
    pub fn paths_by_person(&self) -> impl Iterator<Item = &PathChange> {
        self.changes.iter().filter(|change| change.by.is_some()).flat_map(|change| &change.paths)
    }

    /// Returns a digest that is equal for turns in which the model wrote and called the same. It excludes
    /// reasoning, which providers sign, so that it is never the same twice.
    pub fn decision_digest(&self) -> String {
        let parts = self.model_answers().flat_map(|answer| &answer.parts);
        let parts: Vec<&MessagePart> =
            parts.filter(|part| !matches!(part, MessagePart::Thinking { .. })).collect();
        short_digest(&format!("{parts:?}"))
    }

    /// Returns a digest that is equal for turns whose calls had the same results.
    pub fn results_digest(&self) -> String {
        let result = |call: &ToolCall| call.result.as_ref().map(|e| (e.status, e.content.clone()));
        let calls: Vec<_> = self.calls.iter().map(result).collect();
        let checks: Vec<_> = self.checks.iter().map(|check| (check.name(), check.passed())).collect();
        let (own, by_hand): (Vec<_>, Vec<_>) =
            (self.paths_by_run().collect(), self.paths_by_person().collect());
        let end = self.end.as_ref().map(ToString::to_string);
        short_digest(&format!("{:?}", (calls, checks, own, by_hand, end)))
    }
}

fn short_digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}
