//! Tasks of a report, a page at a time.

use docket_schema::{
    api::ReportCursor,
    ids::{BatchId, TaskId, Timestamp},
};

use super::{StoreError, StoreFuture};

/// The tasks that a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportScope {
    /// Those of a batch, by id.
    Batch(BatchId),
    /// Those that ended at the first instant or later and before the second, by when they did.
    Ended(Timestamp, Timestamp),
    /// Those that may have worked at the first instant or later and before the second: that were submitted before the
    /// end of it, and ended after its beginning or not at all. Those that have not ended come first.
    Active(Timestamp, Timestamp),
}

/// Lists the tasks that a report is about. Fails only with [`StoreError`].
pub trait ReportReads {
    /// Tasks that have begun, the newest first, behind `after`, at most `limit`; each with its place. Fewer than `limit`
    /// are the last ones. A caller that stops before the last leaves out the oldest.
    fn list_report_tasks(
        &self,
        of: ReportScope,
        after: Option<ReportCursor>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<(ReportCursor, TaskId)>, StoreError>>;
}
