//! Rules that engines share: decisions that come first, the next batch of calls, and the next model request.

pub(super) mod blockers;
#[cfg(test)]
mod blockers_tests;
pub(super) mod budget;
pub(super) mod delegation;
#[cfg(test)]
mod delegation_tests;
pub(super) mod escalation;
#[cfg(test)]
mod escalation_tests;
pub(super) mod first_due;
pub(super) mod next_request;
pub(super) mod permission;
#[cfg(test)]
mod permission_tests;
pub(super) mod planning;
#[cfg(test)]
mod planning_tests;
pub(super) mod tool_batch;
pub(super) mod verification;
#[cfg(test)]
mod verification_tests;
