//! PostgreSQL 14 or newer: any number of coordinators on one database.

pub(in crate::store) mod advisory_locks;
mod hints;
mod lock_holders;
mod open;
mod quick;
mod scratch_schema;
mod server_link;
mod statement;
mod writer;

pub use hints::{Ears, Heard, Hint, Hints};
pub(in crate::store) use lock_holders::find_lock_holders;
pub use open::open;
pub use scratch_schema::ScratchSchema;
pub(in crate::store) use server_link::check_writable;
