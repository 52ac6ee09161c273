//! Enforces a role's write scope, and protects files that no result can contain (those of submodules), for commands
//! as well. A file tool that would write such a file is refused before it runs; what a command writes is known only
//! afterwards, so it is reverted and the call's result says so.
//!
//! Called between a call and the rest of its batch, so that nothing is tested that is missing in the end. A crash in
//! between does no harm: the call has no result yet, and runs again on the last snapshot.

use std::collections::BTreeSet;

use docket_schema::{
    content::WorkspacePath,
    run::{RunState, ToolRequested, WriteScope},
};

use super::{call_batch::CompletedCall, tool_executor::ToolExecutor};
use crate::{
    engine::current_role,
    tools,
    workspace::{BlobReader, RevertOutcome, SnapshotDelta, SnapshotError, revert_disallowed_changes},
};

/// Paths named in a result and its facts: a command may change any number.
const PATHS_NAMED_MAX: usize = 20;

impl ToolExecutor {
    /// Reverts changes of a call that its role may not make or that no result can contain; the remaining changes are
    /// the snapshot.
    pub(in crate::run) async fn enforce_write_scope<S: BlobReader>(
        &mut self,
        state: &RunState,
        open: &ToolRequested,
        done: &mut CompletedCall,
        blobs: &S,
    ) -> Result<Option<SnapshotDelta>, SnapshotError> {
        let role = state.pins.as_deref().and_then(|pins| current_role(state, pins));
        let scope = role.filter(|_| !open.call.is_runtime()).map_or(WriteScope::Any, |role| role.writes);
        let in_scope: fn(&WorkspacePath) -> bool = match scope {
            WriteScope::Any => |_| true,
            WriteScope::Tests => tools::is_test_path,
        };
        let has_submodules = self.workspace.base_objects().has_submodules();
        if !done.outcome.facts.may_have_changed_tree || (scope == WriteScope::Any && !has_submodules) {
            return Ok(None);
        }
        let modules: BTreeSet<WorkspacePath> = self.workspace.base_objects().submodule_paths().collect();
        let may_change =
            |path: &WorkspacePath| in_scope(path) && containing_submodule(&modules, path).is_none();
        let RevertOutcome { delta, reverted_paths: paths } =
            revert_disallowed_changes(&mut self.workspace, may_change, blobs).await?;
        let (in_modules, others): (Vec<WorkspacePath>, Vec<WorkspacePath>) =
            paths.iter().cloned().partition(|path| containing_submodule(&modules, path).is_some());
        let name = role.map_or("", |role| role.name.as_str());
        for (paths, text) in [(others, scope_violation_text(name)), (in_modules, SUBMODULE_TEXT.to_owned())] {
            if !paths.is_empty() {
                let text = format!("\n[{text} Put back: {}.]\n", format_paths(&paths));
                done.outcome.content.extend_from_slice(text.as_bytes());
            }
        }
        done.outcome.facts.put_back = paths.into_iter().take(PATHS_NAMED_MAX).collect();
        Ok(Some(delta))
    }
}

/// Returns the submodule that a path is, or lies in.
fn containing_submodule<'a>(
    modules: &'a BTreeSet<WorkspacePath>,
    path: &WorkspacePath,
) -> Option<&'a WorkspacePath> {
    let is_below = |module: &&WorkspacePath| {
        path.as_bytes().strip_prefix(module.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    };
    modules.iter().find(is_below)
}

/// Why files of a submodule were reverted, for the model.
const SUBMODULE_TEXT: &str = "Submodules are other repositories, of which the result of this task holds only the commit in use. What \
    this command changed in one cannot be part of the result; say in your answer what should change there.";

/// Why files outside its scope were reverted, for a role.
fn scope_violation_text(role: &str) -> String {
    format!(
        "The role `{role}` writes tests only, by commands as well. What is wrong in other files is not yours to fix: say it \
         in your answer."
    )
}

fn format_paths(paths: &[WorkspacePath]) -> String {
    let named: Vec<String> = paths.iter().take(PATHS_NAMED_MAX).map(|path| format!("`{path}`")).collect();
    let more = match paths.len().saturating_sub(PATHS_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}
