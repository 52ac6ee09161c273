//! System streams as a coordinator uses them: the folds of `system/TOPIC`, cached and tailed, and the appends
//! decided on them. Used by HTTP handlers and background jobs; depends on neither.

mod audit;
mod auth_failures;
mod imported_ranges;
mod memory;
mod permit_waiters;
mod provider_limits;
mod restore_times;
mod schedules;
mod tailed_fold;
mod token_registry;

pub use audit::write_audit;
pub(crate) use auth_failures::AuthFailureCounts;
pub use imported_ranges::ImportedRanges;
pub use memory::{ForgetOutcome, MemoryAddress, MemoryError, MemoryTable};
pub use provider_limits::ProviderLimitTable;
pub use restore_times::RestoreTimes;
pub use schedules::{FiringRound, ScheduleTable, next_firing, schedule_submitter};
pub use tailed_fold::{
    AppendRetries, CachedFold, FoldError, FoldProgress, TailedFold, append_if_first, system_append,
};
pub(crate) use token_registry::API_TOKEN_PREFIX;
pub use token_registry::{ApiToken, TokenRegistry};
