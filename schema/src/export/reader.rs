//! Reads a file line by line and checks everything that can be checked without a store.

use std::collections::BTreeSet;

use super::{
    line::{BlobLine, End, Header, LINE_BYTES_MAX, PLAIN_START, Record, VERSION},
    lineage::{Lineage, LineageError},
};
use crate::{
    content::BlobRef,
    event::Envelope,
    ids::{BlobHash, Seq, StreamId},
    names::Needs,
    snapshot::{Manifest, ManifestError},
    wire::BODY_BYTES_MAX,
};

/// A file that is no whole, undamaged export, and the line where it shows.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {fault}", fault = fault)]
pub struct ExportError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: ExportFault,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum ExportFault {
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
    #[error("it is longer than {LINE_BYTES_MAX} bytes, which no line of an export is")]
    TooLong,
    /// A record where another belongs.
    #[error("{0}")]
    Order(&'static str),
    /// The events are no run with its lineage.
    #[error("{}", chain(.0))]
    Lineage(LineageError),
    /// A blob's bytes are others.
    #[error("the bytes of blob {0} do not have its hash and size")]
    BlobDamaged(BlobHash),
    /// A blob that nothing needs.
    #[error("blob {0} is named by no event of the file, or stands in it twice")]
    BlobUnwanted(BlobHash),
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
    BlobLacking {
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
    Cut,
}

fn chain(error: &LineageError) -> String {
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
pub enum Item {
    /// The file's first line.
    Header(Header),
    /// An event; it follows those before it.
    Event(Box<Envelope>),
    /// A blob; an event before it names it, and its bytes are checked.
    Blob(BlobRef, Vec<u8>),
    /// The last line. [`Reader::finish`] says whether the file is whole.
    End,
}

/// A file that was read to its end and holds.
#[derive(Debug)]
pub struct Read {
    /// Its first line.
    pub header: Header,
    /// Its streams, checked.
    pub lineage: Lineage,
    /// Its blobs.
    pub blobs: BTreeSet<BlobHash>,
}

/// See [`super`]. Keeps hashes and folds, no contents but those of manifests' names.
#[derive(Debug, Default)]
pub struct Reader {
    lines: u64,
    digest: blake3::Hasher,
    header: Option<Header>,
    lineage: Lineage,
    needs: Needs,
    blobs: BTreeSet<BlobHash>,
    ended: bool,
}

/// The record of a line: bounded before it is read, and counted into the file's digest. `begins` is what the first
/// line must begin with.
pub(super) fn record_of(
    line: &[u8],
    begins: Option<&[u8]>,
    ended: bool,
    digest: &mut blake3::Hasher,
) -> Result<Record, ExportFault> {
    if ended {
        return Err(ExportFault::Order("something stands after the last record"));
    }
    if line.len() > LINE_BYTES_MAX {
        return Err(ExportFault::TooLong);
    }
    if begins.is_some_and(|begins| !line.starts_with(begins)) {
        return Err(ExportFault::NotAnExport);
    }
    let record: Record =
        serde_json::from_slice(line).map_err(|error| ExportFault::Record(error.to_string()))?;
    if !matches!(record, Record::End(_)) {
        digest.update(line);
        digest.update(b"\n");
    }
    Ok(record)
}

impl Reader {
    /// A reader before the first line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a line without its line break.
    ///
    /// # Errors
    /// [`ExportError`]: nothing of the file may be used.
    pub fn line(&mut self, line: &[u8]) -> Result<Item, ExportError> {
        self.lines += 1;
        let number = self.lines;
        self.take(line).map_err(|fault| ExportError { line: number, fault })
    }

    fn take(&mut self, line: &[u8]) -> Result<Item, ExportFault> {
        let begins = self.header.is_none().then_some(PLAIN_START);
        let record = record_of(line, begins, self.ended, &mut self.digest)?;
        match record {
            Record::Header(header) => self.header(header),
            Record::Archive(_) => Err(ExportFault::NotAnExport),
            Record::Event(event) => self.event(event),
            Record::Blob(blob) => self.blob(&blob),
            Record::End(end) => self.end(&end),
        }
    }

    fn header(&mut self, header: Header) -> Result<Item, ExportFault> {
        if self.header.is_some() {
            return Err(ExportFault::Order("the file begins again in its middle"));
        }
        if header.version == 0 || header.version > VERSION {
            return Err(ExportFault::Version { found: header.version });
        }
        self.header = Some(header.clone());
        Ok(Item::Header(header))
    }

    fn event(&mut self, event: Box<Envelope>) -> Result<Item, ExportFault> {
        if !self.blobs.is_empty() {
            return Err(ExportFault::Order("an event stands after a blob"));
        }
        self.lineage.push(&event).map_err(ExportFault::Lineage)?;
        self.needs.event(&event).map_err(|e| ExportFault::Record(e.to_string()))?;
        Ok(Item::Event(event))
    }

    fn blob(&mut self, line: &BlobLine) -> Result<Item, ExportFault> {
        let hash = line.blob.hash;
        let need = self.needs.get(&hash).filter(|need| need.bytes == line.blob.bytes);
        let Some(need) = need.filter(|_| !self.blobs.contains(&hash)) else {
            return Err(ExportFault::BlobUnwanted(hash));
        };
        let bytes = line.content.inline_bytes().ok_or(ExportFault::BlobDamaged(hash))?;
        if bytes.len() > BODY_BYTES_MAX || BlobRef::of(&bytes) != line.blob {
            return Err(ExportFault::BlobDamaged(hash));
        }
        if need.manifest.is_some() {
            let manifest =
                Manifest::decode(&bytes).map_err(|source| ExportFault::Manifest { blob: hash, source })?;
            self.needs.manifest(hash, &manifest);
        }
        self.blobs.insert(hash);
        Ok(Item::Blob(line.blob, bytes))
    }

    fn end(&mut self, end: &End) -> Result<Item, ExportFault> {
        let digest = BlobHash(*self.digest.finalize().as_bytes());
        let counted = End { events: self.lineage.events(), blobs: self.blobs.len() as u64, digest };
        if *end != counted {
            return Err(ExportFault::Digest);
        }
        self.ended = true;
        Ok(Item::End)
    }

    /// The file is read: is it whole?
    ///
    /// # Errors
    /// [`ExportError`]: it was cut, or lacks something.
    pub fn finish(self) -> Result<Read, ExportError> {
        let line = self.lines;
        self.whole().map_err(|fault| ExportError { line, fault })
    }

    fn whole(self) -> Result<Read, ExportFault> {
        let header = self.header.ok_or(ExportFault::NotAnExport)?;
        if !self.ended {
            return Err(ExportFault::Cut);
        }
        let runs = self.lineage.runs(header.run).map_err(ExportFault::Lineage)?;
        if runs.last().is_none_or(|(_, of)| of.task != header.task) {
            return Err(ExportFault::Order("the first line names another task than the run does"));
        }
        if let Some((blob, need)) = self.needs.required().find(|(blob, _)| !self.blobs.contains(&blob.hash)) {
            let (blob, stream, seq) = (blob.hash, need.stream.clone(), need.seq);
            return Err(ExportFault::BlobLacking { blob, stream, seq });
        }
        Ok(Read { header, lineage: self.lineage, blobs: self.blobs })
    }
}
