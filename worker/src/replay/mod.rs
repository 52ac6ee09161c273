//! Looking back: what a run decided, derived again from its log alone. Reads, never acts.

mod divergence;
mod verify;

pub use divergence::{Difference, Divergence};
pub use verify::{Verified, VerifyError, verify};
