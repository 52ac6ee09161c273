//! Records of an exported run, and the writer that counts and digests them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::{
    api::BODY_BYTES_MAX,
    content::{BlobRef, Content},
    event::Envelope,
    ids::{BlobHash, Position, RunId, TaskId},
    system::StreamArchived,
};

/// The format version that this build writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// Prefix of every uncompressed export file.
pub const EXPORT_PREFIX: &[u8] = b"{\"docket_export\":";

/// Maximum length of a line, in bytes: the largest blob a store accepts, as text in which every character is
/// escaped (base64 is shorter), plus its frame.
pub const EXPORT_LINE_BYTES_MAX: usize = BODY_BYTES_MAX * 2 + 1024;

/// The first line: identifies the exported run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportHeader {
    /// The format version: [`VERSION`].
    pub version: u32,
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskId,
    /// The program that created the file: `docket 0.1.0`.
    pub made_by: String,
}

/// The first line of an archive file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveHeader {
    /// The format version: [`VERSION`].
    pub version: u32,
    /// The group's first task.
    pub task: TaskId,
    /// The program that created the file: `docket 0.1.0`.
    pub made_by: String,
    /// Its streams, in order.
    pub streams: Vec<StreamArchived>,
}

/// A blob with its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobLine {
    /// Hash and size of the bytes.
    pub blob: BlobRef,
    /// The bytes, inline.
    pub content: Content,
}

/// The last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportTrailer {
    /// Number of events in the file.
    pub events: u64,
    /// Number of blobs in the file.
    pub blobs: u64,
    /// BLAKE3 hash over all lines before this one.
    pub digest: BlobHash,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExportRecord {
    /// The first line.
    #[serde(rename = "docket_export")]
    Header(ExportHeader),
    /// The first line of an archive file.
    #[serde(rename = "docket_archive")]
    Archive(ArchiveHeader),
    /// An event.
    Event(Box<Envelope>),
    /// A blob.
    Blob(BlobLine),
    /// The last line.
    End(ExportTrailer),
}

impl ExportRecord {
    /// Returns the record as a line with its line break.
    fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("records have string keys only");
        line.push('\n');
        line
    }
}

/// Encodes bytes as text if each character takes at most two bytes of JSON, otherwise as base64.
fn to_readable_content(bytes: &[u8]) -> Content {
    match Content::inline(bytes) {
        Content::Text(text) if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) => {
            Content::B64(STANDARD.encode(bytes))
        }
        content => content,
    }
}

/// Formats an event as a line, without its position in the log that it comes from.
pub fn format_event_line(event: &Envelope) -> String {
    ExportRecord::Event(Box::new(Envelope { position: Position(0), ..event.clone() })).to_line()
}

/// Writes the lines of a file in calling order: header, events, blobs, end.
#[derive(Debug)]
pub struct ExportWriter {
    digest: blake3::Hasher,
    events: u64,
    blobs: u64,
}

impl ExportWriter {
    /// Creates a writer, and the first line.
    pub fn begin_export(run: RunId, task: TaskId, made_by: &str) -> (Self, String) {
        Self::begin_with(&ExportRecord::Header(ExportHeader {
            version: VERSION,
            run,
            task,
            made_by: made_by.to_owned(),
        }))
    }

    /// Creates a writer, and the line of `first`.
    pub(super) fn begin_with(first: &ExportRecord) -> (Self, String) {
        let mut writer = Self { digest: blake3::Hasher::new(), events: 0, blobs: 0 };
        let line = writer.hash_line(first.to_line());
        (writer, line)
    }

    /// Returns the line of an event.
    pub fn encode_event(&mut self, event: &Envelope) -> String {
        self.events += 1;
        self.hash_line(format_event_line(event))
    }

    /// Returns the line of a blob.
    pub fn encode_blob(&mut self, bytes: &[u8]) -> String {
        self.blobs += 1;
        let line = BlobLine { blob: BlobRef::for_bytes(bytes), content: to_readable_content(bytes) };
        self.hash_line(ExportRecord::Blob(line).to_line())
    }

    /// Returns the last line.
    pub fn finish(self) -> String {
        let digest = BlobHash(*self.digest.finalize().as_bytes());
        ExportRecord::End(ExportTrailer { events: self.events, blobs: self.blobs, digest }).to_line()
    }

    fn hash_line(&mut self, line: String) -> String {
        self.digest.update(line.as_bytes());
        line
    }
}
