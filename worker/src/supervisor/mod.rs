//! `docket worker`: leases tasks, gives each run its own process, and renews its lease.
//!
//! One dispatcher owns all state; there are no locks. `decide` contains its rules as a plain function, `dispatch`
//! executes the commands, `quarantine` keeps away tasks affected by a fault of this worker, `process_supervision`
//! supervises one run process from its start to the last member of its group, and `scratch` owns the folders.
//!
//! Invariants: a run process exists only while its lease is renewed; when the lease is lost the process is killed at
//! once, and when it cannot be renewed, at the instant from which another worker may have the task. The lease of a
//! process that dies is released at once. Nothing of a run outlives its process: no group member, no folder. A
//! supervisor that dies takes its runs with it through their lifeline, and the next supervisor removes its folders.

mod config;
mod decide;
mod dispatch;
mod lease_request;
mod process_supervision;
mod quarantine;
mod report;
mod scratch;
mod state;

#[cfg(test)]
mod decide_tests;
#[cfg(test)]
mod tests;

pub use config::{RunProgram, SupervisorConfig};
pub use dispatch::{PreflightReport, run_supervisor, termination_signals};
pub use report::{SupervisorEnd, SupervisorError, SupervisorReport};
pub(crate) use scratch::FAULT_NOTE_BYTES;
pub use scratch::ScratchFolder;
pub use state::{RunEnd, RunTally};
