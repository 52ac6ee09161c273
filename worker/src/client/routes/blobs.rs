//! Blobs: checked, stored and fetched by their hash.

use bytes::Bytes;
use docket_schema::{
    api::{BLOB_HASHES_MAX, MissingBlobsRequest, MissingBlobsResponse},
    content::BlobRef,
    ids::BlobHash,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

/// Concurrent uploads: enough to hide the round trip, few enough that a worker with many runs does not crowd
/// out appends.
pub const UPLOADS_IN_FLIGHT: usize = 4;

impl CoordinatorClient {
    /// Stores a blob; it is durable when this returns. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `blob_mismatch` if `bytes` do not match `blob`.
    pub async fn put_blob(&self, blob: BlobRef, bytes: Bytes) -> Result<(), ClientError> {
        self.build_call("store a blob", Method::PUT, &format!("/v1/blobs/{}", blob.hash))
            .with_bytes(bytes)
            .send()
            .await
    }

    /// Returns those of `hashes` that are not stored, in any order.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn missing_blobs(&self, hashes: &[BlobHash]) -> Result<Vec<BlobHash>, ClientError> {
        self.find_missing_blobs(hashes, false).await
    }

    /// Like [`CoordinatorClient::missing_blobs`]; with `keep`, stored blobs are protected from collection
    /// until they are referenced.
    async fn find_missing_blobs(
        &self,
        hashes: &[BlobHash],
        keep: bool,
    ) -> Result<Vec<BlobHash>, ClientError> {
        let mut missing = Vec::new();
        for hashes in hashes.chunks(BLOB_HASHES_MAX) {
            let call = self.build_call("check which blobs are missing", Method::POST, "/v1/blobs/missing");
            let answer: MissingBlobsResponse = call
                .with_json(&MissingBlobsRequest { hashes: hashes.to_vec(), keep })?
                .send_for_json()
                .await?;
            missing.extend(answer.missing);
        }
        Ok(missing)
    }

    /// Returns a blob's bytes, verified against its hash and size.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found`; [`ClientError::Protocol`] if the bytes do not match.
    pub async fn get_blob(&self, blob: &BlobRef) -> Result<Bytes, ClientError> {
        let doing = "fetch a blob";
        let limit = usize::try_from(blob.bytes).unwrap_or(usize::MAX).max(PROBLEM_BYTES_MAX);
        let bytes = self
            .build_call(doing, Method::GET, &format!("/v1/blobs/{}", blob.hash))
            .send_for_bytes(limit)
            .await?;
        if BlobRef::for_bytes(&bytes) == *blob {
            Ok(bytes)
        } else {
            Err(self.protocol_error(doing, format!("the bytes of blob {} do not match its hash", blob.hash)))
        }
    }

    /// Stores those of `blobs` that are not stored yet, several at a time.
    ///
    /// # Errors
    /// The first [`ClientError`]; blobs stored before it are kept, so the call can be repeated.
    pub async fn upload_missing_blobs(&self, mut blobs: Vec<(BlobRef, Bytes)>) -> Result<(), ClientError> {
        blobs.sort_by_key(|(blob, _)| blob.hash);
        blobs.dedup_by_key(|(blob, _)| blob.hash);
        let hashes: Vec<BlobHash> = blobs.iter().map(|(blob, _)| blob.hash).collect();
        // Blobs that are skipped because they exist must still exist when they are referenced.
        let mut missing = self.find_missing_blobs(&hashes, true).await?;
        missing.sort_unstable();
        blobs.retain(|(blob, _)| missing.binary_search(&blob.hash).is_ok());
        self.put_blobs(blobs).await
    }

    /// Stores all of `blobs`, several at a time, even if they are stored already: that protects them from
    /// collection for a while.
    ///
    /// # Errors
    /// The first [`ClientError`]; blobs stored before it are kept, so the call can be repeated.
    pub async fn put_blobs(&self, blobs: Vec<(BlobRef, Bytes)>) -> Result<(), ClientError> {
        stream::iter(blobs.into_iter().map(|(blob, bytes)| self.put_blob(blob, bytes)))
            .buffer_unordered(UPLOADS_IN_FLIGHT)
            .try_collect()
            .await
    }
}

/// Room for an error response in place of a small blob.
const PROBLEM_BYTES_MAX: usize = 64 * 1024;
