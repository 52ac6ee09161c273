//! Bytes of files and of commands as text that a model may read. Pure.

pub(super) mod encoding;
pub(super) mod output;
pub(super) mod signature;
