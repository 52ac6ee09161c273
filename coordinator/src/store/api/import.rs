//! A run of another installation on its way into the log.

use docket_schema::{
    event::Envelope,
    ids::{BlobHash, RunId, Seq, StreamId, TaskId},
    system::{StreamImported, TaskRunRef},
};

use super::StoreError;

/// A run from another installation with its lineage, checked: every chain holds and begins at its
/// beginning, every stream folds, each run stands on the end of the one before it.
#[derive(Debug, Clone)]
pub struct RunImport {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// Who imports it.
    pub by: String,
    /// What made the file.
    pub made_by: String,
    /// Its streams: tasks first, then runs, each after the one it stands on.
    pub streams: Vec<ImportStream>,
    /// The blobs its events need: they must be there already.
    pub required_blobs: Vec<BlobHash>,
}

/// A stream of an import.
#[derive(Debug, Clone)]
pub struct ImportStream {
    /// Which.
    pub stream: StreamId,
    /// For a run: its place in its task.
    pub run_of: Option<TaskRunRef>,
    /// Its events from the first on, at least one.
    pub events: Vec<Envelope>,
}

/// The outcome of an import.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportOutcome {
    /// The streams it began or continued; none = all of it existed already.
    pub streams: Vec<StreamImported>,
}

/// An import that was refused. Nothing of it was written.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Another history exists here under the same id.
    #[error("{stream} is here already, and differs from the file at event {seq}; nothing was imported")]
    Differs {
        /// The stream.
        stream: StreamId,
        /// The first event that differs.
        seq: Seq,
    },
    /// The stream goes on here.
    #[error("{stream} lives here and ends at event {here}, the file goes on to {file}; nothing was imported")]
    DivergingRun {
        /// The stream.
        stream: StreamId,
        /// Its head here.
        here: Seq,
        /// Its head in the file.
        file: Seq,
    },
    /// It is here already, in the archive.
    #[error("{0} is archived here; `docket archive restore` brings it back, nothing was imported")]
    Archived(StreamId),
    /// A needed blob is not stored.
    #[error("blob {0} is not stored; upload it first")]
    BlobMissing(BlobHash),
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}
