//! Turns with all that they name: texts, results and diffs fetched, ready to be shown or written as JSON.
//!
//! Any range of turns can be read without the others: what stood before it is known from the snapshots' paths
//! alone. [`super::sketch`] is what can be had without fetching anything.

use std::ops::RangeInclusive;

use docket_schema::{
    content::{Content, WorkPath},
    ids::{self, RunId, Seq},
    run::{GateFinished, History, Overlay, RunEvent, SnapshotParts},
    snapshot::Manifest,
    tool::TestCounts,
};
use docket_worker::{
    client::Client,
    workspace::{BaseObjects, ChangeView, Contents, diff_manifests},
};
use serde::Serialize;
use serde_json::Value;

use super::sketch::{Asked, Attempt, Changed, GateSketch, Sketch, ToolSketch, decoded, sketch};
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
    /// Of the last attempt.
    pub(crate) request_hash: Option<String>,
    /// Of the last attempt.
    pub(crate) decision_hash: Option<String>,
    /// How often the model was asked, each with its request.
    pub(crate) attempts: Vec<Ask>,
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

/// One attempt at the model.
#[derive(Debug, Serialize)]
pub(crate) struct Ask {
    pub(crate) seq: Seq,
    pub(crate) attempt: u32,
    pub(crate) model: String,
    pub(crate) request_hash: String,
    pub(crate) request_bytes: u64,
    pub(crate) decision_hash: String,
    /// `answered`, `failed`; none while no answer is recorded.
    pub(crate) outcome: Option<&'static str>,
}

/// A tool call and its result.
#[derive(Debug, Serialize)]
pub(crate) struct Call {
    pub(crate) call: String,
    pub(crate) name: String,
    pub(crate) args: Value,
    /// Of the tool: `ok`, `failed`, `refused`, `unknown`; none where no result was recorded.
    pub(crate) status: Option<&'static str>,
    /// What it came to in a word: its status, or how its command or its tests ended: `exit 7`, `3 failed`.
    pub(crate) came_to: Option<String>,
    /// Whether the turn's work failed in it: the tool, its command or its tests.
    pub(crate) failed: bool,
    /// Exit status of its command.
    pub(crate) exit: Option<i32>,
    /// What a test runner counted.
    pub(crate) tests: Option<TestCounts>,
    pub(crate) result: String,
    /// Size of the whole output where `result` is cut: `--output CALL` prints it.
    pub(crate) output_bytes: Option<u64>,
    pub(crate) duration_ms: u64,
}

/// A final check and its result.
#[derive(Debug, Serialize)]
pub(crate) struct Gate {
    pub(crate) call: String,
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) passed: Option<bool>,
    /// In words: also that a linter is not installed, or that a mending mended nothing.
    pub(crate) came_to: &'static str,
    pub(crate) output: String,
    /// Size of the whole output where `output` is cut: `--output CALL` prints it.
    pub(crate) output_bytes: Option<u64>,
    pub(crate) duration_ms: u64,
}

/// A path that changed in a turn.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    pub(crate) path: WorkPath,
    /// `added`, `changed`, `removed`.
    pub(crate) what: &'static str,
    /// The person who changed it in `docket shell`; null where it is the run's work.
    pub(crate) by_hand: Option<String>,
    /// Unified, where it is text.
    pub(crate) diff: Option<String>,
}

/// Where contents come from.
pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
    pub(crate) base: &'a BaseObjects,
}

impl Reader<'_> {
    /// A content's text, fetched where it lies out of line.
    pub(crate) async fn text(&self, content: &Content) -> Outcome<String> {
        match content {
            Content::Blob(blob) => {
                let bytes = self.client.get_blob(blob).await?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Content::Text(_) | Content::B64(_) => Ok(events::text_of(content)),
        }
    }

    /// The turns of `range`, in order. Turns outside it cost the names of the paths they changed.
    ///
    /// # Errors
    /// A blob is not to be had.
    pub(crate) async fn turns(
        &self,
        run: RunId,
        history: &History,
        range: &RangeInclusive<ids::Turn>,
    ) -> Outcome<Vec<Turn>> {
        let mut spans = history.turns().iter().filter(|span| range.contains(&span.turn)).peekable();
        let Some(first) = spans.peek() else { return Ok(Vec::new()) };
        let mut overlay = overlay_before(history, first.events.start);
        let mut turns = Vec::new();
        for span in spans {
            turns.push(self.turn(run, &sketch(history, span), &mut overlay).await?);
        }
        Ok(turns)
    }

    /// A sketch with all that it names. `overlay` is what the run had changed before it, and becomes what it
    /// has after.
    pub(crate) async fn turn(&self, run: RunId, sketch: &Sketch, overlay: &mut Overlay) -> Outcome<Turn> {
        let last = sketch.attempts.last();
        let mut turn = Turn {
            replay: "view",
            run: Some(run),
            turn: sketch.turn.0,
            phases: sketch.phases.iter().map(|phase| phase.as_str()).collect(),
            request_hash: last.map(|attempt| attempt.request.to_string()),
            decision_hash: last.map(|attempt| attempt.decision.to_string()),
            attempts: sketch.attempts.iter().map(Ask::of).collect(),
            tree: sketch.tree.map(|tree| tree.to_string()),
            notes: sketch.notes.clone(),
            input_tokens: sketch.input_tokens,
            output_tokens: sketch.output_tokens,
            cost_nusd: sketch.cost_nusd,
            ended: sketch.ended.as_ref().map(events::outcome),
            first_seq: sketch.first_seq,
            last_seq: sketch.last_seq,
            ..Turn::default()
        };
        for told in &sketch.told {
            let text = self.text(&told.text).await?;
            turn.told.push(told.by.as_ref().map_or_else(|| text.clone(), |by| format!("{by}: {text}")));
        }
        for text in &sketch.text {
            turn.text.push_str(&self.text(text).await?);
        }
        for tool in &sketch.tools {
            turn.tools.push(self.call(tool).await?);
        }
        for changed in &sketch.changes {
            turn.changes.extend(self.changes(changed, overlay).await?);
        }
        for gate in &sketch.gates {
            turn.gates.push(self.gate(gate).await?);
        }
        Ok(turn)
    }

    async fn call(&self, sketch: &ToolSketch) -> Outcome<Call> {
        let result = sketch.result.as_ref();
        Ok(Call {
            call: sketch.tool.call.0.clone(),
            name: sketch.tool.name.clone(),
            args: sketch.tool.args.clone(),
            status: result.map(|result| events::status(result.status)),
            came_to: result.map(|result| result.came_to.word().into_owned()),
            failed: result.is_some_and(|result| !result.came_to.is_ok()),
            exit: result.and_then(|result| result.facts.exit),
            tests: result.and_then(|result| result.facts.tests),
            result: match result {
                Some(result) => self.text(&result.content).await?,
                None => String::new(),
            },
            output_bytes: result.and_then(|result| result.full).map(|blob| blob.bytes),
            duration_ms: result.map_or(0, |result| result.duration_ms),
        })
    }

    async fn gate(&self, sketch: &GateSketch) -> Outcome<Gate> {
        let result = sketch.result.as_ref();
        Ok(Gate {
            call: sketch.call.0.clone(),
            name: sketch.gate.name.clone(),
            command: sketch.gate.command.clone(),
            passed: result.map(|result| result.passed),
            came_to: result.map_or("has no result", GateFinished::came_to),
            output: match result {
                Some(result) => self.text(&result.content).await?,
                None => String::new(),
            },
            output_bytes: result.and_then(|result| result.full).map(|blob| blob.bytes),
            duration_ms: result.map_or(0, |result| result.duration_ms),
        })
    }

    async fn changes(&self, changed: &Changed, overlay: &mut Overlay) -> Outcome<Vec<Change>> {
        let (mut before, mut after) = (Manifest::default(), Manifest::default());
        for change in &changed.paths {
            let path = &change.path;
            let stood = match overlay.get(path) {
                Some(entry) => *entry,
                None => self.base.manifest().entries.get(path).copied(),
            };
            // Of several changes in one turn the first knows what stood before it.
            if !after.entries.contains_key(path)
                && let Some(entry) = stood
            {
                before.entries.entry(path.clone()).or_insert(entry);
            }
            match change.entry {
                Some(entry) => drop(after.entries.insert(path.clone(), entry)),
                None => drop(after.entries.remove(path)),
            }
            overlay.insert(path.clone(), change.entry);
        }
        let blobs = Remote(self.client);
        let contents = Contents::new(self.base, &blobs);
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
            by_hand: changed.by.clone(),
            diff: match file.change {
                ChangeView::Text(text) => Some(text),
                ChangeView::Binary | ChangeView::TooLarge | ChangeView::ModeOnly => None,
            },
        });
        Ok(changes.collect())
    }
}

impl Ask {
    fn of(attempt: &Attempt) -> Self {
        Self {
            seq: attempt.seq,
            attempt: attempt.attempt,
            model: attempt.model.to_string(),
            request_hash: attempt.request.to_string(),
            request_bytes: attempt.request_bytes,
            decision_hash: attempt.decision.to_string(),
            outcome: attempt.outcome.map(|outcome| match outcome {
                Asked::Answered => "answered",
                Asked::Failed => "failed",
            }),
        }
    }
}

/// What the run had changed of its base before the event at `place`.
pub(crate) fn overlay_before(history: &History, place: usize) -> Overlay {
    let (mut overlay, mut parts) = (Overlay::new(), SnapshotParts::default());
    for event in history.events()[..place].iter().filter(|event| event.kind == "SnapshotTaken") {
        if let RunEvent::SnapshotTaken(taken) = decoded(event) {
            let changes = parts.take(event.epoch, taken).into_iter().flat_map(|part| part.changes);
            overlay.extend(changes.map(|change| (change.path, change.entry)));
        }
    }
    overlay
}
