//! [`StoreAdmin`] on SQL.

use std::sync::Arc;

use docket_schema::ids::Timestamp;

use super::SqlStore;
use crate::store::{
    CoordinatorHints, ProjectionDifference, RebuildProgress, StoreAdmin, StoreError, StoreFuture,
    StoreMetrics, TermOutcome, TermRequest,
    queries::log,
    writer::{ReadSecret, RebuildProjections},
};

impl StoreAdmin for SqlStore {
    fn backend(&self) -> &'static str {
        self.pool.dialect().name()
    }

    fn coordinator_hints(&self) -> Option<Arc<dyn CoordinatorHints>> {
        self.coordinator_hints.clone()
    }

    fn database_time(&self) -> StoreFuture<'_, Result<Option<Timestamp>, StoreError>> {
        Box::pin(log::server_time(&self.pool))
    }

    fn acquire_term(&self, term: TermRequest) -> StoreFuture<'_, Result<TermOutcome, StoreError>> {
        Box::pin(self.execute_write(term))
    }

    fn load_or_create_secret(&self, fresh: [u8; 32]) -> StoreFuture<'_, Result<[u8; 32], StoreError>> {
        Box::pin(self.execute_write(ReadSecret { fresh }))
    }

    fn rebuild_projections(
        &self,
        seen: Arc<RebuildProgress>,
    ) -> StoreFuture<'_, Result<Vec<ProjectionDifference>, StoreError>> {
        Box::pin(self.execute_write(RebuildProjections { progress: seen }))
    }

    fn metrics(&self) -> StoreMetrics {
        self.metrics.snapshot()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.shut_down())
    }
}
