//! What a coordinator can show of a run's past beyond its events and turns: texts, files as they were, differences.
//!
//! Deriving that takes the workspace's code (a base is a pack of git objects), which is the worker's; so whoever
//! starts a coordinator hands it in ([`ServerConfig::past`](crate::server::ServerConfig)), and one without it
//! answers `not_here`. Only reads; nothing of it is ever stored.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use docket_schema::{
    ids::RunId,
    wire::{DiffQuery, DiffView, ExportForm, FileView, FilesQuery, ProblemCode, TurnAnswer},
};

use crate::history::CachedRun;

/// What is answered, later.
pub type Looked<'a, T> = Pin<Box<dyn Future<Output = Result<T, PastError>> + Send + 'a>>;

/// Why it cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct PastError {
    /// Which kind of thing is wrong.
    pub code: ProblemCode,
    /// What, and what helps.
    pub detail: String,
}

/// Whether whoever asks may read what a workspace held: that is exact, no secret is struck out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eyes {
    /// Everything.
    Exact,
    /// What was redacted before it was recorded.
    Redacted,
}

/// A run as a file to be kept.
#[derive(Debug)]
pub struct Exported {
    /// Its media type.
    pub media: &'static str,
    /// What the file is called.
    pub name: String,
    /// The file, at its beginning, and without a name: it goes with whoever reads it. It may be larger than memory.
    pub file: std::fs::File,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Looks back at a run as far as it had come when it was read. Every error names the remedy.
pub trait Past: fmt::Debug + Send + Sync {
    /// One turn with all it names; the newest where none is asked for.
    fn turn(&self, run: Arc<CachedRun>, turn: Option<u32>, eyes: Eyes) -> Looked<'_, TurnAnswer>;
    /// A file or folder as it was.
    fn files(&self, run: Arc<CachedRun>, query: FilesQuery) -> Looked<'_, FileView>;
    /// What differs between two trees: of the run, or of it and another.
    fn diff(
        &self,
        run: Arc<CachedRun>,
        with: Option<Arc<CachedRun>>,
        query: DiffQuery,
    ) -> Looked<'_, DiffView>;
    /// The whole output of a call.
    fn output(&self, run: Arc<CachedRun>, call: String) -> Looked<'_, Bytes>;
    /// A run as a file.
    fn export(&self, run: RunId, form: ExportForm) -> Looked<'_, Exported>;
}
