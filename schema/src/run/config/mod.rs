//! What a run pins when it begins, so that each of its decisions follows from its log.

pub(super) mod external;
pub(super) mod pin;
pub(super) mod role;
pub(super) mod sampling;
pub(super) mod unverified_policy;

pub use external::*;
pub use pin::*;
pub use role::*;
pub use sampling::*;
pub use unverified_policy::*;
