//! A family as one file: what the archive holds. The lines are those of an exported run ([`super`]), with
//! another first line and without the rule that all runs stand in one row: a family is every run that shares
//! history with another of it, their tasks, and those tasks' other runs. Nothing outside stands on it, and it
//! stands on nothing outside.
//!
//! 1. `{"docket_archive":{"version":1,"task":…,"made_by":…,"streams":[{"stream":…,"head":…,"run_of":…}]}}`: which
//!    streams, in the order in which they stand there, and where each ends;
//! 2. the events of each stream from its first on: tasks first, each run after the one that it stands on;
//! 3. every blob that they name; 4. the end, with a digest over all lines before it.
//!
//! [`FamilyReader`] proves that the streams are the ones that were archived: each chain is computed again
//! from its beginning to the head that the first line names, and that head stands in the log that let them
//! go. Pure, and bounded as [`super::Reader`] is.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    lineage::{EXPORT_EVENTS_MAX, LineageError},
    reader::{ExportError, ExportErrorKind, ExportItem, parse_record},
    records::{ArchiveHeader, BlobLine, ExportRecord, ExportTrailer, ExportWriter, VERSION},
};
use crate::{
    api::BODY_BYTES_MAX,
    blob_refs::BlobRefs,
    content::BlobRef,
    event::{Envelope, Head, TypedEvent as _, verify_and_advance},
    ids::{BlobHash, EventHash, Seq, StreamId},
    run::RunEvent,
    snapshot::Manifest,
};

/// How every uncompressed file of the archive begins.
pub const ARCHIVE_PREFIX: &[u8] = b"{\"docket_archive\":";

/// Most streams of one family that is archived: its first line, and the event that tells of it, name all.
pub const ARCHIVE_STREAMS_MAX: usize = 1000;

/// Most events of it: it is brought back in one transaction.
pub const ARCHIVE_EVENTS_MAX: u64 = EXPORT_EVENTS_MAX;

impl ExportWriter {
    /// A writer of a file of the archive, and its first line.
    pub fn begin_archive(header: ArchiveHeader) -> (Self, String) {
        Self::begin_with(&ExportRecord::Archive(header))
    }
}

/// What a line of a file of the archive brought.
#[derive(Debug)]
pub enum ArchiveItem {
    /// The first line.
    Header(ArchiveHeader),
    /// As in an export.
    Item(ExportItem),
}

/// A file that was read to its end and holds.
#[derive(Debug)]
pub struct VerifiedArchive {
    /// Its first line, which its events were compared with.
    pub header: ArchiveHeader,
    /// How many events it has.
    pub events: u64,
    /// Its blobs.
    pub blobs: BTreeSet<BlobHash>,
    /// Those of them that must be stored where its streams are.
    pub required: Vec<BlobHash>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ArchiveReader {
    lines: u64,
    digest: blake3::Hasher,
    header: Option<ArchiveHeader>,
    /// Streams that were read, and where each stands.
    heads: Vec<(StreamId, Head)>,
    /// Every event's hash, by which a fork finds what it stands on.
    hashes: BTreeMap<StreamId, Vec<EventHash>>,
    events: u64,
    blob_refs: BlobRefs,
    blobs: BTreeSet<BlobHash>,
    ended: bool,
}

impl ArchiveReader {
    /// A reader before the first line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a line without its line break.
    ///
    /// # Errors
    /// [`ExportError`]: nothing of the file may be used.
    pub fn read_line(&mut self, line: &[u8]) -> Result<ArchiveItem, ExportError> {
        self.lines += 1;
        let number = self.lines;
        self.process_line(line).map_err(|fault| ExportError { line: number, fault })
    }

    fn process_line(&mut self, line: &[u8]) -> Result<ArchiveItem, ExportErrorKind> {
        let begins = self.header.is_none().then_some(ARCHIVE_PREFIX);
        let record = parse_record(line, begins, self.ended, &mut self.digest)?;
        match record {
            ExportRecord::Archive(header) => self.accept_header(header),
            ExportRecord::Header(_) => {
                Err(ExportErrorKind::OutOfOrder("an exported run stands within an archive"))
            }
            ExportRecord::Event(event) => self.accept_event(event).map(ArchiveItem::Item),
            ExportRecord::Blob(blob) => self.accept_blob(&blob).map(ArchiveItem::Item),
            ExportRecord::End(end) => self.accept_trailer(&end).map(ArchiveItem::Item),
        }
    }

    fn accept_header(&mut self, header: ArchiveHeader) -> Result<ArchiveItem, ExportErrorKind> {
        if self.header.is_some() {
            return Err(ExportErrorKind::OutOfOrder("the file begins again in its middle"));
        }
        if header.version == 0 || header.version > VERSION {
            return Err(ExportErrorKind::Version { found: header.version });
        }
        if header.streams.len() > ARCHIVE_STREAMS_MAX {
            return Err(ExportErrorKind::Lineage(LineageError::TooLong));
        }
        self.header = Some(header.clone());
        Ok(ArchiveItem::Header(header))
    }

    fn accept_event(&mut self, event: Box<Envelope>) -> Result<ExportItem, ExportErrorKind> {
        if !self.blobs.is_empty() {
            return Err(ExportErrorKind::OutOfOrder("an event stands after a blob"));
        }
        self.events += 1;
        if self.events > ARCHIVE_EVENTS_MAX {
            return Err(ExportErrorKind::Lineage(LineageError::TooLong));
        }
        let goes_on = self.heads.last().is_some_and(|(stream, _)| *stream == event.stream);
        if !goes_on {
            self.skip_empty_streams();
            let next = self.header.as_ref().and_then(|header| header.streams.get(self.heads.len()));
            if next.is_none_or(|next| next.stream != event.stream) {
                return Err(misplaced_error(
                    &event,
                    "its stream is not the one that the first line names next",
                ));
            }
            let begins_at = self.head_before_first(&event)?;
            self.heads.push((event.stream.clone(), begins_at));
        }
        let (_, head) = self.heads.last_mut().expect("a stream was just put there");
        *head = verify_and_advance(*head, &event).map_err(|error| ExportErrorKind::Lineage(error.into()))?;
        self.hashes.entry(event.stream.clone()).or_default().push(event.hash);
        self.blob_refs.add_event(&event).map_err(|e| ExportErrorKind::Record(e.to_string()))?;
        Ok(ExportItem::Event(event))
    }

    /// Streams that never had an event stand in the first line alone: a run that was leased and never began.
    fn skip_empty_streams(&mut self) {
        let named = self.header.iter().flat_map(|header| &header.streams).skip(self.heads.len());
        let empty = named.take_while(|named| named.head == Head::EMPTY);
        let empty: Vec<_> = empty.map(|named| (named.stream.clone(), Head::EMPTY)).collect();
        self.heads.extend(empty);
    }

    /// What a stream's first event follows: nothing, or the event that the run stands on.
    fn head_before_first(&self, event: &Envelope) -> Result<Head, ExportErrorKind> {
        let StreamId::Run(_) = event.stream else { return Ok(Head::EMPTY) };
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .map_err(|error| ExportErrorKind::Record(error.to_string()))?;
        let RunEvent::Forked(forked) = typed else { return Ok(Head::EMPTY) };
        let parent = self.hashes.get(&StreamId::Run(forked.parent));
        let at = usize::try_from(forked.seq.0).ok().and_then(|seq| seq.checked_sub(1));
        if parent.zip(at).and_then(|(hashes, at)| hashes.get(at)) != Some(&forked.hash) {
            return Err(misplaced_error(event, "what it stands on does not stand before it"));
        }
        Ok(Head { seq: Seq(0), hash: forked.hash })
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
        let counted = ExportTrailer { events: self.events, blobs: self.blobs.len() as u64, digest };
        if *end != counted {
            return Err(ExportErrorKind::Digest);
        }
        self.ended = true;
        Ok(ExportItem::End)
    }

    /// The file is read: is it whole, and what its first line says?
    ///
    /// # Errors
    /// [`ExportError`]: it was cut, or lacks something.
    pub fn finish(self) -> Result<VerifiedArchive, ExportError> {
        let line = self.lines;
        self.verify_complete().map_err(|fault| ExportError { line, fault })
    }

    fn verify_complete(mut self) -> Result<VerifiedArchive, ExportErrorKind> {
        self.skip_empty_streams();
        let header = self.header.ok_or(ExportErrorKind::NotAnExport)?;
        if !self.ended {
            return Err(ExportErrorKind::Truncated);
        }
        let named = header.streams.iter().map(|named| (&named.stream, named.head));
        if !named.eq(self.heads.iter().map(|(stream, head)| (stream, *head))) {
            return Err(ExportErrorKind::OutOfOrder("its streams do not end where the first line says"));
        }
        if let Some((blob, need)) =
            self.blob_refs.required().find(|(blob, _)| !self.blobs.contains(&blob.hash))
        {
            let (blob, stream, seq) = (blob.hash, need.stream.clone(), need.seq);
            return Err(ExportErrorKind::BlobMissing { blob, stream, seq });
        }
        let required = self.blob_refs.required().map(|(blob, _)| blob.hash).collect();
        Ok(VerifiedArchive { header, events: self.events, blobs: self.blobs, required })
    }
}

fn misplaced_error(event: &Envelope, what: &'static str) -> ExportErrorKind {
    ExportErrorKind::Lineage(LineageError::Misplaced { stream: event.stream.clone(), seq: event.seq, what })
}
