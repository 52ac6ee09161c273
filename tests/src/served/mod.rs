//! A named part of the conformance suite, through HTTP against a real `docket serve` with its usual settings: keys,
//! queue limits, budgets, schedules, pauses, drains, cancels. The store's own suite (`conformance`) opens stores
//! directly; here the whole coordinator runs, with listening, background jobs and two writers, as users have it.

mod budgets;
mod cancels;
mod drains;
mod keys;
mod pauses;
mod queue_limits;
mod schedules;
mod suite;
mod world;

pub use suite::{SERVED_CASES, ServedCase, run_served};
pub use world::{LeasingWorker, ServedWorld, plain_spec, wait_until_listening};
