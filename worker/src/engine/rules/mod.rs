//! Rules that engines share: what comes before their own, the batch of calls that runs next, and the next request of a model.

pub(super) mod due_first;
pub(super) mod next_request;
pub(super) mod tool_batch;
