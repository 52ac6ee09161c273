//! SQLite: one file, one writer, any number of readers.

mod open;
mod writer;

pub use open::{open, open_limited};
