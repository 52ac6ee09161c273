//! A named subset of the conformance suite, through HTTP against a real `docket serve` with its usual
//! settings: keys, queue limits, budgets, schedules, pauses, drains, cancels. The store's own suite
//! (`conformance`) opens stores directly; here the whole coordinator runs, with listening, background jobs
//! and two writers, as in production.

mod budgets;
mod cancels;
mod coordinator_fixture;
mod drains;
mod keys;
mod pauses;
mod queue_limits;
mod schedules;
mod suite;

pub use coordinator_fixture::{CoordinatorFixture, LeasingWorker, simple_spec, wait_until_listening};
pub use suite::{SERVED_CASES, ServedCase, run_served_cases};
