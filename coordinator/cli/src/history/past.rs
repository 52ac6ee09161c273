//! A run's past, for the commands that look at it: its turns, and the tree after each.
//!
//! Used by `checkout`, `diff`, `cat` and `blame`. Only reads. A turn that has not ended can be looked at as
//! far as it went, and whoever shows it says so.

use crate::history::lineage;
use std::{collections::BTreeSet, ffi::OsStr, fmt::Write as _, os::unix::ffi::OsStrExt as _};

use docket_schema::{
    content::WorkPath,
    event::TypedEvent as _,
    history::FoldedRun,
    ids::{RunId, TreeHash, Turn},
    run::{Hands, Overlay, RunEvent, RunState, SnapshotParts},
    snapshot::{Base, Manifest},
};
use docket_worker::{
    client::Client,
    workspace::{BaseObjects, cached_base, nearest_paths, tree_of},
};

use crate::{
    context::Context,
    history::blobs::Remote,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
};

/// A path that is not there is answered with so many that were perhaps meant.
const NEAREST_MAX: usize = 3;

/// See the module.
pub(crate) struct Past {
    /// The run.
    pub(crate) run: RunId,
    /// Its events, cut into turns.
    pub(crate) history: FoldedRun,
    /// What it started from.
    pub(crate) base: BaseObjects,
}

/// What a run was after one of its turns.
pub(crate) struct After {
    /// The turn.
    pub(crate) turn: Turn,
    /// Whether it has ended.
    pub(crate) ended: bool,
    /// The run, as far as the turn went.
    pub(crate) state: RunState,
    /// The files.
    pub(crate) tree: Manifest,
}

/// A turn's changes, the run's apart from those that a person made by hand where it ended.
pub(crate) struct Apart {
    /// The tree before the turn.
    pub(crate) before: Manifest,
    /// The tree before the turn, with what the run changed in it.
    pub(crate) own: Manifest,
    /// The tree that the person found, and what they left; none where nobody changed anything.
    pub(crate) by_hand: Option<(Manifest, Manifest)>,
    /// The paths that a person changed.
    pub(crate) hand_paths: BTreeSet<WorkPath>,
}

impl Past {
    /// Reads a run's log and its base.
    pub(crate) async fn open(cx: &Context, client: &Client, run: RunId) -> Outcome<Self> {
        let history = lineage::history(client, run).await?;
        let pins = lineage::started(&history, run)?;
        let base = cached_base(&pins.base, &Remote(client), &cx.home.folder("cache")?)
            .await
            .fail_with(Exit::Failed, || "the tree that the run started from cannot be read".to_owned())?;
        Ok(Self { run, history, base })
    }

    /// The base as it is recorded.
    pub(crate) fn base(&self) -> &Base {
        self.base.base()
    }

    /// The newest turn, ended or not.
    pub(crate) fn last(&self) -> Turn {
        self.history.turns().last().map_or(Turn(0), |span| span.turn)
    }

    /// The run after turn `asked`, or after its last one.
    pub(crate) fn after(&self, asked: Option<u32>) -> Outcome<After> {
        let turn = asked.map_or(self.last(), Turn);
        let span = self.history.turn(turn).fail_as(Exit::NotFound)?;
        let ended = span.end.is_some();
        let state = self.history.state_after(turn).fail_as(Exit::NotFound)?;
        let tree = tree_of(self.base.manifest(), &state.overlay);
        Ok(After { turn, ended, state, tree })
    }

    /// The tree before turn `asked` began: after the turn before it, or the base.
    pub(crate) fn tree_before(&self, asked: u32) -> Outcome<Manifest> {
        self.history.turn(Turn(asked)).fail_as(Exit::NotFound)?;
        match asked.checked_sub(1) {
            Some(before) => Ok(self.after(Some(before))?.tree),
            None => Ok(self.base.manifest().clone()),
        }
    }

    /// What turn `asked` changed, told apart by whose hand it was.
    pub(crate) fn apart(&self, asked: u32) -> Outcome<Apart> {
        let before = self.tree_before(asked)?;
        let mut apart = Apart { own: before.clone(), before, by_hand: None, hand_paths: BTreeSet::new() };
        let span = self.history.turn(Turn(asked)).fail_as(Exit::NotFound)?;
        let (mut hands, mut parts) = (Hands::default(), SnapshotParts::default());
        for event in &self.history.events()[span.events.clone()] {
            let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
                .fail_as(Exit::EngineMissing)?;
            let by_hand = hands.take(&typed).is_some();
            let RunEvent::SnapshotTaken(taken) = typed else { continue };
            let changes = parts.take(event.epoch, taken).into_iter().flat_map(|part| part.changes);
            let changes: Overlay = changes.map(|change| (change.path, change.entry)).collect();
            if by_hand {
                let (_, left) = apart.by_hand.get_or_insert_with(|| (apart.own.clone(), apart.own.clone()));
                *left = tree_of(left, &changes);
                apart.hand_paths.extend(changes.into_keys());
            } else {
                apart.own = tree_of(&apart.own, &changes);
            }
        }
        Ok(apart)
    }

    /// What to say of a path that is not in a tree: what became of it, or what was perhaps meant.
    pub(crate) fn not_there(&self, path: &WorkPath, after: &After) -> Failure {
        let name = path.to_string();
        let mut message = format!("`{name}` is not there after turn {}", after.turn);
        if path.parts().next() == Some(b".git") {
            message.push_str("; git's own files are no part of the tree: `docket checkout` brings them");
        } else if let Some(why) = after.state.left_out.get(path) {
            let why = serde_json::to_value(why).ok();
            let why = why.as_ref().and_then(|why| why.as_str()).unwrap_or_default().replace('_', " ");
            // Writing to a String cannot fail.
            let _ = write!(message, "; the snapshots left it out ({why})");
        } else if let Some(fate) = self.fate(path, after.turn) {
            message.push_str(&fate);
        } else {
            let near = nearest_paths(&after.tree, path, NEAREST_MAX);
            let near: Vec<String> = near.iter().map(|path| format!("`{path}`")).collect();
            match near.as_slice() {
                [] => drop(write!(message, "; `docket cat {} .` lists what is", self.run.short())),
                near => drop(write!(message, "; perhaps {}", near.join(" or "))),
            }
        }
        Failure::new(Exit::NotFound, display::line(&message))
    }

    /// When a path that is not there went, or comes.
    fn fate(&self, path: &WorkPath, turn: Turn) -> Option<String> {
        let touches = docket_worker::workspace::touches(self.history.events(), path).ok()?;
        let gone = touches.iter().rfind(|touch| touch.turn <= turn && touch.entry.is_none());
        let comes = touches.iter().find(|touch| touch.turn > turn && touch.entry.is_some());
        match (gone, comes) {
            (Some(gone), _) => Some(format!("; turn {} removed it", gone.turn)),
            (None, Some(comes)) => Some(format!("; it comes in turn {}", comes.turn)),
            (None, None) => None,
        }
    }
}

impl After {
    /// The tree's hash: the recorded one, or the base's where no snapshot was taken yet.
    pub(crate) fn hash(&self, base: &Base) -> TreeHash {
        self.state.tree.unwrap_or(base.tree)
    }

    /// What a person is told of a turn that has not ended.
    pub(crate) fn note_if_open(&self) {
        if !self.ended {
            display::note(&format!("turn {} has not ended; this is how far it went", self.turn));
        }
    }
}

/// The path that an argument names in a tree; `None` for its root. `./` before it and `/` behind it are how
/// people and shells write paths.
pub(crate) fn path_in_tree(argument: &OsStr) -> Outcome<Option<WorkPath>> {
    let mut bytes = argument.as_bytes();
    while let Some(rest) = bytes.strip_prefix(b"./") {
        bytes = rest;
    }
    if let Some(rest) = bytes.strip_suffix(b"/").filter(|rest| !rest.is_empty()) {
        bytes = rest;
    }
    // What is left of `./` itself.
    if bytes == b"." || (bytes.is_empty() && !argument.is_empty()) {
        return Ok(None);
    }
    WorkPath::new(bytes).map(Some).ok_or_else(|| {
        let shown = display::line(&argument.to_string_lossy()).into_owned();
        let what = if bytes.first() == Some(&b'/') {
            "is absolute, and a run's files are named from the root of its workspace"
        } else if bytes.split(|b| *b == b'/').any(|part| part == b"..") {
            "leads upwards, and a run's files are named from the root of its workspace"
        } else {
            "is no path in a workspace: it is empty or has empty or `.` parts"
        };
        Failure::new(Exit::Usage, format!("`{shown}` {what}; write it like src/main.rs"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_as_a_path_is_taken_and_what_leads_out_is_not() {
        let taken =
            |text: &[u8]| path_in_tree(OsStr::from_bytes(text)).map(|path| path.map(|p| p.to_string()));
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
            ("a/../b", "upwards"),
            ("..", "upwards"),
            ("", "empty"),
            ("a//b", "empty"),
        ] {
            let failure = taken(text.as_bytes()).expect_err(text);
            assert_eq!(failure.exit, Exit::Usage, "{text}");
            assert!(failure.error.to_string().contains(word), "{text}: {}", failure.error);
        }
    }
}
