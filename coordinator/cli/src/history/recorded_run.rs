//! The recorded history of a run: its turns, and the tree after each.
//!
//! Used by `checkout`, `diff`, `cat` and `blame`. Read-only. A turn that has not ended can be inspected up to
//! its last event; the caller must say so.

use crate::history::lineage;
use std::{collections::BTreeSet, ffi::OsStr, fmt::Write as _, os::unix::ffi::OsStrExt as _};

use docket_schema::{
    content::WorkspacePath,
    event::TypedEvent as _,
    history::FoldedRun,
    ids::{RunId, TreeHash, Turn},
    run::{ChangeAttribution, Overlay, RunEvent, RunState, SnapshotParts},
    snapshot::{Manifest, WorkspaceBase},
};
use docket_worker::{
    client::CoordinatorClient,
    workspace::{BaseObjects, ensure_cached_base, similar_paths, tree_with_overlay},
};

use crate::{
    context::CliContext,
    history::blobs::RemoteBlobs,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Maximum number of similar paths suggested for a missing path.
const NEAREST_MAX: usize = 3;

/// A run's recorded history and base.
pub(crate) struct RecordedRun {
    pub(crate) run: RunId,
    /// Its events, split into turns.
    pub(crate) history: FoldedRun,
    /// What it started from.
    pub(crate) base: BaseObjects,
}

/// The state of a run after one of its turns.
pub(crate) struct RunAtTurn {
    pub(crate) turn: Turn,
    /// Whether it has ended.
    pub(crate) ended: bool,
    /// The run's state at the end of the turn, or as far as the turn has progressed.
    pub(crate) state: RunState,
    /// The files.
    pub(crate) tree: Manifest,
}

/// A turn's changes, with those of the run separated from manual changes made at the end of the turn.
pub(crate) struct AttributedChanges {
    /// The tree before the turn.
    pub(crate) before: Manifest,
    /// The tree before the turn plus the run's changes.
    pub(crate) run_tree: Manifest,
    /// The trees before and after the manual changes; `None` if there are none.
    pub(crate) manual_trees: Option<(Manifest, Manifest)>,
    /// The paths changed manually.
    pub(crate) manual_paths: BTreeSet<WorkspacePath>,
}

impl RecordedRun {
    /// Reads a run's log and its base.
    pub(crate) async fn open(cx: &CliContext, client: &CoordinatorClient, run: RunId) -> CliResult<Self> {
        let history = lineage::read_folded_run(client, run).await?;
        let pins = lineage::started_config(&history, run)?;
        let base = ensure_cached_base(&pins.base, &RemoteBlobs(client), &cx.home.ensure_folder("cache")?)
            .await
            .fail_with(ExitKind::Failed, || "cannot read the tree that the run started from".to_owned())?;
        Ok(Self { run, history, base })
    }

    /// The recorded base.
    pub(crate) fn base(&self) -> &WorkspaceBase {
        self.base.base()
    }

    /// The newest turn, ended or not.
    pub(crate) fn last_turn(&self) -> Turn {
        self.history.turns().last().map_or(Turn(0), |span| span.turn)
    }

    /// Returns the run after turn `asked`, or after its last turn.
    pub(crate) fn at_turn(&self, asked: Option<u32>) -> CliResult<RunAtTurn> {
        let turn = asked.map_or(self.last_turn(), Turn);
        let span = self.history.turn(turn).fail_as(ExitKind::NotFound)?;
        let ended = span.end.is_some();
        let state = self.history.state_after(turn).fail_as(ExitKind::NotFound)?;
        let tree = tree_with_overlay(self.base.manifest(), &state.overlay);
        Ok(RunAtTurn { turn, ended, state, tree })
    }

    /// Returns the tree before turn `asked`: the tree after the previous turn, or the base.
    pub(crate) fn tree_before(&self, asked: u32) -> CliResult<Manifest> {
        self.history.turn(Turn(asked)).fail_as(ExitKind::NotFound)?;
        match asked.checked_sub(1) {
            Some(before) => Ok(self.at_turn(Some(before))?.tree),
            None => Ok(self.base.manifest().clone()),
        }
    }

    /// Returns the changes of turn `asked`, attributed to the run or a person.
    pub(crate) fn attribute_changes(&self, asked: u32) -> CliResult<AttributedChanges> {
        let before = self.tree_before(asked)?;
        let mut apart = AttributedChanges {
            run_tree: before.clone(),
            before,
            manual_trees: None,
            manual_paths: BTreeSet::new(),
        };
        let span = self.history.turn(Turn(asked)).fail_as(ExitKind::NotFound)?;
        let (mut hands, mut parts) = (ChangeAttribution::default(), SnapshotParts::default());
        for event in &self.history.events()[span.events.clone()] {
            let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
                .fail_as(ExitKind::EngineMissing)?;
            let by_hand = hands.attribute_event(&typed).is_some();
            let RunEvent::SnapshotTaken(taken) = typed else { continue };
            let changes = parts.push_part(event.epoch, taken).into_iter().flat_map(|part| part.changes);
            let changes: Overlay = changes.map(|change| (change.path, change.entry)).collect();
            if by_hand {
                let (_, left) = apart
                    .manual_trees
                    .get_or_insert_with(|| (apart.run_tree.clone(), apart.run_tree.clone()));
                *left = tree_with_overlay(left, &changes);
                apart.manual_paths.extend(changes.into_keys());
            } else {
                apart.run_tree = tree_with_overlay(&apart.run_tree, &changes);
            }
        }
        Ok(apart)
    }

    /// Builds the error for a path that is not in a tree, with its history or similar paths.
    pub(crate) fn path_missing_error(&self, path: &WorkspacePath, after: &RunAtTurn) -> CliError {
        let name = path.to_string();
        let mut message = format!("`{name}` does not exist after turn {}", after.turn);
        if path.components().next() == Some(b".git") {
            message.push_str("; git's own files are not part of the tree: use `docket checkout`");
        } else if let Some(why) = after.state.left_out.get(path) {
            let why = serde_json::to_value(why).ok();
            let why = why.as_ref().and_then(|why| why.as_str()).unwrap_or_default().replace('_', " ");
            // Writing to a String cannot fail.
            let _ = write!(message, "; it is not in the snapshots ({why})");
        } else if let Some(fate) = self.describe_path_fate(path, after.turn) {
            message.push_str(&fate);
        } else {
            let near = similar_paths(&after.tree, path, NEAREST_MAX);
            let near: Vec<String> = near.iter().map(|path| format!("`{path}`")).collect();
            match near.as_slice() {
                [] => drop(write!(message, "; `docket cat {} .` lists the files", self.run.short())),
                near => drop(write!(message, "; did you mean {}?", near.join(" or "))),
            }
        }
        CliError::new(ExitKind::NotFound, display::sanitize_line(&message))
    }

    /// Says when a missing path was removed or will be created.
    fn describe_path_fate(&self, path: &WorkspacePath, turn: Turn) -> Option<String> {
        let touches = docket_worker::workspace::path_changes(self.history.events(), path).ok()?;
        let gone = touches.iter().rfind(|touch| touch.turn <= turn && touch.entry.is_none());
        let comes = touches.iter().find(|touch| touch.turn > turn && touch.entry.is_some());
        match (gone, comes) {
            (Some(gone), _) => Some(format!("; turn {} removed it", gone.turn)),
            (None, Some(comes)) => Some(format!("; turn {} creates it", comes.turn)),
            (None, None) => None,
        }
    }
}

impl RunAtTurn {
    /// The hash of the tree: the recorded one, or the base's if no snapshot was taken yet.
    pub(crate) fn tree_hash(&self, base: &WorkspaceBase) -> TreeHash {
        self.state.tree.unwrap_or(base.tree)
    }

    /// Prints a note if the turn has not ended.
    pub(crate) fn note_if_open(&self) {
        if !self.ended {
            display::print_note(&format!("turn {} has not ended; this is its current state", self.turn));
        }
    }
}

/// Parses an argument as a path in a tree; `None` = the root. Accepts a leading `./` and a trailing `/`, as
/// people and shells write paths.
pub(crate) fn parse_tree_path(argument: &OsStr) -> CliResult<Option<WorkspacePath>> {
    let mut bytes = argument.as_bytes();
    while let Some(rest) = bytes.strip_prefix(b"./") {
        bytes = rest;
    }
    if let Some(rest) = bytes.strip_suffix(b"/").filter(|rest| !rest.is_empty()) {
        bytes = rest;
    }
    // The remainder of `./` itself.
    if bytes == b"." || (bytes.is_empty() && !argument.is_empty()) {
        return Ok(None);
    }
    WorkspacePath::new(bytes).map(Some).ok_or_else(|| {
        let shown = display::sanitize_line(&argument.to_string_lossy()).into_owned();
        let what = if bytes.first() == Some(&b'/') {
            "is absolute; a run's files are relative to the root of its workspace"
        } else if bytes.split(|b| *b == b'/').any(|part| part == b"..") {
            "leaves the workspace; a run's files are relative to its root"
        } else {
            "is not a path in a workspace: it is empty or has empty or `.` parts"
        };
        CliError::new(ExitKind::Usage, format!("`{shown}` {what}; write it like src/main.rs"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_paths_are_normalized_and_paths_outside_are_rejected() {
        let taken =
            |text: &[u8]| parse_tree_path(OsStr::from_bytes(text)).map(|path| path.map(|p| p.to_string()));
        for (text, path) in [
            ("a/b", Some("a/b")),
            ("./a", Some("a")),
            ("././a/", Some("a")),
            ("a/", Some("a")),
            (".", None),
            ("./", None),
            ("..a", Some("..a")),
        ] {
            assert_eq!(taken(text.as_bytes()).ok(), Some(path.map(str::to_owned)), "{text}");
        }
        assert_eq!(taken(b"caf\xe9").ok(), Some(Some("caf\u{fffd}".to_owned())));
        for (text, word) in [
            ("/etc/passwd", "absolute"),
            ("a/../b", "leaves the workspace"),
            ("..", "leaves the workspace"),
            ("", "empty"),
            ("a//b", "empty"),
        ] {
            let failure = taken(text.as_bytes()).expect_err(text);
            assert_eq!(failure.exit, ExitKind::Usage, "{text}");
            assert!(failure.error.to_string().contains(word), "{text}: {}", failure.error);
        }
    }
}
