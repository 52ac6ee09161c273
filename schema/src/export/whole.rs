//! A whole export in memory: for fixtures and tests. Commands go line by line.

use std::collections::BTreeMap;

use super::{
    line::{Header, Writer},
    reader::{ExportError, Item, Reader},
};
use crate::{
    event::Envelope,
    ids::{BlobHash, StreamId},
};

/// A run with its lineage and every blob it names.
#[derive(Debug, Clone, PartialEq)]
pub struct Export {
    /// Which run.
    pub header: Header,
    /// All events: tasks first, then runs, the exported one last.
    pub events: Vec<Envelope>,
    /// All blobs.
    pub blobs: BTreeMap<BlobHash, Vec<u8>>,
}

impl Export {
    /// Reads an uncompressed file.
    ///
    /// # Errors
    /// [`ExportError`] names the line.
    pub fn read(file: &[u8]) -> Result<Self, ExportError> {
        let mut reader = Reader::new();
        let (mut events, mut blobs) = (Vec::new(), BTreeMap::new());
        // A file that does not end with a line break was cut within its last line.
        let mut lines = file.split(|b| *b == b'\n');
        let rest = lines.next_back().unwrap_or_default();
        for line in lines {
            match reader.line(line)? {
                Item::Header(_) | Item::End => {}
                Item::Event(event) => events.push(*event),
                Item::Blob(blob, bytes) => {
                    blobs.insert(blob.hash, bytes);
                }
            }
        }
        if !rest.is_empty() {
            reader.line(rest)?;
        }
        let header = reader.finish()?.header;
        Ok(Self { header, events, blobs })
    }

    /// The uncompressed file. What [`Export::read`] gave is written as it was, to the byte.
    pub fn write(&self) -> String {
        let (mut writer, mut file) = Writer::begin(self.header.run, self.header.task, &self.header.made_by);
        self.events.iter().for_each(|event| file.push_str(&writer.event(event)));
        self.blobs.values().for_each(|bytes| file.push_str(&writer.blob(bytes)));
        file.push_str(&writer.end());
        file
    }

    /// The run's history, its parents' shared part first: what a run folds from.
    pub fn history(&self) -> Vec<Envelope> {
        let of_run = |event: &&Envelope| matches!(event.stream, StreamId::Run(_));
        self.events.iter().filter(of_run).cloned().collect()
    }

    /// The events of one stream.
    pub fn stream<'a>(&'a self, stream: &'a StreamId) -> impl Iterator<Item = &'a Envelope> {
        self.events.iter().filter(move |event| event.stream == *stream)
    }
}
