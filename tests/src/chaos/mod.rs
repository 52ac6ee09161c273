//! The chaos run: real processes, faults drawn from a seed, and a checker that reads the log afterwards.
//!
//! The checker ([`check`]) knows nothing of processes: it compares what the log holds with what clients were told while
//! it was written. What the faults are is drawn beforehand ([`Plan`]); when one strikes depends on how many tasks are
//! done, never on the clock. The stage is a network and disks of this run's own, in namespaces that end with it.

mod acked;
mod check;
#[cfg(test)]
mod check_tests;
mod log;
mod plan;
mod show;
mod stage;
mod tap;

pub use acked::{AckedAppend, AckedLease, AckedRenewal, Acknowledged};
pub use check::{Violation, check};
pub use log::{Log, Logged};
pub use plan::{Draws, Fault, Plan, Possible, Strike, pick};
pub use show::{Outcome, Wanted, play};
pub use stage::{On, Stage};
pub use tap::{Seen, Tap};
