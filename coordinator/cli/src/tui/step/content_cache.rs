//! Cache of content fetched for the panes, by request. Pure: the stepper fetches, the cache stores.
//!
//! Invariant: content on the screen is kept; of the rest, the least recently used is evicted above
//! [`CACHE_BYTES_MAX`].

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, WorkspacePath},
    ids::{DecisionHash, Turn},
    snapshot::Manifest,
};
use docket_worker::workspace::FileDiff;

use super::{comparison::TurnComparison, search::SearchHit};

/// Limit of cached content that is not on the screen: enough for the outputs and trees of a few dozen turns.
pub(super) const CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One of the two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunSide {
    /// The run being browsed.
    This,
    /// The run it is compared with.
    Other,
}

/// A tree: that of a run after a number of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TreePosition {
    /// Which run.
    pub(super) side: RunSide,
    /// After how many events.
    pub(super) end: usize,
}

/// Content to be fetched or computed in the background.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ContentRequest {
    Blob(BlobRef),
    /// A full tree.
    Tree(TreePosition),
    /// The differences between two trees.
    Diff(TreePosition, TreePosition),
    /// A file in a tree.
    File(TreePosition, WorkspacePath),
    /// The exact request of the `ModelRequested` event at this index.
    Request(RunSide, usize),
    /// The turns after which a run with this number of events can be continued.
    TurnEnds(usize),
    /// How the turns of both runs compare, given their numbers of events.
    Comparison(usize, usize),
    /// Where a text occurs in a run with this number of events.
    SearchHits(String, usize),
}

/// The result of a [`ContentRequest`].
#[derive(Debug, Clone)]
pub(super) enum LoadedContent {
    /// A blob or a file.
    Bytes(Bytes),
    Tree(Arc<Manifest>),
    Diff(Arc<Vec<FileDiff>>),
    Request(Arc<RebuiltRequest>),
    /// The turns that can be continued.
    TurnEnds(Arc<Vec<Turn>>),
    /// A comparison, row by row of the longer run.
    Comparison(Arc<Vec<TurnComparison>>),
    SearchHits(Arc<Vec<SearchHit>>),
    /// It failed, and why.
    Failed(String),
}

/// A request as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RebuiltRequest {
    /// Its exact bytes.
    pub(super) body: Bytes,
    /// Their hash.
    pub(super) hash: DecisionHash,
    /// The hash in the log.
    pub(super) recorded: DecisionHash,
}

impl LoadedContent {
    /// Approximate memory use in bytes.
    fn byte_size(&self) -> usize {
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
            Self::TurnEnds(turns) => turns.len() * 4,
            Self::Comparison(rows) => rows.len(),
            Self::SearchHits(hits) => hits.len() * 16,
            Self::Failed(why) => why.len(),
        }
    }
}

/// The cache.
#[derive(Debug, Default)]
pub(super) struct ContentCache {
    entries: BTreeMap<ContentRequest, (LoadedContent, u64)>,
    bytes: usize,
    tick: u64,
}

impl ContentCache {
    pub(super) fn get(&self, want: &ContentRequest) -> Option<LoadedContent> {
        self.entries.get(want).map(|(loaded, _)| loaded.clone())
    }

    pub(super) fn contains(&self, want: &ContentRequest) -> bool {
        self.entries.contains_key(want)
    }

    /// Marks these as on the screen, and evicts other content above the limit.
    pub(super) fn mark_used_and_evict(&mut self, wants: &[ContentRequest]) {
        self.tick += 1;
        for want in wants {
            if let Some((_, used)) = self.entries.get_mut(want) {
                *used = self.tick;
            }
        }
        if self.bytes <= CACHE_BYTES_MAX {
            return;
        }
        let mut old: Vec<(u64, ContentRequest)> =
            self.entries.iter().map(|(want, (_, used))| (*used, want.clone())).collect();
        old.sort_by_key(|(used, _)| *used);
        for (used, want) in old {
            if self.bytes <= CACHE_BYTES_MAX || used == self.tick {
                break;
            }
            if let Some((loaded, _)) = self.entries.remove(&want) {
                self.bytes -= loaded.byte_size();
            }
        }
    }

    pub(super) fn insert(&mut self, want: ContentRequest, loaded: LoadedContent) {
        self.bytes += loaded.byte_size();
        if let Some((before, _)) = self.entries.insert(want, (loaded, self.tick)) {
            self.bytes -= before.byte_size();
        }
    }

    /// Removes all content of a run that is replaced or reloaded.
    pub(super) fn remove_side(&mut self, side: RunSide) {
        let of = |place: &TreePosition| place.side == side;
        self.entries.retain(|want, (loaded, _)| {
            let goes = matches!(loaded, LoadedContent::Failed(_))
                || match want {
                    ContentRequest::Blob(_) => false,
                    ContentRequest::Tree(place) | ContentRequest::File(place, _) => of(place),
                    ContentRequest::Diff(from, to) => of(from) || of(to),
                    ContentRequest::Request(of, _) => *of == side,
                    ContentRequest::TurnEnds(_) | ContentRequest::SearchHits(..) => side == RunSide::This,
                    ContentRequest::Comparison(..) => true,
                };
            if goes {
                self.bytes -= loaded.byte_size();
            }
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob_request(n: u8) -> ContentRequest {
        ContentRequest::Blob(BlobRef::for_bytes(&[n]))
    }

    #[test]
    fn visible_content_stays_and_least_recently_used_is_evicted() {
        let mut shelf = ContentCache::default();
        let third = Bytes::from(vec![0; CACHE_BYTES_MAX / 3]);
        for n in 0..3 {
            shelf.insert(blob_request(n), LoadedContent::Bytes(third.clone()));
            shelf.mark_used_and_evict(&[blob_request(n)]);
        }
        shelf.insert(blob_request(3), LoadedContent::Bytes(third.clone()));
        shelf.mark_used_and_evict(&[blob_request(0), blob_request(3)]);
        let there: Vec<bool> = (0..4).map(|n| shelf.contains(&blob_request(n))).collect();
        assert_eq!(there, [true, false, true, true]);
        shelf.insert(blob_request(4), LoadedContent::Bytes(Bytes::from(vec![0; 2 * CACHE_BYTES_MAX])));
        shelf.mark_used_and_evict(&[blob_request(4)]);
        assert!(
            shelf.contains(&blob_request(4)) && !shelf.contains(&blob_request(0)),
            "content that alone exceeds the limit is still shown"
        );
    }
}
