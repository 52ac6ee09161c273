//! Looking back: what a run decided, derived again from its log alone. Reads, never acts.

mod verify;

pub use verify::{Divergence, Side, Verified, VerifyError, verify};
