//! What people and programs see: text, tables, events in words, errors and exit codes.

pub(crate) mod display;
pub(crate) mod events;
pub(crate) mod facts;
pub(crate) mod fail;
pub(crate) mod signals;
pub(crate) mod task_rows;
pub(crate) mod words;
pub(crate) mod worker_faults;
