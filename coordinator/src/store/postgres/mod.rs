//! PostgreSQL 14 or newer: any number of coordinators on one database.

mod hints;
mod open;
mod statement;
mod writer;

pub use hints::{Ears, Heard, Hint, Hints};
pub use open::open;
