//! From events to turns: what was said, called, answered and changed in each.

use std::collections::BTreeMap;

use docket_schema::{
    content::{Content, WorkPath},
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq},
    message::Part,
    run::{ModelAnswered, RunEvent, RunStarted, SnapshotTaken, ToolFinished},
    snapshot::{Entry, Manifest},
};
use docket_worker::{
    client::Client,
    workspace::{BaseObjects, ChangeView, Contents, diff_manifests},
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    delivery::Remote,
    events,
    fail::{Exit, FailWith as _, Outcome},
};

/// A turn as `--json` shows it: stable.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Turn {
    /// `view`: from the log alone.
    pub(crate) replay: &'static str,
    pub(crate) run: Option<RunId>,
    pub(crate) turn: u32,
    pub(crate) phases: Vec<&'static str>,
    /// What the model was newly told before it decided: the task, a person's words, the runtime's.
    pub(crate) told: Vec<String>,
    pub(crate) request_hash: Option<String>,
    pub(crate) decision_hash: Option<String>,
    pub(crate) text: String,
    pub(crate) tools: Vec<Call>,
    pub(crate) gates: Vec<Gate>,
    pub(crate) changes: Vec<Change>,
    pub(crate) tree: Option<String>,
    /// Failed attempts at the model, recoveries, limits: what else happened.
    pub(crate) notes: Vec<String>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost_nusd: u64,
    pub(crate) ended: Option<String>,
    pub(crate) first_seq: Seq,
    pub(crate) last_seq: Seq,
}

/// A tool call and its result.
#[derive(Debug, Serialize)]
pub(crate) struct Call {
    pub(crate) call: String,
    pub(crate) name: String,
    pub(crate) args: Value,
    /// None where no result was recorded.
    pub(crate) status: Option<&'static str>,
    pub(crate) result: String,
    pub(crate) duration_ms: u64,
}

/// A final check and its result.
#[derive(Debug, Serialize)]
pub(crate) struct Gate {
    pub(crate) call: String,
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) passed: Option<bool>,
    pub(crate) output: String,
    pub(crate) duration_ms: u64,
}

/// A path that changed in a turn.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    pub(crate) path: WorkPath,
    /// `added`, `changed`, `removed`.
    pub(crate) what: &'static str,
    /// Unified, where it is text.
    pub(crate) diff: Option<String>,
}

/// Where contents come from.
pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
    pub(crate) base: &'a BaseObjects,
}

impl Reader<'_> {
    async fn text(&self, content: &Content) -> Outcome<String> {
        match content {
            Content::Blob(blob) => {
                let bytes = self.client.get_blob(blob).await?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Content::Text(_) | Content::B64(_) => Ok(events::text_of(content)),
        }
    }
}

/// All turns of a run, in order; 0 is what came before the first.
#[derive(Debug)]
pub(crate) struct Turns(pub(crate) Vec<Turn>);

struct Reading<'a> {
    reader: &'a Reader<'a>,
    run: RunId,
    turns: BTreeMap<u32, Turn>,
    tree: BTreeMap<WorkPath, Entry>,
}

impl Turns {
    /// Reads the turns from a run's whole history.
    pub(crate) async fn read(reader: &Reader<'_>, run: RunId, events: &[Envelope]) -> Outcome<Self> {
        let tree = reader.base.manifest().entries.clone();
        let mut reading = Reading { reader, run, turns: BTreeMap::new(), tree };
        for event in events {
            reading.take(event).await?;
        }
        Ok(Self(reading.turns.into_values().collect()))
    }
}

/// The turn in which an event is shown. What people say to a run bears turn 0, for they do not know
/// where it stands: it belongs to the turn it came in.
const fn place(turn: u32, newest: Option<u32>) -> u32 {
    match newest {
        Some(newest) if turn == 0 => newest,
        Some(_) | None => turn,
    }
}

impl Reading<'_> {
    fn turn(&mut self, event: &Envelope) -> &mut Turn {
        let run = self.run;
        let number = place(event.turn.0, self.turns.keys().next_back().copied());
        let turn = self.turns.entry(number).or_insert_with(|| Turn {
            replay: "view",
            run: Some(run),
            turn: number,
            first_seq: event.seq,
            ..Turn::default()
        });
        turn.last_seq = event.seq;
        turn
    }

    async fn take(&mut self, event: &Envelope) -> Outcome<()> {
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .fail_with(Exit::EngineMissing, || format!("event {} of the run cannot be read", event.seq))?;
        match typed {
            RunEvent::RunStarted(e) => self.started(event, &e).await?,
            RunEvent::PhaseChanged(e) => self.turn(event).phases.push(e.phase.as_str()),
            RunEvent::ModelRequested(e) => {
                let turn = self.turn(event);
                turn.request_hash = Some(e.request.to_string());
                turn.decision_hash = Some(e.decision.to_string());
                turn.told.extend(e.nudge);
            }
            RunEvent::ModelAnswered(e) => self.answered(event, e).await?,
            RunEvent::ModelFailed(e) => {
                self.turn(event).notes.push(format!("the model failed ({}): {}", e.error, e.message));
            }
            RunEvent::ToolRequested(_) => drop(self.turn(event)),
            RunEvent::ToolFinished(e) => self.finished(event, e).await?,
            RunEvent::SnapshotTaken(e) => self.snapshot(event, e).await?,
            RunEvent::GateRequested(e) => self.turn(event).gates.push(Gate {
                call: e.call.0,
                name: e.gate.name,
                command: e.gate.command,
                passed: None,
                output: String::new(),
                duration_ms: 0,
            }),
            RunEvent::GateFinished(e) => {
                let output = self.reader.text(&e.content).await?;
                if let Some(gate) = self.turn(event).gates.iter_mut().find(|gate| gate.call == e.call.0) {
                    (gate.passed, gate.output, gate.duration_ms) = (Some(e.passed), output, e.duration_ms);
                }
            }
            RunEvent::Told(e) => {
                let text = self.reader.text(&e.text).await?;
                self.turn(event).told.push(format!("{} says: {text}", e.by));
            }
            RunEvent::BlockerAnswered(e) => {
                let text = self.reader.text(&e.text).await?;
                self.turn(event).told.push(format!("{} answers: {text}", e.by));
            }
            RunEvent::RunEnded(e) => self.turn(event).ended = Some(events::outcome(&e.result)),
            RunEvent::Forked(_)
            | RunEvent::RunRecovered(_)
            | RunEvent::SetupFinished(_)
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
            | RunEvent::WorkspaceEdited(_) => {
                let note = events::summary(event);
                self.turn(event).notes.push(note);
            }
        }
        Ok(())
    }

    async fn started(&mut self, event: &Envelope, pins: &RunStarted) -> Outcome<()> {
        let task = self.reader.text(&Content::Blob(pins.prompts.task)).await?;
        let turn = self.turn(event);
        turn.told.push(task);
        Ok(())
    }

    async fn answered(&mut self, event: &Envelope, answer: ModelAnswered) -> Outcome<()> {
        let mut text = String::new();
        for part in &answer.parts {
            if let Part::Text { text: said } = part {
                text.push_str(&self.reader.text(said).await?);
            }
        }
        let turn = self.turn(event);
        turn.text = text;
        turn.input_tokens += answer.usage.input_tokens + answer.usage.cache_read_tokens;
        turn.output_tokens += answer.usage.output_tokens;
        turn.cost_nusd += answer.cost_nusd;
        turn.tools.extend(events::tool_uses(&answer.parts).map(|tool| Call {
            call: tool.call.0.clone(),
            name: tool.name.clone(),
            args: tool.args.clone(),
            status: None,
            result: String::new(),
            duration_ms: 0,
        }));
        Ok(())
    }

    async fn finished(&mut self, event: &Envelope, result: ToolFinished) -> Outcome<()> {
        let text = self.reader.text(&result.content).await?;
        let turn = self.turn(event);
        if let Some(call) = turn.tools.iter_mut().find(|call| call.call == result.call.0) {
            call.status = Some(events::status(result.status));
            call.result = text;
            call.duration_ms = result.duration_ms;
        }
        Ok(())
    }

    async fn snapshot(&mut self, event: &Envelope, taken: SnapshotTaken) -> Outcome<()> {
        let (mut before, mut after) = (Manifest::default(), Manifest::default());
        for change in taken.changes {
            if let Some(entry) = self.tree.get(&change.path) {
                before.entries.insert(change.path.clone(), *entry);
            }
            match change.entry {
                Some(entry) => {
                    self.tree.insert(change.path.clone(), entry);
                    after.entries.insert(change.path, entry);
                }
                None => drop(self.tree.remove(&change.path)),
            }
        }
        let blobs = Remote(self.reader.client);
        let contents = Contents::new(self.reader.base, &blobs);
        let files = diff_manifests(&before, &after, &contents)
            .await
            .fail_with(Exit::Failed, || "what the run changed cannot be read".to_owned())?;
        let changes = files.into_iter().map(|file| Change {
            path: file.path,
            what: match (file.old, file.new) {
                (None, _) => "added",
                (Some(_), None) => "removed",
                (Some(_), Some(_)) => "changed",
            },
            diff: match file.change {
                ChangeView::Text(text) => Some(text),
                ChangeView::Binary | ChangeView::TooLarge | ChangeView::ModeOnly => None,
            },
        });
        let changes: Vec<Change> = changes.collect();
        let turn = self.turn(event);
        turn.changes.extend(changes);
        turn.tree = Some(taken.tree.to_string());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn what_people_say_is_shown_where_it_was_said() {
        assert_eq!([place(0, None), place(0, Some(0)), place(1, Some(0))], [0, 0, 1]);
        assert_eq!([place(0, Some(3)), place(3, Some(3)), place(4, Some(3))], [3, 3, 4]);
    }
}
