//! Turns as a run's events alone tell them. Nothing is fetched: texts that lie out of line stay named, and
//! diffs are not made, so that all turns of a long run are there at once.
//!
//! Pure. [`super::turns`] fills a sketch with what it names; whoever wants all turns at once reads sketches.

use docket_schema::{
    content::{BlobRef, Content},
    event::{Envelope, TypedEvent as _},
    ids::{DecisionHash, Seq, TreeHash, Turn},
    message::{CallId, ModelRef, Part, ToolUse},
    run::{
        GateFinished, GateSpec, Hands, History, ModelAnswered, ModelFailed, ModelRequested, Phase, RunEvent,
        RunOutcome, ToolFinished, ToolStatus, TurnSpan, edited_words,
    },
    snapshot::PathChange,
    tool::{RecoveryClass, ToolFacts},
};

use crate::{came_to::CameTo, events};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Sketch {
    pub(crate) turn: Turn,
    pub(crate) first_seq: Seq,
    pub(crate) last_seq: Seq,
    pub(crate) phases: Vec<Phase>,
    /// What the model was newly told, in order.
    pub(crate) told: Vec<Told>,
    /// How often the model was asked: a failed attempt is followed by another.
    pub(crate) attempts: Vec<Attempt>,
    /// The texts of the answer.
    pub(crate) text: Vec<Content>,
    pub(crate) tools: Vec<ToolSketch>,
    pub(crate) gates: Vec<GateSketch>,
    /// What changed, in order; a path may stand here twice, and then the last holds.
    pub(crate) changes: Vec<Changed>,
    pub(crate) tree: Option<TreeHash>,
    /// What else happened: failed attempts, recoveries, limits.
    pub(crate) notes: Vec<String>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost_nusd: u64,
    pub(crate) ended: Option<RunOutcome>,
    hands: Hands,
}

/// Paths that the run changed, or a person in its place.
#[derive(Debug)]
pub(crate) struct Changed {
    /// The person who did it by hand; none where it is the run's work.
    pub(crate) by: Option<String>,
    pub(crate) paths: Vec<PathChange>,
}

/// Words for the model.
#[derive(Debug)]
pub(crate) struct Told {
    /// Who says or answers them, with the verb; none for the task and the runtime.
    pub(crate) by: Option<String>,
    pub(crate) text: Content,
}

/// One attempt at the model.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Place of its event among those of the turn.
    pub(crate) place: usize,
    pub(crate) seq: Seq,
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) model: ModelRef,
    pub(crate) request: DecisionHash,
    pub(crate) request_bytes: u64,
    pub(crate) decision: DecisionHash,
    /// What became of it; none while no answer is recorded.
    pub(crate) outcome: Option<Asked>,
}

/// What became of an attempt at the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Answered,
    Failed,
}

/// A tool call and its result.
#[derive(Debug)]
pub(crate) struct ToolSketch {
    pub(crate) tool: ToolUse,
    /// None where it was never announced.
    pub(crate) class: Option<RecoveryClass>,
    pub(crate) result: Option<ResultSketch>,
}

/// What a call came to.
#[derive(Debug)]
pub(crate) struct ResultSketch {
    pub(crate) status: ToolStatus,
    pub(crate) came_to: CameTo,
    pub(crate) facts: ToolFacts,
    pub(crate) content: Content,
    pub(crate) full: Option<BlobRef>,
    pub(crate) duration_ms: u64,
}

/// A final check and its result.
#[derive(Debug)]
pub(crate) struct GateSketch {
    pub(crate) call: CallId,
    pub(crate) gate: GateSpec,
    pub(crate) result: Option<GateFinished>,
}

/// All turns of a history.
pub(crate) fn sketches(history: &History) -> impl Iterator<Item = Sketch> {
    history.turns().iter().map(|span| sketch(history, span))
}

/// One turn of a history.
pub(crate) fn sketch(history: &History, span: &TurnSpan) -> Sketch {
    let events = &history.events()[span.events.clone()];
    let mut sketch = Sketch {
        turn: span.turn,
        first_seq: events.first().map_or(Seq(0), |event| event.seq),
        last_seq: events.last().map_or(Seq(0), |event| event.seq),
        ..Sketch::default()
    };
    for (place, event) in events.iter().enumerate() {
        sketch.take(place, event, decoded(event));
    }
    sketch
}

/// An event of a history, which has decoded it before.
pub(crate) fn decoded(event: &Envelope) -> RunEvent {
    RunEvent::decode(&event.kind, event.version, event.payload.as_str())
        .expect("a history folds only what decodes")
}

impl Sketch {
    fn take(&mut self, place: usize, event: &Envelope, typed: RunEvent) {
        let person = self.hands.take(&typed).map(str::to_owned);
        match typed {
            RunEvent::RunStarted(e) => self.tell(None, Content::Blob(e.prompts.task)),
            RunEvent::PhaseChanged(e) => self.phases.push(e.phase),
            // A summary is asked for behind a turn, and is none of its attempts.
            RunEvent::ModelRequested(e) if e.call.is_summary() => {}
            RunEvent::ModelRequested(e) => self.asked(place, event.seq, e),
            RunEvent::ModelAnswered(e) if e.call.is_summary() => self.spent(&e),
            RunEvent::ModelAnswered(e) => self.answered(e),
            RunEvent::ModelFailed(e) if e.call.is_summary() => {}
            RunEvent::ModelFailed(e) => self.failed_attempt(&e),
            RunEvent::ToolRequested(e) => {
                if let Some(tool) = self.tools.iter_mut().find(|tool| tool.tool.call == e.call) {
                    tool.class = Some(e.class);
                }
            }
            RunEvent::ToolFinished(e) => self.finished(e),
            RunEvent::SnapshotTaken(e) => {
                if person.is_some() {
                    self.tell(None, edited_words(&e).into());
                }
                self.tree = Some(e.tree);
                self.changed(person, e.changes);
            }
            RunEvent::GateRequested(e) => {
                self.gates.push(GateSketch {
                    call: e.call,
                    gate: events::mended(e.step, e.gate),
                    result: None,
                });
            }
            RunEvent::GateFinished(e) => {
                if let Some(gate) = self.gates.iter_mut().find(|gate| gate.call == e.call) {
                    gate.result = Some(e);
                }
            }
            RunEvent::Told(e) => self.tell(Some(format!("{} says", e.by)), e.text),
            RunEvent::BlockerAnswered(e) => self.tell(Some(format!("{} answers", e.by)), e.text),
            RunEvent::RunEnded(e) => self.ended = Some(e.result),
            RunEvent::Forked(e) => {
                self.notes.push(events::summary(event));
                if let Some(hint) = e.hint {
                    self.tell(Some("a person says".to_owned()), hint);
                }
            }
            RunEvent::RunRecovered(_)
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
            | RunEvent::WorkspaceEdited(_) => self.notes.push(events::summary(event)),
        }
    }

    fn changed(&mut self, by: Option<String>, paths: Vec<PathChange>) {
        match self.changes.last_mut() {
            Some(last) if last.by == by => last.paths.extend(paths),
            Some(_) | None => self.changes.push(Changed { by, paths }),
        }
    }

    fn tell(&mut self, by: Option<String>, text: Content) {
        self.told.push(Told { by, text });
    }

    fn asked(&mut self, place: usize, seq: Seq, event: ModelRequested) {
        if let Some(nudge) = event.nudge {
            self.tell(None, nudge.into());
        }
        self.attempts.push(Attempt {
            place,
            seq,
            call: event.call,
            attempt: event.attempt,
            model: event.model,
            request: event.request,
            request_bytes: event.request_bytes,
            decision: event.decision,
            outcome: None,
        });
    }

    fn spent(&mut self, answer: &ModelAnswered) {
        self.input_tokens += answer.usage.input_tokens + answer.usage.cache_read_tokens;
        self.output_tokens += answer.usage.output_tokens;
        self.cost_nusd += answer.cost_nusd;
    }

    fn answered(&mut self, answer: ModelAnswered) {
        self.came_to(&answer.call, Asked::Answered);
        self.spent(&answer);
        self.text.clear();
        for part in answer.parts {
            match part {
                Part::Text { text } => self.text.push(text),
                Part::ToolUse(tool) => self.tools.push(ToolSketch { tool, class: None, result: None }),
                Part::Thinking { .. } | Part::ToolResult { .. } => {}
            }
        }
    }

    fn failed_attempt(&mut self, failure: &ModelFailed) {
        self.came_to(&failure.call, Asked::Failed);
        self.notes.push(format!("the model failed ({}): {}", failure.error, failure.message));
    }

    fn came_to(&mut self, call: &CallId, outcome: Asked) {
        if let Some(attempt) = self.attempts.iter_mut().rfind(|attempt| attempt.call == *call) {
            attempt.outcome = Some(outcome);
        }
    }

    fn finished(&mut self, event: ToolFinished) {
        let came_to = CameTo::of_result(&event);
        let ToolFinished { call, status, content, full, facts, duration_ms } = event;
        if let Some(tool) = self.tools.iter_mut().find(|tool| tool.tool.call == call) {
            tool.result = Some(ResultSketch { status, came_to, facts, content, full, duration_ms });
        }
    }
}
