//! PostgreSQL 14 or newer: any number of coordinators on one database.

mod hints;
mod lock_free;
mod open;
mod scratch_schema;
mod server_link;
mod statement;
mod writer;

pub use open::open;
pub use scratch_schema::ScratchSchema;
