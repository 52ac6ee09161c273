//! Blobs: packed, stored in the database or outside of it, read, and collected.

mod external_blobs;
pub(crate) mod gc;
mod pack;
pub(crate) mod read;

pub(crate) use external_blobs::{ExternalBlobStore, files_of};
pub(crate) use gc::TOUCH_MS;
pub(crate) use pack::{PackedBlob, pack};
