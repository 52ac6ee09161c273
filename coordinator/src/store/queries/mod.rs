//! Reads of the log and of the projections: one statement each, on separate connections that never block a
//! writer.

pub(crate) mod batches;
pub(crate) mod budgets;
pub(crate) mod inbox;
pub(crate) mod lock_holders;
pub(crate) mod log;
pub(crate) mod overview;
pub(crate) mod queues;
pub(crate) mod report_tasks;
pub(crate) mod resolve_id;
pub(crate) mod runs;
pub(crate) mod task_list;
pub(crate) mod tasks;
pub(crate) mod workers;
