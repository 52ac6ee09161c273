//! Turns with all their contents: texts, results and diffs are fetched, ready to be shown or written as JSON.
//!
//! Any range of turns can be read without the others: the state before it is derived from the paths of the
//! snapshots alone.

use std::ops::RangeInclusive;

use docket_schema::{
    api::{AttemptView, ChangeView, GateView, ToolCallView, TurnView},
    content::Content,
    history::{
        FinalCheck, MessageSource, ModelCall, RunHistory, ToolCall, TurnDetail, TurnNote, TurnSummary,
        WorkspaceChange,
    },
    ids::{self, RunId, Seq},
    run::{ModelAnswered, Overlay, RunEvent},
    snapshot::Manifest,
};
use docket_worker::{
    client::CoordinatorClient,
    workspace::{
        BaseObjects, ChangeView as Compared, ContentReader, FileDiff, PathDiff, changed_paths, diff_manifests,
    },
};

use crate::{
    history::blobs::RemoteBlobs,
    output::{
        error::{CliResult, ExitKind, FailWith as _},
        event_format,
    },
};

/// Reads turns and their contents.
pub(crate) struct TurnReader<'a> {
    pub(crate) client: &'a CoordinatorClient,
    /// `None` if the run ended before it had a base.
    pub(crate) base: Option<&'a BaseObjects>,
    /// Whether diffs are computed; otherwise only paths are listed.
    pub(crate) with_diffs: bool,
}

impl TurnReader<'_> {
    /// Returns the text of a content, fetching its blob if necessary.
    pub(crate) async fn fetch_text(&self, content: &Content) -> CliResult<String> {
        match content {
            Content::Blob(blob) => {
                let bytes = self.client.get_blob(blob).await?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Content::Text(_) | Content::B64(_) => Ok(content.text_or_size()),
        }
    }

    /// Reads the turns of `range`, in order. Turns outside of it only cost the paths they changed.
    ///
    /// # Errors
    /// Fails when a blob cannot be read.
    pub(crate) async fn read_turns(
        &self,
        run: RunId,
        history: &RunHistory,
        range: &RangeInclusive<ids::Turn>,
    ) -> CliResult<Vec<TurnView>> {
        let turns = history.turns().iter().filter(|turn| range.contains(&turn.turn));
        // Collected: values held across an await must be `Send`.
        let turns: Vec<&TurnSummary> = turns.collect();
        let Some(first) = turns.first() else { return Ok(Vec::new()) };
        let mut overlay = history.overlay_after(first.events.start).fail_as(ExitKind::EngineMissing)?;
        let mut views = Vec::new();
        for turn in turns {
            views.push(self.read_turn(run, history, turn, &mut overlay).await?);
        }
        Ok(views)
    }

    /// Reads a turn with all its contents. `overlay` is the run's changes before the turn and is updated to
    /// those after it.
    async fn read_turn(
        &self,
        run: RunId,
        history: &RunHistory,
        turn: &TurnSummary,
        overlay: &mut Overlay,
    ) -> CliResult<TurnView> {
        let (detail, events) = (history.turn_detail(turn), history.turn_events(turn));
        let last = detail.model_calls.last();
        let usage = detail.cost.usage;
        let mut view = TurnView {
            replay: "view".to_owned(),
            run: Some(run),
            turn: turn.turn.0,
            phases: detail.phases.iter().map(|phase| phase.as_str().to_owned()).collect(),
            request_hash: last.map(|call| call.intent.request.to_string()),
            decision_hash: last.map(|call| call.intent.decision.to_string()),
            attempts: detail.model_calls.iter().map(attempt_view).collect(),
            tree: detail.tree.map(|tree| tree.to_string()),
            notes: turn_notes(history, &detail),
            input_tokens: usage.input_tokens + usage.cache_read_tokens,
            output_tokens: usage.output_tokens,
            cost_nusd: detail.cost.nusd,
            ended: detail.end.as_ref().map(ToString::to_string),
            first_seq: events.first().map_or(Seq(0), |event| event.seq),
            last_seq: events.last().map_or(Seq(0), |event| event.seq),
            ..TurnView::default()
        };
        for message in &detail.messages {
            let by = match &message.from {
                MessageSource::Person(by) => format!("{by} says: "),
                MessageSource::Answer(by) => format!("{by} answers: "),
                MessageSource::Hint => "a person says: ".to_owned(),
                MessageSource::Task | MessageSource::Nudge | MessageSource::Edit => String::new(),
                // Shown as a note instead.
                MessageSource::Child { .. } => continue,
            };
            view.told.push(by + &self.fetch_text(&message.text).await?);
        }
        for text in detail.model_answers().next_back().into_iter().flat_map(ModelAnswered::answer_texts) {
            view.text.push_str(&self.fetch_text(text).await?);
        }
        for call in &detail.calls {
            view.tools.push(self.call_view(call).await?);
        }
        for change in &detail.changes {
            view.changes.extend(self.change_views(change, overlay).await?);
        }
        for check in &detail.checks {
            view.gates.push(self.check_view(check).await?);
        }
        Ok(view)
    }

    async fn call_view(&self, call: &ToolCall) -> CliResult<ToolCallView> {
        let (result, outcome) = (call.result.as_ref(), call.outcome());
        Ok(ToolCallView {
            call: call.tool.call.0.clone(),
            name: call.tool.name.clone(),
            args: call.tool.args.clone(),
            status: result.map(|result| event_format::tool_status_label(result.status).to_owned()),
            came_to: outcome.map(|outcome| outcome.label().into_owned()),
            failed: outcome.is_some_and(|outcome| !outcome.is_ok()),
            exit: result.and_then(|result| result.facts.exit),
            tests: result.and_then(|result| result.facts.tests),
            result: match result {
                Some(result) => self.fetch_text(&result.content).await?,
                None => String::new(),
            },
            output_bytes: result.and_then(|result| result.full).map(|blob| blob.bytes),
            duration_ms: result.map_or(0, |result| result.duration_ms),
        })
    }

    async fn check_view(&self, check: &FinalCheck) -> CliResult<GateView> {
        let result = check.result.as_ref();
        Ok(GateView {
            call: check.intent.call.0.clone(),
            name: check.name().into_owned(),
            command: check.command().to_owned(),
            passed: check.passed(),
            came_to: check.outcome_label().to_owned(),
            output: match result {
                Some(result) => self.fetch_text(&result.content).await?,
                None => String::new(),
            },
            output_bytes: result.and_then(|result| result.full).map(|blob| blob.bytes),
            duration_ms: check.duration_ms(),
        })
    }

    async fn change_views(
        &self,
        changed: &WorkspaceChange,
        overlay: &mut Overlay,
    ) -> CliResult<Vec<ChangeView>> {
        let (mut before, mut after) = (Manifest::default(), Manifest::default());
        for change in &changed.paths {
            let path = &change.path;
            let stood = match overlay.get(path) {
                Some(entry) => *entry,
                None => self.base.and_then(|base| base.manifest().entries.get(path).copied()),
            };
            // If a path changed several times in one turn, the first change has the content from before the
            // turn.
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
                .map(|diff| path_change_view(diff, changed.by.clone()))
                .collect());
        };
        let blobs = RemoteBlobs(self.client);
        let contents = ContentReader::new(base, &blobs);
        let files = diff_manifests(&before, &after, &contents)
            .await
            .fail_with(ExitKind::Failed, || "cannot read the run's changes".to_owned())?;
        Ok(files.into_iter().map(|file| to_change_view(file, changed.by.clone())).collect())
    }
}

/// Converts a diff to its view.
pub(crate) fn to_change_view(file: FileDiff, by_hand: Option<String>) -> ChangeView {
    let diff = match file.change {
        Compared::Text(text) => Some(text),
        Compared::Binary | Compared::TooLarge | Compared::ModeOnly => None,
    };
    let named = path_change_view(PathDiff { path: file.path, old: file.old, new: file.new }, by_hand);
    ChangeView { diff, ..named }
}

/// Builds the view of a changed path without its diff.
fn path_change_view(diff: PathDiff, by_hand: Option<String>) -> ChangeView {
    let what = match (diff.old, diff.new) {
        (None, _) => "added",
        (Some(_), None) => "removed",
        (Some(_), Some(_)) => "changed",
    };
    ChangeView { path: diff.path, what: what.to_owned(), by_hand, diff: None }
}

fn attempt_view(call: &ModelCall) -> AttemptView {
    let intent = &call.intent;
    AttemptView {
        seq: call.seq,
        attempt: intent.attempt,
        model: intent.model.to_string(),
        request_hash: intent.request.to_string(),
        request_bytes: intent.request_bytes,
        decision_hash: intent.decision.to_string(),
        outcome: call.outcome().map(str::to_owned),
    }
}

/// Lists other events of the turn, one line each.
fn turn_notes(history: &RunHistory, detail: &TurnDetail) -> Vec<String> {
    let note = |milestone: &TurnNote| match &milestone.event {
        Ok(RunEvent::ModelFailed(e)) if e.call.is_summary() => None,
        Ok(RunEvent::ModelFailed(e)) => Some(format!("the model call failed ({}): {}", e.error, e.message)),
        Ok(_) | Err(_) => history.events().get(milestone.event_index).map(event_format::format_event),
    };
    detail.notes.iter().filter_map(note).collect()
}
