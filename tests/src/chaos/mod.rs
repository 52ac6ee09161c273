//! The chaos run: real processes, faults drawn from a seed, and a checker that reads the log afterwards.
//!
//! The checker ([`check`]) knows nothing of processes: it compares what the log holds with what clients were told while
//! it was written. What the faults are is drawn beforehand ([`Plan`]); when one strikes depends on how many tasks are
//! done, never on the clock. The stage is a network and disks of this run's own, in namespaces that end with it.

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
