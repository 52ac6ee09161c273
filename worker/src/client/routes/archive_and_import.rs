//! What comes from elsewhere, what is thrown away, what is archived: import, garbage collection, archive.

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

/// How long an import may take beyond any other request: its events are read, checked and written.
const IMPORT_WAIT_MS: u64 = 10 * 60 * 1000;

/// How long a garbage collection may take beyond any other request: it reads the whole log.
const GC_WAIT_MS: u64 = 2 * 3_600_000;

/// How long one page of the archive, or a way back, may take beyond any other request.
const ARCHIVE_WAIT_MS: u64 = 30 * 60 * 1000;

/// The id of a task or run; of other streams, which are never archived, their name.
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
    /// [`ClientError::Refused`] with `wrong_state` where there is no archive, or another is under way.
    pub async fn archive(&self, request: &ArchiveRequest) -> Result<ArchiveResponse, ClientError> {
        let call = self.build_call("archive old tasks", Method::POST, "/v1/archive").with_json(request)?;
        call.with_server_wait(ARCHIVE_WAIT_MS).send_for_json().await
    }

    /// Stubs of archived streams after `after`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_archived_streams(
        &self,
        after: Option<&StreamId>,
    ) -> Result<ArchivedStreamPage, ClientError> {
        self.build_call("list archived streams", Method::GET, "/v1/archived")
            .with_optional_query("after", after)
            .send_for_json()
            .await
    }

    /// Archived tasks, newest first.
    ///
    /// # Errors
    /// [`ClientError`].
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

    /// What stands in the place of an archived task or run.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn get_archived(&self, stream: &StreamId) -> Result<ArchivedStreamView, ClientError> {
        let path = format!("/v1/archived/{}", archive_id(stream));
        self.build_call("read an archived stream", Method::GET, &path).send_for_json().await
    }

    /// A part of the file that holds an archived task or run, from `offset` on.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `unavailable` where the archive cannot be read.
    pub async fn read_archive_part(&self, stream: &StreamId, offset: u64) -> Result<Bytes, ClientError> {
        let path = format!("/v1/archived/{}/file", archive_id(stream));
        let call = self.build_call("read the archive", Method::GET, &path).with_query("offset", offset);
        call.with_server_wait(ARCHIVE_WAIT_MS)
            .send_for_bytes(usize::try_from(ARCHIVE_CHUNK_BYTES_MAX).unwrap_or(usize::MAX))
            .await
    }

    /// Brings an archived task or run back.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where it is here, `corrupt` where its file does not hold.
    pub async fn restore_archived(&self, stream: &StreamId) -> Result<RestoreResponse, ClientError> {
        let path = format!("/v1/archived/{}/restore", archive_id(stream));
        self.build_call("bring back from the archive", Method::POST, &path)
            .with_server_wait(ARCHIVE_WAIT_MS)
            .send_for_json()
            .await
    }

    /// Writes a run that came from another installation. Its blobs and the pages of its events are
    /// uploaded before. Safe to repeat: what is there already is left alone.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where another history stands there, `blob_missing`.
    pub async fn import(&self, request: &ImportRequest) -> Result<ImportResponse, ClientError> {
        self.build_call("import a run", Method::POST, "/v1/import")
            .with_json(request)?
            .with_server_wait(IMPORT_WAIT_MS)
            .send_for_json()
            .await
    }

    /// Counts, or drops, blobs that nothing names. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` while another is under way.
    pub async fn collect_garbage(&self, request: &GcRequest) -> Result<GcResponse, ClientError> {
        self.build_call("collect garbage", Method::POST, "/v1/gc")
            .with_json(request)?
            .with_server_wait(GC_WAIT_MS)
            .send_for_json()
            .await
    }
}
