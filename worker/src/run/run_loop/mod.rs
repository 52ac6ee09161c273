//! The loop: decide, record, act, record.

pub(super) mod intent;
pub(super) mod turn;
