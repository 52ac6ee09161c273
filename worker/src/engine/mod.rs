//! Engines: what to do next, as a plain function of the recorded state.
//!
//! No clock, no randomness, no IO: the same log gives the same decision on any machine. The driver
//! performs decisions and records them; replay derives them again and compares.

mod architect;
mod asked;
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
pub(crate) mod roles;
mod rules;
mod sop;
pub mod team;

pub use self::architect::Architect;
pub use self::asked::roles_of;
pub(crate) use self::compaction::summary_call;
pub(crate) use self::core::call_options::{manner_of, role_of, texts_of, usual_output_tokens};
pub use self::core::decision::*;
pub use self::core::definition::{Engine, RoleDef, RoleError};
pub use self::plan::Plan;
pub use self::react::React;
pub use self::registry::{engine, engines, names, newest};
pub use self::review::Review;
pub(crate) use self::roles::answer::ANSWER_INLINE_BYTES_MAX;
pub(crate) use self::rules::budget::most;
pub use self::rules::budget::{FirstCall, first_call_tokens_min};
pub use self::rules::delegation::gives_nothing_away;
pub(crate) use self::rules::delegation::{Allowance, allowances, delegates, not_for_pieces};
pub(crate) use self::rules::verification::{must_parse, unverified};
pub use self::sop::Sop;
pub use self::team::Team;
