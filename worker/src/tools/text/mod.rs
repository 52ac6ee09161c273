//! Converts bytes of files and commands to text that a model may read. Pure.

pub(super) mod encoding;
pub(super) mod output;
pub(super) mod signature;
