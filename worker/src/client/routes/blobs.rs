//! Blobs: asked for, stored and fetched by their hash.

use bytes::Bytes;
use docket_schema::{
    api::{BLOB_HASHES_MAX, MissingBlobsRequest, MissingBlobsResponse},
    content::BlobRef,
    ids::BlobHash,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

/// Uploads under way at once: enough to hide the round trip, few enough that a worker with many
/// runs does not crowd out appends.
pub const UPLOADS_IN_FLIGHT: usize = 4;

impl CoordinatorClient {
    /// Stores a blob; it is durable when this returns. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `blob_mismatch` where `bytes` are not what `blob` says.
    pub async fn put_blob(&self, blob: BlobRef, bytes: Bytes) -> Result<(), ClientError> {
        self.build_call("store a blob", Method::PUT, &format!("/v1/blobs/{}", blob.hash))
            .with_bytes(bytes)
            .send()
            .await
    }

    /// Those of `hashes` that are not stored, in any order.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn missing_blobs(&self, hashes: &[BlobHash]) -> Result<Vec<BlobHash>, ClientError> {
        self.find_missing_blobs(hashes, false).await
    }

    /// As [`Client::missing_blobs`]; where `keep`, those that are stored are kept until they are named.
    async fn find_missing_blobs(
        &self,
        hashes: &[BlobHash],
        keep: bool,
    ) -> Result<Vec<BlobHash>, ClientError> {
        let mut missing = Vec::new();
        for hashes in hashes.chunks(BLOB_HASHES_MAX) {
            let call = self.build_call("ask which blobs are missing", Method::POST, "/v1/blobs/missing");
            let answer: MissingBlobsResponse = call
                .with_json(&MissingBlobsRequest { hashes: hashes.to_vec(), keep })?
                .send_for_json()
                .await?;
            missing.extend(answer.missing);
        }
        Ok(missing)
    }

    /// A blob's bytes, checked against its hash and size.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`; [`ClientError::Protocol`] where the bytes are others.
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
            Err(self.protocol_error(doing, format!("the bytes of blob {} do not have its hash", blob.hash)))
        }
    }

    /// Stores those of `blobs` that are not stored yet, some at a time.
    ///
    /// # Errors
    /// The first [`ClientError`]; what was stored before stays, so the call can be repeated.
    pub async fn upload_missing_blobs(&self, mut blobs: Vec<(BlobRef, Bytes)>) -> Result<(), ClientError> {
        blobs.sort_by_key(|(blob, _)| blob.hash);
        blobs.dedup_by_key(|(blob, _)| blob.hash);
        let hashes: Vec<BlobHash> = blobs.iter().map(|(blob, _)| blob.hash).collect();
        // What is not sent, for it is there, must still be there when it is named.
        let mut missing = self.find_missing_blobs(&hashes, true).await?;
        missing.sort_unstable();
        blobs.retain(|(blob, _)| missing.binary_search(&blob.hash).is_ok());
        self.put_blobs(blobs).await
    }

    /// Stores all of `blobs`, some at a time, whether they are stored already or not: that keeps them from
    /// being collected for a while.
    ///
    /// # Errors
    /// The first [`ClientError`]; what was stored before stays, so the call can be repeated.
    pub async fn put_blobs(&self, blobs: Vec<(BlobRef, Bytes)>) -> Result<(), ClientError> {
        stream::iter(blobs.into_iter().map(|(blob, bytes)| self.put_blob(blob, bytes)))
            .buffer_unordered(UPLOADS_IN_FLIGHT)
            .try_collect()
            .await
    }
}

/// Room for a refusal in place of a small blob.
const PROBLEM_BYTES_MAX: usize = 64 * 1024;
