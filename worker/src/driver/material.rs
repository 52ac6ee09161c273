//! Blobs of one run, at hand: what requests and decisions refer to, fetched once.
//!
//! Bounded by the context window: only what the conversation refers to is asked for through here
//! and kept; contents of workspace files pass through and are not.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, Content},
    ids::BlobHash,
    message::Part,
    run::Said,
};

use crate::{
    client::{Client, ClientError, patiently},
    model::BlobSource,
    workspace::{BlobError, Blobs},
};

/// How long a blob is asked for while the coordinator does not answer: a lease's usual length, after
/// which the run is no longer this process's to work on.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module. `S` is where blobs come from: the coordinator, or a store at hand for replay.
pub struct Material<S = Client> {
    source: S,
    kept: Mutex<HashMap<BlobHash, Bytes>>,
}

impl<S: Blobs> Material<S> {
    /// Nothing at hand yet.
    pub fn new(source: S) -> Self {
        Self { source, kept: Mutex::default() }
    }

    /// Keeps bytes that this run just made.
    pub fn keep(&self, blob: BlobRef, bytes: Bytes) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(blob.hash, bytes);
    }

    /// Fetches and keeps whatever `messages` refer to.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn gather(&self, messages: &[std::sync::Arc<Said>]) -> Result<(), BlobError> {
        for said in messages {
            for part in &said.message.parts {
                if let Some(blob) = part_blob(part) {
                    self.fetch(&blob).await?;
                }
            }
        }
        Ok(())
    }

    /// Fetches and keeps one blob.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn fetch(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        if let Some(bytes) = BlobSource::get(self, blob) {
            return Ok(bytes);
        }
        let bytes = Blobs::get(self, blob).await?;
        self.keep(*blob, bytes.clone());
        Ok(bytes)
    }
}

fn part_blob(part: &Part) -> Option<BlobRef> {
    match part {
        Part::Text { text: content } | Part::ToolResult { content, .. } => Content::blob(content),
        Part::Thinking { .. } | Part::ToolUse(_) => None,
    }
}

impl<S> BlobSource for Material<S> {
    fn get(&self, blob: &BlobRef) -> Option<Bytes> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&blob.hash).cloned()
    }
}

impl<S: Blobs> Blobs for Material<S> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        match BlobSource::get(self, blob) {
            Some(bytes) => Ok(bytes),
            None => self.source.get(blob).await,
        }
    }
}

impl Blobs for Client {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        // A coordinator that restarts must not make a run fail for a blob it has.
        let deadline = Instant::now() + PATIENCE;
        patiently(deadline, || self.get_blob(blob)).await.map_err(|error| match error {
            ClientError::Refused(problem) if problem.status == 404 => BlobError::Missing(blob.hash),
            other => BlobError::Unavailable(Box::new(other)),
        })
    }
}
