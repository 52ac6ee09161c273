//! Both halves of a delegating call: start a child, then collect its result.
//!
//! First half: the difference between the run's tree and its base becomes a blob, and the coordinator creates the
//! child. The child's id is derived from the run and the call, so repeating this half creates no second child. Second
//! half, once no child is running: the child's summary, its usage and, if it was allowed to write, its changes merged
//! into the workspace become the result of the call, with a snapshot. In between, the run rests and frees its slot.

use std::time::Instant;

use docket_schema::{
    api::{ChildView, DelegateRequest},
    content::{BlobRef, Content},
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq},
    message::{CallId, ToolUse},
    run::{ChildAnswered, PolicyVerdict, RunEvent, RunSpending, RunState, ToolRequested, ToolStatus},
    snapshot::OmittedPath,
    task::{DelegatedBy, SettingsPatch, TaskState},
    tool::{ChildFacts, ToolFacts},
};

use super::{
    child_report::ChildReport,
    child_start::{encode_start_tree, load_start_parts, overlays_from_parts},
};
use crate::run::{
    errors::executor_error::RunExecutorError,
    log::{
        blob_cache::{BlobCache, READ_PATIENCE},
        journal::{INLINE_BLOBS_BYTES_MAX, Journal, JournalError, blob_upload, from_client_error},
        pending_append::PendingAppend,
    },
    time_limits::RECORD_TIME_MAX,
    tool_calls::{malformed::malformed_call_message, tool_executor::ToolExecutor},
};
use crate::{
    client::{CoordinatorClient, HistoryScope, retry_until, retry_until_with_room},
    engine::{ChildBudget, Engine, allot_child_budgets, is_delegation, tools_denied_to_children},
    progress::ProgressNote,
    tools::{self, DelegateCall, ToolOutcome},
    workspace::{
        BlobReader as _, ParentTree, SnapshotDelta, changed_paths, merge_child_changes, tree_with_overlay,
    },
};

/// Characters of a child's reply that its parent's model sees.
const REPLY_CHARS_MAX: usize = 16_000;

/// Whether the open calls are resumed after a crash or after a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::run) enum ResumeMode {
    Resumed,
    Fresh,
}

/// How far a delegating call has got.
enum DelegationStep {
    /// The call has its result.
    Finished(ToolStatus, Box<ToolOutcome>, Option<SnapshotDelta>),
    /// The child is still running.
    ChildRunning,
}

impl DelegationStep {
    fn from_tool_error(text: String) -> Self {
        Self::Finished(ToolStatus::Error, Box::new(ToolOutcome::error(tools::DELEGATE, text)), None)
    }
}

/// The open calls of a run and everything needed to execute them.
pub(in crate::run) struct OpenCalls<'a> {
    pub(in crate::run) engine: &'a dyn Engine,
    pub(in crate::run) journal: &'a mut Journal,
    pub(in crate::run) executor: &'a mut ToolExecutor,
    pub(in crate::run) blob_cache: &'a BlobCache,
}

impl OpenCalls<'_> {
    /// Executes the open calls: delegations here, all others in the tool executor. The next request includes their
    /// results.
    pub(in crate::run) async fn run_all(
        &mut self,
        resumed: ResumeMode,
        progress: &ProgressNote,
    ) -> Result<PendingAppend, RunExecutorError> {
        let state = self.journal.state();
        let pins = state.pins.clone();
        let gives = |tool: &ToolUse| pins.as_ref().is_some_and(|pins| is_delegation(pins, tool));
        if !state.open_tools.iter().any(|(_, tool)| gives(tool)) {
            let done = match resumed {
                ResumeMode::Fresh => self.executor.run_tools(state, self.blob_cache).await?,
                ResumeMode::Resumed => self.executor.rerun_tools_after_crash(state, self.blob_cache).await?,
            };
            self.blob_cache.cache_results(&done);
            return Ok(done);
        }
        let mut out = PendingAppend::default();
        for (open, tool) in state.open_tools.clone() {
            progress.set_step_limit(RECORD_TIME_MAX);
            let started = Instant::now();
            let half = self.advance_delegation(&open, &tool, &out).await?;
            let DelegationStep::Finished(status, outcome, delta) = half else { continue };
            let state = self.journal.state();
            let result =
                self.executor.record_external_result(state, &open, (status, *outcome), started.elapsed());
            self.blob_cache.cache_results(&result);
            out.append_all(result);
            if let Some(delta) = delta.filter(|delta| !delta.is_empty()) {
                out.push_snapshot(state.turn, delta);
            }
        }
        Ok(out)
    }

    /// Performs the next step of one delegation, after the results of the calls before it.
    async fn advance_delegation(
        &mut self,
        open: &ToolRequested,
        tool: &ToolUse,
        before: &PendingAppend,
    ) -> Result<DelegationStep, RunExecutorError> {
        if let PolicyVerdict::Deny { rule, reason } | PolicyVerdict::Ask { rule, question: reason } =
            &open.policy
        {
            let text = format!("Refused by policy ({rule}): {reason}");
            return Ok(DelegationStep::Finished(
                ToolStatus::Refused,
                Box::new(ToolOutcome::error(&tool.name, text)),
                None,
            ));
        }
        if let Some(text) = &tool.malformed {
            return Ok(DelegationStep::from_tool_error(malformed_call_message(&tool.name, text)));
        }
        let asked = match tools::parse_delegate_args(tool) {
            Ok(asked) => asked,
            Err(text) => return Ok(DelegationStep::from_tool_error(text)),
        };
        match self.journal.state().delegation.child_answer(&open.call).cloned() {
            None => self.start_child(open, asked).await,
            Some(answer) => self.collect_child_result(&answer, &asked, before).await,
        }
    }

    async fn start_child(
        &mut self,
        open: &ToolRequested,
        asked: DelegateCall,
    ) -> Result<DelegationStep, RunExecutorError> {
        let state = self.journal.state();
        let Some(tree) = state.tree else {
            return Ok(DelegationStep::from_tool_error("the run has no tree yet".to_owned()));
        };
        let start = match encode_start_tree(state) {
            Ok(start) => start,
            Err(text) => return Ok(DelegationStep::from_tool_error(text)),
        };
        let (settings, model) = match (self.child_settings(&open.call), self.child_model(&asked)) {
            (Ok(settings), model) => (settings, model),
            (Err(text), _) => return Ok(DelegationStep::from_tool_error(text)),
        };
        let denied_tools = state
            .pins
            .as_deref()
            .map_or_else(Vec::new, |pins| tools_denied_to_children(self.engine, state, pins));
        let mut blobs = Vec::new();
        let start = match start {
            None => None,
            Some(bytes) => {
                let blob = BlobRef::for_bytes(&bytes);
                if bytes.len() > INLINE_BLOBS_BYTES_MAX {
                    let deadline = Instant::now() + self.journal.patience;
                    let bytes = bytes::Bytes::from(bytes);
                    let client = &self.journal.client;
                    let put =
                        retry_until_with_room(deadline, || client.put_blobs(vec![(blob, bytes.clone())]));
                    put.await.map_err(from_client_error)?;
                } else {
                    blobs.push(blob_upload(blob, &bytes::Bytes::from(bytes)));
                }
                Some(blob)
            }
        };
        let request = DelegateRequest {
            epoch: self.journal.epoch,
            after: Seq(0),
            call: open.call.clone(),
            title: asked.title,
            text: child_instructions(&asked.instructions, asked.writes, &denied_tools),
            writes: asked.writes,
            tests: asked.test_command,
            requires: asked.required_paths,
            denied_tools,
            engine: asked.engine,
            model,
            settings,
            tree,
            start,
            blobs,
        };
        Ok(match self.journal.delegate(request).await? {
            None => DelegationStep::ChildRunning,
            Some(problem) => {
                DelegationStep::from_tool_error(format!("Nothing was given away: {}", problem.detail))
            }
        })
    }

    /// Returns what the child may use, by the same rule that admitted the call.
    fn child_settings(&self, call: &CallId) -> Result<SettingsPatch, String> {
        let state = self.journal.state();
        let Some(pins) = state.pins.as_deref() else { return Err("the run has no start".to_owned()) };
        let waiting = state.delegation.waiting_calls.iter().chain(&state.open_tools);
        let allowed: Vec<&ToolUse> = waiting
            .filter(|(open, _)| matches!(open.policy, PolicyVerdict::Allow { .. }))
            .map(|(_, tool)| tool)
            .collect();
        let nth = allowed.iter().position(|tool| tool.call == *call);
        let time_max_ms = self.engine.call_time_budget_ms(state, pins.settings.time_max_ms);
        let all = allot_child_budgets(state, pins, &allowed, time_max_ms);
        let own = nth.and_then(|nth| all.into_iter().nth(nth)).unwrap_or(Ok(ChildBudget::default()));
        let ChildBudget { tokens, cost_nusd, time_ms } = own?;
        Ok(SettingsPatch {
            tokens_max: tokens,
            cost_max_nusd: cost_nusd,
            time_max_ms: time_ms,
            delegation_depth_max: Some(pins.settings.delegation_depth_max.saturating_sub(1)),
            children_max: Some(pins.settings.children_max),
            ..SettingsPatch::default()
        })
    }

    /// Returns the model requested for the child, unless its API differs from that of the parent's own model.
    fn child_model(&self, asked: &DelegateCall) -> Option<docket_schema::message::ModelRef> {
        let mut model = asked.model.clone()?;
        if let Some(pins) = &self.journal.state().pins
            && pins.models.main.provider == model.provider
        {
            model.base_url.clone_from(&pins.models.main.base_url);
        }
        Some(model)
    }

    /// Collects the child's result and merges its changes into the workspace.
    async fn collect_child_result(
        &mut self,
        answer: &ChildAnswered,
        asked: &DelegateCall,
        before: &PendingAppend,
    ) -> Result<DelegationStep, RunExecutorError> {
        let state = self.journal.state_with(before).map_err(JournalError::from)?;
        let client = &self.journal.client;
        let Some(child) = find_child(client, self.journal.run, &answer.call).await? else {
            return Ok(DelegationStep::from_tool_error(format!(
                "task {} is not to be found any more",
                answer.child
            )));
        };
        let run = child.view.task.last_run.filter(|_| !child.view.runs.is_empty());
        let (mut spent, mut last) = (RunSpending::default(), None);
        for view in &child.view.runs {
            let lineage = if view.parent.is_some() { HistoryScope::WithAncestors } else { HistoryScope::Own };
            let events = retry_until(Instant::now() + READ_PATIENCE, || client.all_events(view.id, lineage));
            let events = events.await.map_err(from_client_error)?;
            let own = fold_events(&events)?;
            // A forked run carries its origin's history; count only what it used itself.
            let used = own.model_attempts.spending(&own.totals);
            spent.tokens = spent.tokens.saturating_add(used.tokens);
            spent.cost_nusd = spent.cost_nusd.saturating_add(used.cost_nusd);
            spent.worked_ms = spent.worked_ms.saturating_add(used.worked_ms);
            if Some(view.id) == run {
                last = Some((own, final_summary(&events)));
            }
        }
        let mut told = ChildReport { run, spent, ..ChildReport::new(&child.view, asked.writes) };
        let mut delta = None;
        if let Some((last, words)) = &last {
            told.reply_text = self.load_reply_text(words.as_ref().or(last.last_text.as_ref())).await?;
            let start = match &child.view.task.delegated_by {
                Some(DelegatedBy { start: Some(start), .. }) => {
                    load_start_parts(self.blob_cache, start).await?
                }
                Some(_) | None => Vec::new(),
            };
            let start = overlays_from_parts(&start).0;
            let base = self.executor.workspace.base_manifest();
            let changed =
                changed_paths(&tree_with_overlay(base, &start), &tree_with_overlay(base, &last.overlay));
            told.changed = changed.into_iter().map(|change| change.path).collect();
            if asked.writes && child.view.task.state == TaskState::Completed && !told.changed.is_empty() {
                let left_out: Vec<OmittedPath> = state
                    .left_out
                    .iter()
                    .map(|(path, why)| OmittedPath { path: path.clone(), why: *why })
                    .collect();
                let ours = ParentTree {
                    overlay: &state.overlay,
                    git_overlay: &state.git_overlay,
                    left_out: &left_out,
                };
                let workspace = &mut self.executor.workspace;
                let taken =
                    merge_child_changes(workspace, ours, (&start, &last.overlay), self.blob_cache).await;
                let taken = taken.map_err(|error| RunExecutorError::MergeChild(Box::new(error)))?;
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
        let outcome =
            ToolOutcome { content: told.render_text().into_bytes(), is_error, full_output: None, facts };
        let status = if is_error { ToolStatus::Error } else { ToolStatus::Ok };
        Ok(DelegationStep::Finished(status, Box::new(outcome), delta))
    }

    async fn load_reply_text(&self, words: Option<&Content>) -> Result<String, RunExecutorError> {
        let text = match words {
            None => return Ok(String::new()),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::B64(_)) => "(no text)".to_owned(),
            Some(Content::Blob(blob)) => {
                String::from_utf8_lossy(&self.blob_cache.get(blob).await?).into_owned()
            }
        };
        Ok(tools::cut_middle(&text, REPLY_CHARS_MAX).0.to_string())
    }
}

/// Finds the child task of a call.
async fn find_child(
    client: &CoordinatorClient,
    run: RunId,
    call: &CallId,
) -> Result<Option<ChildView>, RunExecutorError> {
    let list = retry_until(Instant::now() + READ_PATIENCE, || client.list_children(run))
        .await
        .map_err(from_client_error)?;
    Ok(list.children.into_iter().find(|child| child.call == *call))
}

fn fold_events(events: &[Envelope]) -> Result<RunState, JournalError> {
    let mut state = RunState::default();
    for event in events {
        state.apply_envelope(event)?;
    }
    Ok(state)
}

/// Returns the final message of an ended run.
fn final_summary(events: &[Envelope]) -> Option<Content> {
    let last = events.last()?;
    match RunEvent::decode(&last.kind, last.version, last.payload.as_str()) {
        Ok(RunEvent::RunEnded(ended)) => ended.summary,
        Ok(_) | Err(_) => None,
    }
}

/// Builds the child's instructions: the request plus what it must know about its situation.
fn child_instructions(text: &str, writes: bool, denied: &[String]) -> String {
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
