//! Import of a run from another installation.

use docket_schema::{
    event::Envelope,
    ids::{BlobHash, RunId, Seq, StreamId, TaskId},
    system::{StreamImported, TaskRunRef},
};

use super::StoreError;

/// A run from another installation with its lineage, verified: every chain is valid from its beginning, every
/// stream folds, and each run continues the end of the one before it.
#[derive(Debug, Clone)]
pub struct RunImport {
    pub run: RunId,
    pub task: TaskId,
    /// Who imports it.
    pub by: String,
    /// Program that made the file.
    pub made_by: String,
    /// Its streams: tasks first, then runs, each after the one it continues.
    pub streams: Vec<ImportStream>,
    /// Blobs that its events require; they must already be stored.
    pub required_blobs: Vec<BlobHash>,
}

/// A stream of an import.
#[derive(Debug, Clone)]
pub struct ImportStream {
    pub stream: StreamId,
    /// For a run: its place in its task.
    pub run_of: Option<TaskRunRef>,
    /// Its events from the first on, at least one.
    pub events: Vec<Envelope>,
}

/// Outcome of an import.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportOutcome {
    /// Streams that were created or extended; empty if everything existed already.
    pub streams: Vec<StreamImported>,
}

/// An import that was refused. Nothing of it was written.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A different history exists here under the same id.
    #[error("{stream} already exists here and differs from the file at event {seq}; nothing was imported")]
    Differs {
        stream: StreamId,
        /// The first event that differs.
        seq: Seq,
    },
    /// The stream has grown differently here.
    #[error(
        "{stream} is still active here and ends at event {here}, while the file continues to {file}; \
         nothing was imported"
    )]
    DivergingRun {
        stream: StreamId,
        /// Its head in this store.
        here: Seq,
        /// Its head in the file.
        file: Seq,
    },
    /// The stream exists in the archive.
    #[error("{0} is archived here; `docket archive restore` restores it, nothing was imported")]
    Archived(StreamId),
    /// A required blob is not stored.
    #[error("blob {0} is not stored; upload it first")]
    BlobMissing(BlobHash),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
