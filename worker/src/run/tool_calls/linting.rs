//! The linters of a batch of edits: what they find in a file before the run changes it for the first time, and what
//! they find behind each batch. Called by the workbench.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use docket_schema::{
    content::WorkPath,
    message::ToolUse,
    run::{RunStarted, RunState, ToolRequested, Verdict},
};

use super::{
    batch::{Batch, Done},
    workbench::Workbench,
};
use crate::tools;

/// Batches of edits after which a linter that never ends in time is no longer waited for.
const LINT_TIMEOUTS_MAX: u32 = 3;

/// The run's settings, where its edits are linted.
fn pins(state: &RunState) -> Option<&RunStarted> {
    state.pins.as_deref().filter(|pins| pins.settings.auto_lint && !pins.linters.is_empty())
}

/// Linters that are not installed, or never end in time.
fn done_without(state: &RunState) -> BTreeSet<String> {
    let slow = state.lint_timeouts.iter().filter(|(_, times)| **times >= LINT_TIMEOUTS_MAX);
    state.linters_missing.iter().chain(slow.map(|(name, _)| name)).cloned().collect()
}

/// The file that a call is about.
fn named(tool: &ToolUse) -> Option<WorkPath> {
    tool.args.get("path").and_then(serde_json::Value::as_str).and_then(path_in)
}

fn path_in(path: &str) -> Option<WorkPath> {
    WorkPath::new(path.trim_start_matches("./"))
}

impl Workbench {
    /// What linters find in the files that the open calls are about to edit, as far as the run never did before.
    pub(in crate::run) async fn lint_before(&self, state: &RunState) -> BTreeMap<String, tools::Before> {
        let Some(pins) = pins(state) else { return BTreeMap::new() };
        let mut files = BTreeSet::new();
        let changed = state.overlay.iter().filter(|(_, entry)| entry.is_some());
        let changed = changed.map(|(path, _)| path.clone()).collect();
        let mut changing = tools::Changing { changed, ..tools::Changing::default() };
        let allowed = |open: &ToolRequested| matches!(open.policy, Verdict::Allow { .. });
        for (_, tool) in state.open_tools.iter().filter(|(open, _)| allowed(open)) {
            let path = named(tool);
            match tool.name.as_str() {
                "edit_file" | "append_file" => files.extend(path),
                "create_file" => changing.making.extend(path),
                "write_file" => match path.filter(|path| !self.root.exists(path.to_string())) {
                    Some(path) => changing.making.push(path),
                    None => files.extend(named(tool)),
                },
                "copy_file" | "move_file" => changing
                    .making
                    .extend(tool.args.get("to").and_then(serde_json::Value::as_str).and_then(path_in)),
                _ => {}
            }
        }
        let mut there = Vec::new();
        for path in files {
            // In a file of the run's own all is new.
            match state.overlay.contains_key(&path) {
                true if !self.in_base(&path).await => changing.made.push(path),
                _ => there.push(path),
            }
        }
        let missing = done_without(state);
        let edited = tools::Edited {
            linters: &pins.linters,
            files: &there,
            missing: &missing,
            before: &state.lint_before,
            timeout_ms: pins.settings.lint_timeout_ms,
            listed: true,
        };
        let nothing_read = BTreeMap::new();
        tools::lint_before(self.context(&nothing_read, None), &edited, &changing).await
    }

    async fn in_base(&self, path: &WorkPath) -> bool {
        !matches!(self.workspace.base_objects().file(path).await, Ok(None))
    }

    /// Runs the linters of what a batch of calls changed, once, and says what they found in the result of
    /// the last call that changed anything.
    pub(in crate::run) async fn lint(
        &self,
        state: &RunState,
        first: BTreeMap<String, tools::Before>,
        batch: &mut Batch,
        all: &mut [(&ToolRequested, Done)],
    ) {
        let Some(pins) = pins(state) else { return };
        let changes = |done: &Done| !done.outcome.facts.changed.is_empty();
        let Some((_, last)) = all.iter_mut().rfind(|(_, done)| changes(done)) else { return };
        let started = Instant::now();
        let missing = done_without(state);
        let edited = tools::Edited {
            linters: &pins.linters,
            files: &batch.changed,
            missing: &missing,
            before: &state.lint_before,
            timeout_ms: pins.settings.lint_timeout_ms,
            listed: state.lint_failures < pins.settings.self_corrections_max,
        };
        let linted = tools::lint(self.context(&batch.read_set, None), &edited, first).await;
        // A linter may leave files behind, as any command may.
        batch.walk |= !linted.seen.is_empty();
        if let Some(more) = linted.full {
            let whole = last.outcome.full.get_or_insert_with(|| last.outcome.content.clone());
            whole.extend_from_slice(more.as_bytes());
        }
        last.outcome.content.extend_from_slice(linted.text.as_bytes());
        last.outcome.facts.lint = linted.seen;
        last.duration += started.elapsed();
    }
}
