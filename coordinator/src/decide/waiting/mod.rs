//! What tasks wait for, and which one is leased next.

pub(super) mod autoscaling;
pub(super) mod budget;
pub(super) mod choose;
pub(super) mod dependency;
pub(super) mod explain;
pub(super) mod unblock;
