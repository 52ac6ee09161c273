//! Events waiting to be appended, with the blobs they name. Splits a snapshot of any size into events that fit.

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    ids::Turn,
    run::{RunEvent, SnapshotTaken},
    snapshot::{OmittedPath, PathChange},
};

use crate::workspace::{PendingBlobs, SnapshotDelta};

/// Paths of one `SnapshotTaken`, in bytes of JSON: with its other fields, well below the payload limit.
const SNAPSHOT_PATHS_BYTES_MAX: usize = 192 * 1024;

/// Snapshot parts in one append: with its events, it stays well below the API's body limit.
pub(in crate::run) const PARTS_PER_APPEND_MAX: usize = 64;

/// Events to append, with the blobs they name.
#[derive(Debug, Clone, Default)]
pub struct PendingAppend {
    /// Snapshot parts appended separately before the events; none counts without the last.
    pub(in crate::run) leading_parts: Vec<(Turn, RunEvent)>,
    pub(in crate::run) events: Vec<(Turn, RunEvent)>,
    /// Cheap to clone: after a seq conflict they are sent again.
    pub(in crate::run) blobs: Vec<(BlobRef, Bytes)>,
}

impl PendingAppend {
    /// Adds an event of `turn`.
    pub fn push(&mut self, turn: Turn, event: impl Into<RunEvent>) {
        self.events.push((turn, event.into()));
    }

    /// Adds a blob that an event names.
    pub fn push_blob(&mut self, blob: BlobRef, bytes: Vec<u8>) {
        self.blobs.push((blob, bytes.into()));
    }

    /// Adds the events and blobs of `more`.
    pub(in crate::run) fn append_all(&mut self, more: Self) {
        self.leading_parts.extend(more.leading_parts);
        self.events.extend(more.events);
        self.blobs.extend(more.blobs);
    }

    /// Returns the events in order, each with its turn, without the leading parts.
    pub fn events(&self) -> &[(Turn, RunEvent)] {
        &self.events
    }

    /// Returns the events alone.
    pub fn into_events(self) -> Vec<(Turn, RunEvent)> {
        [self.leading_parts, self.events].concat()
    }

    /// Returns the bytes of a blob that an event names, if they are included.
    pub fn find_blob(&self, blob: &BlobRef) -> Option<&[u8]> {
        self.blobs.iter().find(|(of, _)| of == blob).map(|(_, bytes)| bytes.as_ref())
    }

    /// Adds a snapshot with its contents. If it has more paths than an event can hold, it becomes several parts,
    /// which count as one once the last part is recorded; parts that do not fit in one append are sent ahead.
    pub fn push_snapshot(&mut self, turn: Turn, delta: SnapshotDelta) {
        let (mut parts, blobs) = split_snapshot(delta);
        let last = parts.pop();
        let rest = parts.into_iter().map(|part| (turn, part.into()));
        if rest.len() < PARTS_PER_APPEND_MAX {
            self.events.extend(rest);
        } else {
            self.leading_parts.extend(rest);
        }
        last.into_iter().for_each(|last| self.push(turn, last));
        self.blobs.extend(blobs.into_vec().into_iter().map(|(blob, bytes)| (blob, bytes.into())));
    }

    /// Whether there is nothing to append.
    pub const fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the total size of its blobs in bytes.
    pub(in crate::run) fn blob_bytes(&self) -> usize {
        self.blobs.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// Splits a snapshot into events that fit, at least one, and returns them with the contents they name. Each part but
/// the last says that more follows, and none counts without the last.
pub(in crate::run) fn split_snapshot(delta: SnapshotDelta) -> (Vec<SnapshotTaken>, PendingBlobs) {
    let SnapshotDelta { changes, git_changes, tree, left_out, blobs, .. } = delta;
    let empty = || SnapshotTaken { changes: vec![], git_changes: vec![], tree, left_out: vec![], more: true };
    let (mut parts, mut part, mut bytes) = (Vec::new(), empty(), 0);
    let paths = changes.into_iter().map(SnapshotPath::Work);
    let paths = paths.chain(git_changes.into_iter().map(SnapshotPath::Git));
    for path in paths.chain(left_out.into_iter().map(SnapshotPath::LeftOut)) {
        let more = path.json_bytes();
        if bytes > 0 && bytes + more > SNAPSHOT_PATHS_BYTES_MAX {
            parts.push(std::mem::replace(&mut part, empty()));
            bytes = 0;
        }
        bytes += more;
        match path {
            SnapshotPath::Work(change) => part.changes.push(change),
            SnapshotPath::Git(change) => part.git_changes.push(change),
            SnapshotPath::LeftOut(left) => part.left_out.push(left),
        }
    }
    parts.push(SnapshotTaken { more: false, ..part });
    (parts, blobs)
}

/// A path of a snapshot.
enum SnapshotPath {
    Work(PathChange),
    Git(PathChange),
    LeftOut(OmittedPath),
}

impl SnapshotPath {
    fn json_bytes(&self) -> usize {
        let json = match self {
            Self::Work(change) | Self::Git(change) => serde_json::to_vec(change),
            Self::LeftOut(left) => serde_json::to_vec(left),
        };
        json.expect("plain data with string keys").len() + 1
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        content::WorkspacePath,
        event::{PAYLOAD_BYTES_MAX, TypedEvent as _},
        ids::{BlobHash, TreeHash},
        snapshot::{Entry, EntryKind, OmissionReason},
    };

    use super::*;

    fn sample_change(n: usize) -> PathChange {
        let path = WorkspacePath::new(format!("build/\u{1}some/rather/deep/folder/object-{n}.o")).unwrap();
        let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 1 << 20, hash: BlobHash([7; 32]) };
        PathChange { path, entry: Some(entry) }
    }

    #[test]
    fn a_snapshot_of_any_size_fits_into_events_and_loses_no_path() {
        let changes: Vec<PathChange> = (0..9000).map(sample_change).collect();
        let git_changes: Vec<PathChange> = (9000..12_000).map(sample_change).collect();
        let left_out: Vec<OmittedPath> = (0..1000)
            .map(|n| OmittedPath {
                path: WorkspacePath::new(vec![0xff; 200 + n]).unwrap(),
                why: OmissionReason::Ignored,
            })
            .collect();
        let tree = TreeHash([3; 32]);
        let mut out = PendingAppend::default();
        let delta = SnapshotDelta {
            changes: changes.clone(),
            git_changes: git_changes.clone(),
            tree,
            left_out: left_out.clone(),
            blobs: PendingBlobs::default(),
            files_read: 0,
        };
        out.push_snapshot(Turn(4), delta);

        assert!(out.events.len() > 1 && out.leading_parts.is_empty(), "{}", out.events.len());
        let (mut work, mut git, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let last = out.events.len() - 1;
        for (nth, (turn, event)) in out.events.into_iter().enumerate() {
            let size = event.encode(turn).payload.as_str().len();
            assert!(size <= PAYLOAD_BYTES_MAX, "{size}");
            let RunEvent::SnapshotTaken(taken) = event else { panic!("{event:?}") };
            assert_eq!((turn, taken.tree, taken.more), (Turn(4), tree, nth < last));
            work.extend(taken.changes);
            git.extend(taken.git_changes);
            left.extend(taken.left_out);
        }
        assert!(work == changes && git == git_changes && left == left_out);
    }

    #[test]
    fn excess_snapshot_parts_are_appended_first() {
        let delta = SnapshotDelta {
            changes: (0..70_000).map(sample_change).collect(),
            git_changes: Vec::new(),
            tree: TreeHash([3; 32]),
            left_out: Vec::new(),
            blobs: PendingBlobs::default(),
            files_read: 0,
        };
        let mut out = PendingAppend::default();
        out.push_snapshot(Turn(1), delta);
        let taken = |(_, event): &(Turn, RunEvent)| match event {
            RunEvent::SnapshotTaken(taken) => (taken.changes.len(), taken.more),
            other => panic!("{other:?}"),
        };
        let ahead: Vec<(usize, bool)> = out.leading_parts.iter().map(taken).collect();
        let last: Vec<(usize, bool)> = out.events.iter().map(taken).collect();
        assert!(ahead.len() >= PARTS_PER_APPEND_MAX && ahead.iter().all(|(_, more)| *more));
        assert!(matches!(last[..], [(1.., false)]), "{last:?}");
        assert_eq!(ahead.iter().chain(&last).map(|(paths, _)| paths).sum::<usize>(), 70_000);
    }

    #[test]
    fn a_snapshot_of_few_paths_is_one_event() {
        let mut out = PendingAppend::default();
        let delta = SnapshotDelta {
            changes: vec![sample_change(1), sample_change(2)],
            git_changes: Vec::new(),
            tree: TreeHash([3; 32]),
            left_out: Vec::new(),
            blobs: PendingBlobs::default(),
            files_read: 0,
        };
        out.push_snapshot(Turn(1), delta);
        assert_eq!(out.events.len(), 1);
    }
}
