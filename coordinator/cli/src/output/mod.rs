//! Output for people and programs: text, tables, formatted events, errors and exit codes.

pub(crate) mod display;
pub(crate) mod error;
pub(crate) mod event_format;
pub(crate) mod fact_format;
pub(crate) mod signals;
pub(crate) mod task_rows;
pub(crate) mod value_format;
pub(crate) mod worker_faults;
