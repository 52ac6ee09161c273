//! The state of a run: the fold of its stream. Engine-neutral; what an engine makes of it is its own.
//!
//! `apply` is total: an event that cannot follow the state is [`CorruptLog`], never ignored. Events
//! that others may write at any moment (the inbox: told, cancel, pause, policy, a child's answer)
//! are accepted between an intent and its result.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    event::{
        BlockerAnswered, ChildAnswered, Compacted, Forked, GateFinished, GateRequested, Limit, ModelAnswered,
        ModelFailed, ModelRequested, Phase, RunEnded, RunEvent, RunOutcome, RunRecovered, RunStarted,
        SnapshotTaken, ToolFinished, ToolRequested, ToolStatus,
    },
    pin::SandboxLayers,
    transcript::{Transcript, calls_of},
};
use crate::{
    content::{BlobRef, Content, WorkPath},
    event::{Envelope, TypedEvent as _},
    ids::{BlobHash, Epoch, EventHash, RunId, Seq, TaskId, TreeHash, Turn},
    message::{CallId, Part, ToolUse, Usage},
    snapshot::{Entry, LeftOutWhy, PathChange},
};

/// Where a run stands between decision and effect.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// No `RunStarted` yet.
    Unstarted,
    /// The engine is to decide.
    Deciding,
    /// A model is being asked.
    Model(Box<ModelRequested>),
    /// Tools run: some intents have no result.
    Tools,
    /// Gates run: some intents have no result.
    Gates,
    /// It rests until somebody unpauses it.
    Paused,
    /// It waits for a person or a child.
    Blocked,
    /// It is over.
    Ended(RunOutcome),
}

impl Stage {
    /// The name that people and errors see.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unstarted => "unstarted",
            Self::Deciding => "deciding",
            Self::Model(_) => "asking the model",
            Self::Tools => "running tools",
            Self::Gates => "running gates",
            Self::Paused => "paused",
            Self::Blocked => "blocked",
            Self::Ended(_) => "ended",
        }
    }
}

/// A log that cannot have been written by docket.
#[derive(Debug, thiserror::Error)]
pub enum CorruptLog {
    /// An event at the wrong place.
    #[error("event {found} stands where {expected} belongs")]
    Gap {
        /// The place that belongs there.
        expected: Seq,
        /// The place found.
        found: Seq,
    },
    /// An event that cannot follow.
    #[error("event {seq} (`{kind}`) cannot follow: the run is {stage}{detail}")]
    Illegal {
        /// Its place.
        seq: Seq,
        /// Its name.
        kind: &'static str,
        /// Where the run stands.
        stage: &'static str,
        /// More, if there is more to say.
        detail: String,
    },
    /// A payload that does not decode.
    #[error("event {seq} cannot be read")]
    Decode {
        /// Its place.
        seq: Seq,
        /// Why.
        #[source]
        source: crate::event::DecodeError,
    },
}

/// What of the envelope the fold needs.
#[derive(Debug, Clone, Copy)]
pub struct EventMeta {
    /// Place in the stream.
    pub seq: Seq,
    /// Hash of the event.
    pub hash: EventHash,
    /// Turn.
    pub turn: Turn,
    /// Epoch.
    pub epoch: Epoch,
}

impl From<&Envelope> for EventMeta {
    fn from(event: &Envelope) -> Self {
        Self { seq: event.seq, hash: event.hash, turn: event.turn, epoch: event.epoch }
    }
}

/// Sums over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Tokens.
    pub usage: Usage,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// Model calls that were answered.
    pub model_calls: u32,
    /// Model calls that failed.
    pub model_failures: u32,
    /// Tool calls with a result.
    pub tool_calls: u32,
    /// Tool calls that failed or were refused.
    pub tool_errors: u32,
}

/// Paths that differ from the base, and what stands there (`None` = nothing).
pub type Overlay = BTreeMap<WorkPath, Option<Entry>>;

/// See the module.
#[derive(Debug, Clone)]
pub struct RunState {
    /// Head of the stream as folded.
    pub seq: Seq,
    /// Hash of the last event folded.
    pub hash: EventHash,
    /// Highest epoch seen.
    pub epoch: Epoch,
    /// The turn it is in; 0 before the first model call.
    pub turn: Turn,
    /// Where it stands.
    pub stage: Stage,
    /// What it is about.
    pub phase: Phase,
    /// What was pinned at the start, with a fork's changes.
    pub pins: Option<Arc<RunStarted>>,
    /// The runs whose history this one shares, nearest last.
    pub lineage: Vec<(RunId, Seq)>,
    /// The conversation.
    pub transcript: Transcript,
    /// Tool calls of the last answer that have no intent yet, in order.
    pub wanted: VecDeque<ToolUse>,
    /// Tool calls with an intent and no result, in order, with what was asked.
    pub open_tools: Vec<(ToolRequested, ToolUse)>,
    /// Gates with an intent and no result, in order.
    pub open_gates: Vec<GateRequested>,
    /// Hash of each file as the run last read or wrote it.
    pub read_set: BTreeMap<WorkPath, BlobHash>,
    /// Work tree against the base.
    pub overlay: Overlay,
    /// `.git/` against the base.
    pub git_overlay: Overlay,
    /// Paths that snapshots left out, as last recorded.
    pub left_out: BTreeMap<WorkPath, LeftOutWhy>,
    /// Hash of the tree at the last snapshot; the base's before the first.
    pub tree: Option<TreeHash>,
    /// Sums.
    pub totals: Totals,
    /// The model's last text.
    pub last_text: Option<Content>,
    /// The last answer called no tool: the model says it is done, or blocked.
    pub answered_without_tools: bool,
    /// Failed attempts at the decision now due.
    pub failed_attempts: u32,
    /// The last failed attempt, while no answer has followed it.
    pub last_failure: Option<ModelFailed>,
    /// Answers in a row that said nothing.
    pub empty_answers: u32,
    /// Rounds of gates that failed.
    pub corrections: u32,
    /// All gates of the last round passed, and nothing has happened since.
    pub gates_passed: bool,
    /// A change failed its test, gate or lint and no change has followed: what comes next is a fix.
    pub fixing: bool,
    /// Files that file tools wrote, in this run.
    pub files_written: BTreeSet<WorkPath>,
    /// How often each error signature was seen.
    pub error_signatures: BTreeMap<String, u32>,
    /// Somebody wants it to end.
    pub cancel_requested: bool,
    /// Somebody wants it to rest.
    pub pause_requested: bool,
    /// A limit that was reached.
    pub limit: Option<Limit>,
    /// Policy in force.
    pub policy: Option<BlobRef>,
    /// Its workspace was made ready, and the snapshots hold what that left in captured paths.
    pub set_up: bool,
    /// The walls around its commands as they are now.
    pub sandbox: SandboxLayers,
    /// Calls that wait for a child.
    pub children: BTreeMap<CallId, TaskId>,
    round_failed: bool,
}

impl Default for RunState {
    fn default() -> Self {
        Self {
            seq: Seq(0),
            hash: EventHash::ZERO,
            epoch: Epoch(0),
            turn: Turn(0),
            stage: Stage::Unstarted,
            phase: Phase::Exploring,
            pins: None,
            lineage: Vec::new(),
            transcript: Transcript::default(),
            wanted: VecDeque::new(),
            open_tools: Vec::new(),
            open_gates: Vec::new(),
            read_set: BTreeMap::new(),
            overlay: BTreeMap::new(),
            git_overlay: BTreeMap::new(),
            left_out: BTreeMap::new(),
            tree: None,
            totals: Totals::default(),
            last_text: None,
            answered_without_tools: false,
            failed_attempts: 0,
            last_failure: None,
            empty_answers: 0,
            corrections: 0,
            gates_passed: false,
            fixing: false,
            files_written: BTreeSet::new(),
            error_signatures: BTreeMap::new(),
            cancel_requested: false,
            pause_requested: false,
            limit: None,
            policy: None,
            set_up: false,
            sandbox: SandboxLayers::default(),
            children: BTreeMap::new(),
            round_failed: false,
        }
    }
}

impl RunState {
    /// Decodes and applies one event of the log.
    ///
    /// # Errors
    /// [`CorruptLog`]: the event cannot be read or cannot follow.
    pub fn apply_envelope(&mut self, event: &Envelope) -> Result<(), CorruptLog> {
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .map_err(|source| CorruptLog::Decode { seq: event.seq, source })?;
        self.apply(event.into(), typed)
    }

    /// Applies one event.
    ///
    /// # Errors
    /// [`CorruptLog`]: it cannot follow.
    pub fn apply(&mut self, meta: EventMeta, event: RunEvent) -> Result<(), CorruptLog> {
        // A child's stream starts again at 1, on top of its parent's history.
        let expected = match event {
            RunEvent::Forked(_) => Seq(1),
            _ => self.seq.next(),
        };
        if meta.seq != expected {
            return Err(CorruptLog::Gap { expected, found: meta.seq });
        }
        let kind = event.kind();
        self.transition(meta, event).map_err(|detail| CorruptLog::Illegal {
            seq: meta.seq,
            kind,
            stage: self.stage.as_str(),
            detail,
        })?;
        self.seq = meta.seq;
        self.hash = meta.hash;
        self.epoch = self.epoch.max(meta.epoch);
        Ok(())
    }

    /// One arm per event; each arm is one line, the work is in the method it names.
    fn transition(&mut self, meta: EventMeta, event: RunEvent) -> Result<(), String> {
        if matches!(self.stage, Stage::Ended(_)) && !matches!(event, RunEvent::Forked(_)) {
            return Err(String::new());
        }
        match event {
            RunEvent::RunStarted(e) => self.started(e),
            RunEvent::Forked(e) => self.forked(e),
            RunEvent::RunRecovered(e) => self.recovered(e),
            RunEvent::SetupFinished(_) => {
                self.require_pins()?;
                self.set_up = true;
                Ok(())
            }
            RunEvent::PhaseChanged(e) => {
                self.phase = e.phase;
                Ok(())
            }
            RunEvent::ModelRequested(e) => self.model_requested(meta.turn, e),
            RunEvent::ModelAnswered(e) => self.model_answered(e),
            RunEvent::ModelFailed(e) => self.model_failed(e),
            RunEvent::ToolRequested(e) => self.tool_requested(e),
            RunEvent::ToolFinished(e) => self.tool_finished(e),
            RunEvent::SnapshotTaken(e) => self.snapshot_taken(e),
            RunEvent::GateRequested(e) => self.gate_requested(e),
            RunEvent::GateFinished(e) => self.gate_finished(e),
            RunEvent::Told(e) => self.told(e.text),
            RunEvent::CancelRequested(_) => {
                self.cancel_requested = true;
                Ok(())
            }
            RunEvent::PauseRequested(_) => {
                self.pause_requested = true;
                Ok(())
            }
            RunEvent::Unpaused(_) => self.unpaused(),
            RunEvent::PolicyChanged(e) => {
                self.policy = Some(e.policy);
                Ok(())
            }
            RunEvent::LimitReached(e) => {
                self.limit = Some(e.which);
                Ok(())
            }
            RunEvent::RunPaused(_) => self.leave(Stage::Paused),
            RunEvent::RunBlocked(_) => self.leave(Stage::Blocked),
            RunEvent::BlockerAnswered(e) => self.answered(e),
            RunEvent::Delegated(e) => {
                self.children.insert(e.call, e.child);
                Ok(())
            }
            RunEvent::ChildAnswered(e) => self.child_answered(e),
            RunEvent::Compacted(e) => self.compacted(e),
            RunEvent::WorkspaceEdited(_) => Ok(()),
            RunEvent::RunEnded(e) => self.ended(e),
        }
    }

    fn started(&mut self, event: RunStarted) -> Result<(), String> {
        if self.stage != Stage::Unstarted {
            return Err(String::new());
        }
        self.transcript.note(Part::Text { text: Content::Blob(event.prompts.task) });
        self.tree = Some(event.base.tree);
        self.policy = event.policy;
        self.sandbox = event.sandbox.clone();
        self.pins = Some(Arc::new(event));
        self.stage = Stage::Deciding;
        Ok(())
    }

    fn forked(&mut self, event: Forked) -> Result<(), String> {
        if self.seq != event.seq || self.hash != event.hash {
            return Err(format!(": the shared history ends at {}, not at {}", self.seq, event.seq));
        }
        let Some(pins) = &self.pins else { return Err(": the parent never started".to_owned()) };
        let mut pins = RunStarted::clone(pins);
        pins.run = event.run;
        pins.task = event.task;
        if let Some(engine) = event.engine {
            pins.engine = engine;
        }
        if let Some(models) = event.models {
            pins.models = models;
        }
        if let Some(text) = event.hint {
            self.transcript.note(Part::Text { text });
        }
        self.pins = Some(Arc::new(pins));
        self.lineage.push((event.parent, event.seq));
        // Wishes and limits were the parent's.
        self.cancel_requested = false;
        self.pause_requested = false;
        self.limit = None;
        Ok(())
    }

    fn recovered(&mut self, event: RunRecovered) -> Result<(), String> {
        self.require_pins()?;
        self.sandbox = event.sandbox;
        if !event.missing.is_empty() {
            let names: Vec<String> = event.missing.iter().map(ToString::to_string).collect();
            let text = format!(
                "The run moved to another workspace. These ignored paths did not come along; make them again if you need them: {}",
                names.join(", ")
            );
            self.transcript.note(Part::Text { text: text.into() });
        }
        Ok(())
    }

    fn model_requested(&mut self, turn: Turn, event: ModelRequested) -> Result<(), String> {
        self.require_deciding()?;
        if turn != self.turn && turn != self.turn.next() {
            return Err(format!(": turn {turn} follows turn {}", self.turn));
        }
        if let Some(nudge) = &event.nudge {
            self.transcript.note(Part::Text { text: nudge.as_str().into() });
        }
        self.transcript.seal();
        self.turn = turn;
        self.answered_without_tools = false;
        self.gates_passed = false;
        self.stage = Stage::Model(Box::new(event));
        Ok(())
    }

    fn model_answered(&mut self, event: ModelAnswered) -> Result<(), String> {
        self.require_model(&event.call)?;
        self.totals.usage = self.totals.usage.plus(event.usage);
        self.totals.cost_nusd = self.totals.cost_nusd.saturating_add(event.cost_nusd);
        self.totals.model_calls += 1;
        self.failed_attempts = 0;
        self.last_failure = None;
        let text = event.parts.iter().rev().find_map(|part| match part {
            Part::Text { text } => Some(text.clone()),
            Part::Thinking { .. } | Part::ToolUse(_) | Part::ToolResult { .. } => None,
        });
        self.wanted = calls_of(&event.parts).cloned().collect();
        let empty = self.wanted.is_empty() && text.as_ref().is_none_or(is_blank);
        self.empty_answers = if empty { self.empty_answers + 1 } else { 0 };
        self.answered_without_tools = self.wanted.is_empty() && !empty;
        if !empty {
            self.last_text = text;
        }
        self.transcript.answer(event.parts);
        self.stage = Stage::Deciding;
        Ok(())
    }

    fn model_failed(&mut self, event: ModelFailed) -> Result<(), String> {
        self.require_model(&event.call)?;
        self.totals.model_failures += 1;
        self.failed_attempts += 1;
        self.last_failure = Some(event);
        self.stage = Stage::Deciding;
        Ok(())
    }

    fn tool_requested(&mut self, event: ToolRequested) -> Result<(), String> {
        if !matches!(self.stage, Stage::Deciding | Stage::Tools) {
            return Err(String::new());
        }
        match self.wanted.pop_front() {
            Some(tool) if tool.call == event.call => {
                self.open_tools.push((event, tool));
                self.stage = Stage::Tools;
                Ok(())
            }
            Some(tool) => Err(format!(": {} is next, not {}", tool.call, event.call)),
            None => Err(format!(": no call {} is wanted", event.call)),
        }
    }

    fn tool_finished(&mut self, event: ToolFinished) -> Result<(), String> {
        let Some(at) = self.open_tools.iter().position(|(open, _)| open.call == event.call) else {
            return Err(format!(": {} has no intent", event.call));
        };
        self.open_tools.remove(at);
        self.totals.tool_calls += 1;
        let is_error = !matches!(event.status, ToolStatus::Ok);
        if is_error {
            self.totals.tool_errors += 1;
        }
        if let Some(signature) = event.facts.error_signature {
            *self.error_signatures.entry(signature).or_default() += 1;
        }
        for seen in event.facts.read {
            self.read_set.insert(seen.path, seen.hash);
        }
        if event.facts.changed.is_empty() {
            let tests_failed = event.facts.tests.is_some_and(|tests| tests.failed + tests.errors > 0);
            self.fixing |= tests_failed;
        } else {
            self.fixing = false;
            self.files_written.extend(event.facts.changed);
        }
        let part = Part::ToolResult { call: event.call.clone(), content: event.content, is_error };
        self.transcript.result(&event.call, part);
        if self.open_tools.is_empty() {
            self.stage = Stage::Deciding;
        }
        Ok(())
    }

    fn snapshot_taken(&mut self, event: SnapshotTaken) -> Result<(), String> {
        self.require_pins()?;
        lay_over(&mut self.overlay, event.changes);
        lay_over(&mut self.git_overlay, event.git_changes);
        self.left_out.extend(event.left_out.into_iter().map(|left| (left.path, left.why)));
        self.tree = Some(event.tree);
        Ok(())
    }

    fn gate_requested(&mut self, event: GateRequested) -> Result<(), String> {
        match self.stage {
            Stage::Deciding => self.round_failed = false,
            Stage::Gates => {}
            _ => return Err(String::new()),
        }
        self.open_gates.push(event);
        self.stage = Stage::Gates;
        Ok(())
    }

    fn gate_finished(&mut self, event: GateFinished) -> Result<(), String> {
        let Some(at) = self.open_gates.iter().position(|open| open.call == event.call) else {
            return Err(format!(": {} has no intent", event.call));
        };
        let gate = self.open_gates.remove(at).gate;
        if !event.passed {
            self.round_failed = true;
            let text =
                format!("The final check `{}` (`{}`) failed. Mend the cause.", gate.name, gate.command);
            self.transcript.note(Part::Text { text: text.into() });
            self.transcript.note(Part::Text { text: event.content });
        }
        if self.open_gates.is_empty() {
            self.stage = Stage::Deciding;
            self.gates_passed = !self.round_failed;
            self.fixing = self.round_failed;
            if self.round_failed {
                self.corrections += 1;
                self.answered_without_tools = false;
            }
        }
        Ok(())
    }

    fn told(&mut self, text: Content) -> Result<(), String> {
        self.transcript.note(Part::Text { text });
        Ok(())
    }

    fn unpaused(&mut self) -> Result<(), String> {
        self.pause_requested = false;
        if self.stage == Stage::Paused {
            self.stage = Stage::Deciding;
        }
        Ok(())
    }

    fn leave(&mut self, stage: Stage) -> Result<(), String> {
        self.require_deciding()?;
        self.stage = stage;
        Ok(())
    }

    fn answered(&mut self, event: BlockerAnswered) -> Result<(), String> {
        if self.stage != Stage::Blocked {
            return Err(String::new());
        }
        self.transcript.note(Part::Text { text: "A person answers your question:".into() });
        self.transcript.note(Part::Text { text: event.text });
        self.answered_without_tools = false;
        self.stage = Stage::Deciding;
        Ok(())
    }

    fn child_answered(&mut self, event: ChildAnswered) -> Result<(), String> {
        if self.children.remove(&event.call).is_none() {
            return Err(format!(": {} waits for no child", event.call));
        }
        let part =
            Part::ToolResult { call: event.call.clone(), content: event.content, is_error: event.is_error };
        self.transcript.result(&event.call, part);
        if self.stage == Stage::Blocked && self.children.is_empty() {
            self.stage = Stage::Deciding;
        }
        Ok(())
    }

    fn compacted(&mut self, event: Compacted) -> Result<(), String> {
        self.require_deciding()?;
        self.transcript.compact(event.messages as usize, Part::Text { text: event.summary });
        Ok(())
    }

    fn ended(&mut self, event: RunEnded) -> Result<(), String> {
        self.stage = Stage::Ended(event.result);
        Ok(())
    }

    fn require_pins(&self) -> Result<(), String> {
        if self.pins.is_some() { Ok(()) } else { Err(String::new()) }
    }

    fn require_deciding(&self) -> Result<(), String> {
        if self.stage == Stage::Deciding { Ok(()) } else { Err(String::new()) }
    }

    fn require_model(&self, call: &CallId) -> Result<(), String> {
        match &self.stage {
            Stage::Model(open) if open.call == *call => Ok(()),
            Stage::Model(open) => Err(format!(": {} is open, not {call}", open.call)),
            _ => Err(String::new()),
        }
    }
}

fn lay_over(overlay: &mut Overlay, changes: Vec<PathChange>) {
    for change in changes {
        overlay.insert(change.path, change.entry);
    }
}

fn is_blank(content: &Content) -> bool {
    match content {
        Content::Text(text) => text.trim().is_empty(),
        Content::B64(_) | Content::Blob(_) => false,
    }
}
