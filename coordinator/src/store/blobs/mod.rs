//! Blobs: compressed, stored in the database or externally, read, and garbage-collected.

mod external_blobs;
pub(crate) mod gc;
mod pack;
pub(crate) mod read;

pub(crate) use external_blobs::{ExternalBlobStore, find_external_files};
pub(crate) use gc::TOUCH_INTERVAL_MS;
pub(crate) use pack::{PackedBlob, pack_blobs};
