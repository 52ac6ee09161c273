//! What a task waits for, and which one goes next.

pub(super) mod autoscaling;
pub(super) mod budget;
pub(super) mod choose;
pub(super) mod dependency;
pub(super) mod explain;
pub(super) mod unblock;
