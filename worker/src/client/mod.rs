//! The worker's and the CLI's way to the coordinator: every route of the API as one method.
//!
//! Owns connections, time limits, the shape of errors and the patience of retries; knows nothing of
//! leases or runs. Nothing here retries by itself but [`Client::follow`]: only the caller knows how
//! long an attempt is worth making, and says so with [`patiently`], or for all calls with
//! [`Client::with_patience`]. Except for "too many requests": that was
//! refused before anything was done, so every call sends it again after the wait that was asked for, for
//! half a minute at most.
//!
//! Invariants: the token stands in the `Authorization` header only; an answer is read to a named
//! limit; a blob is handed out only when its bytes have its hash.

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
