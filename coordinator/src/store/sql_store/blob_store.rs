//! [`BlobStore`] on SQL, with large blobs outside the database if configured.

use std::collections::HashMap;

use bytes::Bytes;
use docket_schema::{
    api::BlobCheckResponse,
    content::BlobRef,
    ids::{BlobHash, Timestamp},
};

use super::SqlStore;
use crate::store::{
    BlobStore, BlobTotals, NewBlob, StoreError, StoreFuture,
    blobs::{find_external_files, gc, read},
    writer::{DropBlobs, PutBlobs, TouchBlobs},
};

impl BlobStore for SqlStore {
    fn put_blobs(&self, blobs: Vec<NewBlob>, now: Timestamp) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let blobs = self.pack_blobs(blobs, now).await?;
            self.execute_write(PutBlobs { blobs, now }).await
        })
    }

    fn read_blob(&self, hash: BlobHash) -> StoreFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(read::read_blob(&self.pool, self.external_blobs.as_ref(), hash))
    }

    fn check_blobs(&self, after: Option<BlobHash>) -> StoreFuture<'_, Result<BlobCheckResponse, StoreError>> {
        Box::pin(read::check_blobs(&self.pool, self.external_blobs.as_ref(), after))
    }

    fn find_present_blobs(
        &self,
        hashes: Vec<BlobHash>,
    ) -> StoreFuture<'_, Result<Vec<BlobHash>, StoreError>> {
        Box::pin(read::find_present(&self.pool, hashes))
    }

    fn touch_blobs(
        &self,
        hashes: Vec<BlobHash>,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<BlobHash>, StoreError>> {
        Box::pin(async move {
            let (mut kept, stale) = gc::find_stored(&self.pool, &hashes, now).await?;
            if !stale.is_empty() {
                kept.extend(self.execute_write(TouchBlobs { hashes: stale, now }).await?);
            }
            Ok(kept)
        })
    }

    fn blob_totals(&self) -> StoreFuture<'_, Result<BlobTotals, StoreError>> {
        Box::pin(gc::count_blobs(&self.pool))
    }

    fn list_untouched_blobs(
        &self,
        since: Timestamp,
        after: Option<BlobHash>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<BlobRef>, StoreError>> {
        Box::pin(gc::list_untouched(&self.pool, since, after, limit))
    }

    fn drop_blobs(
        &self,
        hashes: Vec<BlobHash>,
        since: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<BlobRef>, StoreError>> {
        Box::pin(async move {
            // A row's file belongs to it alone: read before the row is deleted, it cannot be another row's.
            let files = match &self.external_blobs {
                Some(_) => find_external_files(&self.pool, &hashes).await?,
                None => HashMap::new(),
            };
            let dropped = self.execute_write(DropBlobs { hashes, untouched_since: since }).await?;
            if let Some(external) = &self.external_blobs {
                let files = dropped.iter().filter_map(|blob| files.get(&blob.hash).cloned()).collect();
                external.delete_files(files).await?;
            }
            Ok(dropped)
        })
    }

    fn sweep_stray_blobs(
        &self,
        since: Timestamp,
        delete: bool,
    ) -> StoreFuture<'_, Result<(u64, u64), StoreError>> {
        Box::pin(async move {
            match &self.external_blobs {
                Some(external) => external.sweep_stray_files(self, &self.pool, since, delete).await,
                None => Ok((0, 0)),
            }
        })
    }
}
