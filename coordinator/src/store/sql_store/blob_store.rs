//! Blobs on SQL, with large ones outside of the database where that is configured.

use std::collections::HashMap;

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    ids::{BlobHash, Timestamp},
    wire::BlobCheck,
};

use super::SqlStore;
use crate::store::{
    BlobStore, BlobTotals, NewBlob, StoreError, StoreFuture,
    blobs::{files_of, gc, read},
    writer::{DropBlobs, PutBlobs, TouchBlobs},
};

impl BlobStore for SqlStore {
    fn put_blobs(&self, blobs: Vec<NewBlob>, now: Timestamp) -> StoreFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let blobs = self.pack(blobs, now).await?;
            self.write(PutBlobs { blobs, now }).await
        })
    }

    fn blob(&self, hash: BlobHash) -> StoreFuture<'_, Result<Option<Bytes>, StoreError>> {
        Box::pin(read::read_blob(&self.db, self.external.as_ref(), hash))
    }

    fn check_blobs(&self, after: Option<BlobHash>) -> StoreFuture<'_, Result<BlobCheck, StoreError>> {
        Box::pin(read::check_blobs(&self.db, self.external.as_ref(), after))
    }

    fn blobs_present(&self, hashes: Vec<BlobHash>) -> StoreFuture<'_, Result<Vec<BlobHash>, StoreError>> {
        Box::pin(read::find_present(&self.db, hashes))
    }

    fn keep_blobs(
        &self,
        hashes: Vec<BlobHash>,
        now: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<BlobHash>, StoreError>> {
        Box::pin(async move {
            let (mut kept, stale) = gc::find_stored(&self.db, &hashes, now).await?;
            if !stale.is_empty() {
                kept.extend(self.write(TouchBlobs { hashes: stale, now }).await?);
            }
            Ok(kept)
        })
    }

    fn blob_totals(&self) -> StoreFuture<'_, Result<BlobTotals, StoreError>> {
        Box::pin(gc::count_blobs(&self.db))
    }

    fn untouched_blobs(
        &self,
        since: Timestamp,
        after: Option<BlobHash>,
        limit: u32,
    ) -> StoreFuture<'_, Result<Vec<BlobRef>, StoreError>> {
        Box::pin(gc::list_untouched(&self.db, since, after, limit))
    }

    fn drop_blobs(
        &self,
        hashes: Vec<BlobHash>,
        since: Timestamp,
    ) -> StoreFuture<'_, Result<Vec<BlobRef>, StoreError>> {
        Box::pin(async move {
            // A row's file is its own: read before the row goes, it cannot be another row's.
            let files = match &self.external {
                Some(_) => files_of(&self.db, &hashes).await?,
                None => HashMap::new(),
            };
            let dropped = self.write(DropBlobs { hashes, untouched_since: since }).await?;
            if let Some(external) = &self.external {
                let files = dropped.iter().filter_map(|blob| files.get(&blob.hash).cloned()).collect();
                external.remove(files).await?;
            }
            Ok(dropped)
        })
    }

    fn stray_blobs(&self, since: Timestamp, delete: bool) -> StoreFuture<'_, Result<(u64, u64), StoreError>> {
        Box::pin(async move {
            match &self.external {
                Some(external) => external.clear(self, &self.db, since, delete).await,
                None => Ok((0, 0)),
            }
        })
    }
}
