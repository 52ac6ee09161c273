//! Imports a run written by `docket export`, to view, verify or fork it.
//!
//! The file is read twice: once to check all of it before anything is sent, and once to send it,
//! with the checks repeated. Before the last call only unreferenced blobs are sent; the last call
//! writes all or nothing.

use crate::history::blobs;
use std::{
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use docket_schema::{
    api::{ImportRequest, ImportResponse},
    content::BlobRef,
    event::DecodeError,
    export::{
        EXPORT_LINE_BYTES_MAX, EXPORT_PREFIX, ExportError, ExportErrorKind, ExportItem, ExportReader,
        LineageError, VerifiedExport, format_event_line,
    },
};
use docket_worker::{client::CoordinatorClient, workspace::BlobSink as _};

use super::import_source::{ImportSource, unknown_format_error};
use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
};

/// Magic bytes of a zstd stream.
const ZSTD_START: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a file that starts with these bytes is an exported run.
pub(super) fn is_exported_run(start: &[u8]) -> bool {
    start.starts_with(&ZSTD_START) || start.starts_with(EXPORT_PREFIX)
}

/// Approximate size of a page of events in bytes, well below the request limit.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Imports an exported run.
pub(super) async fn import_exported_run(
    cx: CliContext,
    source: ImportSource,
    start: Box<dyn io::Read>,
) -> CliResult {
    let read = check_file(&cx, &source, start)?;
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let parts = read.lineage.event_count() + read.blobs.len() as u64;
    let progress = ProgressDisplay::bar(&cx, parts, "events and blobs");
    progress.set_message("sent");
    let (sent, made_by) = send_file(&access.client, &source, &progress).await?;
    drop(progress);
    let request = ImportRequest { run: read.header.run, task: read.header.task, made_by, pages: sent };
    let response = access.client.import(&request).await?;
    access.close().await?;
    print_imported(&cx, &read, &response);
    Ok(ExitKind::Ok)
}

fn print_imported(cx: &CliContext, read: &VerifiedExport, response: &ImportResponse) {
    let new: u64 = response.streams.iter().map(|s| s.head.seq.0 + 1 - s.from.0).sum();
    if cx.is_json() {
        display::print_json(&serde_json::json!({
            "run": response.run,
            "task": response.task,
            "events": read.lineage.event_count(),
            "blobs": read.blobs.len(),
            "new_events": new,
            "new_streams": response.streams.iter().map(|s| s.stream.to_string()).collect::<Vec<_>>(),
        }));
    } else if new == 0 {
        display::print_line(&format!(
            "run {} was already imported, identical to the file",
            response.run.short()
        ));
    } else {
        display::print_line(&format!(
            "imported run {} of task {}: {new} events and {} blobs; view it with `docket replay {}`",
            response.run.short(),
            response.task.short(),
            read.blobs.len(),
            response.run.short(),
        ));
    }
}

/// The lines of a file, each limited in size before it is buffered.
struct ExportLines {
    from: Box<dyn BufRead>,
    path: PathBuf,
}

impl ExportLines {
    fn open(path: &Path, from: Box<dyn io::Read>) -> CliResult<Self> {
        let failed = || format!("cannot read {}", path.display());
        let mut plain = BufReader::new(from);
        let start = plain.fill_buf().fail_with(ExitKind::Usage, failed)?;
        let from: Box<dyn BufRead> = if start.starts_with(&ZSTD_START) {
            let unpacked = zstd::Decoder::with_buffer(plain).fail_with(ExitKind::Failed, failed)?;
            Box::new(BufReader::new(unpacked))
        } else if start.starts_with(EXPORT_PREFIX) {
            Box::new(plain)
        } else {
            return Err(unknown_format_error(path));
        };
        Ok(Self { from, path: path.to_owned() })
    }

    /// Returns the next line without its line break, or `None` at the end.
    fn next_line(&mut self) -> CliResult<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let limit = EXPORT_LINE_BYTES_MAX as u64 + 1;
        let read = self.from.as_mut().take(limit).read_until(b'\n', &mut line);
        read.fail_with(ExitKind::Verification, || {
            format!(
                "{} is corrupt: it cannot be decompressed completely; nothing was imported",
                self.path.display()
            )
        })?;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(line))
    }
}

fn import_error(path: &Path, error: &ExportError) -> CliError {
    match error.fault {
        ExportErrorKind::NotAnExport => unknown_format_error(path),
        ExportErrorKind::Version { .. }
        | ExportErrorKind::Lineage(LineageError::Decode { source: DecodeError::Unknown { .. }, .. }) => {
            CliError::new(ExitKind::EngineMissing, format!("{}: {error}", path.display()))
        }
        ExportErrorKind::Record(_)
        | ExportErrorKind::TooLong
        | ExportErrorKind::OutOfOrder(_)
        | ExportErrorKind::Lineage(_)
        | ExportErrorKind::BlobDamaged(_)
        | ExportErrorKind::BlobUnreferenced(_)
        | ExportErrorKind::Manifest { .. }
        | ExportErrorKind::BlobMissing { .. }
        | ExportErrorKind::Digest
        | ExportErrorKind::Truncated => {
            let message = format!("{}, {error}; nothing was imported", path.display());
            CliError::new(ExitKind::Verification, message)
        }
    }
}

/// Checks the whole file without sending anything.
fn check_file(cx: &CliContext, source: &ImportSource, start: Box<dyn io::Read>) -> CliResult<VerifiedExport> {
    let path = source.path.as_path();
    let mut lines = ExportLines::open(path, start)?;
    let mut reader = ExportReader::new();
    let progress = ProgressDisplay::counter(cx, "events and blobs");
    progress.set_message("checked");
    while let Some(line) = lines.next_line()? {
        reader.read_line(&line).map_err(|error| import_error(path, &error))?;
        progress.advance(1);
    }
    drop(progress);
    reader.finish().map_err(|error| import_error(path, &error))
}

/// Sends blobs and prepares events as pages; returns the pages and what wrote the file.
async fn send_file(
    client: &CoordinatorClient,
    source: &ImportSource,
    progress: &ProgressDisplay,
) -> CliResult<(Vec<BlobRef>, String)> {
    let path = source.path.as_path();
    let mut lines = ExportLines::open(path, source.reopen()?)?;
    let mut reader = ExportReader::new();
    let mut upload = blobs::BlobUpload::new(client);
    let (mut pages, mut page) = (Vec::new(), String::new());
    while let Some(line) = lines.next_line()? {
        // The file may have changed since it was checked.
        match reader.read_line(&line).map_err(|error| import_error(path, &error))? {
            ExportItem::Header(_) | ExportItem::End => {}
            ExportItem::Event(event) => {
                page.push_str(&format_event_line(&event));
                if page.len() >= PAGE_BYTES {
                    pages.push(upload_page(client, std::mem::take(&mut page)).await?);
                }
            }
            ExportItem::Blob(blob, bytes) => upload.put(blob, bytes).await.fail_as(ExitKind::Failed)?,
        }
        progress.advance(1);
    }
    if !page.is_empty() {
        pages.push(upload_page(client, page).await?);
    }
    upload.flush().await.fail_as(ExitKind::Failed)?;
    let read = reader.finish().map_err(|error| import_error(path, &error))?;
    Ok((pages, read.header.made_by))
}

async fn upload_page(client: &CoordinatorClient, page: String) -> CliResult<BlobRef> {
    let bytes = Bytes::from(page);
    let blob = BlobRef::for_bytes(&bytes);
    client.upload_missing_blobs(vec![(blob, bytes)]).await?;
    Ok(blob)
}
