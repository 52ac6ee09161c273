//! pid 1: starts the command, reaps orphans, kills the remaining processes when the command has ended, and
//! only then reports.
//!
//! A report thus means that no process of the call is running any more, and docket need not wait until the
//! kernel has removed the mounts. If the killing is cut short, the kernel ends all processes of a pid
//! namespace when pid 1 exits. Without a pid namespace (no isolation requested), this process is a subreaper
//! that kills the processes it inherits.

use std::{fs, io::Read, os::fd::AsFd};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{ForkResult, Pid},
};

use super::{
    super::plan::InitReport,
    command,
    init_context::{InitContext, SetupFailure, failed_at},
    sys,
};

/// Where the reaper runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReaperScope {
    /// As pid 1: its exit ends all others.
    PidNamespace,
    /// On the host, as a subreaper.
    Host,
}

/// Starts the command and waits until it has ended or docket is gone. Returns the exit status of the init.
pub(super) fn run_reaper(orders: InitContext, place: ReaperScope) -> i32 {
    let watched = match start_command(&orders, place) {
        Ok((child, signals)) => wait_for_command(&orders, child, &signals),
        Err(failure) => {
            InitContext::report_failure(&orders.control, failure);
            return 1;
        }
    };
    match place {
        ReaperScope::PidNamespace => kill_namespace(),
        ReaperScope::Host => kill_descendants(),
    }
    if let Some(report) = watched {
        InitContext::send_report(&orders.control, &report);
    }
    0
}

fn start_command(orders: &InitContext, place: ReaperScope) -> Result<(Pid, SignalFd), SetupFailure> {
    if place == ReaperScope::Host {
        prctl::set_child_subreaper(true).map_err(failed_at("subreaper"))?;
    }
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block().map_err(failed_at("block SIGCHLD"))?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(failed_at("signal descriptor"))?;
    match sys::fork_single_threaded().map_err(failed_at("fork the command"))? {
        ForkResult::Child => command::become_command(orders),
        ForkResult::Parent { child } => Ok((child, signals)),
    }
}

/// Returns `None` if docket closed its end first: then no report is needed.
fn wait_for_command(orders: &InitContext, child: Pid, signals: &SignalFd) -> Option<InitReport> {
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(orders.control.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
        let hung_up = fds[1].revents().is_some_and(|events| !events.is_empty());
        while let Ok(Some(_)) = signals.read_signal() {}
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, status)) if pid == child => return Some(InitReport::Exit(status)),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                    return Some(InitReport::Signal(signal as i32));
                }
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_other) => {}
            }
        }
        // docket sends nothing after the plan: anything readable is its end of file.
        if hung_up && matches!((&orders.control).read(&mut [0; 64]), Ok(0) | Err(_)) {
            return None;
        }
    }
}

/// Kills everything else in the pid namespace until pid 1 has no child. Then no process is left, because
/// orphans become children of pid 1.
fn kill_namespace() {
    loop {
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        match waitpid(Pid::from_raw(-1), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

/// Kills children until there are none; killing one hands its children to this subreaper.
fn kill_descendants() {
    let list = "/proc/thread-self/children";
    while let Ok(text) = fs::read_to_string(list) {
        let children: Vec<Pid> =
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw).collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill(child, Signal::SIGKILL);
        }
        if waitpid(Pid::from_raw(-1), None).is_err() {
            return;
        }
    }
}
