//! Finds the events of a run that changed one path, and what in the run caused each change.
//!
//! Pure; works on the log alone. Used by `blame`. A snapshot records *that* a path changed; the calls before
//! it tell what may have changed it: a file tool reports its files and the resulting hash, a command may have
//! written anything.

use std::collections::HashMap;

use docket_schema::{
    content::{Content, WorkspacePath},
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{BlobHash, RunId, Seq, StreamId, Turn},
    message::{CallId, MessagePart, ToolUse},
    run::{Concluded, EngineFact, ModelAnswered, RunEvent, RunPhase, SnapshotTaken, ToolFinished},
    snapshot::Entry,
};

/// A possible cause of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum ChangeCause {
    /// A tool call of the model.
    ToolCall(ToolUse),
    /// A final check, with its name and command.
    Gate { name: String, command: String },
    /// A setup command of the workspace.
    Setup(String),
    /// A person, through `docket shell`.
    Person(String),
}

/// One change of the path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathChangeEvent {
    /// The run whose stream contains the event: this one, or one whose history it shares.
    pub run: Option<RunId>,
    /// The snapshot's position in that stream.
    pub seq: Seq,
    pub turn: Turn,
    /// The run's phase at that time.
    pub phase: RunPhase,
    /// The possible causes, in order; empty if the log does not tell.
    pub causes: Vec<ChangeCause>,
    /// The first line of the model's text in that turn; empty if there was none, or if a person made the
    /// change.
    pub model_text: String,
    /// The new entry at the path; `None` = nothing.
    pub entry: Option<Entry>,
}

/// Returns all changes of `path` in a run's complete history, oldest first.
///
/// # Errors
/// An error if this version cannot read an event.
pub fn path_changes(events: &[Envelope], path: &WorkspacePath) -> Result<Vec<PathChangeEvent>, DecodeError> {
    let mut reading = PathHistoryReader::default();
    let mut found = Vec::new();
    for event in events {
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())?;
        found.extend(reading.apply_event(event, typed, path));
    }
    Ok(found)
}

/// An effect since the last snapshot.
struct RecordedEffect {
    cause: ChangeCause,
    /// Files that it reports as written, with their resulting hashes.
    written_files: Vec<(WorkspacePath, Option<BlobHash>)>,
    may_have_written_any: bool,
}

struct PathHistoryReader {
    turn: Turn,
    phase: RunPhase,
    model_text: String,
    calls: HashMap<CallId, ToolUse>,
    gates: HashMap<CallId, ChangeCause>,
    effects: Vec<RecordedEffect>,
    /// A snapshot of these effects was taken. Another part of that snapshot may follow; a new effect starts a
    /// new list.
    snapshot_taken: bool,
}

impl Default for PathHistoryReader {
    fn default() -> Self {
        Self {
            turn: Turn(0),
            phase: RunPhase::Exploring,
            model_text: String::new(),
            calls: HashMap::new(),
            gates: HashMap::new(),
            effects: Vec::new(),
            snapshot_taken: false,
        }
    }
}

impl PathHistoryReader {
    fn apply_event(
        &mut self,
        envelope: &Envelope,
        event: RunEvent,
        path: &WorkspacePath,
    ) -> Option<PathChangeEvent> {
        if envelope.turn > self.turn {
            self.turn = envelope.turn;
            self.model_text.clear();
        }
        match event {
            RunEvent::PhaseChanged(event) => self.phase = event.phase,
            RunEvent::ModelAnswered(event) if event.call.is_summary() => {}
            RunEvent::ModelAnswered(event) => self.record_reply(event),
            RunEvent::ToolFinished(event) => self.record_tool_result(event),
            RunEvent::GateRequested(event) => {
                let cause = ChangeCause::Gate { name: event.gate.name, command: event.gate.command };
                self.gates.insert(event.call, cause);
            }
            RunEvent::GateFinished(event) => {
                if let Some(cause) = self.gates.remove(&event.call) {
                    self.add_effect(RecordedEffect {
                        cause,
                        written_files: Vec::new(),
                        may_have_written_any: true,
                    });
                }
            }
            RunEvent::SetupFinished(event) => {
                let cause = ChangeCause::Setup(event.command);
                self.add_effect(RecordedEffect {
                    cause,
                    written_files: Vec::new(),
                    may_have_written_any: true,
                });
            }
            RunEvent::WorkspaceEdited(event) => {
                let cause = ChangeCause::Person(event.by);
                // Earlier effects of the run are in its own snapshots.
                self.effects.clear();
                self.add_effect(RecordedEffect {
                    cause,
                    written_files: Vec::new(),
                    may_have_written_any: true,
                });
            }
            RunEvent::Concluded(event) => self.record_runtime_calls(event),
            RunEvent::SnapshotTaken(event) => return self.record_snapshot(envelope, event, path),
            _ => {}
        }
        None
    }

    fn record_reply(&mut self, event: ModelAnswered) {
        self.calls.clear();
        for part in event.parts {
            match part {
                MessagePart::Text { text: Content::Text(text) } if self.model_text.is_empty() => {
                    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
                    self.model_text = first.unwrap_or_default().to_owned();
                }
                MessagePart::ToolUse(tool) => drop(self.calls.insert(tool.call.clone(), tool)),
                MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::ToolResult { .. } => {}
            }
        }
    }

    /// Records calls made by the runtime in place of a model, and their results.
    fn record_runtime_calls(&mut self, event: Concluded) {
        for fact in event.facts {
            if let EngineFact::Calls { calls } = fact {
                self.calls.extend(calls.into_iter().map(|tool| (tool.call.clone(), tool)));
            }
        }
    }

    fn record_tool_result(&mut self, event: ToolFinished) {
        let Some(tool) = self.calls.remove(&event.call) else { return };
        let facts = event.facts;
        let left = |path: &WorkspacePath| facts.read.iter().rev().find(|seen| seen.path == *path);
        let wrote = facts.changed.iter().map(|path| (path.clone(), left(path).map(|seen| seen.hash)));
        self.add_effect(RecordedEffect {
            written_files: wrote.collect(),
            cause: ChangeCause::ToolCall(tool),
            may_have_written_any: facts.may_have_changed_tree,
        });
    }

    fn add_effect(&mut self, effect: RecordedEffect) {
        if self.snapshot_taken {
            self.effects.clear();
            self.snapshot_taken = false;
        }
        self.effects.push(effect);
    }

    fn record_snapshot(
        &mut self,
        envelope: &Envelope,
        event: SnapshotTaken,
        path: &WorkspacePath,
    ) -> Option<PathChangeEvent> {
        self.snapshot_taken = true;
        let change = event.changes.into_iter().find(|change| change.path == *path)?;
        let causes = self.find_causes(path, change.entry);
        let by_hand = causes.iter().any(|cause| matches!(cause, ChangeCause::Person(_)));
        Some(PathChangeEvent {
            run: match &envelope.stream {
                StreamId::Run(run) => Some(*run),
                StreamId::Task(_) | StreamId::Queue(_) | StreamId::System(_) => None,
            },
            seq: envelope.seq,
            turn: self.turn,
            phase: self.phase,
            causes,
            model_text: if by_hand { String::new() } else { self.model_text.clone() },
            entry: change.entry,
        })
    }

    /// Returns the calls that named the path, if the last of them left the content that the snapshot found;
    /// otherwise also everything else that may have written it.
    fn find_causes(&self, path: &WorkspacePath, found: Option<Entry>) -> Vec<ChangeCause> {
        let named = |effect: &RecordedEffect| {
            effect.written_files.iter().find(|(wrote, _)| wrote == path).map(|(_, hash)| *hash)
        };
        let last = self.effects.iter().rev().find_map(named);
        let settled = last.is_some_and(|left| left.is_some() && left == found.map(|entry| entry.hash));
        let caused =
            |effect: &&RecordedEffect| named(effect).is_some() || (!settled && effect.may_have_written_any);
        self.effects.iter().filter(caused).map(|effect| effect.cause.clone()).collect()
    }
}
