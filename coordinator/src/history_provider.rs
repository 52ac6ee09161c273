//! Interface for views of a run's history that need the workspace: texts, files as they were, differences.
//!
//! They are derived with the worker's workspace code (a base is a pack of git objects), so the program that
//! starts a coordinator injects it ([`ServerConfig::history_provider`](crate::server::ServerConfig)); without
//! it routes reply `not_here`. Read-only; nothing is stored.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use docket_schema::{
    api::{DiffQuery, DiffView, ExportFormat, FileView, FilesQuery, ProblemCode, TurnResponse},
    ids::RunId,
};

use crate::history_cache::CachedRun;

/// A boxed future of the provider's result.
pub type HistoryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, HistoryViewError>> + Send + 'a>>;

/// Why a view is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct HistoryViewError {
    /// The kind of problem.
    pub code: ProblemCode,
    /// The problem and its remedy.
    pub detail: String,
}

/// Whether the caller may read workspace content exactly, without secrets being redacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentAccess {
    /// Exact content.
    Exact,
    /// Content redacted before it was recorded.
    Redacted,
}

/// A run exported to a file.
#[derive(Debug)]
pub struct ExportedRun {
    pub media_type: &'static str,
    /// Suggested file name.
    pub name: String,
    /// The file, positioned at its beginning and already unlinked, so it disappears with its reader. It may
    /// be larger than memory.
    pub file: std::fs::File,
    pub bytes: u64,
}

/// Shows a run's history as of the time it was read. Every error names the remedy.
pub trait HistoryProvider: fmt::Debug + Send + Sync {
    /// Returns one turn with everything it references; the newest if none is given.
    fn get_turn(
        &self,
        run: Arc<CachedRun>,
        turn: Option<u32>,
        eyes: ContentAccess,
    ) -> HistoryFuture<'_, TurnResponse>;
    /// Returns a file or folder as it was.
    fn get_files(&self, run: Arc<CachedRun>, query: FilesQuery) -> HistoryFuture<'_, FileView>;
    /// Compares two trees, of the same run or of two runs.
    fn diff_trees(
        &self,
        run: Arc<CachedRun>,
        with: Option<Arc<CachedRun>>,
        query: DiffQuery,
    ) -> HistoryFuture<'_, DiffView>;
    /// Returns the full output of a call.
    fn read_output(&self, run: Arc<CachedRun>, call: String) -> HistoryFuture<'_, Bytes>;
    /// Exports a run to a file.
    fn export_run(&self, run: RunId, form: ExportFormat) -> HistoryFuture<'_, ExportedRun>;
}
