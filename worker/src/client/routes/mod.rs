//! Every route of the API as one method of the client, by subject.

pub(super) mod archive_and_import;
pub(super) mod blobs;
pub(super) mod delivery;
pub(super) mod follow;
pub(super) mod history;
pub(super) mod limits;
pub(super) mod memory;
pub(super) mod notifications;
pub(super) mod queues_and_workers;
pub(super) mod reports;
pub(super) mod schedules;
pub(super) mod task_lists;
pub(super) mod tasks_and_runs;
pub(super) mod tokens;
