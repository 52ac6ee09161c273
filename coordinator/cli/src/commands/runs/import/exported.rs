//! A run that `docket export` wrote elsewhere is taken in, to be looked at, proven, forked.
//!
//! The file is read twice: once to check all of it, before anything is sent; once to send it, checked
//! again. What is sent before the last call is blobs that nothing names yet; that call writes all or nothing.

use crate::history::blobs;
use std::{
    io::{self, BufRead, BufReader, Read as _},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::DecodeError,
    export::{
        ExportError, ExportFault, Item, LINE_BYTES_MAX, LineageError, PLAIN_START, Read, Reader, event_line,
    },
    wire::{ImportRequest, ImportResponse},
};
use docket_worker::{client::Client, workspace::BlobSink as _};

use super::source::{Source, unknown};
use crate::{
    connect::access::{Access, Need},
    context::Context,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
    progress::Progress,
};

/// How a zstd stream begins.
const ZSTD_START: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a file that begins so is an exported run.
pub(super) fn begins(start: &[u8]) -> bool {
    start.starts_with(&ZSTD_START) || start.starts_with(PLAIN_START)
}

/// Events are sent in pages of about this size, in bytes: well under what a request may bring.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Takes it in.
pub(super) async fn run(cx: Context, source: Source, start: Box<dyn io::Read>) -> Outcome {
    let read = check(&cx, &source, start)?;
    let access = Access::open(&cx, Need::Write).await?;
    let parts = read.lineage.events() + read.blobs.len() as u64;
    let progress = Progress::of(&cx, parts, "events and blobs");
    progress.say("sent");
    let (sent, made_by) = send(&access.client, &source, &progress).await?;
    drop(progress);
    let request = ImportRequest { run: read.header.run, task: read.header.task, made_by, pages: sent };
    let response = access.client.import(&request).await?;
    access.close().await?;
    say(&cx, &read, &response);
    Ok(Exit::Ok)
}

fn say(cx: &Context, read: &Read, response: &ImportResponse) {
    let new: u64 = response.streams.iter().map(|s| s.head.seq.0 + 1 - s.from.0).sum();
    if cx.json() {
        display::say_json(&serde_json::json!({
            "run": response.run,
            "task": response.task,
            "events": read.lineage.events(),
            "blobs": read.blobs.len(),
            "new_events": new,
            "new_streams": response.streams.iter().map(|s| s.stream.to_string()).collect::<Vec<_>>(),
        }));
    } else if new == 0 {
        display::say(&format!("run {} is here already, just as in the file", response.run.short()));
    } else {
        display::say(&format!(
            "run {} of task {} is here: {new} events and {} blobs; `docket replay {}` reads it",
            response.run.short(),
            response.task.short(),
            read.blobs.len(),
            response.run.short(),
        ));
    }
}

/// The lines of a file, each bounded before it is held.
struct Lines {
    from: Box<dyn BufRead>,
    path: PathBuf,
}

impl Lines {
    fn of(path: &Path, from: Box<dyn io::Read>) -> Outcome<Self> {
        let failed = || format!("cannot read {}", path.display());
        let mut plain = BufReader::new(from);
        let start = plain.fill_buf().fail_with(Exit::Usage, failed)?;
        let from: Box<dyn BufRead> = if start.starts_with(&ZSTD_START) {
            let unpacked = zstd::Decoder::with_buffer(plain).fail_with(Exit::Failed, failed)?;
            Box::new(BufReader::new(unpacked))
        } else if start.starts_with(PLAIN_START) {
            Box::new(plain)
        } else {
            return Err(unknown(path));
        };
        Ok(Self { from, path: path.to_owned() })
    }

    /// The next line without its line break; `None` at the end.
    fn next(&mut self) -> Outcome<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = self.from.as_mut().take(limit).read_until(b'\n', &mut line);
        read.fail_with(Exit::Verification, || {
            format!("{} is damaged: it does not unpack to its end; nothing was imported", self.path.display())
        })?;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.is_empty() {
            return Ok(None);
        }
        Ok(Some(line))
    }
}

fn refused(path: &Path, error: &ExportError) -> Failure {
    match error.fault {
        ExportFault::NotAnExport => unknown(path),
        ExportFault::Version { .. }
        | ExportFault::Lineage(LineageError::Decode { source: DecodeError::Unknown { .. }, .. }) => {
            Failure::new(Exit::EngineMissing, format!("{}: {error}", path.display()))
        }
        ExportFault::Record(_)
        | ExportFault::TooLong
        | ExportFault::Order(_)
        | ExportFault::Lineage(_)
        | ExportFault::BlobDamaged(_)
        | ExportFault::BlobUnwanted(_)
        | ExportFault::Manifest { .. }
        | ExportFault::BlobLacking { .. }
        | ExportFault::Digest
        | ExportFault::Cut => {
            let message = format!("{}, {error}; nothing was imported", path.display());
            Failure::new(Exit::Verification, message)
        }
    }
}

/// Reads the whole file and sends nothing.
fn check(cx: &Context, source: &Source, start: Box<dyn io::Read>) -> Outcome<Read> {
    let path = source.path.as_path();
    let mut lines = Lines::of(path, start)?;
    let mut reader = Reader::new();
    let progress = Progress::counting(cx, "events and blobs");
    progress.say("checked");
    while let Some(line) = lines.next()? {
        reader.line(&line).map_err(|error| refused(path, &error))?;
        progress.add(1);
    }
    drop(progress);
    reader.finish().map_err(|error| refused(path, &error))
}

/// Sends blobs, and events as pages; gives the pages and what made the file.
async fn send(client: &Client, source: &Source, progress: &Progress) -> Outcome<(Vec<BlobRef>, String)> {
    let path = source.path.as_path();
    let mut lines = Lines::of(path, source.again()?)?;
    let mut reader = Reader::new();
    let mut upload = blobs::Upload::new(client);
    let (mut pages, mut page) = (Vec::new(), String::new());
    while let Some(line) = lines.next()? {
        // It may have changed since it was checked.
        match reader.line(&line).map_err(|error| refused(path, &error))? {
            Item::Header(_) | Item::End => {}
            Item::Event(event) => {
                page.push_str(&event_line(&event));
                if page.len() >= PAGE_BYTES {
                    pages.push(sent(client, std::mem::take(&mut page)).await?);
                }
            }
            Item::Blob(blob, bytes) => upload.put(blob, bytes).await.fail_as(Exit::Failed)?,
        }
        progress.add(1);
    }
    if !page.is_empty() {
        pages.push(sent(client, page).await?);
    }
    upload.flush().await.fail_as(Exit::Failed)?;
    let read = reader.finish().map_err(|error| refused(path, &error))?;
    Ok((pages, read.header.made_by))
}

async fn sent(client: &Client, page: String) -> Outcome<BlobRef> {
    let bytes = Bytes::from(page);
    let blob = BlobRef::of(&bytes);
    client.upload_all(vec![(blob, bytes)]).await?;
    Ok(blob)
}
