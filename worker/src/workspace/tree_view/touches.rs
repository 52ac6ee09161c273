//! Which events of a run changed one path, and what in the run caused each.
//!
//! Pure, on the log alone. For `blame`, and for whoever asks why a file is as it is. A snapshot says *that* a
//! path changed; the calls before it say what may have done it: a file tool names its files and the hash it
//! left, a command may have written anything.

use std::collections::HashMap;

use docket_schema::{
    content::{Content, WorkPath},
    event::{DecodeError, Envelope, TypedEvent as _},
    ids::{BlobHash, RunId, Seq, StreamId, Turn},
    message::{CallId, Part, ToolUse},
    run::{Concluded, Fact, ModelAnswered, Phase, RunEvent, SnapshotTaken, ToolFinished},
    snapshot::Entry,
};

/// What may have changed a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Cause {
    /// A tool call of the model.
    Call(ToolUse),
    /// A final check, by its name and command.
    Gate {
        /// Its name.
        name: String,
        /// Its command.
        command: String,
    },
    /// A command that makes workspaces ready.
    Setup(String),
    /// A person, by `docket shell`.
    Person(String),
}

/// One change of the path.
#[derive(Debug, Clone, PartialEq)]
pub struct Touch {
    /// The run in whose stream it stands: this one, or one whose history it shares.
    pub run: Option<RunId>,
    /// The snapshot's place in that stream.
    pub seq: Seq,
    /// The turn.
    pub turn: Turn,
    /// What the run was about.
    pub phase: Phase,
    /// What may have caused it, in order; empty where the log does not say.
    pub causes: Vec<Cause>,
    /// The model's words in that turn, their first line; empty where it said nothing, and where the change
    /// is a person's.
    pub said: String,
    /// What stands at the path from here on; `None` = nothing.
    pub entry: Option<Entry>,
}

/// All changes of `path` in a run's whole history, oldest first.
///
/// # Errors
/// An event that this build cannot read.
pub fn touches(events: &[Envelope], path: &WorkPath) -> Result<Vec<Touch>, DecodeError> {
    let mut reading = Reading::default();
    let mut found = Vec::new();
    for event in events {
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())?;
        found.extend(reading.take(event, typed, path));
    }
    Ok(found)
}

/// An effect since the last snapshot.
struct Effect {
    cause: Cause,
    /// Files that it says it wrote, and the hash it left.
    wrote: Vec<(WorkPath, Option<BlobHash>)>,
    may_have_written_any: bool,
}

struct Reading {
    turn: Turn,
    phase: Phase,
    said: String,
    calls: HashMap<CallId, ToolUse>,
    gates: HashMap<CallId, Cause>,
    effects: Vec<Effect>,
    /// A snapshot of these effects was taken; another part of it may follow, a new effect begins anew.
    taken: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            turn: Turn(0),
            phase: Phase::Exploring,
            said: String::new(),
            calls: HashMap::new(),
            gates: HashMap::new(),
            effects: Vec::new(),
            taken: false,
        }
    }
}

impl Reading {
    fn take(&mut self, envelope: &Envelope, event: RunEvent, path: &WorkPath) -> Option<Touch> {
        if envelope.turn > self.turn {
            self.turn = envelope.turn;
            self.said.clear();
        }
        match event {
            RunEvent::PhaseChanged(event) => self.phase = event.phase,
            RunEvent::ModelAnswered(event) if event.call.is_summary() => {}
            RunEvent::ModelAnswered(event) => self.answered(event),
            RunEvent::ToolFinished(event) => self.finished(event),
            RunEvent::GateRequested(event) => {
                let cause = Cause::Gate { name: event.gate.name, command: event.gate.command };
                self.gates.insert(event.call, cause);
            }
            RunEvent::GateFinished(event) => {
                if let Some(cause) = self.gates.remove(&event.call) {
                    self.effect(Effect { cause, wrote: Vec::new(), may_have_written_any: true });
                }
            }
            RunEvent::SetupFinished(event) => {
                let cause = Cause::Setup(event.command);
                self.effect(Effect { cause, wrote: Vec::new(), may_have_written_any: true });
            }
            RunEvent::WorkspaceEdited(event) => {
                let cause = Cause::Person(event.by);
                // What the run did before is in its own snapshots.
                self.effects.clear();
                self.effect(Effect { cause, wrote: Vec::new(), may_have_written_any: true });
            }
            RunEvent::Concluded(event) => self.concluded(event),
            RunEvent::SnapshotTaken(event) => return self.snapshot(envelope, event, path),
            _ => {}
        }
        None
    }

    fn answered(&mut self, event: ModelAnswered) {
        self.calls.clear();
        for part in event.parts {
            match part {
                Part::Text { text: Content::Text(text) } if self.said.is_empty() => {
                    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
                    self.said = first.unwrap_or_default().to_owned();
                }
                Part::ToolUse(tool) => drop(self.calls.insert(tool.call.clone(), tool)),
                Part::Text { .. } | Part::Thinking { .. } | Part::ToolResult { .. } => {}
            }
        }
    }

    /// Calls that the runtime makes in place of a model, with what that answered.
    fn concluded(&mut self, event: Concluded) {
        for fact in event.facts {
            if let Fact::Calls { calls } = fact {
                self.calls.extend(calls.into_iter().map(|tool| (tool.call.clone(), tool)));
            }
        }
    }

    fn finished(&mut self, event: ToolFinished) {
        let Some(tool) = self.calls.remove(&event.call) else { return };
        let facts = event.facts;
        let left = |path: &WorkPath| facts.read.iter().rev().find(|seen| seen.path == *path);
        let wrote = facts.changed.iter().map(|path| (path.clone(), left(path).map(|seen| seen.hash)));
        self.effect(Effect {
            wrote: wrote.collect(),
            cause: Cause::Call(tool),
            may_have_written_any: facts.may_have_changed_tree,
        });
    }

    fn effect(&mut self, effect: Effect) {
        if self.taken {
            self.effects.clear();
            self.taken = false;
        }
        self.effects.push(effect);
    }

    fn snapshot(&mut self, envelope: &Envelope, event: SnapshotTaken, path: &WorkPath) -> Option<Touch> {
        self.taken = true;
        let change = event.changes.into_iter().find(|change| change.path == *path)?;
        let causes = self.causes(path, change.entry);
        let by_hand = causes.iter().any(|cause| matches!(cause, Cause::Person(_)));
        Some(Touch {
            run: match &envelope.stream {
                StreamId::Run(run) => Some(*run),
                StreamId::Task(_) | StreamId::Queue(_) | StreamId::System(_) => None,
            },
            seq: envelope.seq,
            turn: self.turn,
            phase: self.phase,
            causes,
            said: if by_hand { String::new() } else { self.said.clone() },
            entry: change.entry,
        })
    }

    /// The calls that named the path, if the last of them left what the snapshot found; else whatever may
    /// have written it as well.
    fn causes(&self, path: &WorkPath, found: Option<Entry>) -> Vec<Cause> {
        let named =
            |effect: &Effect| effect.wrote.iter().find(|(wrote, _)| wrote == path).map(|(_, hash)| *hash);
        let last = self.effects.iter().rev().find_map(named);
        let settled = last.is_some_and(|left| left.is_some() && left == found.map(|entry| entry.hash));
        let caused = |effect: &&Effect| named(effect).is_some() || (!settled && effect.may_have_written_any);
        self.effects.iter().filter(caused).map(|effect| effect.cause.clone()).collect()
    }
}
