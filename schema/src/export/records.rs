//! The lines of an exported run, and the writer that numbers and digests them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::{
    api::BODY_BYTES_MAX,
    content::{BlobRef, Content},
    event::Envelope,
    ids::{BlobHash, Position, RunId, TaskId},
    system::StreamArchived,
};

/// The version of the format that this build writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// How every uncompressed file begins.
pub const EXPORT_PREFIX: &[u8] = b"{\"docket_export\":";

/// Longest line, in bytes: the largest blob a store takes, as text of which every character is escaped
/// (base64 is shorter), with its frame.
pub const EXPORT_LINE_BYTES_MAX: usize = BODY_BYTES_MAX * 2 + 1024;

/// The first line: which run this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportHeader {
    /// Version of the format: [`VERSION`].
    pub version: u32,
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// What made the file: `docket 0.1.0`.
    pub made_by: String,
}

/// The first line of a file of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveHeader {
    /// Version of the format: [`VERSION`].
    pub version: u32,
    /// The family's first task.
    pub task: TaskId,
    /// What made the file: `docket 0.1.0`.
    pub made_by: String,
    /// Its streams, in order.
    pub streams: Vec<StreamArchived>,
}

/// A blob with its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobLine {
    /// Hash and size of the bytes.
    pub blob: BlobRef,
    /// The bytes, in place.
    pub content: Content,
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportTrailer {
    /// Events in the file.
    pub events: u64,
    /// Blobs in the file.
    pub blobs: u64,
    /// BLAKE3 over all lines before this one.
    pub digest: BlobHash,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportRecord {
    /// The first.
    #[serde(rename = "docket_export")]
    Header(ExportHeader),
    /// The first of a file of the archive.
    #[serde(rename = "docket_archive")]
    Archive(ArchiveHeader),
    /// An event.
    Event(Box<Envelope>),
    /// A blob.
    Blob(BlobLine),
    /// The last.
    End(ExportTrailer),
}

impl ExportRecord {
    /// The record as its line, ended by a line break.
    fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("records have string keys only");
        line.push('\n');
        line
    }
}

/// Text as text where each character takes at most two bytes of JSON; anything else as base64.
fn to_readable_content(bytes: &[u8]) -> Content {
    match Content::inline(bytes) {
        Content::Text(text) if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) => {
            Content::B64(STANDARD.encode(bytes))
        }
        content => content,
    }
}

/// An event as it stands in a file: without its place in the log that it comes from.
pub fn format_event_line(event: &Envelope) -> String {
    ExportRecord::Event(Box::new(Envelope { position: Position(0), ..event.clone() })).to_line()
}

/// Makes the lines of a file, in the order in which they are asked for: header, events, blobs, end.
#[derive(Debug)]
pub struct ExportWriter {
    digest: blake3::Hasher,
    events: u64,
    blobs: u64,
}

impl ExportWriter {
    /// A writer, and the first line.
    pub fn begin_export(run: RunId, task: TaskId, made_by: &str) -> (Self, String) {
        Self::begin_with(&ExportRecord::Header(ExportHeader {
            version: VERSION,
            run,
            task,
            made_by: made_by.to_owned(),
        }))
    }

    /// A writer, and `first` as its line.
    pub(super) fn begin_with(first: &ExportRecord) -> (Self, String) {
        let mut writer = Self { digest: blake3::Hasher::new(), events: 0, blobs: 0 };
        let line = writer.hash_line(first.to_line());
        (writer, line)
    }

    /// The line of an event.
    pub fn encode_event(&mut self, event: &Envelope) -> String {
        self.events += 1;
        self.hash_line(format_event_line(event))
    }

    /// The line of a blob.
    pub fn encode_blob(&mut self, bytes: &[u8]) -> String {
        self.blobs += 1;
        let line = BlobLine { blob: BlobRef::for_bytes(bytes), content: to_readable_content(bytes) };
        self.hash_line(ExportRecord::Blob(line).to_line())
    }

    /// The last line.
    pub fn finish(self) -> String {
        let digest = BlobHash(*self.digest.finalize().as_bytes());
        ExportRecord::End(ExportTrailer { events: self.events, blobs: self.blobs, digest }).to_line()
    }

    fn hash_line(&mut self, line: String) -> String {
        self.digest.update(line.as_bytes());
        line
    }
}
