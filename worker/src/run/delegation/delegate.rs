//! Giving work away, and bringing it in: both halves of a call that delegates.
//!
//! First half: what the run's tree differs by from its base becomes a blob, and the coordinator makes the child. The
//! child's id follows from the run and the call, so that a half that is done again makes no second one. Second half,
//! once no child is out: what it said, what it used, and, where it was to write, its changes merged into the workspace;
//! all of that is the call's result, with a snapshot. Between the two the run rests, and its slot is another's.

use std::time::Instant;

use docket_schema::{
    content::{BlobRef, Content},
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq},
    message::{CallId, ToolUse},
    run::{ChildAnswered, RunEvent, RunState, Spent, ToolRequested, ToolStatus, Verdict},
    snapshot::LeftOut,
    task::{DelegatedBy, SettingsPatch, TaskState},
    tool::{ChildFacts, ToolFacts},
    wire::{ChildView, DelegateRequest},
};

use super::{
    child_report::ChildReport,
    child_start::{overlays, parts_of, start_of},
};
use crate::run::{
    errors::driver_error::DriverError,
    log::{
        journal::{INLINE_BLOBS_BYTES_MAX, Journal, JournalError, of_client, upload},
        material::{Material, READ_PATIENCE},
        outgoing::Outgoing,
    },
    time_limits::RECORD_AT_MOST,
    tool_calls::{malformed::not_run, workbench::Workbench},
};
use crate::{
    client::{Client, Lineage, patiently, patiently_without_room},
    engine::{Allowance, Engine, allowances, delegates, not_for_pieces},
    progress::ProgressNote,
    tools::{self, Delegate, ToolOutcome},
    workspace::{Blobs as _, Ours, SnapshotDelta, changed_paths, take_over, tree_of},
};

/// Words of a child that its parent's model is shown, in characters.
const WORDS_CHARS_MAX: usize = 16_000;

/// Whether open calls are met after a crash, or a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum Resumed {
    Yes,
    No,
}

/// Where the child's half of a call stands.
enum Half {
    /// The call has its result.
    Done(ToolStatus, Box<ToolOutcome>, Option<SnapshotDelta>),
    /// The child is out.
    Out,
}

impl Half {
    fn error(text: String) -> Self {
        Self::Done(ToolStatus::Error, Box::new(ToolOutcome::error(tools::DELEGATE, text)), None)
    }
}

/// The open calls of a run, and what they are run with.
pub(in crate::run) struct OpenCalls<'a> {
    pub(in crate::run) engine: &'a dyn Engine,
    pub(in crate::run) journal: &'a mut Journal,
    pub(in crate::run) bench: &'a mut Workbench,
    pub(in crate::run) material: &'a Material,
}

impl OpenCalls<'_> {
    /// Runs them: those that delegate here, all others on the workbench. The next request finds their results at hand.
    pub(in crate::run) async fn run(
        &mut self,
        resumed: Resumed,
        progress: &ProgressNote,
    ) -> Result<Outgoing, DriverError> {
        let state = self.journal.state();
        let pins = state.pins.clone();
        let gives = |tool: &ToolUse| pins.as_ref().is_some_and(|pins| delegates(pins, tool));
        if !state.open_tools.iter().any(|(_, tool)| gives(tool)) {
            let done = match resumed {
                Resumed::No => self.bench.run_tools(state, self.material).await?,
                Resumed::Yes => self.bench.run_tools_again(state, self.material).await?,
            };
            self.material.keep_results(&done);
            return Ok(done);
        }
        let mut out = Outgoing::default();
        for (open, tool) in state.open_tools.clone() {
            progress.at_most(RECORD_AT_MOST);
            let started = Instant::now();
            let half = self.half(&open, &tool, &out).await?;
            let Half::Done(status, outcome, delta) = half else { continue };
            let state = self.journal.state();
            let result = self.bench.result_of(state, &open, (status, *outcome), started.elapsed());
            self.material.keep_results(&result);
            out.join(result);
            if let Some(delta) = delta.filter(|delta| !delta.is_empty()) {
                out.snapshot(state.turn, delta);
            }
        }
        Ok(out)
    }

    /// Does what is due of one call, behind the results of those before it.
    async fn half(
        &mut self,
        open: &ToolRequested,
        tool: &ToolUse,
        before: &Outgoing,
    ) -> Result<Half, DriverError> {
        if let Verdict::Deny { rule, reason } | Verdict::Ask { rule, question: reason } = &open.policy {
            let text = format!("Refused by policy ({rule}): {reason}");
            return Ok(Half::Done(ToolStatus::Refused, Box::new(ToolOutcome::error(&tool.name, text)), None));
        }
        if let Some(text) = &tool.malformed {
            return Ok(Half::error(not_run(&tool.name, text)));
        }
        let asked = match tools::delegate_args(tool) {
            Ok(asked) => asked,
            Err(text) => return Ok(Half::error(text)),
        };
        match self.journal.state().delegation.answer(&open.call).cloned() {
            None => self.give_away(open, asked).await,
            Some(answer) => self.bring_in(&answer, &asked, before).await,
        }
    }

    async fn give_away(&mut self, open: &ToolRequested, asked: Delegate) -> Result<Half, DriverError> {
        let state = self.journal.state();
        let Some(tree) = state.tree else { return Ok(Half::error("the run has no tree yet".to_owned())) };
        let start = match start_of(state) {
            Ok(start) => start,
            Err(text) => return Ok(Half::error(text)),
        };
        let (settings, model) = match (self.settings_of(&open.call), self.model_of(&asked)) {
            (Ok(settings), model) => (settings, model),
            (Err(text), _) => return Ok(Half::error(text)),
        };
        let denied_tools =
            state.pins.as_deref().map_or_else(Vec::new, |pins| not_for_pieces(self.engine, state, pins));
        let mut blobs = Vec::new();
        let start = match start {
            None => None,
            Some(bytes) => {
                let blob = BlobRef::of(&bytes);
                if bytes.len() > INLINE_BLOBS_BYTES_MAX {
                    let deadline = Instant::now() + self.journal.patience;
                    let bytes = bytes::Bytes::from(bytes);
                    let client = &self.journal.client;
                    let put =
                        patiently_without_room(deadline, || client.put_all(vec![(blob, bytes.clone())]));
                    put.await.map_err(of_client)?;
                } else {
                    blobs.push(upload(blob, &bytes::Bytes::from(bytes)));
                }
                Some(blob)
            }
        };
        let request = DelegateRequest {
            epoch: self.journal.epoch,
            after: Seq(0),
            call: open.call.clone(),
            title: asked.title,
            text: instructions(&asked.instructions, asked.writes, &denied_tools),
            writes: asked.writes,
            tests: asked.tests,
            requires: asked.requires,
            denied_tools,
            engine: asked.engine,
            model,
            settings,
            tree,
            start,
            blobs,
        };
        Ok(match self.journal.delegate(request).await? {
            None => Half::Out,
            Some(problem) => Half::error(format!("Nothing was given away: {}", problem.detail)),
        })
    }

    /// What the child may use, by the same rule that let the call through.
    fn settings_of(&self, call: &CallId) -> Result<SettingsPatch, String> {
        let state = self.journal.state();
        let Some(pins) = state.pins.as_deref() else { return Err("the run has no start".to_owned()) };
        let waiting = state.delegation.out.iter().chain(&state.open_tools);
        let allowed: Vec<&ToolUse> = waiting
            .filter(|(open, _)| matches!(open.policy, Verdict::Allow { .. }))
            .map(|(_, tool)| tool)
            .collect();
        let nth = allowed.iter().position(|tool| tool.call == *call);
        let time_max_ms = self.engine.time_for_calls(state, pins.settings.time_max_ms);
        let all = allowances(state, pins, &allowed, time_max_ms);
        let own = nth.and_then(|nth| all.into_iter().nth(nth)).unwrap_or(Ok(Allowance::default()));
        let Allowance { tokens, cost_nusd, time_ms } = own?;
        Ok(SettingsPatch {
            tokens_max: tokens,
            cost_max_nusd: cost_nusd,
            time_max_ms: time_ms,
            delegation_depth_max: Some(pins.settings.delegation_depth_max.saturating_sub(1)),
            children_max: Some(pins.settings.children_max),
            ..SettingsPatch::default()
        })
    }

    /// Another model is asked where the parent's own is, if it is spoken to likewise.
    fn model_of(&self, asked: &Delegate) -> Option<docket_schema::message::ModelRef> {
        let mut model = asked.model.clone()?;
        if let Some(pins) = &self.journal.state().pins
            && pins.models.main.provider == model.provider
        {
            model.base_url.clone_from(&pins.models.main.base_url);
        }
        Some(model)
    }

    /// What the child came to, with its changes in the workspace.
    async fn bring_in(
        &mut self,
        answer: &ChildAnswered,
        asked: &Delegate,
        before: &Outgoing,
    ) -> Result<Half, DriverError> {
        let state = self.journal.state_with(before).map_err(JournalError::from)?;
        let client = &self.journal.client;
        let Some(child) = child_of(client, self.journal.run, &answer.call).await? else {
            return Ok(Half::error(format!("task {} is not to be found any more", answer.child)));
        };
        let run = child.view.task.last_run.filter(|_| !child.view.runs.is_empty());
        let (mut spent, mut last) = (Spent::default(), None);
        for view in &child.view.runs {
            let lineage = if view.parent.is_some() { Lineage::Whole } else { Lineage::Own };
            let events = patiently(Instant::now() + READ_PATIENCE, || client.all_events(view.id, lineage));
            let events = events.await.map_err(of_client)?;
            let own = folded(&events)?;
            // Of a run that stands on another's history only what it used itself.
            let used = own.asking.spent(&own.totals);
            spent.tokens = spent.tokens.saturating_add(used.tokens);
            spent.cost_nusd = spent.cost_nusd.saturating_add(used.cost_nusd);
            spent.worked_ms = spent.worked_ms.saturating_add(used.worked_ms);
            if Some(view.id) == run {
                last = Some((own, summary(&events)));
            }
        }
        let mut told = ChildReport { run, spent, ..ChildReport::new(&child.view, asked.writes) };
        let mut delta = None;
        if let Some((last, words)) = &last {
            told.words = self.words(words.as_ref().or(last.last_text.as_ref())).await?;
            let start = match &child.view.task.delegated_by {
                Some(DelegatedBy { start: Some(start), .. }) => parts_of(self.material, start).await?,
                Some(_) | None => Vec::new(),
            };
            let start = overlays(&start).0;
            let base = self.bench.workspace.base_manifest();
            let changed = changed_paths(&tree_of(base, &start), &tree_of(base, &last.overlay));
            told.changed = changed.into_iter().map(|change| change.path).collect();
            if asked.writes && child.view.task.state == TaskState::Completed && !told.changed.is_empty() {
                let left_out: Vec<LeftOut> = state
                    .left_out
                    .iter()
                    .map(|(path, why)| LeftOut { path: path.clone(), why: *why })
                    .collect();
                let ours =
                    Ours { overlay: &state.overlay, git_overlay: &state.git_overlay, left_out: &left_out };
                let workspace = &mut self.bench.workspace;
                let taken = take_over(workspace, ours, (&start, &last.overlay), self.material).await;
                let taken = taken.map_err(|error| DriverError::TakeOver(Box::new(error)))?;
                told.merged = taken.delta.changes.iter().map(|change| change.path.clone()).collect();
                told.conflicts = taken.conflicts;
                delta = Some(taken.delta);
            }
        }
        let is_error = child.view.task.state != TaskState::Completed;
        let facts = ToolFacts {
            changed: told.merged.clone(),
            child: Some(ChildFacts {
                task: child.view.task.id,
                run,
                state: child.view.task.state,
                tokens: spent.tokens,
                cost_nusd: spent.cost_nusd,
                worked_ms: spent.worked_ms,
                merged: told.merged.clone(),
                conflicts: told.conflicts.iter().map(|conflict| conflict.path.clone()).collect(),
            }),
            ..ToolFacts::default()
        };
        let outcome = ToolOutcome { content: told.text().into_bytes(), is_error, full: None, facts };
        let status = if is_error { ToolStatus::Error } else { ToolStatus::Ok };
        Ok(Half::Done(status, Box::new(outcome), delta))
    }

    async fn words(&self, words: Option<&Content>) -> Result<String, DriverError> {
        let text = match words {
            None => return Ok(String::new()),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::B64(_)) => "(no text)".to_owned(),
            Some(Content::Blob(blob)) => {
                String::from_utf8_lossy(&self.material.get(blob).await?).into_owned()
            }
        };
        Ok(tools::cut(&text, WORDS_CHARS_MAX).0.to_string())
    }
}

/// The child of a call.
async fn child_of(client: &Client, run: RunId, call: &CallId) -> Result<Option<ChildView>, DriverError> {
    let list = patiently(Instant::now() + READ_PATIENCE, || client.children(run)).await.map_err(of_client)?;
    Ok(list.children.into_iter().find(|child| child.call == *call))
}

fn folded(events: &[Envelope]) -> Result<RunState, JournalError> {
    let mut state = RunState::default();
    for event in events {
        state.apply_envelope(event)?;
    }
    Ok(state)
}

/// The last words of a run that ended.
fn summary(events: &[Envelope]) -> Option<Content> {
    let last = events.last()?;
    match RunEvent::decode(&last.kind, last.version, last.payload.as_str()) {
        Ok(RunEvent::RunEnded(ended)) => ended.summary,
        Ok(_) | Err(_) => None,
    }
}

/// What the child is asked, with what it must know of its place.
fn instructions(text: &str, writes: bool, denied: &[String]) -> String {
    let changes = if writes {
        "What you change here is merged into the workspace of whoever asked."
    } else {
        "What you change here is dropped: only your answer counts."
    };
    let may = match denied {
        [] => "",
        _ if writes => " You may run no commands, for whoever asked may not.",
        _ => " You may only read, for whoever asked may not do more.",
    };
    format!(
        "{}\n\nThis is a piece of another agent's work. {changes}{may} Your last words are your answer, and all that is read \
         of it: say in them what you found or did.",
        text.trim_end()
    )
}
