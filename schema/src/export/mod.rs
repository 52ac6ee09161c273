//! Export format of a run: the single file that `docket export` writes and `docket import` reads.
//!
//! JSON Lines, one record per line, each terminated by `\n`:
//!
//! 1. `{"docket_export":{"version":1,"run":…,"task":…,"made_by":…}}`: the first line, which identifies the file;
//! 2. `{"event":{…}}`: events as recorded in the log ([`crate::event::Envelope`]; the position is 0, because it
//!    belongs to a log and not to an event). Each stream is contiguous and complete from its first event: first
//!    the task of every run, then the runs, each after the run it continues, so that the history shared with the
//!    ancestors comes first and the exported run last;
//! 3. `{"blob":{"blob":{"hash":…,"bytes":…},"content":{"text":…}}}`: every blob that these events refer to,
//!    directly or through another blob (see [`crate::blob_refs`]); with `b64` instead of `text` if it is not
//!    UTF-8;
//! 4. `{"end":{"events":…,"blobs":…,"digest":…}}`: the last line; the digest is BLAKE3 over all bytes before it.
//!
//! A file is either this text itself (`--plain`) or one zstd stream of it; `zstd -dc` converts the latter into the
//! former. Everything here is pure: bytes in, records or errors out. Callers check that each line is at most
//! [`EXPORT_LINE_BYTES_MAX`] bytes long before they load it; a reader stores only hashes and folds, no contents.
//! Errors include the line number, and nothing of a file may be used before [`ExportReader::finish`] succeeds.

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
