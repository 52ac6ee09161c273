//! The worker's and the CLI's client of the coordinator: every route of the API as one method.
//!
//! Responsible for connections, time limits, error types and retries; independent of leases and runs. Only
//! [`CoordinatorClient::follow_run`] retries by itself: the caller knows how long an attempt is worth
//! repeating, and passes that to [`retry_until`], or to [`CoordinatorClient::with_retry_timeout`] for all
//! calls. The exception is "too many requests": such a request had no effect, so every call repeats it after
//! the requested delay, for up to half a minute.
//!
//! Invariants: the token is sent only in the `Authorization` header; a response is read up to a fixed limit;
//! a blob is returned only if its bytes match its hash.

mod error;
mod home_address;
mod retry;
mod transport;

pub(crate) mod routes;
#[cfg(test)]
mod tests;

pub use error::ClientError;
pub use home_address::home_address;
pub use retry::retry_until;
pub(crate) use retry::retry_until_with_room;
pub use routes::blobs::UPLOADS_IN_FLIGHT;
pub use routes::tasks_and_runs::HistoryScope;
pub use transport::CoordinatorClient;
