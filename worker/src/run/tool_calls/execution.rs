//! The open calls and checks of a run, carried out on its workbench, with what they leave behind as events.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use docket_schema::{
    content::{Content, WorkPath},
    ids::BlobHash,
    message::{CallId, Part, ToolUse},
    run::{RunState, ToolRequested, ToolStatus, Verdict},
    tool::RecoveryClass,
};
use futures_util::FutureExt as _;

use super::{
    batch::{Batch, Done},
    before, checks,
    reread::Rereads,
    together::together as at_once,
    workbench::Workbench,
};
use crate::run::{log::outgoing::Outgoing, time_limits::time_ends_at};
use crate::{
    policy::Sight,
    tools::{self, ToolOutcome},
    workspace::{Blobs, SnapshotError},
};

impl Workbench {
    /// Fetches what the open calls ask for beyond the workspace.
    async fn at_hand<S: Blobs>(&mut self, state: &RunState, blobs: &S) {
        self.outputs.clear();
        for call in state.open_tools.iter().filter_map(|(_, tool)| tools::whole_output_wanted(tool)) {
            // Shown whole, and perhaps made shorter by now for the model, not for the log.
            let result = state.transcript.put_aside(&call).or_else(|| result_of(state, &call));
            let bytes = match (state.outputs.get(&call), result) {
                (Some(blob), _) => Some(blobs.get(blob).await),
                (None, Some(Content::Blob(blob))) => Some(blobs.get(blob).await),
                (None, Some(content)) => content.inline_bytes().map(|bytes| Ok(bytes.into())),
                (None, None) => None,
            };
            if let Some(bytes) = bytes {
                self.outputs.insert(call, bytes.map_err(|error| error.to_string()));
            }
        }
        self.base = before::at_hand(&self.workspace, state, blobs).await;
    }

    /// Runs the open tool calls: neighbouring readers together, changers in order; then a snapshot
    /// if anything may have changed.
    pub(crate) async fn run_tools<S: Blobs>(
        &mut self,
        state: &RunState,
        blobs: &S,
    ) -> Result<Outgoing, SnapshotError> {
        self.at_hand(state, blobs).await;
        self.look_up_tools(state, blobs).await;
        self.settings.time_ends_at = time_ends_at(state);
        self.settings.sight = Sight::in_run(state);
        self.grants.note(state);
        let first = self.lint_before(state).await;
        let mut batch = Batch::new(state, &self.redactor);
        // A linter may leave files behind, as any command may, whatever becomes of the edits.
        batch.walk = !first.is_empty();
        let mut rereads = Rereads::new(state);
        let mut all: Vec<(&ToolRequested, Done)> = Vec::new();
        let mut calls = state.open_tools.as_slice();
        while let Some((first, rest)) = calls.split_first() {
            let is_quick =
                |open: &ToolRequested| open.class == RecoveryClass::Reads && !tools::waits(&open.tool);
            let readers = calls.iter().take_while(|(open, _)| is_quick(open)).count();
            if readers > 1 {
                let (together, rest) = calls.split_at(readers);
                let read_set = batch.read_set.clone();
                // Whoever only reads waits for nothing; should one, it is run behind the others.
                let outcomes =
                    at_once(together, |(open, tool)| self.run_one(open, tool, &read_set).now_or_never());
                for ((open, tool), done) in together.iter().zip(outcomes) {
                    let done = match done {
                        Some(done) => done,
                        None => self.run_one(open, tool, &read_set).await,
                    };
                    let done = done.unrepeated(open, &mut rereads);
                    batch.took(&done);
                    all.push((open, done));
                }
                calls = rest;
            } else {
                let mut done = self.run_one(&first.0, &first.1, &batch.read_set).await;
                let held = self.hold(state, &first.0, &mut done, blobs).await?;
                let done = done.unrepeated(&first.0, &mut rereads);
                batch.took(&done);
                batch.hold(held);
                all.push((&first.0, done));
                calls = rest;
            }
        }
        self.lint(state, first, &mut batch, &mut all).await;
        for (open, done) in all {
            batch.finished(open, done);
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }

    /// Runs calls again after a crash, as their recovery classes allow: the workspace stands at the
    /// last snapshot. Whatever may have reached beyond it is not run again; the model is told.
    pub(in crate::run) async fn run_tools_again<S: Blobs>(
        &mut self,
        state: &RunState,
        blobs: &S,
    ) -> Result<Outgoing, SnapshotError> {
        if unknown_after_crash(state).is_empty() {
            return self.run_tools(state, blobs).await;
        }
        let mut batch = Batch::new(state, &self.redactor);
        for (open, _) in &state.open_tools {
            batch.unknown(open);
        }
        Ok(batch.out)
    }

    async fn run_one(
        &self,
        open: &ToolRequested,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkPath, BlobHash>,
    ) -> Done {
        let started = Instant::now();
        let outcome = match &open.policy {
            Verdict::Allow { .. } => match (self.unknown(tool), self.grants.of(&open.call)) {
                (Some(unknown), _) => unknown,
                (None, network) if tools::is_external(&tool.name) => {
                    Box::pin(self.ask_server(tool, network)).await
                }
                (None, None) => self.execute(tool, read_set, self.tests.as_ref()).await,
                (None, Some(allow)) => Box::pin(self.execute_granted(tool, read_set, allow)).await,
            },
            Verdict::Deny { rule, reason } => {
                let text = format!("Refused by policy ({rule}): {reason}");
                return Done::refused(ToolOutcome::error(&tool.name, text), started);
            }
            Verdict::Ask { rule, question } => {
                let text = format!("A person has to allow this first ({rule}): {question}");
                return Done::refused(ToolOutcome::error(&tool.name, text), started);
            }
        };
        let status = if outcome.is_error { ToolStatus::Error } else { ToolStatus::Ok };
        Done { status, outcome, duration: started.elapsed() }
    }

    /// Runs the open gates in order, then a snapshot: a gate may leave files behind.
    pub(crate) async fn run_gates(&mut self, state: &RunState) -> Result<Outgoing, SnapshotError> {
        self.settings.time_ends_at = time_ends_at(state);
        let mut batch = Batch::new(state, &self.redactor);
        batch.walk = true;
        let mut done: Vec<(usize, checks::Done<'_>)> = Vec::new();
        // The check of syntax comes last: it asks what the others say.
        for late in [false, true] {
            let open = state.open_gates.iter().enumerate();
            for (at, open) in open.filter(|(_, open)| tools::is_syntax_check(&open.gate) == late) {
                let started = Instant::now();
                let outcome = checks::run(self, state, open, &done).await;
                done.push((at, checks::Done { open, outcome, duration: started.elapsed() }));
            }
        }
        done.sort_by_key(|(at, _)| *at);
        for (_, checks::Done { open, outcome, duration }) in done {
            batch.gate_finished(open, outcome, duration);
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }

    /// The result of an open call that was carried out elsewhere.
    pub(in crate::run) fn result_of(
        &self,
        state: &RunState,
        open: &ToolRequested,
        (status, outcome): (ToolStatus, ToolOutcome),
        duration: Duration,
    ) -> Outgoing {
        let mut batch = Batch::new(state, &self.redactor);
        batch.finished(open, Done { status, outcome, duration });
        batch.out
    }

    async fn snapshot(&mut self, state: &RunState, batch: &mut Batch) -> Result<(), SnapshotError> {
        let delta = if batch.walk {
            self.workspace.snapshot_walk()?
        } else if batch.changed.is_empty() {
            return Ok(());
        } else {
            self.workspace.snapshot_paths(&batch.changed)?
        };
        let delta = batch.with_held(delta);
        if delta.is_empty() {
            return Ok(());
        }
        batch.out.snapshot(state.turn, delta);
        Ok(())
    }
}

/// Open calls that may have reached beyond the workspace, and so are not run again after a crash.
/// Such a call is a batch of its own; should a batch ever hold one, none of it is run again. What policy refused reached
/// nowhere, and is refused again.
pub(in crate::run) fn unknown_after_crash(state: &RunState) -> Vec<CallId> {
    let reaches = |open: &ToolRequested| {
        open.class == RecoveryClass::External && !matches!(open.policy, Verdict::Deny { .. })
    };
    if state.open_tools.iter().any(|(open, _)| reaches(open)) {
        state.open_tools.iter().map(|(open, _)| open.call.clone()).collect()
    } else {
        Vec::new()
    }
}

/// The result of an earlier call as it stands in the conversation.
fn result_of<'a>(state: &'a RunState, call: &CallId) -> Option<&'a Content> {
    state.transcript.sealed().iter().flat_map(|said| &said.message.parts).find_map(|part| match part {
        Part::ToolResult { call: of, content, .. } if of == call => Some(content),
        Part::ToolResult { .. } | Part::Text { .. } | Part::Thinking { .. } | Part::ToolUse(_) => None,
    })
}
