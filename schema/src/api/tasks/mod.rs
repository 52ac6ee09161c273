//! Request and response bodies for tasks: submit, list, lease, delegate, deliver.

pub(super) mod batch;
pub(super) mod bulk;
pub(super) mod delegate;
pub(super) mod delivery;
pub(super) mod fault;
pub(super) mod fork;
pub(super) mod inbox;
pub(super) mod lease;
pub(super) mod query;
pub(super) mod task;

pub use batch::*;
pub use bulk::*;
pub use delegate::*;
pub use delivery::*;
pub use fault::*;
pub use fork::*;
pub use inbox::*;
pub use lease::*;
pub use query::*;
pub use task::*;

// The doc comments of these bodies link to the limits.
#[cfg(doc)]
pub use super::request_limits::*;
