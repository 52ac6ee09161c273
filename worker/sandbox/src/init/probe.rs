//! Probes each kernel namespace in a separate process, so that probing changes nothing.

use std::io::Write;

use nix::{
    sched::{CloneFlags, unshare},
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, geteuid},
};
use serde::{Deserialize, Serialize};

use super::{seccomp::build_filters, sys};

/// Second argument of an init that only probes.
pub(crate) const PROBE_ARGUMENT: &str = "probe";

/// Errno of each attempt; 0 if it worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProbeReport {
    pub(crate) namespaces: Vec<(String, i32)>,
    pub(crate) seccomp: i32,
}

/// Prints the report as JSON on stdout.
pub(super) fn print_probe_report() -> i32 {
    let kinds = [
        ("userns", CloneFlags::CLONE_NEWUSER),
        ("mount", CloneFlags::CLONE_NEWNS),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("net", CloneFlags::CLONE_NEWNET),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
    ];
    let namespaces =
        kinds.into_iter().map(|(name, flag)| (name.to_owned(), run_in_child(|| try_unshare(flag)))).collect();
    let answer = ProbeReport { namespaces, seccomp: run_in_child(try_seccomp) };
    let written = serde_json::to_vec(&answer).map(|bytes| std::io::stdout().write_all(&bytes));
    i32::from(!matches!(written, Ok(Ok(()))))
}

fn run_in_child(attempt: impl FnOnce() -> i32) -> i32 {
    match sys::fork_single_threaded() {
        Ok(ForkResult::Child) => std::process::exit(attempt()),
        Ok(ForkResult::Parent { child }) => match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, status)) => status,
            Ok(_) | Err(_) => nix::libc::EIO,
        },
        Err(error) => error.raw_os_error().unwrap_or(nix::libc::EIO),
    }
}

fn try_unshare(flag: CloneFlags) -> i32 {
    let with_rights = if geteuid().is_root() { flag } else { flag | CloneFlags::CLONE_NEWUSER };
    unshare(with_rights).err().map_or(0, |errno| errno as i32)
}

fn try_seccomp() -> i32 {
    if let Err(errno) = nix::sys::prctl::set_no_new_privs() {
        return errno as i32;
    }
    let Ok(programs) = build_filters() else { return nix::libc::ENOSYS };
    let refused = programs.iter().any(|program| seccompiler::apply_filter(program).is_err());
    if refused { nix::libc::EINVAL } else { 0 }
}
