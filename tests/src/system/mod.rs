//! The whole system as a user has it: the built `docket` binary, its processes, its ports, its files.
//!
//! Suites start coordinators and workers here, wait for what they say or do, kill them by their id,
//! and read the log through the API like anybody else. Nothing in here sleeps for a result: every
//! wait looks for a fact until it is there or a generous limit has passed.
//!
//! Invariants: a process that was started here ends with the value that holds it, its run processes
//! with it, stopped ones too; two tests never share a home, a port or a database.

mod alone;
mod binary;
mod coordinator;
mod crowd;
mod disk;
mod faketime;
mod history;
mod installed;
mod postgres;
mod process;
mod procfs;
mod sample;
mod terminal;
mod wait;
mod worker;

pub use alone::{Alone, Link, alone, has_address, loopback_up};
pub use binary::docket;
pub use coordinator::{Coordinator, LeaseTime, Place};
pub use crowd::{room, say};
pub use disk::SmallDisk;
pub use faketime::SettableClock;
pub use history::{Again, Append, History};
pub use installed::{has, has_modules, is_installed};
pub use postgres::fresh_database;
pub use process::{Finished, Proc, Tool, run, run_fed, run_fed_within};
pub use procfs::{Signal, children_of, is_stopped, is_there, send, state_of};
pub use sample::{Sample, commit_all};
pub use terminal::Terminal;
pub use wait::{LONG, seen, until};
pub use worker::{Post, Worker, WorkerOptions};
