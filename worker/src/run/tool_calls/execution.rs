//! Executes the open calls and checks of a run in its tool executor, and records their effects as events.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use docket_schema::{
    content::{Content, WorkspacePath},
    ids::BlobHash,
    message::{CallId, MessagePart, ToolUse},
    run::{PolicyVerdict, RunState, ToolRequested, ToolStatus},
    tool::RecoveryClass,
};
use futures_util::FutureExt as _;

use super::{
    base_view,
    call_batch::{CallBatch, CompletedCall},
    final_checks,
    parallel_reads::par_map_bounded as at_once,
    read_cache::ReadCache,
    tool_executor::ToolExecutor,
};
use crate::run::{log::pending_append::PendingAppend, time_limits::time_budget_deadline};
use crate::{
    policy::PathVisibility,
    tools::{self, ToolOutcome},
    workspace::{BlobReader, SnapshotError},
};

impl ToolExecutor {
    /// Fetches inputs from outside the workspace that the open calls ask for.
    async fn load_call_inputs<S: BlobReader>(&mut self, state: &RunState, blobs: &S) {
        self.full_outputs.clear();
        for call in state.open_tools.iter().filter_map(|(_, tool)| tools::requested_full_output(tool)) {
            // The original result: it may have been shortened for the model since, but not in the log.
            let result = state.transcript.original_result(&call).or_else(|| find_result(state, &call));
            let bytes = match (state.full_outputs.get(&call), result) {
                (Some(blob), _) => Some(blobs.get(blob).await),
                (None, Some(Content::Blob(blob))) => Some(blobs.get(blob).await),
                (None, Some(content)) => content.inline_bytes().map(|bytes| Ok(bytes.into())),
                (None, None) => None,
            };
            if let Some(bytes) = bytes {
                self.full_outputs.insert(call, bytes.map_err(|error| error.to_string()));
            }
        }
        self.base_view = base_view::load_base_view(&self.workspace, state, blobs).await;
    }

    /// Runs the open tool calls: adjacent reads in parallel, changes in order; then takes a snapshot if anything may
    /// have changed.
    pub(crate) async fn run_tools<S: BlobReader>(
        &mut self,
        state: &RunState,
        blobs: &S,
    ) -> Result<PendingAppend, SnapshotError> {
        self.load_call_inputs(state, blobs).await;
        self.load_available_tools(state, blobs).await;
        self.settings.deadline = time_budget_deadline(state);
        self.settings.visibility = PathVisibility::for_run(state);
        self.network_grants.update_open_calls(state);
        let first = self.lint_before(state).await;
        let mut batch = CallBatch::new(state, &self.redactor);
        // A linter may leave files behind, as any command may, whatever happens to the edits.
        batch.needs_full_snapshot = !first.is_empty();
        let mut rereads = ReadCache::new(state);
        let mut all: Vec<(&ToolRequested, CompletedCall)> = Vec::new();
        let mut calls = state.open_tools.as_slice();
        while let Some((first, rest)) = calls.split_first() {
            let is_quick = |open: &ToolRequested| {
                open.class == RecoveryClass::Reads && !tools::waits_on_external_io(&open.tool)
            };
            let readers = calls.iter().take_while(|(open, _)| is_quick(open)).count();
            if readers > 1 {
                let (together, rest) = calls.split_at(readers);
                let read_set = batch.read_set.clone();
                // Reads never wait; a read that does have to wait is run after the others.
                let outcomes =
                    at_once(together, |(open, tool)| self.run_tool(open, tool, &read_set).now_or_never());
                for ((open, tool), done) in together.iter().zip(outcomes) {
                    let done = match done {
                        Some(done) => done,
                        None => self.run_tool(open, tool, &read_set).await,
                    };
                    let done = done.with_read_cache(open, &mut rereads);
                    batch.note_effects(&done);
                    all.push((open, done));
                }
                calls = rest;
            } else {
                let mut done = self.run_tool(&first.0, &first.1, &batch.read_set).await;
                let held = self.enforce_write_scope(state, &first.0, &mut done, blobs).await?;
                let done = done.with_read_cache(&first.0, &mut rereads);
                batch.note_effects(&done);
                batch.add_earlier_snapshot(held);
                all.push((&first.0, done));
                calls = rest;
            }
        }
        self.lint_changes(state, first, &mut batch, &mut all).await;
        for (open, done) in all {
            batch.push_result(open, done);
        }
        self.append_snapshot(state, &mut batch).await?;
        Ok(batch.pending)
    }

    /// Repeats calls after a crash as their recovery classes allow, with the workspace at the last snapshot. A call
    /// that may have had external effects is not repeated; its result says that the outcome is unknown.
    pub(in crate::run) async fn rerun_tools_after_crash<S: BlobReader>(
        &mut self,
        state: &RunState,
        blobs: &S,
    ) -> Result<PendingAppend, SnapshotError> {
        if calls_unknown_after_crash(state).is_empty() {
            return self.run_tools(state, blobs).await;
        }
        let mut batch = CallBatch::new(state, &self.redactor);
        for (open, _) in &state.open_tools {
            batch.push_unknown(open);
        }
        Ok(batch.pending)
    }

    async fn run_tool(
        &self,
        open: &ToolRequested,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkspacePath, BlobHash>,
    ) -> CompletedCall {
        let started = Instant::now();
        let outcome = match &open.policy {
            PolicyVerdict::Allow { .. } => {
                match (self.refuse_unavailable_tool(tool), self.network_grants.grant_for(&open.call)) {
                    (Some(unknown), _) => unknown,
                    (None, network) if tools::is_external(&tool.name) => {
                        Box::pin(self.call_mcp_tool(tool, network)).await
                    }
                    (None, None) => self.execute_tool(tool, read_set, self.test_runner.as_ref()).await,
                    (None, Some(allow)) => Box::pin(self.execute_with_network(tool, read_set, allow)).await,
                }
            }
            PolicyVerdict::Deny { rule, reason } => {
                let text = format!("Refused by policy ({rule}): {reason}");
                return CompletedCall::from_refusal(ToolOutcome::error(&tool.name, text), started);
            }
            PolicyVerdict::Ask { rule, question } => {
                let text = format!("A person has to allow this first ({rule}): {question}");
                return CompletedCall::from_refusal(ToolOutcome::error(&tool.name, text), started);
            }
        };
        let status = if outcome.is_error { ToolStatus::Error } else { ToolStatus::Ok };
        CompletedCall { status, outcome, duration: started.elapsed() }
    }

    /// Runs the open gates in order, then takes a snapshot, because a gate may leave files behind.
    pub(crate) async fn run_gates(&mut self, state: &RunState) -> Result<PendingAppend, SnapshotError> {
        self.settings.deadline = time_budget_deadline(state);
        let mut batch = CallBatch::new(state, &self.redactor);
        batch.needs_full_snapshot = true;
        let mut done: Vec<(usize, final_checks::CompletedCheck<'_>)> = Vec::new();
        // The syntax check comes last because it uses the results of the others.
        for late in [false, true] {
            let open = state.open_gates.iter().enumerate();
            for (at, open) in open.filter(|(_, open)| tools::is_syntax_gate(&open.gate) == late) {
                let started = Instant::now();
                let outcome = final_checks::run_check(self, state, open, &done).await;
                done.push((
                    at,
                    final_checks::CompletedCheck { request: open, outcome, duration: started.elapsed() },
                ));
            }
        }
        done.sort_by_key(|(at, _)| *at);
        for (_, final_checks::CompletedCheck { request: open, outcome, duration }) in done {
            batch.push_gate_result(open, outcome, duration);
        }
        self.append_snapshot(state, &mut batch).await?;
        Ok(batch.pending)
    }

    /// Records the result of an open call that was executed elsewhere.
    pub(in crate::run) fn record_external_result(
        &self,
        state: &RunState,
        open: &ToolRequested,
        (status, outcome): (ToolStatus, ToolOutcome),
        duration: Duration,
    ) -> PendingAppend {
        let mut batch = CallBatch::new(state, &self.redactor);
        batch.push_result(open, CompletedCall { status, outcome, duration });
        batch.pending
    }

    async fn append_snapshot(
        &mut self,
        state: &RunState,
        batch: &mut CallBatch,
    ) -> Result<(), SnapshotError> {
        let delta = if batch.needs_full_snapshot {
            self.workspace.snapshot_walk()?
        } else if batch.changed_paths.is_empty() {
            return Ok(());
        } else {
            self.workspace.snapshot_paths(&batch.changed_paths)?
        };
        let delta = batch.merge_earlier_snapshot(delta);
        if delta.is_empty() {
            return Ok(());
        }
        batch.pending.push_snapshot(state.turn, delta);
        Ok(())
    }
}

/// Returns the open calls that may have had external effects and are therefore not repeated after a crash. Such a
/// call is a batch of its own; should a batch ever contain one, none of it is repeated. A call refused by policy had
/// no effect, and is refused again.
pub(in crate::run) fn calls_unknown_after_crash(state: &RunState) -> Vec<CallId> {
    let reaches = |open: &ToolRequested| {
        open.class == RecoveryClass::External && !matches!(open.policy, PolicyVerdict::Deny { .. })
    };
    if state.open_tools.iter().any(|(open, _)| reaches(open)) {
        state.open_tools.iter().map(|(open, _)| open.call.clone()).collect()
    } else {
        Vec::new()
    }
}

/// Finds the result of an earlier call in the conversation.
fn find_result<'a>(state: &'a RunState, call: &CallId) -> Option<&'a Content> {
    state.transcript.sealed_entries().iter().flat_map(|said| &said.message.parts).find_map(
        |part| match part {
            MessagePart::ToolResult { call: of, content, .. } if of == call => Some(content),
            MessagePart::ToolResult { .. }
            | MessagePart::Text { .. }
            | MessagePart::Thinking { .. }
            | MessagePart::ToolUse(_) => None,
        },
    )
}
