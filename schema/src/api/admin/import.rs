//! Bodies about what comes from elsewhere and what is thrown away: import, garbage collection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::BlobRef,
    ids::{RunId, TaskId},
    system::StreamImported,
};

/// Most bytes of one import's events, uncompressed: they stand in the coordinator's memory while they are
/// checked and written.
pub const IMPORT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Most pages of one import.
pub const IMPORT_PAGES_MAX: usize = 1024;

/// How long blobs must have been left alone before garbage collection may take them, in milliseconds: a
/// submit stores its blobs first and names them later, and may wait for a person in between.
pub const GC_DEFAULT_AGE_MS: u64 = 24 * 3_600_000;

/// The least of it. Whoever names a blob touches it unless that was done within an hour, so that anything
/// under an hour would not be safe; the rest is for clocks that differ.
pub const GC_AGE_MS_MIN: u64 = 2 * 3_600_000;

/// `POST /v1/import`: writes a run that came from another installation, with its lineage. Its blobs, and its
/// events as pages of lines (see [`crate::export`]), are stored as blobs first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// What made the file.
    pub made_by: String,
    /// Blobs that hold the lines of its events, in order, each cut at the end of a line. At most
    /// [`IMPORT_PAGES_MAX`], and [`IMPORT_BYTES_MAX`] together.
    pub pages: Vec<BlobRef>,
}

/// The run is here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImportResponse {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// What was written; nothing where all of it was here already.
    pub streams: Vec<StreamImported>,
}

/// `POST /v1/gc`: which blobs no event names, directly or through another blob; and drops them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GcRequest {
    /// Drop them; without it, only count.
    pub delete: bool,
    /// Only what nobody touched for this long; [`GC_UNTOUCHED_MS`] if not said, never under
    /// [`GC_UNTOUCHED_MS_MIN`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untouched_for_ms: Option<u64>,
}

/// What garbage collection saw and did. Bytes are uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GcResponse {
    /// It was told to drop.
    pub delete: bool,
    /// Blobs stored before it.
    pub blobs: u64,
    /// Their sizes together.
    pub bytes: u64,
    /// Kept because they were touched lately, whoever names them.
    pub recent: u64,
    /// Kept because an event names them.
    pub named: u64,
    /// Kept because a blob that an event names does.
    pub named_by_blobs: u64,
    /// Named by nothing and untouched for long.
    pub orphans: u64,
    /// Their sizes together.
    pub orphan_bytes: u64,
    /// Of those, dropped.
    pub dropped: u64,
    /// Their sizes together.
    pub dropped_bytes: u64,
    /// Files of blobs outside of the database that belong to none: written, and never named. Deleted with the rest.
    #[serde(default)]
    pub strays: u64,
    /// Their sizes together, as they lie there.
    #[serde(default)]
    pub stray_bytes: u64,
}
