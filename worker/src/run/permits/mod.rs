//! Permits required before a model call: the provider's rate limit and the batch budget.

pub(super) mod budget;
pub(super) mod rate_limit;
