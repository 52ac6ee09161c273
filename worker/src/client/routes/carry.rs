//! What comes from elsewhere, what is thrown away, what is archived: import, garbage collection, archive.

use bytes::Bytes;
use docket_schema::{
    ids::StreamId,
    wire::{
        ARCHIVE_PART_BYTES_MAX, ArchiveRequest, ArchiveResponse, ArchivedPage, ArchivedTaskPage,
        ArchivedTaskQuery, ArchivedView, GcRequest, GcResponse, ImportRequest, ImportResponse,
        RestoreResponse,
    },
};
use reqwest::Method;

use crate::client::{Client, ClientError};

/// How long an import may take beyond any other request: its events are read, checked and written.
const IMPORT_MS: u64 = 10 * 60 * 1000;

/// How long a garbage collection may take beyond any other request: it reads the whole log.
const GC_MS: u64 = 2 * 3_600_000;

/// How long one page of the archive, or a way back, may take beyond any other request.
const ARCHIVE_MS: u64 = 30 * 60 * 1000;

/// The id of a task or run; of other streams, which are never archived, their name.
fn id_of(stream: &StreamId) -> String {
    match stream {
        StreamId::Task(id) => id.to_string(),
        StreamId::Run(id) => id.to_string(),
        StreamId::Queue(_) | StreamId::System(_) => stream.to_string(),
    }
}

impl Client {
    /// Archives a page of old tasks. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where there is no archive, or another is under way.
    pub async fn archive(&self, request: &ArchiveRequest) -> Result<ArchiveResponse, ClientError> {
        let call = self.call("archive old tasks", Method::POST, "/v1/archive").json(request)?;
        call.waits(ARCHIVE_MS).answer().await
    }

    /// Stubs of archived streams after `after`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn archived(&self, after: Option<&StreamId>) -> Result<ArchivedPage, ClientError> {
        self.call("list archived streams", Method::GET, "/v1/archived").maybe("after", after).answer().await
    }

    /// Archived tasks, newest first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn archived_tasks(&self, query: &ArchivedTaskQuery) -> Result<ArchivedTaskPage, ClientError> {
        let mut call = self.call("list archived tasks", Method::GET, "/v1/archive/tasks");
        call = call.maybe("queue", query.queue.as_ref()).maybe("batch", query.batch);
        call = call.maybe("title", query.title.as_ref()).maybe("before", query.before);
        call.maybe("limit", query.limit).answer().await
    }

    /// What stands in the place of an archived task or run.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn archived_one(&self, stream: &StreamId) -> Result<ArchivedView, ClientError> {
        let path = format!("/v1/archived/{}", id_of(stream));
        self.call("read an archived stream", Method::GET, &path).answer().await
    }

    /// A part of the file that holds an archived task or run, from `offset` on.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `unavailable` where the archive cannot be read.
    pub async fn archive_part(&self, stream: &StreamId, offset: u64) -> Result<Bytes, ClientError> {
        let path = format!("/v1/archived/{}/file", id_of(stream));
        let call = self.call("read the archive", Method::GET, &path).query("offset", offset);
        call.waits(ARCHIVE_MS).bytes(usize::try_from(ARCHIVE_PART_BYTES_MAX).unwrap_or(usize::MAX)).await
    }

    /// Brings an archived task or run back.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where it is here, `corrupt` where its file does not hold.
    pub async fn restore(&self, stream: &StreamId) -> Result<RestoreResponse, ClientError> {
        let path = format!("/v1/archived/{}/restore", id_of(stream));
        self.call("bring back from the archive", Method::POST, &path).waits(ARCHIVE_MS).answer().await
    }

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
