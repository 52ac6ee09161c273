//! SQLite: one file, one writer, any number of readers.

pub(in crate::store) mod direct;
mod open;
mod page;
mod private;
mod writer;

pub use open::{open, open_limited};
pub(in crate::store) use page::{PAGE_SQL, unpack};
