//! The layer between our SQL and the two databases: connections, arguments, rows.

pub(crate) mod advisory_locks;
mod conn;
mod db_error;
mod dialect;
mod migrate;
mod postgres_driver;
pub(crate) mod row;
pub(crate) mod sqlite_driver;
mod sqlite_readers;
mod stored_events;
mod values;

pub(crate) use conn::{DbConn, DbPool, PostgresEndpoint};
pub(crate) use db_error::{DbErrorKind, TransactionError, classify_error, copy_error, store_error};
pub(crate) use dialect::SqlDialect;
pub(crate) use migrate::migrate;
pub(crate) use sqlite_readers::{BUSY_MS, CACHE_SIZE, ScanRange, SqliteReaders};
pub(crate) use stored_events::{for_each_event, read_envelope, select_events_sql};
pub(crate) use values::{SqlArg, SqlRow};
