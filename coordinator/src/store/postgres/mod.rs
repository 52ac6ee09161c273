//! PostgreSQL 14 or newer: any number of coordinators on one database.

mod batch_statements;
mod hints;
mod open;
mod optimistic;
mod scratch_schema;
mod server_link;
mod writer;

pub use open::open;
pub use scratch_schema::ScratchSchema;
