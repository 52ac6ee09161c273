//! Blobs that a batch stores or references.

use docket_schema::ids::BlobHash;

use crate::store::{blobs::PackedBlob, writer::WorkingSet};

/// Stages the blobs of a successful request; existing ones are touched by the same statement.
pub(super) fn stage_blobs(set: &mut WorkingSet, blobs: &[PackedBlob]) {
    for blob in blobs {
        set.blobs.insert(blob.hash);
        set.writes.blobs.entry(blob.hash).or_insert_with(|| blob.clone());
    }
}

/// Touches those of `hashes` that are stored and returns them.
pub(super) fn touch_stored(set: &mut WorkingSet, hashes: &[BlobHash]) -> Vec<BlobHash> {
    let stored: Vec<_> = hashes.iter().copied().filter(|hash| set.blobs.contains(hash)).collect();
    set.writes.touched.extend(&stored);
    stored
}

/// Returns the first of `names` that is neither stored nor among `blobs`.
pub(super) fn find_missing_blob(
    set: &WorkingSet,
    names: &[BlobHash],
    blobs: &[PackedBlob],
) -> Option<BlobHash> {
    names
        .iter()
        .copied()
        .find(|name| !set.blobs.contains(name) && !blobs.iter().any(|blob| blob.hash == *name))
}
