//! What a role may write, and what no result can hold (files of submodules), enforced for commands as well. A file tool
//! that would write something else is refused before it runs; what a command writes is known only afterwards: it is put
//! back, and the call's result says so.
//!
//! Called between a call and whatever follows it in its batch, so that nothing is tested that is not there in the end. A
//! crash on the way is none: the call has no result yet, and runs again on the last snapshot.

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

/// Paths that are named in a result and in its facts: a command may change any number.
const PATHS_NAMED_MAX: usize = 20;

impl ToolExecutor {
    /// Puts back what a call changed that its role may not change, or that no result can hold; what it changed
    /// otherwise is the snapshot.
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

/// The submodule that a path is, or lies in.
fn containing_submodule<'a>(
    modules: &'a BTreeSet<WorkspacePath>,
    path: &WorkspacePath,
) -> Option<&'a WorkspacePath> {
    let is_below = |module: &&WorkspacePath| {
        path.as_bytes().strip_prefix(module.as_bytes()).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    };
    modules.iter().find(is_below)
}

/// Why files of a submodule were put back, for the model.
const SUBMODULE_TEXT: &str = "Submodules are other repositories, of which the result of this task holds only the commit in use. What \
    this command changed in one cannot be part of the result; say in your answer what should change there.";

/// Why files beyond its scope were put back, for a role.
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
