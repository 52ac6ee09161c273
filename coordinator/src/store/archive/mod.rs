//! Stubs of archived streams: reads, derivation from the log, and rows.

mod archived_tasks;
mod derived_stubs;
mod stub_rows;
mod stubs;

pub(crate) use archived_tasks::{list_archived_tasks, read_end_states};
pub(crate) use derived_stubs::derive_stubs;
pub(crate) use stub_rows::{STUB_COLUMNS, STUB_ROW_COLUMNS, read_stub, stream_uuid, stub_args};
pub(crate) use stubs::{find_stub, list_ended_tasks, list_stubs};
