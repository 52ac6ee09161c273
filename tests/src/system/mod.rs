//! The whole system as a user has it: the built `docket` binary, its processes, its ports, its files.
//!
//! Suites start coordinators and workers here, wait for what they say or do, kill them by their id,
//! and read the log through the API like anybody else. Nothing in here sleeps for a result: every
//! wait looks for a fact until it is there or a generous limit has passed.
//!
//! Invariants: a process that was started here ends with the value that holds it, its run processes
//! with it, stopped ones too; two tests never share a home, a port or a database.

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
