//! What a task waits for, and which one goes next.

pub(super) mod budget;
pub(super) mod choose;
pub(super) mod depend;
pub(super) mod unblock;
pub(super) mod wanted;
pub(super) mod why;
