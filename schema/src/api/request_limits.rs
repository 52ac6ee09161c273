//! Limits of requests and responses, each defined once.

/// Maximum number of tasks in one submit.
pub const SUBMIT_TASKS_MAX: usize = 10_000;
/// Maximum number of tasks in one page of a bulk operation. Each is a separate command, and a request should
/// finish within seconds.
pub const BULK_TASKS_MAX: u32 = 500;
/// Maximum number of batches in one response.
pub const BATCHES_MAX: usize = 100;
/// Maximum number of distinct failure messages in a batch's summary.
pub const BATCH_MESSAGES_MAX: usize = 20;
/// Maximum number of leases in one request.
pub const LEASE_MAX: u32 = 1000;
/// Maximum duration of a long poll, in milliseconds.
pub const LONG_POLL_MS_MAX: u64 = 60_000;
/// Maximum number of events in one page.
pub const PAGE_EVENTS_MAX: u32 = 1000;
/// Maximum length of one `tell` message or answer, in bytes. It becomes part of every later request to the
/// model.
pub const TELL_BYTES_MAX: usize = 32 * 1024;
/// Maximum number of tasks in one fork. Each is a run that calls a model.
pub const FORK_SIBLINGS_MAX: usize = 100;
/// Maximum number of snapshots in one edit. They are appended together with the `Forked` event.
pub const EDIT_SNAPSHOTS_MAX: usize = 64;
/// Maximum number of runs in a lineage view.
pub const LINEAGE_VIEW_RUNS_MAX: usize = 1000;
/// Maximum number of appends in one request.
pub const APPENDS_MAX: usize = 1024;
/// Maximum number of hashes in one `blobs/missing` request.
pub const BLOB_HASHES_MAX: usize = 10_000;
/// Maximum size of a request body, in bytes. Clients split blob uploads to fit.
pub const BODY_BYTES_MAX: usize = 32 * 1024 * 1024;
