//! Every route of the API as one method of the client, by subject.

pub(super) mod backlog;
pub(super) mod blobs;
pub(super) mod calls;
pub(super) mod carry;
pub(super) mod delivery;
pub(super) mod flow;
pub(super) mod follow;
pub(super) mod limits;
pub(super) mod memory;
pub(super) mod notifications;
pub(super) mod past;
pub(super) mod reports;
pub(super) mod schedules;
pub(super) mod tokens;
