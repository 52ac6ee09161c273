//! A complete export in memory, for fixtures and tests. Commands read line by line.

use std::collections::BTreeMap;

use super::{
    reader::{ExportError, ExportItem, ExportReader},
    records::{ExportHeader, ExportWriter},
};
use crate::{
    event::Envelope,
    ids::{BlobHash, StreamId},
};

/// A run with its lineage and every blob it refers to.
#[derive(Debug, Clone, PartialEq)]
pub struct InMemoryExport {
    /// The exported run.
    pub header: ExportHeader,
    /// All events: tasks first, then runs, with the exported run last.
    pub events: Vec<Envelope>,
    /// All blobs.
    pub blobs: BTreeMap<BlobHash, Vec<u8>>,
}

impl InMemoryExport {
    /// Parses an uncompressed file.
    ///
    /// # Errors
    ///
    /// [`ExportError`] with the line number.
    pub fn parse(file: &[u8]) -> Result<Self, ExportError> {
        let mut reader = ExportReader::new();
        let (mut events, mut blobs) = (Vec::new(), BTreeMap::new());
        // A file that does not end with a line break was truncated in its last line.
        let mut lines = file.split(|b| *b == b'\n');
        let rest = lines.next_back().unwrap_or_default();
        for line in lines {
            match reader.read_line(line)? {
                ExportItem::Header(_) | ExportItem::End => {}
                ExportItem::Event(event) => events.push(*event),
                ExportItem::Blob(blob, bytes) => {
                    blobs.insert(blob.hash, bytes);
                }
            }
        }
        if !rest.is_empty() {
            reader.read_line(rest)?;
        }
        let header = reader.finish()?.header;
        Ok(Self { header, events, blobs })
    }

    /// Returns the uncompressed file. The output of [`InMemoryExport::parse`] is written back byte for byte.
    pub fn to_text(&self) -> String {
        let (mut writer, mut file) =
            ExportWriter::begin_export(self.header.run, self.header.task, &self.header.made_by);
        self.events.iter().for_each(|event| file.push_str(&writer.encode_event(event)));
        self.blobs.values().for_each(|bytes| file.push_str(&writer.encode_blob(bytes)));
        file.push_str(&writer.finish());
        file
    }

    /// Returns the run's complete history, starting with the part shared with its ancestors, ready for
    /// folding.
    pub fn run_events(&self) -> Vec<Envelope> {
        let of_run = |event: &&Envelope| matches!(event.stream, StreamId::Run(_));
        self.events.iter().filter(of_run).cloned().collect()
    }

    /// Returns the events of one stream.
    pub fn stream_events<'a>(&'a self, stream: &'a StreamId) -> impl Iterator<Item = &'a Envelope> {
        self.events.iter().filter(move |event| event.stream == *stream)
    }
}
