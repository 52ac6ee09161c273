//! What comes from elsewhere and what is thrown away: import, garbage collection.

use docket_schema::wire::{GcRequest, GcResponse, ImportRequest, ImportResponse};
use reqwest::Method;

use super::{Client, ClientError};

/// How long an import may take beyond any other request: its events are read, checked and written.
const IMPORT_MS: u64 = 10 * 60 * 1000;

/// How long a garbage collection may take beyond any other request: it reads the whole log.
const GC_MS: u64 = 2 * 3_600_000;

impl Client {
    /// Writes a run that came from another installation. Its blobs and the pages of its events are
    /// uploaded before. Safe to repeat: what is there already is left alone.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where another history stands there, `blob_missing`.
    pub async fn import(&self, request: &ImportRequest) -> Result<ImportResponse, ClientError> {
        self.call("import a run", Method::POST, "/v1/import").json(request)?.waits(IMPORT_MS).answer().await
    }

    /// Counts, or drops, blobs that nothing names. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` while another is under way.
    pub async fn gc(&self, request: &GcRequest) -> Result<GcResponse, ClientError> {
        self.call("collect garbage", Method::POST, "/v1/gc").json(request)?.waits(GC_MS).answer().await
    }
}
