//! Request and response bodies for importing runs and for garbage collection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::BlobRef,
    ids::{RunId, TaskId},
    system::StreamImported,
};

/// Maximum size of the events of one import, in uncompressed bytes. The coordinator holds them in memory
/// while it checks and writes them.
pub const IMPORT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Maximum number of pages in one import.
pub const IMPORT_PAGES_MAX: usize = 1024;

/// Default minimum age of a blob before garbage collection may delete it, in milliseconds. A submit stores
/// its blobs before it refers to them, and may wait for a person in between.
pub const GC_DEFAULT_AGE_MS: u64 = 24 * 3_600_000;

/// Minimum allowed value of that age. A request that refers to a blob refreshes its timestamp only if the
/// last refresh is more than an hour old, so less than an hour would be unsafe; the rest allows for clock
/// skew.
pub const GC_AGE_MS_MIN: u64 = 2 * 3_600_000;

/// `POST /v1/import`: writes a run exported from another installation, with its lineage. Its blobs and its
/// events (as pages of lines, see [`crate::export`]) must be stored as blobs first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// The run to import.
    pub run: RunId,
    /// The task it belongs to.
    pub task: TaskId,
    /// The program that created the export file.
    pub made_by: String,
    /// Blobs that contain the event lines in order, each ending at a line break. At most [`IMPORT_PAGES_MAX`]
    /// pages and [`IMPORT_BYTES_MAX`] bytes in total.
    pub pages: Vec<BlobRef>,
}

/// Result of an import.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImportResponse {
    /// The imported run.
    pub run: RunId,
    /// The task it belongs to.
    pub task: TaskId,
    /// The streams that were written; empty if everything was already present.
    pub streams: Vec<StreamImported>,
}

/// `POST /v1/gc`: finds blobs that no event refers to, directly or through another blob, and optionally
/// deletes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GcRequest {
    /// Deletes the blobs; if false, they are only counted.
    pub delete: bool,
    /// Minimum time since a blob was last used, in milliseconds. Defaults to [`GC_DEFAULT_AGE_MS`]; values
    /// under [`GC_AGE_MS_MIN`] are not allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untouched_for_ms: Option<u64>,
}

/// Result of a garbage collection. Byte counts are uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GcResponse {
    /// Whether deletion was requested.
    pub delete: bool,
    /// Number of blobs stored before the collection.
    pub blobs: u64,
    /// Their total size.
    pub bytes: u64,
    /// Blobs kept because they were used recently, whether referenced or not.
    pub recent: u64,
    /// Blobs kept because an event refers to them.
    pub named: u64,
    /// Blobs kept because another referenced blob refers to them.
    pub named_by_blobs: u64,
    /// Unreferenced blobs that were not used recently.
    pub orphans: u64,
    /// Their total size.
    pub orphan_bytes: u64,
    /// Number of orphans that were deleted.
    pub dropped: u64,
    /// Their total size.
    pub dropped_bytes: u64,
    /// Blob files outside the database that no stored blob refers to: they were written but never recorded.
    /// Deleted together with the orphans.
    #[serde(default)]
    pub strays: u64,
    /// Their total size on disk.
    #[serde(default)]
    pub stray_bytes: u64,
}
