//! Import, garbage collection and archive.

use bytes::Bytes;
use docket_schema::{
    api::{
        ARCHIVE_CHUNK_BYTES_MAX, ArchiveRequest, ArchiveResponse, ArchivedStreamPage, ArchivedStreamView,
        ArchivedTaskPage, ArchivedTaskQuery, GcRequest, GcResponse, ImportRequest, ImportResponse,
        RestoreResponse,
    },
    ids::StreamId,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

/// Additional time for an import: its events are read, checked and written.
const IMPORT_WAIT_MS: u64 = 10 * 60 * 1000;

/// Additional time for a garbage collection: it reads the complete log.
const GC_WAIT_MS: u64 = 2 * 3_600_000;

/// Additional time for one page of archiving, or for a restore.
const ARCHIVE_WAIT_MS: u64 = 30 * 60 * 1000;

/// Returns the id of a task or run; for other streams, which are never archived, their name.
fn archive_id(stream: &StreamId) -> String {
    match stream {
        StreamId::Task(id) => id.to_string(),
        StreamId::Run(id) => id.to_string(),
        StreamId::Queue(_) | StreamId::System(_) => stream.to_string(),
    }
}

impl CoordinatorClient {
    /// Archives a page of old tasks. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if there is no archive, or another archiving pass is
    /// running.
    pub async fn archive(&self, request: &ArchiveRequest) -> Result<ArchiveResponse, ClientError> {
        let call = self.build_call("archive old tasks", Method::POST, "/v1/archive").with_json(request)?;
        call.with_server_wait(ARCHIVE_WAIT_MS).send_for_json().await
    }

    /// Lists stubs of archived streams after `after`.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_archived_streams(
        &self,
        after: Option<&StreamId>,
    ) -> Result<ArchivedStreamPage, ClientError> {
        self.build_call("list archived streams", Method::GET, "/v1/archived")
            .with_optional_query("after", after)
            .send_for_json()
            .await
    }

    /// Lists archived tasks, newest first.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_archived_tasks(
        &self,
        query: &ArchivedTaskQuery,
    ) -> Result<ArchivedTaskPage, ClientError> {
        let mut call = self.build_call("list archived tasks", Method::GET, "/v1/archive/tasks");
        call =
            call.with_optional_query("queue", query.queue.as_ref()).with_optional_query("batch", query.batch);
        call = call
            .with_optional_query("title", query.title.as_ref())
            .with_optional_query("before", query.before);
        call.with_optional_query("limit", query.limit).send_for_json().await
    }

    /// Returns the stub of an archived task or run.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if it is not archived.
    pub async fn get_archived(&self, stream: &StreamId) -> Result<ArchivedStreamView, ClientError> {
        let path = format!("/v1/archived/{}", archive_id(stream));
        self.build_call("read an archived stream", Method::GET, &path).send_for_json().await
    }

    /// Reads a part of the file of an archived task or run, starting at `offset`.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `unavailable` if the archive cannot be read.
    pub async fn read_archive_part(&self, stream: &StreamId, offset: u64) -> Result<Bytes, ClientError> {
        let path = format!("/v1/archived/{}/file", archive_id(stream));
        let call = self.build_call("read the archive", Method::GET, &path).with_query("offset", offset);
        call.with_server_wait(ARCHIVE_WAIT_MS)
            .send_for_bytes(usize::try_from(ARCHIVE_CHUNK_BYTES_MAX).unwrap_or(usize::MAX))
            .await
    }

    /// Restores an archived task or run.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if it is not archived, `corrupt` if its file is damaged.
    pub async fn restore_archived(&self, stream: &StreamId) -> Result<RestoreResponse, ClientError> {
        let path = format!("/v1/archived/{}/restore", archive_id(stream));
        self.build_call("restore from the archive", Method::POST, &path)
            .with_server_wait(ARCHIVE_WAIT_MS)
            .send_for_json()
            .await
    }

    /// Imports a run from another installation. Its blobs and event pages must be uploaded first. Safe to
    /// repeat: existing data is left alone.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if the stream has a different history, `blob_missing` if a
    /// blob was not uploaded.
    pub async fn import(&self, request: &ImportRequest) -> Result<ImportResponse, ClientError> {
        self.build_call("import a run", Method::POST, "/v1/import")
            .with_json(request)?
            .with_server_wait(IMPORT_WAIT_MS)
            .send_for_json()
            .await
    }

    /// Counts or deletes unreferenced blobs. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` while another garbage collection is running.
    pub async fn collect_garbage(&self, request: &GcRequest) -> Result<GcResponse, ClientError> {
        self.build_call("collect garbage", Method::POST, "/v1/gc")
            .with_json(request)?
            .with_server_wait(GC_WAIT_MS)
            .send_for_json()
            .await
    }
}
