//! Bounds of requests and answers, each said once.

/// Most tasks of one submit.
pub const SUBMIT_TASKS_MAX: usize = 10_000;
/// Most tasks of one page of a bulk act: each is a command of its own, and a request is to end in seconds.
pub const BULK_TASKS_MAX: u32 = 500;
/// Most batches of one answer.
pub const BATCHES_MAX: usize = 100;
/// Most kinds of failures that a batch's summary tells.
pub const BATCH_MESSAGES_MAX: usize = 20;
/// Most leases of one request.
pub const LEASE_MAX: u32 = 1000;
/// Longest a long poll waits, in milliseconds.
pub const LONG_POLL_MS_MAX: u64 = 60_000;
/// Most events of one page.
pub const PAGE_EVENTS_MAX: u32 = 1000;
/// Longest text of one `tell` or answer, in bytes: it stands in every later request to the model.
pub const TELL_BYTES_MAX: usize = 32 * 1024;
/// Most tasks of one fork: each is a run that asks a model.
pub const FORK_SIBLINGS_MAX: usize = 100;
/// Most snapshots of one edit: with its `Forked` they are one append.
pub const EDIT_SNAPSHOTS_MAX: usize = 64;
/// Most runs of one lineage that is looked at.
pub const LINEAGE_VIEW_RUNS_MAX: usize = 1000;
/// Most appends of one batch.
pub const APPENDS_MAX: usize = 1024;
/// Most hashes of one `blobs/missing`.
pub const BLOB_HASHES_MAX: usize = 10_000;
/// Largest request body, in bytes. Blobs are cut to fit.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
