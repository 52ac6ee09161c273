//! What was fetched for the panes, and by which question. Pure: the shell asks, the shelf holds.
//!
//! Invariant: what the screen shows stays; of the rest the least recently used goes once more than
//! [`BYTES_MAX`] are held.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, WorkPath},
    ids::{DecisionHash, Turn},
    snapshot::Manifest,
};
use docket_worker::workspace::FileDiff;

use super::{compare::Sameness, find::Hit};

/// Most bytes kept of what is not on the screen: enough for the outputs and trees of a few dozen turns.
pub(super) const BYTES_MAX: usize = 64 * 1024 * 1024;

/// One of the two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// The run that is stepped through.
    This,
    /// The run it is compared with.
    Other,
}

/// A tree: that of a run after so many of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// Whose.
    pub(super) side: Side,
    /// After how many events.
    pub(super) end: usize,
}

/// Something to be fetched or worked out away from the screen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Want {
    /// A blob.
    Blob(BlobRef),
    /// A whole tree.
    Tree(Place),
    /// What differs between two trees.
    Diff(Place, Place),
    /// A file in a tree.
    File(Place, WorkPath),
    /// The exact request of the `ModelRequested` at this place of the events.
    Request(Side, usize),
    /// After which turns a run of so many events can be gone on with.
    Ends(usize),
    /// How the turns of both runs, of so many events each, compare.
    Sameness(usize, usize),
    /// Where a text stands in a run of so many events.
    Hits(String, usize),
}

/// What came of a [`Want`].
#[derive(Debug, Clone)]
pub(super) enum Loaded {
    /// Of a blob or a file.
    Bytes(Bytes),
    /// Of a tree.
    Tree(Arc<Manifest>),
    /// Of a difference.
    Diff(Arc<Vec<FileDiff>>),
    /// Of a request.
    Request(Arc<Request>),
    /// Of the turns' ends: those that can be gone on from.
    Ends(Arc<Vec<Turn>>),
    /// Of a comparison, row by row of the longer run.
    Sameness(Arc<Vec<Sameness>>),
    /// Of a search.
    Hits(Arc<Vec<Hit>>),
    /// It cannot be had, and why.
    Failed(String),
}

/// A request as it went out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// Its exact bytes.
    pub(super) body: Bytes,
    /// Their hash.
    pub(super) hash: DecisionHash,
    /// The hash in the log.
    pub(super) recorded: DecisionHash,
}

impl Loaded {
    /// About how much memory it takes, in bytes.
    fn size(&self) -> usize {
        const ENTRY: usize = 160;
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Tree(tree) => tree.entries.len() * ENTRY,
            Self::Diff(files) => files
                .iter()
                .map(|file| match &file.change {
                    docket_worker::workspace::ChangeView::Text(text) => text.len() + ENTRY,
                    docket_worker::workspace::ChangeView::Binary
                    | docket_worker::workspace::ChangeView::TooLarge
                    | docket_worker::workspace::ChangeView::ModeOnly => ENTRY,
                })
                .sum(),
            Self::Request(request) => request.body.len(),
            Self::Ends(turns) => turns.len() * 4,
            Self::Sameness(rows) => rows.len(),
            Self::Hits(hits) => hits.len() * 16,
            Self::Failed(why) => why.len(),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    held: BTreeMap<Want, (Loaded, u64)>,
    bytes: usize,
    tick: u64,
}

impl Shelf {
    /// What is held for `want`.
    pub(super) fn get(&self, want: &Want) -> Option<Loaded> {
        self.held.get(want).map(|(loaded, _)| loaded.clone())
    }

    /// Whether something is held for `want`.
    pub(super) fn has(&self, want: &Want) -> bool {
        self.held.contains_key(want)
    }

    /// Notes that these are on the screen, and lets go what is too much beside them.
    pub(super) fn shown(&mut self, wants: &[Want]) {
        self.tick += 1;
        for want in wants {
            if let Some((_, used)) = self.held.get_mut(want) {
                *used = self.tick;
            }
        }
        if self.bytes <= BYTES_MAX {
            return;
        }
        let mut old: Vec<(u64, Want)> =
            self.held.iter().map(|(want, (_, used))| (*used, want.clone())).collect();
        old.sort_by_key(|(used, _)| *used);
        for (used, want) in old {
            if self.bytes <= BYTES_MAX || used == self.tick {
                break;
            }
            if let Some((loaded, _)) = self.held.remove(&want) {
                self.bytes -= loaded.size();
            }
        }
    }

    /// Holds what came.
    pub(super) fn put(&mut self, want: Want, loaded: Loaded) {
        self.bytes += loaded.size();
        if let Some((before, _)) = self.held.insert(want, (loaded, self.tick)) {
            self.bytes -= before.size();
        }
    }

    /// Lets go all that a run gave: another takes its place, or it is asked again.
    pub(super) fn forget(&mut self, side: Side) {
        let of = |place: &Place| place.side == side;
        self.held.retain(|want, (loaded, _)| {
            let goes = matches!(loaded, Loaded::Failed(_))
                || match want {
                    Want::Blob(_) => false,
                    Want::Tree(place) | Want::File(place, _) => of(place),
                    Want::Diff(from, to) => of(from) || of(to),
                    Want::Request(of, _) => *of == side,
                    Want::Ends(_) | Want::Hits(..) => side == Side::This,
                    Want::Sameness(..) => true,
                };
            if goes {
                self.bytes -= loaded.size();
            }
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(n: u8) -> Want {
        Want::Blob(BlobRef::of(&[n]))
    }

    #[test]
    fn what_is_on_the_screen_stays_and_the_oldest_goes() {
        let mut shelf = Shelf::default();
        let third = Bytes::from(vec![0; BYTES_MAX / 3]);
        for n in 0..3 {
            shelf.put(blob(n), Loaded::Bytes(third.clone()));
            shelf.shown(&[blob(n)]);
        }
        shelf.put(blob(3), Loaded::Bytes(third.clone()));
        shelf.shown(&[blob(0), blob(3)]);
        let there: Vec<bool> = (0..4).map(|n| shelf.has(&blob(n))).collect();
        assert_eq!(there, [true, false, true, true]);
        shelf.put(blob(4), Loaded::Bytes(Bytes::from(vec![0; 2 * BYTES_MAX])));
        shelf.shown(&[blob(4)]);
        assert!(shelf.has(&blob(4)) && !shelf.has(&blob(0)), "one that is too large alone is still shown");
    }
}
