//! One turn, all of it that its events say: what the model was told, what it said and called, what came of that, what
//! changed, and what else happened.

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

/// Words that reach the model with its next request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnMessage {
    /// Whose they are.
    pub from: MessageSource,
    /// The words.
    pub text: Content,
}

/// Whose words a model is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageSource {
    /// The task's.
    Task,
    /// A person's, told to the run.
    Person(String),
    /// A person's, as the answer to a question.
    Answer(String),
    /// A child's, as the answer to the call that delegated.
    Child {
        /// The child.
        task: TaskId,
        /// The call.
        call: CallId,
    },
    /// A person's, with a fork.
    Hint,
    /// The runtime's: why the model is asked again.
    Nudge,
    /// The runtime's: what a person changed in the workspace.
    Edit,
}

/// Paths that changed in the work tree, by one hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceChange {
    /// The person who changed them; none where it is the run's work.
    pub by: Option<String>,
    /// The paths, in order; one may be here twice, and then the last counts.
    pub paths: Vec<PathChange>,
    /// Place behind its last snapshot among the events of the run.
    pub end_index: usize,
}

/// Something that happened in a turn and is no call, no change and no end: a recovery, a limit, a failed attempt.
#[derive(Debug)]
pub struct TurnNote {
    /// Place of its event among those of the run.
    pub event_index: usize,
    /// The event, if this build can read it.
    pub event: Result<RunEvent, DecodeError>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct TurnDetail {
    /// Its number; 0 is what came before the first.
    pub turn: Turn,
    /// What the run was about, in order.
    pub phases: Vec<RunPhase>,
    /// What the model was newly told, in order.
    pub messages: Vec<TurnMessage>,
    /// How often a model was asked for a decision: a failed attempt is followed by another. Calls for a summary are in
    /// `cost` alone.
    pub model_calls: Vec<ModelCall>,
    /// Tool calls, in the model's order.
    pub calls: Vec<ToolCall>,
    /// Final checks, in order.
    pub checks: Vec<FinalCheck>,
    /// What changed in the work tree, in order.
    pub changes: Vec<WorkspaceChange>,
    /// How many paths under `.git` changed.
    pub git_changes: usize,
    /// What its snapshots newly left out.
    pub left_out: Vec<OmittedPath>,
    /// Hash of the tree at its last snapshot.
    pub tree: Option<TreeHash>,
    /// What else happened, in order.
    pub notes: Vec<TurnNote>,
    /// What models took.
    pub cost: ModelCost,
    /// How the run ended, if it did.
    pub end: Option<RunOutcome>,
    attribution: ChangeAttribution,
}

impl TurnDetail {
    /// Reads the events of a turn, the first of which is at `place` among those of the run.
    pub fn from_events(turn: Turn, place: usize, events: &[Envelope]) -> Self {
        let mut detail = Self { turn, ..Self::default() };
        for (nth, event) in events.iter().enumerate() {
            detail.apply(place + nth, event);
        }
        detail
    }

    /// Takes its next event.
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

    /// Keeps a milestone, and the words for the model that come with it.
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

    /// The answers of models, in order.
    pub fn model_answers(&self) -> impl DoubleEndedIterator<Item = &ModelAnswered> {
        self.model_calls.iter().filter_map(ModelCall::answer)
    }

    /// The texts of the answers, in order.
    pub fn answer_texts(&self) -> impl Iterator<Item = &Content> {
        self.model_answers().flat_map(ModelAnswered::answer_texts)
    }

    /// The paths of the work tree that the run changed.
    pub fn paths_by_run(&self) -> impl Iterator<Item = &PathChange> {
        self.changes.iter().filter(|change| change.by.is_none()).flat_map(|change| &change.paths)
    }

    /// The paths of the work tree that a person changed by hand.
    pub fn paths_by_person(&self) -> impl Iterator<Item = &PathChange> {
        self.changes.iter().filter(|change| change.by.is_some()).flat_map(|change| &change.paths)
    }

    /// Two turns in which the model said and called the same have the same digest. Reasoning is left out: providers sign
    /// it, so it is never the same.
    pub fn decision_digest(&self) -> String {
        let parts = self.model_answers().flat_map(|answer| &answer.parts);
        let parts: Vec<&MessagePart> =
            parts.filter(|part| !matches!(part, MessagePart::Thinking { .. })).collect();
        short_digest(&format!("{parts:?}"))
    }

    /// Two turns in which the same came of what was called have the same digest.
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
