//! Reads a file line by line and checks everything that can be checked without a store.

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

/// A file that is no whole, undamaged export, and the line where it shows.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}", fault = fault)]
pub struct ExportError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: ExportErrorKind,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum ExportErrorKind {
    /// It is something else.
    #[error("this is no run that docket exported: such a file begins with `{{\"docket_export\":`")]
    NotAnExport,
    /// A newer docket made it.
    #[error(
        "the file has version {found} of the format, this build reads up to {VERSION}; import it with a newer docket"
    )]
    Version {
        /// The file's.
        found: u32,
    },
    /// The line is none of the format's.
    #[error("it cannot be read as a record ({0}); the file is damaged or was edited")]
    Record(String),
    /// The line is too long to be one.
    #[error("it is longer than {EXPORT_LINE_BYTES_MAX} bytes, which no line of an export is")]
    TooLong,
    /// A record where another belongs.
    #[error("{0}")]
    OutOfOrder(&'static str),
    /// The events are no run with its lineage.
    #[error("{}", format_error_chain(.0))]
    Lineage(LineageError),
    /// A blob's bytes are others.
    #[error("the bytes of blob {0} do not have its hash and size")]
    BlobDamaged(BlobHash),
    /// A blob that nothing needs.
    #[error("blob {0} is named by no event of the file, or stands in it twice")]
    BlobUnreferenced(BlobHash),
    /// A base's manifest that does not decode.
    #[error("blob {blob} should be a base's manifest: {source}")]
    Manifest {
        /// The blob.
        blob: BlobHash,
        /// Why it is none.
        source: ManifestError,
    },
    /// A blob is missing.
    #[error("the file lacks blob {blob}, which event {seq} of {stream} names; export the run again")]
    BlobMissing {
        /// The blob.
        blob: BlobHash,
        /// Who names it.
        stream: StreamId,
        /// Which event.
        seq: Seq,
    },
    /// The last line does not fit what stands before it.
    #[error("the end does not fit what stands before it: the file is damaged or was edited")]
    Digest,
    /// The file ends early.
    #[error("the file ends here, before its last record: it was cut short")]
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

/// What a line brought.
#[derive(Debug)]
pub enum ExportItem {
    /// The file's first line.
    Header(ExportHeader),
    /// An event; it follows those before it.
    Event(Box<Envelope>),
    /// A blob; an event before it names it, and its bytes are checked.
    Blob(BlobRef, Vec<u8>),
    /// The last line. [`Reader::finish`] says whether the file is whole.
    End,
}

/// A file that was read to its end and holds.
#[derive(Debug)]
pub struct VerifiedExport {
    /// Its first line.
    pub header: ExportHeader,
    /// Its streams, checked.
    pub lineage: LineageValidator,
    /// Its blobs.
    pub blobs: BTreeSet<BlobHash>,
}

/// See [`super`]. Keeps hashes and folds, no contents but those of manifests' names.
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

/// The record of a line: bounded before it is read, and counted into the file's digest. `begins` is what the first
/// line must begin with.
pub(super) fn parse_record(
    line: &[u8],
    begins: Option<&[u8]>,
    ended: bool,
    digest: &mut blake3::Hasher,
) -> Result<ExportRecord, ExportErrorKind> {
    if ended {
        return Err(ExportErrorKind::OutOfOrder("something stands after the last record"));
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
    /// A reader before the first line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a line without its line break.
    ///
    /// # Errors
    /// [`ExportError`]: nothing of the file may be used.
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
            return Err(ExportErrorKind::OutOfOrder("the file begins again in its middle"));
        }
        if header.version == 0 || header.version > VERSION {
            return Err(ExportErrorKind::Version { found: header.version });
        }
        self.header = Some(header.clone());
        Ok(ExportItem::Header(header))
    }

    fn accept_event(&mut self, event: Box<Envelope>) -> Result<ExportItem, ExportErrorKind> {
        if !self.blobs.is_empty() {
            return Err(ExportErrorKind::OutOfOrder("an event stands after a blob"));
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

    /// The file is read: is it whole?
    ///
    /// # Errors
    /// [`ExportError`]: it was cut, or lacks something.
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
            return Err(ExportErrorKind::OutOfOrder("the first line names another task than the run does"));
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
