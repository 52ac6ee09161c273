//! Archive files: a lineage group as one file. The lines are those of an exported run ([`super`]), with another
//! first line and without the rule that all runs form a single line of descent. A group consists of all runs that
//! share history with each other, their tasks, and the other runs of these tasks. There are no references between
//! a group and anything outside of it.
//!
//! 1. `{"docket_archive":{"version":1,"task":…,"made_by":…,"streams":[{"stream":…,"head":…,"run_of":…}]}}`: the
//!    streams, in the order of the file, with their heads;
//! 2. the complete events of each stream: tasks first, each run after the run it continues;
//! 3. every blob they refer to;
//! 4. the end, with a digest over all lines before it.
//!
//! [`ArchiveReader`] proves that the streams are the ones that were archived: it recomputes each chain from its
//! beginning to the head in the first line, and the log that archived them contains that head. Pure, and bounded
//! in the same way as [`super::ExportReader`].

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

/// Prefix of every uncompressed archive file.
pub const ARCHIVE_PREFIX: &[u8] = b"{\"docket_archive\":";

/// Maximum number of streams in one archived group: the file's first line and the archive event list all of
/// them.
pub const ARCHIVE_STREAMS_MAX: usize = 1000;

/// Maximum number of events in one archived group, which is restored in one transaction.
pub const ARCHIVE_EVENTS_MAX: u64 = EXPORT_EVENTS_MAX;

impl ExportWriter {
    /// Creates a writer of an archive file, and the file's first line.
    pub fn begin_archive(header: ArchiveHeader) -> (Self, String) {
        Self::begin_with(&ExportRecord::Archive(header))
    }
}

/// The content of one line of an archive file.
#[derive(Debug)]
pub enum ArchiveItem {
    /// The first line.
    Header(ArchiveHeader),
    /// Any other line, as in an export.
    Item(ExportItem),
}

/// A fully read and verified archive file.
#[derive(Debug)]
pub struct VerifiedArchive {
    /// Its first line, verified against the events.
    pub header: ArchiveHeader,
    /// Number of events.
    pub events: u64,
    /// The file's blobs.
    pub blobs: BTreeSet<BlobHash>,
    /// The blobs that must be stored together with the streams.
    pub required: Vec<BlobHash>,
}

/// Reads and verifies an archive file. See the module documentation.
#[derive(Debug, Default)]
pub struct ArchiveReader {
    lines: u64,
    digest: blake3::Hasher,
    header: Option<ArchiveHeader>,
    /// The streams read so far, with their heads.
    heads: Vec<(StreamId, Head)>,
    /// The hash of every event, used to find the parent event of a fork.
    hashes: BTreeMap<StreamId, Vec<EventHash>>,
    events: u64,
    blob_refs: BlobRefs,
    blobs: BTreeSet<BlobHash>,
    ended: bool,
}

impl ArchiveReader {
    /// Creates a reader that expects the first line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a line, given without its line break.
    ///
    /// # Errors
    ///
    /// [`ExportError`]; nothing of the file may be used.
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
            ExportRecord::Header(_) => Err(ExportErrorKind::OutOfOrder("an exported run inside an archive")),
            ExportRecord::Event(event) => self.accept_event(event).map(ArchiveItem::Item),
            ExportRecord::Blob(blob) => self.accept_blob(&blob).map(ArchiveItem::Item),
            ExportRecord::End(end) => self.accept_trailer(&end).map(ArchiveItem::Item),
        }
    }

    fn accept_header(&mut self, header: ArchiveHeader) -> Result<ArchiveItem, ExportErrorKind> {
        if self.header.is_some() {
            return Err(ExportErrorKind::OutOfOrder("a second header in the middle of the file"));
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
            return Err(ExportErrorKind::OutOfOrder("an event after a blob"));
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
                    "its stream is not the next one listed in the first line",
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

    /// Skips streams without events: a run that was leased and never started appears only in the first line.
    fn skip_empty_streams(&mut self) {
        let named = self.header.iter().flat_map(|header| &header.streams).skip(self.heads.len());
        let empty = named.take_while(|named| named.head == Head::EMPTY);
        let empty: Vec<_> = empty.map(|named| (named.stream.clone(), Head::EMPTY)).collect();
        self.heads.extend(empty);
    }

    /// Returns the head before a stream's first event: empty, or the parent event of a fork.
    fn head_before_first(&self, event: &Envelope) -> Result<Head, ExportErrorKind> {
        let StreamId::Run(_) = event.stream else { return Ok(Head::EMPTY) };
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .map_err(|error| ExportErrorKind::Record(error.to_string()))?;
        let RunEvent::Forked(forked) = typed else { return Ok(Head::EMPTY) };
        let parent = self.hashes.get(&StreamId::Run(forked.parent));
        let at = usize::try_from(forked.seq.0).ok().and_then(|seq| seq.checked_sub(1));
        if parent.zip(at).and_then(|(hashes, at)| hashes.get(at)) != Some(&forked.hash) {
            return Err(misplaced_error(event, "its parent does not come before it"));
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

    /// Finishes reading, and verifies that the file is complete and matches its first line.
    ///
    /// # Errors
    ///
    /// [`ExportError`] if the file is truncated or incomplete.
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
            return Err(ExportErrorKind::OutOfOrder("its streams do not end as listed in the first line"));
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
