//! Cache of one run's blobs: everything that requests and decisions refer to, fetched once.
//!
//! Bounded by the context window: only content that the conversation refers to is requested and cached here. Contents
//! of workspace files pass through uncached.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, Content},
    ids::BlobHash,
    message::MessagePart,
    run::{RunEvent, TranscriptEntry},
};

use super::pending_append::PendingAppend;
use crate::{
    client::{ClientError, CoordinatorClient, retry_until},
    model::BlobSource,
    workspace::{BlobError, BlobReader},
};

/// How long a read waits for an unavailable coordinator. Longer than a lease: while the lease is valid, an outage is
/// not the run's fault; once it expires, the supervisor ends the process.
pub(in crate::run) const READ_PATIENCE: Duration = Duration::from_secs(120);

/// A run's blob cache. `S` is the source of blobs: the coordinator, or a local store for replay.
pub struct BlobCache<S = CoordinatorClient> {
    source: S,
    cached: Mutex<HashMap<BlobHash, Bytes>>,
}

impl<S: BlobReader> BlobCache<S> {
    /// Creates an empty cache.
    pub fn new(source: S) -> Self {
        Self { source, cached: Mutex::default() }
    }

    /// The source of blobs.
    pub(in crate::run) const fn source(&self) -> &S {
        &self.source
    }

    /// Caches bytes that this run just produced.
    pub fn insert(&self, blob: BlobRef, bytes: Bytes) {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner).insert(blob.hash, bytes);
    }

    /// Caches the parts of results that the model sees; full outputs and files are not cached.
    pub(in crate::run) fn cache_results(&self, results: &PendingAppend) {
        for (_, event) in results.events() {
            if let RunEvent::ToolFinished(finished) = event
                && let Some(blob) = finished.content.blob_ref()
                && let Some(bytes) = results.find_blob(&blob)
            {
                self.insert(blob, Bytes::copy_from_slice(bytes));
            }
        }
    }

    /// Fetches and caches everything `messages` refer to.
    ///
    /// # Errors
    /// [`BlobError`]: a blob cannot be read.
    pub async fn fetch_message_blobs<'a>(
        &self,
        messages: impl Iterator<Item = &'a std::sync::Arc<TranscriptEntry>>,
    ) -> Result<(), BlobError> {
        for said in messages {
            for part in &said.message.parts {
                if let Some(blob) = part_blob(part) {
                    self.fetch_blob(&blob).await?;
                }
            }
        }
        Ok(())
    }

    /// Fetches and caches one blob.
    ///
    /// # Errors
    /// [`BlobError`]: the blob cannot be read.
    pub async fn fetch_blob(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        if let Some(bytes) = BlobSource::get(self, blob) {
            return Ok(bytes);
        }
        let bytes = BlobReader::get(self, blob).await?;
        self.insert(*blob, bytes.clone());
        Ok(bytes)
    }
}

fn part_blob(part: &MessagePart) -> Option<BlobRef> {
    match part {
        MessagePart::Text { text: content } | MessagePart::ToolResult { content, .. } => {
            Content::blob_ref(content)
        }
        MessagePart::Thinking { .. } | MessagePart::ToolUse(_) => None,
    }
}

impl<S> BlobSource for BlobCache<S> {
    fn get(&self, blob: &BlobRef) -> Option<Bytes> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner).get(&blob.hash).cloned()
    }
}

impl<S: BlobReader> BlobReader for BlobCache<S> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        match BlobSource::get(self, blob) {
            Some(bytes) => Ok(bytes),
            None => self.source.get(blob).await,
        }
    }
}

impl BlobReader for CoordinatorClient {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        let asked = retry_until(Instant::now() + READ_PATIENCE, || self.get_blob(blob)).await;
        asked.map_err(|error| match error {
            ClientError::Problem(problem) if problem.status == 404 => BlobError::Missing(blob.hash),
            other => BlobError::Unavailable(Box::new(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use axum::{Router, http::StatusCode};

    use super::*;
    use crate::secret::Secret;

    #[tokio::test]
    async fn short_coordinator_outage_does_not_fail_the_run() {
        let asked = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&asked);
        let answer = move || {
            let nth = counting.fetch_add(1, Ordering::Relaxed);
            async move { if nth < 3 { (StatusCode::SERVICE_UNAVAILABLE, "") } else { (StatusCode::OK, "base") } }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            axum::serve(listener, Router::new().fallback(answer)).await.unwrap();
        });
        let material = BlobCache::new(CoordinatorClient::new(&url, Secret::new("dkr_x").unwrap()).unwrap());
        let bytes = material.fetch_blob(&BlobRef::for_bytes(b"base")).await.unwrap();
        assert_eq!((&bytes[..], asked.load(Ordering::Relaxed)), (&b"base"[..], 4));
        server.abort();
    }
}
