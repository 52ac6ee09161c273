//! The init side: docket executed again as the init of one command.
//!
//! Nothing here runs in the docket process itself. The init starts single-threaded with an empty environment
//! and one socket as stdin, reads the plan, builds the sandbox, becomes pid 1 inside, starts the command as
//! pid 2, reports how it ended and exits, which ends everything else inside. It also exits as soon as the
//! socket closes, so that the command ends if docket dies.
//!
//! Invariant: a failure before the command's `execve` is reported, and nothing is run.

mod bubblewrap;
mod command;
mod confine;
mod init_context;
mod mounts;
mod namespaces;
mod network;
mod probe;
mod reaper;
mod seccomp;
mod start;
mod sys;

pub use start::{sandbox_init_args, sandbox_init_main};

pub(super) use confine::{FILE_BYTES as FILE_BYTES_MAX, NOFILE as FILES_OPEN_MAX};
pub(super) use probe::{PROBE_ARGUMENT, ProbeReport};
pub(super) use sys::landlock_abi;
