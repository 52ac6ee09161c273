//! Turns with all that they name: texts, results and diffs fetched, ready to be shown or written as JSON.
//!
//! Any range of turns can be read without the others: what stood before it is known from the snapshots' paths
//! alone. [`super::sketch`] is what can be had without fetching anything.

use std::ops::RangeInclusive;

use docket_schema::{
    content::Content,
    ids::{self, RunId},
    run::{GateFinished, History, Overlay, RunEvent, SnapshotParts, TurnSpan},
    snapshot::Manifest,
    wire::{AttemptView, CallView, ChangeView, GateView, TurnView},
};
use docket_worker::{
    client::Client,
    workspace::{
        BaseObjects, ChangeView as Compared, Contents, FileDiff, PathDiff, changed_paths, diff_manifests,
    },
};

use super::sketch::{Asked, Attempt, Changed, GateSketch, Sketch, ToolSketch, decoded, sketch};
use crate::{
    blobs::Remote,
    events,
    fail::{Exit, FailWith as _, Outcome},
};

/// Where contents come from.
pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
    /// None of a run that ended before it had one.
    pub(crate) base: Option<&'a BaseObjects>,
    /// Whether differences are made; without them paths are named alone.
    pub(crate) with_diffs: bool,
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
    ) -> Outcome<Vec<TurnView>> {
        let spans = history.turns().iter().filter(|span| range.contains(&span.turn));
        // Collected: what is held while contents are fetched must be able to move between threads.
        let spans: Vec<&TurnSpan> = spans.collect();
        let Some(first) = spans.first() else { return Ok(Vec::new()) };
        let mut overlay = overlay_before(history, first.events.start);
        let mut turns = Vec::new();
        for span in spans {
            turns.push(self.turn(run, &sketch(history, span), &mut overlay).await?);
        }
        Ok(turns)
    }

    /// A sketch with all that it names. `overlay` is what the run had changed before it, and becomes what it
    /// has after.
    pub(crate) async fn turn(&self, run: RunId, sketch: &Sketch, overlay: &mut Overlay) -> Outcome<TurnView> {
        let last = sketch.attempts.last();
        let mut turn = TurnView {
            replay: "view".to_owned(),
            run: Some(run),
            turn: sketch.turn.0,
            phases: sketch.phases.iter().map(|phase| phase.as_str().to_owned()).collect(),
            request_hash: last.map(|attempt| attempt.request.to_string()),
            decision_hash: last.map(|attempt| attempt.decision.to_string()),
            attempts: sketch.attempts.iter().map(attempt).collect(),
            tree: sketch.tree.map(|tree| tree.to_string()),
            notes: sketch.notes.clone(),
            input_tokens: sketch.input_tokens,
            output_tokens: sketch.output_tokens,
            cost_nusd: sketch.cost_nusd,
            ended: sketch.ended.as_ref().map(events::outcome),
            first_seq: sketch.first_seq,
            last_seq: sketch.last_seq,
            ..TurnView::default()
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

    async fn call(&self, sketch: &ToolSketch) -> Outcome<CallView> {
        let result = sketch.result.as_ref();
        Ok(CallView {
            call: sketch.tool.call.0.clone(),
            name: sketch.tool.name.clone(),
            args: sketch.tool.args.clone(),
            status: result.map(|result| events::status(result.status).to_owned()),
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

    async fn gate(&self, sketch: &GateSketch) -> Outcome<GateView> {
        let result = sketch.result.as_ref();
        Ok(GateView {
            call: sketch.call.0.clone(),
            name: sketch.gate.name.clone(),
            command: sketch.gate.command.clone(),
            passed: result.map(|result| result.passed),
            came_to: result.map_or("has no result", GateFinished::came_to).to_owned(),
            output: match result {
                Some(result) => self.text(&result.content).await?,
                None => String::new(),
            },
            output_bytes: result.and_then(|result| result.full).map(|blob| blob.bytes),
            duration_ms: result.map_or(0, |result| result.duration_ms),
        })
    }

    async fn changes(&self, changed: &Changed, overlay: &mut Overlay) -> Outcome<Vec<ChangeView>> {
        let (mut before, mut after) = (Manifest::default(), Manifest::default());
        for change in &changed.paths {
            let path = &change.path;
            let stood = match overlay.get(path) {
                Some(entry) => *entry,
                None => self.base.and_then(|base| base.manifest().entries.get(path).copied()),
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
        let Some(base) = self.base.filter(|_| self.with_diffs) else {
            return Ok(changed_paths(&before, &after)
                .into_iter()
                .map(|diff| named(diff, changed.by.clone()))
                .collect());
        };
        let blobs = Remote(self.client);
        let contents = Contents::new(base, &blobs);
        let files = diff_manifests(&before, &after, &contents)
            .await
            .fail_with(Exit::Failed, || "what the run changed cannot be read".to_owned())?;
        Ok(files.into_iter().map(|file| shown(file, changed.by.clone())).collect())
    }
}

/// A difference as it is shown.
pub(crate) fn shown(file: FileDiff, by_hand: Option<String>) -> ChangeView {
    let diff = match file.change {
        Compared::Text(text) => Some(text),
        Compared::Binary | Compared::TooLarge | Compared::ModeOnly => None,
    };
    let named = named(PathDiff { path: file.path, old: file.old, new: file.new }, by_hand);
    ChangeView { diff, ..named }
}

/// A path that differs, without its difference.
fn named(diff: PathDiff, by_hand: Option<String>) -> ChangeView {
    let what = match (diff.old, diff.new) {
        (None, _) => "added",
        (Some(_), None) => "removed",
        (Some(_), Some(_)) => "changed",
    };
    ChangeView { path: diff.path, what: what.to_owned(), by_hand, diff: None }
}

fn attempt(attempt: &Attempt) -> AttemptView {
    let outcome = attempt.outcome.map(|outcome| match outcome {
        Asked::Answered => "answered",
        Asked::Failed => "failed",
    });
    AttemptView {
        seq: attempt.seq,
        attempt: attempt.attempt,
        model: attempt.model.to_string(),
        request_hash: attempt.request.to_string(),
        request_bytes: attempt.request_bytes,
        decision_hash: attempt.decision.to_string(),
        outcome: outcome.map(str::to_owned),
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
