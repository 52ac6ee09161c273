//! A run as one file: what `docket export` writes and `docket import` reads, in docket's own format.
//!
//! JSON Lines, one record a line, each line ended by `\n`:
//!
//! 1. `{"docket_export":{"version":1,"run":…,"task":…,"made_by":…}}`: the first line, by which the file
//!    is recognised;
//! 2. `{"event":{…}}`: events as the log holds them ([`crate::event::Envelope`]; the position is 0, for it
//!    belongs to a log and not to an event). Each stream stands in one piece, from its first event on:
//!    first the task of every run, then the runs, each standing on the one before it, so that the parents'
//!    shared part comes first and the exported run last;
//! 3. `{"blob":{"blob":{"hash":…,"bytes":…},"content":{"text":…}}}`: every blob that those events name,
//!    directly or through another blob (see [`crate::names`]); `b64` in place of `text` where it is no UTF-8;
//! 4. `{"end":{"events":…,"blobs":…,"digest":…}}`: the last line; the digest is BLAKE3 over all bytes before it.
//!
//! A file may be this text itself (`--plain`) or one zstd stream of it; `zstd -dc` turns the one into the
//! other. Everything here is pure: bytes in, records or errors out. Whoever reads bounds each line to
//! [`LINE_BYTES_MAX`] before it holds it in memory; beyond that a reader keeps hashes and folds, no contents.
//! Whatever is wrong is named with its line, and nothing of a file is to be used before [`Reader::finish`].

mod archive_reader;
mod in_memory;
mod lineage;
mod reader;
mod records;
#[cfg(test)]
mod tests;

pub use archive_reader::*;
pub use in_memory::*;
pub use lineage::*;
pub use reader::*;
pub use records::*;
