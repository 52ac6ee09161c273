//! One turn, all of it that lies in its events: read when somebody looks at it. Pure.

use std::borrow::Cow;

use docket_schema::{
    content::{BlobRef, Content},
    event::{Envelope, TypedEvent as _},
    message::{Part, ToolUse},
    run::{
        ForkWhy, GateSpec, Hands, ModelAnswered, ModelRequested, RunEvent, ToolFinished, ToolRequested,
        edited_words,
    },
    snapshot::{LeftOut, PathChange},
};

use super::skeleton::{Row, Run};
use crate::{came_to::CameTo, display::duration, events, facts};

/// Words that reach the model with its next request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    /// Whose they are.
    pub(super) by: String,
    /// The words.
    pub(super) text: Content,
}

/// A tool call, as far as it went.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// As the model made it.
    pub(super) made: ToolUse,
    /// The intent.
    pub(super) wanted: Option<ToolRequested>,
    /// The result.
    pub(super) result: Option<ToolFinished>,
}

/// A final check, as far as it went.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gate {
    /// docket's name of it.
    pub(super) call: String,
    /// What was run.
    pub(super) spec: GateSpec,
    /// Whether it passed.
    pub(super) passed: Option<bool>,
    /// In words.
    pub(super) came_to: &'static str,
    /// What the model reads if it failed.
    pub(super) content: Option<Content>,
    /// The whole output where that is cut.
    pub(super) full: Option<BlobRef>,
    /// How long it ran, in milliseconds.
    pub(super) duration_ms: u64,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Detail {
    /// Model calls: the place of each in the run's events, and the intent.
    pub(super) asked: Vec<(usize, ModelRequested)>,
    /// Answers.
    pub(super) answered: Vec<ModelAnswered>,
    /// Words of people, children and the runtime.
    pub(super) told: Vec<Told>,
    /// Calls, in the model's order.
    pub(super) calls: Vec<Call>,
    /// Final checks, in order.
    pub(super) gates: Vec<Gate>,
    /// What the run changed in the work tree.
    pub(super) changes: Vec<PathChange>,
    /// What a person changed there by hand.
    pub(super) by_hand: Vec<PathChange>,
    /// How many paths under `.git` changed.
    pub(super) git_changes: usize,
    /// What its snapshots newly left out.
    pub(super) left_out: Vec<LeftOut>,
    /// Hash of the tree at its last snapshot.
    pub(super) tree: Option<String>,
    /// What else happened: failed attempts, recoveries, limits, blockers.
    pub(super) notes: Vec<Told>,
    /// How the run ended, if it did.
    pub(super) ended: Option<String>,
}

impl Detail {
    /// Reads a turn of `run`.
    pub(super) fn of(run: &Run, row: &Row) -> Self {
        let (mut detail, mut hands) = (Self::default(), Hands::default());
        for place in row.events.clone() {
            if let Some(event) = run.events.get(place) {
                detail.take(place, event, &mut hands);
            }
        }
        detail
    }

    fn note(&mut self, by: &str, text: Content) {
        self.notes.push(Told { by: by.to_owned(), text });
    }

    fn take(&mut self, place: usize, envelope: &Envelope, hands: &mut Hands) {
        let event = match RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str()) {
            Ok(event) => event,
            Err(error) => {
                let text = format!("event {} cannot be read: {error}", envelope.seq);
                return self.note("docket", text.into());
            }
        };
        let by_hand = hands.take(&event).is_some();
        match event {
            RunEvent::RunStarted(e) => {
                self.told.push(Told { by: "the task".to_owned(), text: Content::Blob(e.prompts.task) });
            }
            // A summary is asked for behind a turn; what came of it is told with the compaction.
            RunEvent::ModelRequested(e) if e.call.is_summary() => {}
            RunEvent::ModelAnswered(e) if e.call.is_summary() => {}
            RunEvent::ModelRequested(e) => self.asked.push((place, e)),
            RunEvent::ModelAnswered(e) => self.answer(e),
            RunEvent::ModelFailed(e) => {
                let again =
                    e.retry_in_ms.map_or_else(String::new, |ms| format!("; again in {}", duration(ms)));
                self.note("the model failed", format!("{}: {}{again}", e.error, e.message).into());
            }
            RunEvent::ToolRequested(e) => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.made.call == e.call) {
                    call.wanted = Some(e);
                }
            }
            RunEvent::ToolFinished(e) => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.made.call == e.call) {
                    call.result = Some(e);
                }
            }
            RunEvent::SnapshotTaken(e) => {
                if by_hand {
                    let words = edited_words(&e).into();
                    self.told.push(Told { by: "the runtime says".to_owned(), text: words });
                    self.by_hand.extend(e.changes);
                } else {
                    self.changes.extend(e.changes);
                }
                self.git_changes += e.git_changes.len();
                self.left_out.extend(e.left_out);
                self.tree = Some(e.tree.to_string());
            }
            RunEvent::GateRequested(e) => self.gates.push(Gate {
                call: e.call.0,
                spec: events::mended(e.step, e.gate),
                passed: None,
                came_to: "has no result",
                content: None,
                full: None,
                duration_ms: 0,
            }),
            RunEvent::GateFinished(e) => {
                if let Some(gate) = self.gates.iter_mut().find(|gate| gate.call == e.call.0) {
                    gate.came_to = e.came_to();
                    (gate.passed, gate.full, gate.duration_ms) = (Some(e.passed), e.full, e.duration_ms);
                    gate.content = Some(e.content);
                }
            }
            RunEvent::RunEnded(e) => {
                self.ended = Some(events::outcome(&e.result));
            }
            other @ (RunEvent::Forked(_)
            | RunEvent::RunRecovered(_)
            | RunEvent::SetupFinished(_)
            | RunEvent::BaseChecked(_)
            | RunEvent::PhaseChanged(_)
            | RunEvent::Told(_)
            | RunEvent::CancelRequested(_)
            | RunEvent::PauseRequested(_)
            | RunEvent::Unpaused(_)
            | RunEvent::PolicyChanged(_)
            | RunEvent::LimitReached(_)
            | RunEvent::RunPaused(_)
            | RunEvent::RunBlocked(_)
            | RunEvent::BlockerAnswered(_)
            | RunEvent::Delegated(_)
            | RunEvent::ChildAnswered(_)
            | RunEvent::Compacted(_)
            | RunEvent::RolesPinned(_)
            | RunEvent::RoleBegan(_)
            | RunEvent::Concluded(_)
            | RunEvent::WorkspaceEdited(_)) => self.beside(envelope, other),
        }
    }

    fn answer(&mut self, answer: ModelAnswered) {
        for made in events::tool_uses(&answer.parts) {
            self.calls.push(Call { made: made.clone(), wanted: None, result: None });
        }
        self.answered.push(answer);
    }

    /// What is no work of the turn itself.
    fn beside(&mut self, envelope: &Envelope, event: RunEvent) {
        let told = |by: String, text| Told { by, text };
        match event {
            RunEvent::Told(e) => self.told.push(told(format!("{} says", e.by), e.text)),
            RunEvent::BlockerAnswered(e) => self.told.push(told(format!("{} answers", e.by), e.text)),
            RunEvent::ChildAnswered(e) => {
                let by = format!("task {} answers call {}", e.child.short(), e.call);
                self.told.push(told(by, e.content));
            }
            RunEvent::Forked(e) => {
                let why = match e.why {
                    ForkWhy::Resume => "resumed",
                    ForkWhy::Fork => "forked",
                    ForkWhy::Rejected => "rejected, and goes on with the comment",
                };
                let text = format!("from run {} after turn {}", e.parent.short(), e.turn);
                self.note(why, text.into());
                if let Some(hint) = e.hint {
                    self.told.push(told("a hint for the model".to_owned(), hint));
                }
            }
            RunEvent::BaseChecked(e) => {
                let said = format!("before the work: check {} {}", e.gate.name, e.came_to());
                self.note(&said, "".into());
            }
            RunEvent::SetupFinished(e) => {
                let exit = e.exit.map_or_else(|| "no exit status".to_owned(), |exit| format!("exit {exit}"));
                self.note(
                    &format!("setup `{}`: {exit} in {}", e.command, duration(e.duration_ms)),
                    e.content,
                );
            }
            RunEvent::RunBlocked(e) => self.note("blocked; it asks", e.question),
            RunEvent::Compacted(e) => {
                let words = events::compacted(&e);
                self.note(&words, if e.messages > 0 { e.summary } else { e.ledger.unwrap_or_default() });
            }
            RunEvent::RoleBegan(e) => {
                let role = facts::role(&e);
                e.opening.into_iter().for_each(|text| self.note(&role, text));
            }
            RunEvent::Concluded(e) => self.note("concluded", facts::words(&e).into()),
            // The timeline says it.
            RunEvent::PhaseChanged(_) => {}
            RunEvent::RunRecovered(_)
            | RunEvent::CancelRequested(_)
            | RunEvent::PauseRequested(_)
            | RunEvent::Unpaused(_)
            | RunEvent::PolicyChanged(_)
            | RunEvent::LimitReached(_)
            | RunEvent::RunPaused(_)
            | RunEvent::Delegated(_)
            | RunEvent::RolesPinned(_)
            | RunEvent::WorkspaceEdited(_)
            | RunEvent::RunStarted(_)
            | RunEvent::ModelRequested(_)
            | RunEvent::ModelAnswered(_)
            | RunEvent::ModelFailed(_)
            | RunEvent::ToolRequested(_)
            | RunEvent::ToolFinished(_)
            | RunEvent::SnapshotTaken(_)
            | RunEvent::GateRequested(_)
            | RunEvent::GateFinished(_)
            | RunEvent::RunEnded(_) => self.note("event", events::summary(envelope).into()),
        }
    }

    /// The texts of the answers, in order.
    pub(super) fn texts(&self) -> impl Iterator<Item = &Content> {
        self.answered.iter().flat_map(|answer| &answer.parts).filter_map(|part| match part {
            Part::Text { text } => Some(text),
            Part::Thinking { .. } | Part::ToolUse(_) | Part::ToolResult { .. } => None,
        })
    }
}

impl Call {
    /// How it ended, in a word.
    pub(super) fn word(&self) -> Cow<'static, str> {
        self.came_to().map_or("no result".into(), CameTo::word)
    }

    fn came_to(&self) -> Option<CameTo> {
        self.result.as_ref().map(CameTo::of_result)
    }

    /// Whether it did what was asked, and what it ran ended well.
    pub(super) fn is_ok(&self) -> bool {
        self.came_to().is_some_and(CameTo::is_ok)
    }
}
