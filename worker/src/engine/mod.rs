//! Engines: what to do next, as a plain function of the recorded state.
//!
//! No clock, no randomness, no IO: the same log gives the same decision on any machine. The driver
//! performs decisions and records them; replay derives them again and compares.

mod answer;
mod architect;
mod asked;
mod blockers;
#[cfg(test)]
mod blockers_tests;
mod budget;
mod compaction;
mod core;
mod decision;
mod delegation;
#[cfg(test)]
mod delegation_tests;
mod early_end;
mod escalation;
#[cfg(test)]
mod escalation_tests;
#[cfg(test)]
mod example_tests;
pub mod json_schema;
mod models;
#[cfg(test)]
mod models_tests;
#[cfg(test)]
mod outage_tests;
mod patching;
mod permission;
#[cfg(test)]
mod permission_tests;
mod plan;
mod planning;
#[cfg(test)]
mod planning_tests;
pub mod prompt;
mod react;
#[cfg(test)]
pub(crate) mod react_tests;
mod registry;
mod review;
mod rules;
mod seat;
mod sop;
pub mod team;
mod verification;
#[cfg(test)]
mod verification_tests;

pub(crate) use self::answer::ANSWER_INLINE_BYTES_MAX;
pub use self::architect::Architect;
pub use self::asked::roles_of;
pub(crate) use self::budget::most;
pub use self::budget::{FirstCall, first_call_tokens_min};
pub(crate) use self::compaction::summary_call;
pub(crate) use self::core::call_options::{manner_of, role_of, texts_of, usual_output_tokens};
pub use self::core::definition::{Engine, RoleDef, RoleError};
pub use self::decision::*;
pub use self::delegation::gives_nothing_away;
pub(crate) use self::delegation::{Allowance, allowances, delegates, not_for_pieces};
pub use self::plan::Plan;
pub use self::react::React;
pub use self::registry::{engine, engines, names, newest};
pub use self::review::Review;
pub use self::sop::Sop;
pub use self::team::Team;
pub(crate) use self::verification::{must_parse, unverified};
