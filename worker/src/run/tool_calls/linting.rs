//! Lints a batch of edits: the findings in a file before the run's first change to it, and after each batch. Called
//! by the tool executor.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use docket_schema::{
    content::WorkspacePath,
    message::ToolUse,
    run::{PolicyVerdict, RunStarted, RunState, ToolRequested},
};

use super::{
    call_batch::{CallBatch, CompletedCall},
    tool_executor::ToolExecutor,
};
use crate::tools;

/// Batches of edits after which a linter that always times out is skipped.
const LINT_TIMEOUTS_MAX: u32 = 3;

/// Returns the run's pins if its edits are linted.
fn linting_pins(state: &RunState) -> Option<&RunStarted> {
    state.pins.as_deref().filter(|pins| pins.settings.auto_lint && !pins.linters.is_empty())
}

/// Linters that are not installed or always time out.
fn skipped_linters(state: &RunState) -> BTreeSet<String> {
    let slow = state.lint_timeouts.iter().filter(|(_, times)| **times >= LINT_TIMEOUTS_MAX);
    state.linters_missing.iter().chain(slow.map(|(name, _)| name)).cloned().collect()
}

/// Returns the file that a call edits.
fn edited_path(tool: &ToolUse) -> Option<WorkspacePath> {
    tool.args.get("path").and_then(serde_json::Value::as_str).and_then(parse_path)
}

fn parse_path(path: &str) -> Option<WorkspacePath> {
    WorkspacePath::new(path.trim_start_matches("./"))
}

impl ToolExecutor {
    /// Lints the files that the open calls are about to edit, unless the run has done so before.
    pub(in crate::run) async fn lint_before(
        &self,
        state: &RunState,
    ) -> BTreeMap<String, tools::LintBaselineResult> {
        let Some(pins) = linting_pins(state) else { return BTreeMap::new() };
        let mut files = BTreeSet::new();
        let changed = state.overlay.iter().filter(|(_, entry)| entry.is_some());
        let changed = changed.map(|(path, _)| path.clone()).collect();
        let mut changing = tools::BatchChanges { already_changed: changed, ..tools::BatchChanges::default() };
        let allowed = |open: &ToolRequested| matches!(open.policy, PolicyVerdict::Allow { .. });
        for (_, tool) in state.open_tools.iter().filter(|(open, _)| allowed(open)) {
            let path = edited_path(tool);
            match tool.name.as_str() {
                "edit_file" | "append_file" => files.extend(path),
                "create_file" => changing.about_to_create.extend(path),
                "write_file" => match path.filter(|path| !self.root.exists(path.to_string())) {
                    Some(path) => changing.about_to_create.push(path),
                    None => files.extend(edited_path(tool)),
                },
                "copy_file" | "move_file" => changing
                    .about_to_create
                    .extend(tool.args.get("to").and_then(serde_json::Value::as_str).and_then(parse_path)),
                _ => {}
            }
        }
        let mut there = Vec::new();
        for path in files {
            // In a file the run created, everything is new.
            match state.overlay.contains_key(&path) {
                true if !self.is_in_base(&path).await => changing.created.push(path),
                _ => there.push(path),
            }
        }
        let missing = skipped_linters(state);
        let edited = tools::LintBatch {
            linters: &pins.linters,
            files: &there,
            unavailable: &missing,
            baseline: &state.lint_before,
            timeout_ms: pins.settings.lint_timeout_ms,
            list_findings: true,
        };
        let nothing_read = BTreeMap::new();
        tools::lint_baseline(self.tool_context(&nothing_read, None), &edited, &changing).await
    }

    async fn is_in_base(&self, path: &WorkspacePath) -> bool {
        !matches!(self.workspace.base_objects().read_file(path).await, Ok(None))
    }

    /// Lints the changes of a batch of calls once, and adds the findings to the result of the last call that changed
    /// anything.
    pub(in crate::run) async fn lint_changes(
        &self,
        state: &RunState,
        first: BTreeMap<String, tools::LintBaselineResult>,
        batch: &mut CallBatch,
        all: &mut [(&ToolRequested, CompletedCall)],
    ) {
        let Some(pins) = linting_pins(state) else { return };
        let changes = |done: &CompletedCall| !done.outcome.facts.changed.is_empty();
        let Some((_, last)) = all.iter_mut().rfind(|(_, done)| changes(done)) else { return };
        let started = Instant::now();
        let missing = skipped_linters(state);
        let edited = tools::LintBatch {
            linters: &pins.linters,
            files: &batch.changed_paths,
            unavailable: &missing,
            baseline: &state.lint_before,
            timeout_ms: pins.settings.lint_timeout_ms,
            list_findings: state.lint_failures < pins.settings.self_corrections_max,
        };
        let linted = tools::lint_batch(self.tool_context(&batch.read_set, None), &edited, first).await;
        // A linter may leave files behind, as any command may.
        batch.needs_full_snapshot |= !linted.seen.is_empty();
        if let Some(more) = linted.full_output {
            let whole = last.outcome.full_output.get_or_insert_with(|| last.outcome.content.clone());
            whole.extend_from_slice(more.as_bytes());
        }
        last.outcome.content.extend_from_slice(linted.text.as_bytes());
        last.outcome.facts.lint = linted.seen;
        last.duration += started.elapsed();
    }
}
