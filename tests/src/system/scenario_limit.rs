//! Limits how many scenarios run concurrently, over all tests of one process.
//!
//! A scenario mostly waits, but its processes need the machine now and then: with too many of them,
//! a supervisor would miss its heartbeats, and a test of crashes would become one of overload.

use std::sync::LazyLock;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of concurrent scenarios: a few more than the cores of a small machine.
const SCENARIOS_MAX: usize = 6;

static SCENARIO_SLOTS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(SCENARIOS_MAX));

/// Waits for a scenario slot, which is held until the permit is dropped.
///
/// # Panics
/// Never panics: the semaphore is never closed.
pub async fn acquire_scenario_slot() -> SemaphorePermit<'static> {
    SCENARIO_SLOTS.acquire().await.expect("never closed")
}

/// Prints information about a passing test for people: what was counted, what could not be tested.
#[expect(clippy::print_stderr, reason = "a part that does not run must be seen")]
pub fn print_notice(what: &str) {
    eprintln!("docket-tests: {what}");
}
