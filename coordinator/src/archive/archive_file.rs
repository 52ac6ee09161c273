//! Archive files on the local disk: verified line by line and unpacked into a store.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

use docket_schema::{
    event::Envelope,
    export::{ArchiveItem, ArchiveReader, EXPORT_LINE_BYTES_MAX, ExportError, ExportItem, VerifiedArchive},
    ids::{BlobHash, RunId, StreamId, TaskId, Timestamp},
};
use tokio::sync::mpsc;

use crate::store::{
    NewBlob, RestoreDestination, RestoreError, RestoreRequest, RestoreStream, Store, StoreError,
};

/// Approximate size of the blobs stored in one transaction, in bytes.
const BLOB_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// An archive file that cannot be used. Nothing was written from it.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveFileError {
    /// The file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file's bytes differ from those that were archived.
    #[error("the archive file was altered: its BLAKE3 hash is {found}, not {expected}")]
    Altered {
        /// Hash of the file.
        found: BlobHash,
        /// Hash that was recorded when it was archived.
        expected: BlobHash,
    },
    /// The file's content is invalid.
    #[error("the archive file is damaged")]
    Damaged(#[from] ExportError),
    /// The store refuses the content.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads and verifies every line of the file. Blocks the thread.
///
/// # Errors
/// [`ArchiveFileError`] if the file is unreadable or invalid. Anything already passed to `each` must be
/// discarded.
pub(super) fn read_file(
    path: &Path,
    mut each: impl FnMut(ArchiveItem),
) -> Result<VerifiedArchive, ArchiveFileError> {
    let failed = |source| ArchiveFileError::Read { path: path.to_owned(), source };
    let unpacked = File::open(path).and_then(zstd::Decoder::new).map_err(failed)?;
    let (mut lines, mut reader) = (BufReader::new(unpacked), ArchiveReader::new());
    loop {
        let mut line = Vec::new();
        let limit = EXPORT_LINE_BYTES_MAX as u64 + 1;
        lines.by_ref().take(limit).read_until(b'\n', &mut line).map_err(failed)?;
        if line.is_empty() {
            return Ok(reader.finish()?);
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        each(reader.read_line(&line)?);
    }
}

/// Returns the BLAKE3 hash of a file and its size. Blocks the thread.
pub(super) fn hash_file(path: &Path) -> Result<(BlobHash, u64), ArchiveFileError> {
    let failed = |source| ArchiveFileError::Read { path: path.to_owned(), source };
    let mut hasher = blake3::Hasher::new();
    let bytes = File::open(path).and_then(|mut file| io::copy(&mut file, &mut hasher)).map_err(failed)?;
    Ok((BlobHash(*hasher.finalize().as_bytes()), bytes))
}

/// Verifies that the file has the expected hash and valid content.
pub async fn verify_file(path: &Path, expected: BlobHash) -> Result<VerifiedArchive, ArchiveFileError> {
    let (path, failed) = (path.to_owned(), thread_error(path));
    let proven = tokio::task::spawn_blocking(move || {
        let (found, _) = hash_file(&path)?;
        if found != expected {
            return Err(ArchiveFileError::Altered { found, expected });
        }
        read_file(&path, drop)
    });
    proven.await.map_err(failed)?
}

fn thread_error(path: &Path) -> impl FnOnce(tokio::task::JoinError) -> ArchiveFileError + use<> {
    let path = path.to_owned();
    move |error| ArchiveFileError::Read { path, source: io::Error::other(error) }
}

/// The streams restored from an archive file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredGroup {
    pub task: TaskId,
    pub tasks: Vec<TaskId>,
    pub runs: Vec<RunId>,
    pub events: u64,
}

/// Verifies the file, then writes its content to `store`: blobs first, then all streams in one transaction.
///
/// # Errors
/// [`ArchiveFileError`] if the file is invalid or the store refuses it. No stream was written.
pub async fn unpack_file(
    path: &Path,
    expected: BlobHash,
    store: &dyn Store,
    by: String,
    into: RestoreDestination,
    now: Timestamp,
) -> Result<RestoredGroup, ArchiveFileError> {
    let family = verify_file(path, expected).await?;
    let events = store_blobs(path, store, now).await?;
    let mut by_stream: BTreeMap<StreamId, Vec<Envelope>> = BTreeMap::new();
    for event in events {
        by_stream.entry(event.stream.clone()).or_default().push(event);
    }
    let streams = family.header.streams.iter().map(|archived| RestoreStream {
        stream: archived.stream.clone(),
        run_of: archived.run_of,
        events: by_stream.remove(&archived.stream).unwrap_or_default(),
    });
    let streams: Vec<RestoreStream> = streams.collect();
    let mut unpacked = RestoredGroup {
        task: family.header.task,
        tasks: Vec::new(),
        runs: Vec::new(),
        events: family.events,
    };
    for archived in &streams {
        match archived.stream {
            StreamId::Task(task) => unpacked.tasks.push(task),
            StreamId::Run(run) => unpacked.runs.push(run),
            StreamId::Queue(_) | StreamId::System(_) => {}
        }
    }
    let restore = RestoreRequest {
        task: family.header.task,
        by,
        streams,
        required_blobs: family.required,
        destination: into,
    };
    store.restore_streams(restore, now).await?;
    Ok(unpacked)
}

/// Stores the blobs of a verified file and returns its events.
async fn store_blobs(
    path: &Path,
    store: &dyn Store,
    now: Timestamp,
) -> Result<Vec<Envelope>, ArchiveFileError> {
    let (blobs, mut waiting) = mpsc::channel::<NewBlob>(4);
    let (from, failed) = (path.to_owned(), thread_error(path));
    let reading = tokio::task::spawn_blocking(move || {
        let mut events = Vec::new();
        read_file(&from, |item| match item {
            ArchiveItem::Item(ExportItem::Event(event)) => events.push(*event),
            // If the receiver is gone, the store has failed and reports why.
            ArchiveItem::Item(ExportItem::Blob(blob, bytes)) => {
                drop(blobs.blocking_send(NewBlob { blob, bytes: bytes.into() }));
            }
            ArchiveItem::Item(ExportItem::Header(_) | ExportItem::End) | ArchiveItem::Header(_) => {}
        })
        .map(|_| events)
    });
    let mut batch = Vec::new();
    while let Some(blob) = waiting.recv().await {
        batch.push(blob);
        if batch.iter().map(|blob| blob.bytes.len()).sum::<usize>() >= BLOB_BATCH_BYTES {
            store.put_blobs(std::mem::take(&mut batch), now).await?;
        }
    }
    if !batch.is_empty() {
        store.put_blobs(batch, now).await?;
    }
    reading.await.map_err(failed)?
}
