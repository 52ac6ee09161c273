//! What a coordinator can show of a run's past beyond its events and turns: texts, files as they were, differences.
//!
//! Deriving that takes the workspace's code (a base is a pack of git objects), which is the worker's; so whoever
//! starts a coordinator hands it in ([`ServerConfig::past`](crate::server::ServerConfig)), and one without it
//! answers `not_here`. Only reads; nothing of it is ever stored.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use docket_schema::{
    api::{DiffQuery, DiffView, ExportFormat, FileView, FilesQuery, ProblemCode, TurnResponse},
    ids::RunId,
};

use crate::history_cache::CachedRun;

/// What is answered, later.
pub type HistoryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, HistoryViewError>> + Send + 'a>>;

/// Why it cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct HistoryViewError {
    /// Which kind of thing is wrong.
    pub code: ProblemCode,
    /// What, and what helps.
    pub detail: String,
}

/// Whether whoever asks may read what a workspace held: that is exact, no secret is struck out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentAccess {
    /// Everything.
    Exact,
    /// What was redacted before it was recorded.
    Redacted,
}

/// A run as a file to be kept.
#[derive(Debug)]
pub struct ExportedRun {
    /// Its media type.
    pub media_type: &'static str,
    /// What the file is called.
    pub name: String,
    /// The file, at its beginning, and without a name: it goes with whoever reads it. It may be larger than memory.
    pub file: std::fs::File,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Looks back at a run as far as it had come when it was read. Every error names the remedy.
pub trait HistoryProvider: fmt::Debug + Send + Sync {
    /// One turn with all it names; the newest where none is asked for.
    fn get_turn(
        &self,
        run: Arc<CachedRun>,
        turn: Option<u32>,
        eyes: ContentAccess,
    ) -> HistoryFuture<'_, TurnResponse>;
    /// A file or folder as it was.
    fn get_files(&self, run: Arc<CachedRun>, query: FilesQuery) -> HistoryFuture<'_, FileView>;
    /// What differs between two trees: of the run, or of it and another.
    fn diff_trees(
        &self,
        run: Arc<CachedRun>,
        with: Option<Arc<CachedRun>>,
        query: DiffQuery,
    ) -> HistoryFuture<'_, DiffView>;
    /// The whole output of a call.
    fn read_output(&self, run: Arc<CachedRun>, call: String) -> HistoryFuture<'_, Bytes>;
    /// A run as a file.
    fn export_run(&self, run: RunId, form: ExportFormat) -> HistoryFuture<'_, ExportedRun>;
}
