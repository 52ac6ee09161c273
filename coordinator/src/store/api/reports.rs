//! Tasks of a report, in pages.

use docket_schema::{
    api::ReportCursor,
    ids::{BatchId, TaskId, Timestamp},
};

use super::{StoreError, StoreFuture};

/// Selects the tasks of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportScope {
    /// Tasks of a batch, by id.
    Batch(BatchId),
    /// Tasks that ended in this half-open interval, by end time.
    Ended(Timestamp, Timestamp),
    /// Tasks that may have been active in this half-open interval: submitted before its end, and ended after
    /// its beginning or not at all. Unfinished ones come first.
    Active(Timestamp, Timestamp),
}

/// Lists the tasks of a report. Fails only with [`StoreError`].
pub trait ReportReads {
    /// Lists tasks that have started, newest first, after `after`, at most `limit`, each with its cursor.
    /// Fewer than `limit` means the list is complete. A caller that stops early leaves out the oldest.
    fn list_report_tasks(
        &self,
        of: ReportScope,
        after: Option<ReportCursor>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(ReportCursor, TaskId)>, StoreError>>;
}
