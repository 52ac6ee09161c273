//! Line-by-line reader of export files. Checks everything that can be checked without a store.

use std::collections::BTreeSet;

use super::{
    lineage::{LineageError, LineageValidator},
    records::{
        BlobLine, EXPORT_LINE_BYTES_MAX, EXPORT_PREFIX, ExportHeader, ExportRecord, ExportTrailer, VERSION,
    },
};
use crate::{
    api::BODY_BYTES_MAX,
    blob_refs::BlobRefs,
    content::BlobRef,
    event::Envelope,
    ids::{BlobHash, Seq, StreamId},
    snapshot::{Manifest, ManifestError},
};

/// An incomplete or damaged export file, with the line of the error.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}", fault = fault)]
pub struct ExportError {
    /// The line number, starting at 1.
    pub line: u64,
    /// The problem.
    pub fault: ExportErrorKind,
}

/// The problem with an export file.
#[derive(Debug, thiserror::Error)]
pub enum ExportErrorKind {
    /// It is not an export.
    #[error("not a docket export: an export starts with `{{\"docket_export\":`")]
    NotAnExport,
    /// It was created by a newer docket version.
    #[error(
        "the file has format version {found}, but this build reads up to {VERSION}; import it with a newer docket"
    )]
    Version {
        /// The file's format version.
        found: u32,
    },
    /// The line is not a valid record.
    #[error("not a valid record ({0}); the file is damaged or was edited")]
    Record(String),
    /// The line is too long.
    #[error("the line exceeds the limit of {EXPORT_LINE_BYTES_MAX} bytes")]
    TooLong,
    /// A record is out of order.
    #[error("{0}")]
    OutOfOrder(&'static str),
    /// The events do not form a run with its lineage.
    #[error("{}", format_error_chain(.0))]
    Lineage(LineageError),
    /// A blob's bytes do not match its hash.
    #[error("the bytes of blob {0} do not match its hash and size")]
    BlobDamaged(BlobHash),
    /// A blob is not needed by any event.
    #[error("no event of the file refers to blob {0}, or the file contains it twice")]
    BlobUnreferenced(BlobHash),
    /// A base's manifest cannot be decoded.
    #[error("blob {blob} should be a base's manifest: {source}")]
    Manifest {
        /// The blob.
        blob: BlobHash,
        /// The cause.
        source: ManifestError,
    },
    /// A blob is missing.
    #[error("blob {blob} is missing, which event {seq} of {stream} refers to; export the run again")]
    BlobMissing {
        /// The blob.
        blob: BlobHash,
        /// The stream whose event refers to it.
        stream: StreamId,
        /// The event.
        seq: Seq,
    },
    /// The last line does not match the lines before it.
    #[error("the last record does not match the file's content: the file is damaged or was edited")]
    Digest,
    /// The file is truncated.
    #[error("the file is truncated: it ends here, before its last record")]
    Truncated,
}

fn format_error_chain(error: &LineageError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The content of a line.
#[derive(Debug)]
pub enum ExportItem {
    /// The file's first line.
    Header(ExportHeader),
    /// An event, verified to follow the previous ones.
    Event(Box<Envelope>),
    /// A verified blob that an earlier event refers to.
    Blob(BlobRef, Vec<u8>),
    /// The last line. [`ExportReader::finish`] checks whether the file is complete.
    End,
}

/// A fully read and verified export file.
#[derive(Debug)]
pub struct VerifiedExport {
    /// Its first line.
    pub header: ExportHeader,
    /// Its verified streams.
    pub lineage: LineageValidator,
    /// Its blobs.
    pub blobs: BTreeSet<BlobHash>,
}

/// Reads and verifies an export file. See [`super`]. It stores hashes and folds, and no contents except the
/// hashes listed in manifests.
#[derive(Debug, Default)]
pub struct ExportReader {
    lines: u64,
    digest: blake3::Hasher,
    header: Option<ExportHeader>,
    lineage: LineageValidator,
    blob_refs: BlobRefs,
    blobs: BTreeSet<BlobHash>,
    ended: bool,
}

/// Parses a line as a record after checking its length, and adds it to the file's digest. `begins` is the
/// required prefix of the first line.
pub(super) fn parse_record(
    line: &[u8],
    begins: Option<&[u8]>,
    ended: bool,
    digest: &mut blake3::Hasher,
) -> Result<ExportRecord, ExportErrorKind> {
    if ended {
        return Err(ExportErrorKind::OutOfOrder("the file continues after the last record"));
    }
    if line.len() > EXPORT_LINE_BYTES_MAX {
        return Err(ExportErrorKind::TooLong);
    }
    if begins.is_some_and(|begins| !line.starts_with(begins)) {
        return Err(ExportErrorKind::NotAnExport);
    }
    let record: ExportRecord =
        serde_json::from_slice(line).map_err(|error| ExportErrorKind::Record(error.to_string()))?;
    if !matches!(record, ExportRecord::End(_)) {
        digest.update(line);
        digest.update(b"\n");
    }
    Ok(record)
}

impl ExportReader {
    /// Creates a reader that expects the first line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a line, given without its line break.
    ///
    /// # Errors
    ///
    /// [`ExportError`]; nothing of the file may be used.
    pub fn read_line(&mut self, line: &[u8]) -> Result<ExportItem, ExportError> {
        self.lines += 1;
        let number = self.lines;
        self.process_line(line).map_err(|fault| ExportError { line: number, fault })
    }

    fn process_line(&mut self, line: &[u8]) -> Result<ExportItem, ExportErrorKind> {
        let begins = self.header.is_none().then_some(EXPORT_PREFIX);
        let record = parse_record(line, begins, self.ended, &mut self.digest)?;
        match record {
            ExportRecord::Header(header) => self.accept_header(header),
            ExportRecord::Archive(_) => Err(ExportErrorKind::NotAnExport),
            ExportRecord::Event(event) => self.accept_event(event),
            ExportRecord::Blob(blob) => self.accept_blob(&blob),
            ExportRecord::End(end) => self.accept_trailer(&end),
        }
    }

    fn accept_header(&mut self, header: ExportHeader) -> Result<ExportItem, ExportErrorKind> {
        if self.header.is_some() {
            return Err(ExportErrorKind::OutOfOrder("a second header in the middle of the file"));
        }
        if header.version == 0 || header.version > VERSION {
            return Err(ExportErrorKind::Version { found: header.version });
        }
        self.header = Some(header.clone());
        Ok(ExportItem::Header(header))
    }

    fn accept_event(&mut self, event: Box<Envelope>) -> Result<ExportItem, ExportErrorKind> {
        if !self.blobs.is_empty() {
            return Err(ExportErrorKind::OutOfOrder("an event after a blob"));
        }
        self.lineage.push(&event).map_err(ExportErrorKind::Lineage)?;
        self.blob_refs.add_event(&event).map_err(|e| ExportErrorKind::Record(e.to_string()))?;
        Ok(ExportItem::Event(event))
    }

    fn accept_blob(&mut self, line: &BlobLine) -> Result<ExportItem, ExportErrorKind> {
        let hash = line.blob.hash;
        let need = self.blob_refs.get(&hash).filter(|need| need.bytes == line.blob.bytes);
        let Some(need) = need.filter(|_| !self.blobs.contains(&hash)) else {
            return Err(ExportErrorKind::BlobUnreferenced(hash));
        };
        let bytes = line.content.inline_bytes().ok_or(ExportErrorKind::BlobDamaged(hash))?;
        if bytes.len() > BODY_BYTES_MAX || BlobRef::for_bytes(&bytes) != line.blob {
            return Err(ExportErrorKind::BlobDamaged(hash));
        }
        if need.manifest.is_some() {
            let manifest = Manifest::decode(&bytes)
                .map_err(|source| ExportErrorKind::Manifest { blob: hash, source })?;
            self.blob_refs.add_manifest(hash, &manifest);
        }
        self.blobs.insert(hash);
        Ok(ExportItem::Blob(line.blob, bytes))
    }

    fn accept_trailer(&mut self, end: &ExportTrailer) -> Result<ExportItem, ExportErrorKind> {
        let digest = BlobHash(*self.digest.finalize().as_bytes());
        let counted =
            ExportTrailer { events: self.lineage.event_count(), blobs: self.blobs.len() as u64, digest };
        if *end != counted {
            return Err(ExportErrorKind::Digest);
        }
        self.ended = true;
        Ok(ExportItem::End)
    }

    /// Finishes reading, and verifies that the file is complete.
    ///
    /// # Errors
    ///
    /// [`ExportError`] if the file is truncated or incomplete.
    pub fn finish(self) -> Result<VerifiedExport, ExportError> {
        let line = self.lines;
        self.verify_complete().map_err(|fault| ExportError { line, fault })
    }

    fn verify_complete(self) -> Result<VerifiedExport, ExportErrorKind> {
        let header = self.header.ok_or(ExportErrorKind::NotAnExport)?;
        if !self.ended {
            return Err(ExportErrorKind::Truncated);
        }
        let runs = self.lineage.resolve_runs(header.run).map_err(ExportErrorKind::Lineage)?;
        if runs.last().is_none_or(|(_, of)| of.task != header.task) {
            return Err(ExportErrorKind::OutOfOrder("the first line and the run name different tasks"));
        }
        if let Some((blob, need)) =
            self.blob_refs.required().find(|(blob, _)| !self.blobs.contains(&blob.hash))
        {
            let (blob, stream, seq) = (blob.hash, need.stream.clone(), need.seq);
            return Err(ExportErrorKind::BlobMissing { blob, stream, seq });
        }
        Ok(VerifiedExport { header, lineage: self.lineage, blobs: self.blobs })
    }
}
