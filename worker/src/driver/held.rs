//! What a role may write, held of its commands as well. A file tool that would write something else is refused before it
//! runs; what a command writes is known only afterwards: it is put back, and the call's result says so.
//!
//! Called between a call and whatever follows it in its batch, so that nothing is tested that is not there in the end. A
//! crash on the way is none: the call has no result yet, and runs again on the last snapshot.

use docket_schema::{
    content::WorkPath,
    run::{RunState, ToolRequested, WriteScope},
};

use super::workbench::{Batch, Done, Workbench};
use crate::{
    engine::role_of,
    tools,
    workspace::{Blobs, PutBack, SnapshotDelta, SnapshotError, put_back},
};

/// Paths that are named in a result and in its facts: a command may change any number.
const NAMED_MAX: usize = 20;

impl Workbench {
    /// Puts back what a call changed that its role may not change; what it changed otherwise is the snapshot.
    pub(super) async fn hold<S: Blobs>(
        &mut self,
        state: &RunState,
        open: &ToolRequested,
        done: &mut Done,
        blobs: &S,
    ) -> Result<Option<SnapshotDelta>, SnapshotError> {
        let role = state.pins.as_deref().and_then(|pins| role_of(state, pins));
        let scope = role.filter(|_| !open.call.is_own()).map_or(WriteScope::Any, |role| role.writes);
        let may_change: fn(&WorkPath) -> bool = match scope {
            WriteScope::Any => return Ok(None),
            WriteScope::Tests => tools::is_of_tests,
        };
        if !done.outcome.facts.may_have_changed_tree {
            return Ok(None);
        }
        let PutBack { delta, paths } = put_back(&mut self.workspace, may_change, blobs).await?;
        if !paths.is_empty() {
            let name = role.map_or("", |role| role.name.as_str());
            done.outcome.content.extend_from_slice(words(name, &paths).as_bytes());
            done.outcome.facts.put_back = paths.into_iter().take(NAMED_MAX).collect();
        }
        Ok(Some(delta))
    }
}

impl Batch {
    /// Notes what a snapshot within the batch has seen.
    pub(super) fn hold(&mut self, delta: Option<SnapshotDelta>) {
        self.held = delta.map(|delta| self.with_held(delta)).or(self.held.take());
    }

    /// What came before in the batch, and this.
    pub(super) fn with_held(&mut self, delta: SnapshotDelta) -> SnapshotDelta {
        match self.held.take() {
            Some(held) => held.followed_by(delta),
            None => delta,
        }
    }
}

/// What the role reads of it.
fn words(role: &str, paths: &[WorkPath]) -> String {
    let named: Vec<String> = paths.iter().take(NAMED_MAX).map(|path| format!("`{path}`")).collect();
    let more = match paths.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "\n[The role `{role}` writes tests only, by commands as well. What this one changed beside them was put back: {}{more}. \
         What is wrong there is not yours to mend: say it in your answer.]\n",
        named.join(", ")
    )
}
