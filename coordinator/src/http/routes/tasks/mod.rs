//! Routes of tasks: submit, list, steer, answer, fork, delegate.

pub(in crate::http) mod answer;
pub(in crate::http) mod batches;
pub(in crate::http) mod budgets;
pub(in crate::http) mod bulk;
pub(in crate::http) mod delegate;
pub(in crate::http) mod fork;
pub(in crate::http) mod inbox;
pub(in crate::http) mod lease;
pub(in crate::http) mod submissions;
