//! Identity, terms, secret, rebuild and figures of a store on SQL.

use std::sync::Arc;

use docket_schema::ids::Timestamp;

use super::SqlStore;
use crate::store::{
    Admin, CoordinatorHints, Difference, Rebuilding, StoreError, StoreFuture, StoreMeters, Taken, Term,
    queries::log,
    writer::{ReadSecret, RebuildProjections},
};

impl Admin for SqlStore {
    fn backend(&self) -> &'static str {
        self.db.dialect().name()
    }

    fn hints(&self) -> Option<Arc<dyn CoordinatorHints>> {
        self.hints.clone()
    }

    fn time(&self) -> StoreFuture<'_, Result<Option<Timestamp>, StoreError>> {
        Box::pin(log::server_time(&self.db))
    }

    fn take_term(&self, term: Term) -> StoreFuture<'_, Result<Taken, StoreError>> {
        Box::pin(self.write(term))
    }

    fn secret(&self, fresh: [u8; 32]) -> StoreFuture<'_, Result<[u8; 32], StoreError>> {
        Box::pin(self.write(ReadSecret { fresh }))
    }

    fn rebuild(&self, seen: Arc<Rebuilding>) -> StoreFuture<'_, Result<Vec<Difference>, StoreError>> {
        Box::pin(self.write(RebuildProjections { seen }))
    }

    fn meters(&self) -> StoreMeters {
        self.meters.view()
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.end())
    }
}
