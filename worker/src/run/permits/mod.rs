//! What the coordinator has to permit before a model is asked: a provider's rate limit, the budget of a batch.

pub(super) mod budget;
pub(super) mod rate_limit;
