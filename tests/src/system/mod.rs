//! The whole system as users run it: the built `docket` binary, its processes, ports and files.
//!
//! Suites start coordinators and workers here, wait for their output or state, kill them by pid, and
//! read the log through the API like any client. Nothing sleeps for a fixed time to get a result:
//! every wait polls for a condition until it holds or a generous limit has passed.
//!
//! Invariants: a process started here ends with the value that owns it, including its run processes
//! and suspended ones; two tests never share a home, a port or a database.

mod binary;
mod coordinator;
mod installed_programs;
mod namespace_isolation;
mod postgres;
mod process;
mod procfs;
mod run_history;
mod sample_repository;
mod scenario_limit;
mod settable_clock;
mod small_disk;
mod terminal;
mod wait;
mod worker;

pub use binary::docket_binary;
pub use coordinator::{CoordinatorProcess, LeaseDuration, StoreLocation};
pub use installed_programs::{has_program, has_python_modules, is_installed};
pub use namespace_isolation::{
    NetworkLink, TestIsolation, add_address, bring_loopback_up, run_in_namespaces,
};
pub use postgres::fresh_database;
pub use process::{
    FinishedProcess, RunningProcess, TestProgram, run_program, run_with_input, run_with_input_within,
};
pub use procfs::{Signal, child_pids, is_running, is_stopped, process_state, send_signal};
pub use run_history::{RecordedAppend, RepeatedWork, RunHistory};
pub use sample_repository::{SampleRepository, commit_all};
pub use scenario_limit::{acquire_scenario_slot, print_notice};
pub use settable_clock::SettableClock;
pub use small_disk::SmallDisk;
pub use terminal::DocketTerminal;
pub use wait::{WAIT_MAX, poll_until, wait_until};
pub use worker::{WorkerConnection, WorkerOptions, WorkerProcess};
