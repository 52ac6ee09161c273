//! PostgreSQL 14 or newer: any number of coordinators on one database.

mod open;
mod writer;

pub use open::open;
