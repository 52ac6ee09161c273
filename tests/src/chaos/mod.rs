//! The chaos test: real processes, faults drawn from a seed, and a checker that reads the log afterwards.
//!
//! The checker ([`history_check`]) knows nothing about processes: it compares the log with what clients
//! received while it was written. The faults are drawn in advance ([`FaultPlan`]); the number of finished
//! tasks triggers them, never the clock. The test has its own network and disks, in namespaces that end with
//! it.

mod acknowledgements;
mod chaos_cluster;
mod chaos_run;
mod fault_plan;
mod history_check;
#[cfg(test)]
mod history_check_tests;
mod recorded_log;
mod recording_proxy;

pub use acknowledgements::{AckedAppend, AckedLease, AckedRenewal, Acknowledged};
pub use chaos_cluster::{ChaosCluster, ChaosStore};
pub use chaos_run::{ChaosOutcome, ExpectedTask, run_chaos};
pub use fault_plan::{ChaosFault, FaultCapabilities, FaultPlan, PlannedFault, SeededRandom, choose_index};
pub use history_check::{Violation, check_history};
pub use recorded_log::{CommittedEvent, RecordedLog};
pub use recording_proxy::{ProxyRecording, RecordingProxy};
