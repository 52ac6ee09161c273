//! Engines: derive the next decision as a pure function of the recorded state.
//!
//! No clock, no randomness, no I/O: the same log gives the same decision on any machine. The run executor carries
//! decisions out and records them; replay derives them again and compares.

mod architect;
mod compaction;
mod core;
mod early_end;
#[cfg(test)]
mod example_tests;
pub mod json_schema;
#[cfg(test)]
mod models_tests;
#[cfg(test)]
mod outage_tests;
mod plan;
pub mod prompt;
mod react;
#[cfg(test)]
pub(crate) mod react_tests;
mod registry;
mod review;
mod role_overrides;
pub(crate) mod roles;
mod rules;
mod sop;
pub mod team;

pub use self::architect::ArchitectEngine;
pub(crate) use self::compaction::summary_call;
pub(crate) use self::core::call_options::{
    current_role, default_output_tokens, prompt_and_tools, sampling_options,
};
pub use self::core::decision::*;
pub use self::core::definition::{Engine, RoleDefinition, RoleError};
pub use self::plan::PlanEngine;
pub use self::react::ReactEngine;
pub use self::registry::{all_engines, engine_names, find_engine, newest_engine};
pub use self::review::ReviewEngine;
pub use self::role_overrides::resolve_roles;
pub(crate) use self::roles::json_reply::ANSWER_INLINE_BYTES_MAX;
pub(crate) use self::rules::budget::max_call_cost;
pub use self::rules::budget::{FirstCallTokens, first_call_tokens_min};
pub use self::rules::delegation::cannot_delegate_reason;
pub(crate) use self::rules::delegation::{
    ChildBudget, allot_child_budgets, is_delegation, tools_denied_to_children,
};
pub(crate) use self::rules::verification::{files_that_must_parse, unverified_reason};
pub use self::sop::SopEngine;
pub use self::team::TeamEngine;
